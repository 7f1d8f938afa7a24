"""X-HYBRIDJOIN: HYBRIDJOIN over data in order of frequency, whose most wanted rows stay in memory."""

from __future__ import annotations

from dataclasses import replace

from dovetail.joins.semistream.cost.hybridjoin import bound_steps, steady_state
from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.setting import Policy, Setting
from dovetail.joins.semistream.cost.split import waiting_room
from dovetail.joins.semistream.cost.window import Steady

_FEW = 0.02  # of the slots: so many may hold wanted tuples before the rest is looked at anew


def predict_x_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """X-HYBRIDJOIN with `cached_rows` pinned rows, d_N, and a swappable part of `segment_rows`, d_S.

    Wanted tuples take slots until the pinned rows have been tried, and these are all tried in every iteration.
    The untuned algorithm has d_N = d_S.
    w by F3x: the window model with h_S - p_N w slots.
    Reference: Naeem 2012, equations 6.1 to 6.9; docs/algorithms/semistream.md, 3.5 and 3.6.
    """
    costs, d_n = setting.costs, sizes.cached_rows
    room, memory = waiting_room(setting, sizes, ("pinned rows", setting.pinned_bytes(d_n, hashed=False)))
    segments = setting.segments(sizes.segment_rows, d_n)
    p_n = setting.p_n(d_n)
    steady = _beside_wanted(segments, room, p_n, setting.policy)
    w = min(float(room), steady.per_load / max(1 - p_n, 1 / room))
    read = costs.find_s(setting.read_bytes(sizes.segment_rows))
    each = setting.matched * costs.emit + costs.evict + costs.receive + costs.admit
    return Prediction(
        algorithm="x_hybridjoin",
        sizes=replace(sizes, waiting_rows=room),
        w_n=p_n * w,
        w_s=(1 - p_n) * w,
        step_s=read + costs.probing_s(sizes.segment_rows, steady.per_load) + costs.probing_s(d_n, w),
        miss_s=each + costs.each_found_s,
        hit_s=each,
        window=steady.window / max(1 - p_n, 1 / room),
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=bound_steps(segments, setting.policy),
        memory=memory,
        segments=segments,
    )


def _beside_wanted(segments: Segments, room: int, p_n: float, policy: Policy) -> Steady:
    """The steady state in the slots that wanted tuples leave: per load, tuples are about in proportion to slots."""
    alone = steady_state(segments, room, policy)
    w = alone.per_load / max(1 - p_n, 1 / room)
    taken = p_n * w / (1 + p_n * w / room)
    if taken > _FEW * room:
        return steady_state(segments, max(1.0, room - taken), policy)
    return replace(alone, per_load=max(1.0, alone.per_load * (1 - taken / room)))
