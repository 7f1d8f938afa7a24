"""Models of INLJ, HYBRIDJOIN and its variants with rows in memory: X-HYBRIDJOIN (both forms), CACHEJOIN, SSCJ."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.distribution import Demand, Distribution, cached_share, rank_groups
from dovetail.joins.semistream.cost.setting import NoRoomError, Policy, Prediction, Setting, waiting_room
from dovetail.joins.semistream.cost.steady import (
    Steady,
    fullest,
    fullest_and_oldest,
    oldest_first,
    only_position,
    second_position,
)
from dovetail.joins.semistream.sizes import Sizes


def predict_inlj(setting: Setting, sizes: Sizes) -> Prediction:
    """mu = 1 / (c_IO(page) + c_S + c_H + c_O); a segment is what one look-up reads, a page as a rule.

    Reference: Naeem 2012, 5.1.2, which only plots it; docs/algorithms/semistream.md, 3.3.
    """
    costs, rows = setting.costs, setting.segment_rows(sizes)
    page = setting.buffer_bytes(rows)
    if page > setting.memory:
        raise NoRoomError(f"a page of {page:,.0f} bytes does not fit in {setting.memory:,}; give more memory.")
    return Prediction(
        algorithm="inlj",
        sizes=replace(sizes, waiting=1),
        segment_rows=rows,
        w_n=0.0,
        w_s=1.0,
        step_s=costs.find_s(setting.read_bytes(rows)),
        miss_s=costs.receive + costs.probe + setting.matched * costs.emit + costs.each_found_s,
        hit_s=0.0,
        window=0.0,
        waiting=1.0,
        asked=1.0,
        bound_steps=1.0,
        memory=(("disk buffer", page),),
    )


def steady_state(segments: Demand, capacity: float, policy: Policy) -> Steady:
    """Tuples per load under the look-up policy; policies differ little without a skewed stream and a queue."""
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


def bound_steps(segments: Demand, policy: Policy) -> float:
    """Loads after which a tuple is answered at the latest (F6): n_p if the oldest is looked up, twice that if in turn.

    Without look-ups of the oldest tuple there is no bound.
    Reference: docs/algorithms/semistream.md, 3.4.
    """
    if policy.lookup in ("position", "greedy"):
        return float("inf")
    return float(segments.n_segments * (1 if policy.lookup == "oldest" else 2))


def predict_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """HYBRIDJOIN; nothing is cached.

    w by the window model in place of 5.2.
    Reference: Naeem 2012, equations 5.1 to 5.4; docs/algorithms/semistream.md, 3.4.
    """
    costs, rows = setting.costs, setting.segment_rows(sizes)
    room, memory = waiting_room(setting, sizes)
    segments = setting.segments(rows)
    steady = steady_state(segments, room, setting.policy)
    read = costs.find_s(setting.read_bytes(rows))
    return Prediction(
        algorithm="hybridjoin",
        sizes=replace(sizes, waiting=room),
        segment_rows=rows,
        w_n=0.0,
        w_s=steady.per_load,
        step_s=read + costs.probing_s(rows, steady.per_load),
        miss_s=setting.matched * costs.emit + costs.evict + costs.receive + costs.admit + costs.each_found_s,
        hit_s=0.0,
        window=steady.window,
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=bound_steps(segments, setting.policy),
        memory=memory,
        segments=segments,
    )


_FEW = 0.02  # share of the slots that tuples of pinned rows may hold before the rest is computed again


def predict_x_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """X-HYBRIDJOIN with d_N pinned rows and a swappable part of d_S rows.

    Tuples of pinned rows take slots until the pinned rows are probed; every iteration probes all of them.
    The untuned algorithm has d_N = d_S.
    w by F3x: the window model with h_S - p_N w slots.
    Reference: Naeem 2012, equations 6.1 to 6.9; docs/algorithms/semistream.md, 3.5 and 3.6.
    """
    costs, d_s = setting.costs, setting.segment_rows(sizes)
    d_n = setting.pinned_rows(sizes)
    room, memory = waiting_room(setting, sizes, ("pinned rows", setting.pinned_bytes(d_n, hashed=False)))
    segments = setting.segments(d_s, d_n)
    p_n = setting.p_n(d_n)
    steady = _beside_wanted(segments, room, p_n, setting.policy)
    w = min(float(room), steady.per_load / max(1 - p_n, 1 / room))
    read = costs.find_s(setting.read_bytes(d_s))
    each = setting.matched * costs.emit + costs.evict + costs.receive + costs.admit
    return Prediction(
        algorithm="x_hybridjoin",
        sizes=replace(sizes, waiting=room),
        segment_rows=d_s,
        w_n=p_n * w,
        w_s=(1 - p_n) * w,
        step_s=read + costs.probing_s(d_s, steady.per_load) + costs.probing_s(d_n, w),
        miss_s=each + costs.each_found_s,
        hit_s=each,
        window=steady.window / max(1 - p_n, 1 / room),
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=bound_steps(segments, setting.policy),
        memory=memory,
        kept_rows=d_n,
        segments=segments,
    )


def _beside_wanted(segments: Demand, room: int, p_n: float, policy: Policy) -> Steady:
    """The steady state in the slots that tuples of pinned rows leave: tuples per load follow the number of slots."""
    alone = steady_state(segments, room, policy)
    w = alone.per_load / max(1 - p_n, 1 / room)
    taken = p_n * w / (1 + p_n * w / room)
    if taken > _FEW * room:
        return steady_state(segments, max(1.0, room - taken), policy)
    return replace(alone, per_load=max(1.0, alone.per_load * (1 - taken / room)))


_ROUNDS = 500

_SUMMED = 60  # up to this threshold, terms are added one by one

_LOGISTIC = 1.702  # 1 / (1 + exp(-1.702 z)) is within 0.01 of the normal distribution


def learned_share(distribution: Distribution, cached: int, capacity: float, threshold: int | None = None) -> float:
    """p_N of a cache of `cached` rows filled by frequency detection beside `capacity` waiting tuples.

    A row enters when a load finds at least `threshold` tuples waiting for it: a Poisson number of mean p T, T growing
    from the first filling of the queue to 2 h_S / (1 - p_N) as the cache takes tuples away. The first rows to pass fill
    it, so that a low threshold lets in rows that are rarely requested. Later evictions barely change this under the
    printed rule, whose threshold only rises; under the adaptive rule they keep the cache current. None as threshold
    takes `suitable_threshold`.
    Reference: Naeem 2012, 8.2.3; docs/algorithms/semistream.md, 3.8.
    """
    count, wanted = rank_groups(distribution)
    if threshold is None:
        threshold = suitable_threshold(distribution, cached, capacity)
    inside = np.zeros_like(wanted)
    window = capacity
    for number in range(_ROUNDS):
        entering = (1 - inside) * at_least(wanted * window, threshold)
        room, arriving = cached - float(np.sum(count * inside)), float(np.sum(count * entering))
        inside = inside + entering * min(1.0, room / max(arriving, 1e-300))
        p_n = float(np.sum(count * wanted * inside))
        if arriving >= room or (number and arriving < 1e-3 * cached):
            break
        window = 2 * capacity / max(1 - p_n, 1e-6)
    return min(p_n, cached_share(distribution, cached))


def suitable_threshold(
    distribution: Distribution, cached: int, capacity: float, least: int = 2, most: float = float("inf")
) -> int:
    """The smallest start value that at most as many rows pass as the cache holds, and at least `least`.

    `most`: tuples of a micro-batch, which bound the window.
    """
    if cached >= distribution.rows:
        return least
    window = min(most, 2 * capacity / max(1 - cached_share(distribution, cached), 1e-6))
    ranks = np.array([cached, cached + 1.0])
    marginal = float(np.diff(distribution.share(ranks))[0])
    return max(least, int(np.ceil(marginal * window)))


def at_least(mean: F64, threshold: int) -> F64:
    """The probability that a Poisson number is at least `threshold`; a large one is taken as normally distributed."""
    if threshold > _SUMMED:
        z = (mean - threshold + 0.5) / np.sqrt(np.maximum(mean, 1e-300))
        return 1 / (1 + np.exp(-_LOGISTIC * np.clip(z, -40.0, 40.0)))
    term = np.exp(-mean)
    below = term.copy()
    for k in range(1, threshold):
        term = term * mean / k
        below += term
    chance: F64 = np.clip(1 - below, 0.0, 1.0)
    return chance


def predict_optimised_x_hybridjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """Optimised X-HYBRIDJOIN: the pinned rows of data in order of frequency, h_R, in a hash table.

    Corrected: the table has overhead, misses were probed too, and by flow balance w = w_S / (1 - p_N) (F3).
    Reference: Naeem 2012, equations 7.1 to 7.9; docs/algorithms/semistream.md, 3.7.
    """
    kept = setting.pinned_rows(sizes)
    table = ("pinned rows", setting.pinned_bytes(kept, hashed=True))
    return _beside_table("optimised_x_hybridjoin", setting, sizes, kept, setting.p_n(kept), table)


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
    kept = min(sizes.cached or 0, setting.master_rows)
    p_n, table = setting.p_n(kept), ("cached rows", kept * setting.cached_bytes)
    if setting.policy.cache != "perfect" and kept:
        room, _ = waiting_room(setting, sizes, table)
        together = min(room, setting.batch_rows or room)
        threshold = setting.policy.threshold
        if setting.policy.cache == "adaptive":  # its threshold converges from any start value
            most = setting.batch_rows or math.inf
            rising = suitable_threshold(setting.distribution, kept, together, threshold or 2, most)
            threshold = max(threshold or 0, rising)
        p_n = learned_share(setting.distribution, kept, together, threshold)
    return _beside_table("cachejoin", setting, sizes, kept, p_n, table)


def _beside_table(
    algorithm: str, setting: Setting, sizes: Sizes, kept: int, p_n: float, table: tuple[str, float]
) -> Prediction:
    """A join with `kept` rows in a hash table that answers the share p_N of the stream."""
    costs, rows, counted = setting.costs, setting.segment_rows(sizes), algorithm == "cachejoin"
    room, memory = waiting_room(setting, sizes, table)
    segments = setting.segments(rows, kept)
    steady = steady_state(segments, room, setting.policy)
    step_s = costs.find_s(setting.read_bytes(rows))
    step_s += costs.probing_s(rows, steady.per_load)
    if counted:
        step_s += costs.compare * min(rows, steady.per_load)
        step_s += costs.admit / max(16.0, segments.n_segments / 80)
    emit = setting.matched * costs.emit
    p_n = min(p_n, 1 - 1e-9)
    return Prediction(
        algorithm=algorithm,
        sizes=replace(sizes, waiting=room),
        segment_rows=rows,
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
        kept_rows=kept,
        segments=segments,
    )
