"""Models of joins that read many segments in order: MESHJOIN and R-MESHJOIN, SSIJ, and the partition-based join.

The disk buffer that serves MESHJOIN best has a closed form.
Reference: equation F5 of docs/algorithms/semistream.md, 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.distribution import Demand
from dovetail.joins.semistream.cost.setting import Prediction, Setting, capacity, waiting_room
from dovetail.joins.semistream.cost.steady import Steady
from dovetail.joins.semistream.sizes import Sizes


def seek_equivalent_bytes(setting: Setting, *, sequential: bool = False) -> float:
    """a: the bytes whose transfer and probing take as long as one seek, from the costs of 64 KiB and 1 MiB."""
    costs = setting.costs
    small, large = 65_536.0, 1_048_576.0
    low, high = (costs.load_s(size, sequential=sequential) for size in (small, large))
    per_byte = max(0.0, high - low) / (large - small)
    seek = max(0.0, low - per_byte * small)
    return seek / (per_byte + costs.probe / setting.row_bytes) if seek else 0.0


def best_buffer_bytes(memory: float, a: float) -> float:
    """b* = -a + sqrt(a^2 + a M), about sqrt(a M): where b (M - b) / (a + b) is largest."""
    return -a + math.sqrt(a * a + a * memory)


def predict_meshjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """MESHJOIN with a disk buffer of d rows: w tuples enter and leave with each of n_p reads of a round.

    w = (M - b v_P) / (v_S + n_p (f v_S + q)), whole and at least 1; output is paid per result, not per master row.
    Reference: Naeem 2012, equations 3.1 to 3.5; docs/algorithms/semistream.md, 3.1.
    """
    n_p = -(-setting.master_rows // setting.segment_rows(sizes))
    per_tuple = setting.stream_bytes + n_p * setting.entries.chunked
    return _prediction("meshjoin", setting, sizes, n_p, per_tuple)


def predict_r_meshjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """R-MESHJOIN: the buffer is worked through in `parts` parts, tuples enter and leave after each of them.

    h_S = (M - b v_P) / (f v_S + q) tuples in n_p l chunks. One part is MESHJOIN without a stream buffer in the count.
    Reference: Naeem 2012, equations 4.1 to 4.5; docs/algorithms/semistream.md, 3.2.
    """
    chunks = -(-setting.master_rows // setting.segment_rows(sizes)) * (sizes.parts or 1)
    return _prediction("r_meshjoin", setting, sizes, chunks, chunks * setting.entries.chunked)


def _prediction(algorithm: str, setting: Setting, sizes: Sizes, chunks: int, chunk_bytes: float) -> Prediction:
    spare = setting.entries.chunk_spare * setting.entries.chunked * chunks
    rows = setting.segment_rows(sizes)
    buffer = setting.buffer_bytes(rows) + spare
    costs, parts = setting.costs, (sizes.parts or 1) if algorithm == "r_meshjoin" else 1
    if sizes.waiting is None:
        w = capacity(setting, sizes, buffer, chunk_bytes)
    else:
        w = capacity(setting, sizes, buffer, setting.entries.chunked, least=chunks) // chunks
    nbytes = setting.read_bytes(rows)
    in_turn, anywhere = costs.load_s(nbytes, sequential=True), costs.load_s(nbytes)
    reading = in_turn + (anywhere - in_turn) * parts / chunks  # a round begins again at the other end
    return Prediction(
        algorithm=algorithm,
        sizes=replace(sizes, waiting=w * chunks),
        segment_rows=rows,
        w_n=0.0,
        w_s=float(w),
        step_s=(reading + rows * costs.probe) / parts,
        miss_s=costs.evict + costs.receive + costs.admit + setting.matched * costs.emit,
        hit_s=0.0,
        window=float(w * chunks),
        waiting=float(w * chunks),
        asked=float(chunks // parts),
        bound_steps=float(chunks),
        memory=(("disk buffer", buffer), ("waiting tuples", w * chunk_bytes)),
        steps_per_load=parts,
    )


def segments_asked(segments: Demand, tuples: float) -> float:
    """The expected number of segments that at least one of `tuples` tuples asks for."""
    return float(np.sum(segments.count * -np.expm1(-segments.share * tuples)))


def follows(segments: Demand, tuples: float, scattered: int | None = None) -> float:
    """The share of loads in order that start where the last one ended.

    Segments of equal demand are neighbours, unless they are spread over `scattered` segments, resident ones included.
    """
    asked = -np.expm1(-segments.share * tuples)
    total = float(np.sum(segments.count * asked))
    if scattered is not None:
        return min(1.0, total / scattered) if scattered else 0.0
    return float(np.sum(segments.count * asked * asked)) / total if total else 0.0


def phase_read_s(setting: Setting, segment_rows: int, segments: Demand, tuples: float, resident: int = 0) -> float:
    """Seconds of one read in a join phase of `tuples` tuples; the `resident` segments are not read.

    The first read is not sequential: the phase before ended at the other end of the master data.
    """
    scattered = None if setting.order == "frequency" else segments.n_segments + resident
    nbytes, in_turn = setting.read_bytes(segment_rows), follows(segments, tuples, scattered)
    in_turn *= 1 - 1 / max(1.0, segments_asked(segments, tuples))
    costs = setting.costs
    return in_turn * costs.load_s(nbytes, sequential=True) + (1 - in_turn) * costs.load_s(nbytes)


def predict_ssij(setting: Setting, sizes: Sizes) -> Prediction:
    """SSIJ with the most requested segments resident.

    Our model, the sources have none: a join phase answers h_S tuples with one load for each segment that one of them
    asks for, sum 1 - exp(-p_i h_S): about half the tuples per load of HYBRIDJOIN, as nothing is admitted in between.
    Loads go in the order of the master data, so that loads of neighbouring segments are sequential.
    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.5 and 3.10.
    """
    costs, kept, rows = setting.costs, sizes.resident or 0, setting.segment_rows(sizes)
    table = ("cached segments", setting.resident_bytes(kept, rows, hashed=False))
    room, memory = waiting_room(setting, sizes, table)
    p_n, segments = setting.segments(rows).without_top(kept)
    p_n = min(p_n, 1 - 1e-9)
    loads = max(1.0, segments_asked(segments, room))
    per_load = max(1.0, room / loads)
    emit = setting.matched * costs.emit
    read = phase_read_s(setting, rows, segments, room, kept)
    return Prediction(
        algorithm="ssij",
        sizes=replace(sizes, waiting=room),
        segment_rows=rows,
        w_n=per_load * p_n / (1 - p_n),
        w_s=per_load,
        step_s=read + costs.probing_s(rows, per_load),
        miss_s=costs.probe + emit + costs.evict + costs.receive + costs.admit,
        hit_s=costs.probe + emit + costs.receive,
        window=room / (1 - p_n),
        waiting=room / 2,
        asked=loads / 2,
        bound_steps=loads,
        memory=memory,
        kept_rows=kept * rows,
        segments=segments,
    )


LOW_WATER = 0.9
"""The share of the waiting tuples at which answering the longest lists stops."""

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Stream tuples between two loads of a segment, and the tuples that wait for it on average."""

    gap: F64
    waiting: F64


