"""HYBRIDJOIN: the segment of one waiting tuple is read, all tuples that ask for it are answered and leave."""

from __future__ import annotations

from dataclasses import replace

from dovetail.joins.semistream.cost.lookup import second_position
from dovetail.joins.semistream.cost.other_lookups import fullest, fullest_and_oldest, only_position
from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.setting import Policy, Setting
from dovetail.joins.semistream.cost.split import waiting_room
from dovetail.joins.semistream.cost.window import Steady, oldest_first


def steady_state(segments: Segments, capacity: float, policy: Policy) -> Steady:
    """Tuples per load under the look-up policy; without a skewed stream and a queue, all are much alike."""
    match policy.lookup:
        case "oldest":
            return oldest_first(segments, capacity)
        case "alternate" | "guarded":
            return second_position(segments, capacity, policy.position, guarded=policy.lookup == "guarded")
        case "position":
            return only_position(segments, capacity, policy.position)
        case "greedy":
            return fullest(segments, capacity)
        case "greedy_oldest":
            return fullest_and_oldest(segments, capacity)


def bound_steps(segments: Segments, policy: Policy) -> float:
    """Loads after which a tuple is answered at the latest (F6): n_p if the oldest is looked up, twice that if in turn.

    Without look-ups of the oldest tuple there is no bound.
    Reference: docs/algorithms/semistream.md, 3.4.
    """
    if policy.lookup in ("position", "greedy"):
        return float("inf")
    return float(segments.n_segments * (1 if policy.lookup == "oldest" else 2))


def predict_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """HYBRIDJOIN with segments of `segment_rows` rows; nothing is cached.

    w by the window model in place of 5.2.
    Reference: Naeem 2012, equations 5.1 to 5.4; docs/algorithms/semistream.md, 3.4.
    """
    costs = setting.costs
    room, memory = waiting_room(setting, sizes)
    segments = setting.segments(sizes.segment_rows)
    steady = steady_state(segments, room, setting.policy)
    read = costs.find_s(setting.read_bytes(sizes.segment_rows))
    return Prediction(
        algorithm="hybridjoin",
        sizes=replace(sizes, waiting_rows=room),
        w_n=0.0,
        w_s=steady.per_load,
        step_s=read + costs.probing_s(sizes.segment_rows, steady.per_load),
        miss_s=setting.matched * costs.emit + costs.evict + costs.receive + costs.admit + costs.each_found_s,
        hit_s=0.0,
        window=steady.window,
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=bound_steps(segments, setting.policy),
        memory=memory,
        segments=segments,
    )
