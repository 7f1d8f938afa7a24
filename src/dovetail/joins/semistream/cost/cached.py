"""Optimised X-HYBRIDJOIN, CACHEJOIN and SSCJ: a hash table of wanted master rows is tried before a tuple waits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from dovetail.joins.semistream.cost.hybridjoin import bound_steps, steady_state
from dovetail.joins.semistream.cost.learned import learned_share, suitable_threshold
from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.cost.split import waiting_room


def predict_optimised_x_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """Optimised X-HYBRIDJOIN: the first `cached_rows` rows of data in order of frequency, h_R, in a hash table.

    Corrected: the table has overhead, misses were probed too, and by flow balance w = w_S / (1 - p_N) (F3).
    Reference: Naeem 2012, equations 7.1 to 7.9; docs/algorithms/semistream.md, 3.7.
    """
    return _prediction("optimised_x_hybridjoin", setting, sizes, setting.p_n(sizes.cached_rows), counted=False)


def predict_cachejoin(setting: Setting, sizes: Sizes) -> Prediction:
    """CACHEJOIN: the table is filled by counting the tuples that a load answers for each row.

    Corrected: frequencies are compared for rows that matched only, and with the adaptive rule one row is exchanged
    about every max(16, n_p / 80) loads.
    Reference: Naeem 2012, equations 8.1 and 8.2; docs/algorithms/semistream.md, 3.8.
    """
    return _learned(setting, sizes)


def predict_sscj(setting: Setting, sizes: Sizes) -> Prediction:
    """SSCJ: CACHEJOIN that gives up the least frequent row of its table, which changes little in the steady state."""
    return replace(_learned(setting, sizes), algorithm="sscj")


@lru_cache(maxsize=1024)
def _learned(setting: Setting, sizes: Sizes) -> Prediction:
    p_n = setting.p_n(sizes.cached_rows)
    if setting.policy.cache != "perfect" and sizes.cached_rows:
        room, _ = waiting_room(setting, sizes, _table(setting, sizes, counted=True))
        together = min(room, setting.batch_rows or room)
        threshold = setting.policy.threshold
        if setting.policy.cache == "adaptive":  # its threshold finds its own level, from wherever it starts
            most = setting.batch_rows or math.inf
            rising = suitable_threshold(setting.distribution, sizes.cached_rows, together, threshold or 2, most)
            threshold = max(threshold or 0, rising)
        p_n = learned_share(setting.distribution, sizes.cached_rows, together, threshold)
    return _prediction("cachejoin", setting, sizes, p_n, counted=True)


def _table(setting: Setting, sizes: Sizes, *, counted: bool) -> tuple[str, float]:
    if not counted:
        return "pinned rows", setting.pinned_bytes(sizes.cached_rows, hashed=True)
    return "cached rows", sizes.cached_rows * (setting.cached_bytes + setting.entries.cached_counter)


def _prediction(algorithm: str, setting: Setting, sizes: Sizes, p_n: float, *, counted: bool) -> Prediction:
    costs = setting.costs
    room, memory = waiting_room(setting, sizes, _table(setting, sizes, counted=counted))
    segments = setting.segments(sizes.segment_rows, sizes.cached_rows)
    steady = steady_state(segments, room, setting.policy)
    step_s = costs.find_s(setting.read_bytes(sizes.segment_rows))
    step_s += costs.probing_s(sizes.segment_rows, steady.per_load)
    if counted:
        step_s += costs.compare * min(sizes.segment_rows, steady.per_load)
        step_s += costs.admit / max(16.0, segments.n_segments / 80)
    emit = setting.matched * costs.emit
    p_n = min(p_n, 1 - 1e-9)
    return Prediction(
        algorithm=algorithm,
        sizes=replace(sizes, waiting_rows=room),
        w_n=steady.per_load * p_n / (1 - p_n),
        w_s=steady.per_load,
        step_s=step_s,
        miss_s=costs.probe + emit + costs.evict + costs.receive + costs.admit + costs.each_found_s,
        hit_s=costs.probe + emit + costs.receive,
        window=steady.window / (1 - p_n),
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=bound_steps(segments, setting.policy),
        memory=memory,
        segments=segments,
    )