def longest_first(
    segments: Demand, capacity: float, max_age: float | None = None, threshold: float = float("inf")
) -> Steady:
    """The steady state if lists of `threshold` tuples are answered, and the longest lists once `capacity` tuples wait.

    Our model, the sources have none. Answering stops at the low-water mark, so that it happens every D = 0.1 h_S
    tuples, and takes all lists of at least theta tuples: a segment is loaded every max(D, theta / p_i + D / 2) tuples;
    or when it has `threshold` tuples, or D / 2 after its first tuple has become `max_age` old, if that is sooner. Lists
    grow evenly, so that half of p_i times the gap waits; theta is where that makes (1 + 0.9) h_S / 2, unless the
    threshold keeps memory from ever being full. Within 5 % of simulated counts.
    """
    rules = _Rules(capacity, max_age, threshold)
    low, high = 1e-6, max(capacity, 1.0)
    room = (1 + LOW_WATER) / 2 * capacity
    never_full = _held(segments, high, rules) - float(np.sum(segments.count)) / 2 <= capacity
    for _ in range(0 if never_full else _HALVINGS):
        theta = (low * high) ** 0.5
        low, high = (theta, high) if _held(segments, theta, rules) < room else (low, theta)
    cycle = _cycle(segments, high, rules)
    loads = float(np.sum(segments.count / cycle.gap))
    # No tuple asks for a segment until its first tuple arrives.
    asked = float(np.sum(segments.count * (1 - np.minimum(1.0, 1 / (segments.share * cycle.gap)))))
    per_load = min(max(1.0, 1 / loads if loads else 1.0), max(1.0, capacity))
    return Steady(per_load, float(cycle.gap.max(initial=0.0)), min(_held(segments, high, rules), capacity), asked)


