"""SSIJ: tuples that cached segments do not answer are collected, then every segment they ask for is read once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.cost.split import waiting_room


def segments_asked(segments: Segments, tuples: float) -> float:
    """Segments that at least one of so many tuples asks for."""
    return float(np.sum(segments.count * -np.expm1(-segments.share * tuples)))


def follows(segments: Segments, tuples: float, scattered: int | None = None) -> float:
    """The share of loads in order that start where the last one ended.

    Segments alike in demand are neighbours, unless they lie `scattered` among so many, resident ones too.
    """
    asked = -np.expm1(-segments.share * tuples)
    total = float(np.sum(segments.count * asked))
    if scattered is not None:
        return min(1.0, total / scattered) if scattered else 0.0
    return float(np.sum(segments.count * asked * asked)) / total if total else 0.0


def phase_read_s(setting: Setting, segment_rows: int, segments: Segments, tuples: float, resident: int = 0) -> float:
    """Seconds of one read in a join phase of so many tuples; the `resident` segments are not among those read.

    The first one follows none: the phase before ended at the other end of the master data.
    """
    scattered = None if setting.order == "frequency" else segments.n_segments + resident
    nbytes, in_turn = setting.read_bytes(segment_rows), follows(segments, tuples, scattered)
    in_turn *= 1 - 1 / max(1.0, segments_asked(segments, tuples))
    costs = setting.costs
    return in_turn * costs.load_s(nbytes, sequential=True) + (1 - in_turn) * costs.load_s(nbytes)


def predict_ssij(setting: Setting, sizes: Sizes) -> Prediction:
    """SSIJ with the `cached_rows` / `segment_rows` segments cached that are asked for most.

    Our model, the sources have none: a join phase answers h_S tuples with one load for each segment that one of them
    asks for, sum 1 - exp(-p_i h_S): about half the tuples per load of HYBRIDJOIN, as nothing is admitted in between.
    Loads go in the order of the master data, so that one whose neighbour is asked for too follows the last one.
    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.5 and 3.10.
    """
    costs, kept = setting.costs, sizes.cached_rows // sizes.segment_rows
    table = ("cached segments", setting.resident_bytes(kept, sizes.segment_rows, hashed=False))
    room, memory = waiting_room(setting, sizes, table)
    p_n, segments = setting.segments(sizes.segment_rows).without_top(kept)
    p_n = min(p_n, 1 - 1e-9)
    loads = max(1.0, segments_asked(segments, room))
    per_load = max(1.0, room / loads)
    emit = setting.matched * costs.emit
    read = phase_read_s(setting, sizes.segment_rows, segments, room, kept)
    return Prediction(
        algorithm="ssij",
        sizes=replace(sizes, waiting_rows=room),
        w_n=per_load * p_n / (1 - p_n),
        w_s=per_load,
        step_s=read + costs.probing_s(sizes.segment_rows, per_load),
        miss_s=costs.probe + emit + costs.evict + costs.receive + costs.admit,
        hit_s=costs.probe + emit + costs.receive,
        window=room / (1 - p_n),
        waiting=room / 2,
        asked=loads / 2,
        bound_steps=loads,
        memory=memory,
        segments=segments,
    )