@dataclass(frozen=True, slots=True)
class _Rules:
    """When a segment is loaded."""

    capacity: float
    max_age: float | None
    threshold: float


def _held(segments: Demand, theta: float, rules: _Rules) -> float:
    return float(np.sum(segments.count * _cycle(segments, theta, rules).waiting))


def _cycle(segments: Demand, theta: float, rules: _Rules) -> _Cycle:
    p, every = segments.share, (1 - LOW_WATER) * rules.capacity
    gap = np.minimum(np.maximum(every, theta / p + every / 2), rules.threshold / p)
    gap = np.maximum(gap, 1 / p)
    if rules.max_age is None:
        return _Cycle(gap, p * gap / 2)
    age = rules.max_age + every / 2
    aged = 1 / p + age < gap
    return _Cycle(
        np.where(aged, 1 / p + age, gap),
        np.where(aged, age * (1 + p * age / 2) / (1 / p + age), p * gap / 2),
    )


def predict_partitioned(setting: Setting, sizes: Sizes) -> Prediction:
    """The partition-based join with the most requested segments resident.

    Without `max_age` in the policy nothing bounds how long a tuple of a rare segment waits.
    Reference: Naeem 2012, 2.4.3; docs/algorithms/semistream.md, 2.4 and 3.10.
    """
    costs, kept, rows = setting.costs, sizes.resident or 0, setting.segment_rows(sizes)
    table = ("resident segments", setting.resident_bytes(kept, rows, hashed=True))
    room, memory = waiting_room(setting, sizes, table)
    p_n, segments = setting.segments(rows).without_top(kept)
    p_n = min(p_n, 1 - 1e-9)
    max_age, threshold = setting.policy.max_age, setting.policy.list_threshold
    if threshold is None:
        threshold = 2.0 * -(-room // max(1, segments.n_segments + kept))
    steady = longest_first(segments, room, None if max_age is None else max_age * (1 - p_n), threshold)
    emit = setting.matched * costs.emit
    read = costs.load_s(setting.read_bytes(rows))
    w = steady.per_load / (1 - p_n)
    return Prediction(
        algorithm="partitioned",
        sizes=replace(sizes, waiting=room),
        segment_rows=rows,
        w_n=p_n * w,
        w_s=steady.per_load,
        step_s=read + costs.probing_s(rows, steady.per_load),
        miss_s=costs.probe + emit + costs.evict + costs.receive + costs.admit,
        hit_s=costs.probe + emit + costs.receive,
        window=steady.window / (1 - p_n),
        waiting=steady.waiting,
        asked=steady.asked,
        bound_steps=float("inf") if max_age is None else max_age / w + 1,
        memory=memory,
        kept_rows=kept * rows,
        segments=segments,
    )
