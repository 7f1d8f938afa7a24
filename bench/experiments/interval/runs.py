"""Local runs of the interval joins: what each counted and how long it took, its pairs checked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from bench.experiments.interval.data import Side
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import DataError
from dovetail.joins.interval.cost import Algorithm
from dovetail.joins.interval.operators import (
    DisjointPartitionJoin,
    ForwardScanJoin,
    Frames,
    OverlapPartitionJoin,
    SortMergeJoin,
    TimeSweepJoin,
)
from dovetail.joins.interval.relation import Relation


class TopOverlaps:
    """The `k` longest overlaps of the pairs offered so far, and how many pairs were offered."""

    def __init__(self, left: tuple[I64, I64], right: tuple[I64, I64], k: int = 100) -> None:
        self.left, self.right, self.k = left, right, k
        self.best: I64 = np.empty(0, np.int64)
        self.pairs = 0
        self._found: I64 = np.empty(0, np.int64)

    def offer(self, left: I64, right: I64) -> None:
        """Pairs by their row numbers."""
        self.pairs += left.size
        if self._found.size < left.size:
            self._found = np.empty(left.size, np.int64)
        floor = int(self.best.min()) if self.best.size == self.k else 0
        n = overlaps_above(left, right, *self.left, *self.right, floor, self._found)
        if n:
            together = np.concatenate([self.best, self._found[:n]])
            self.best = np.sort(together)[-self.k :]


@kernel
def overlaps_above(
    left: I64, right: I64, l_start: I64, l_end: I64, r_start: I64, r_end: I64, floor: int, out: I64
) -> int:
    """Write the overlaps longer than `floor` to `out`; how many there are."""
    n = 0
    for i in range(left.size):
        a, b = left[i], right[i]
        length = min(l_end[a], r_end[b]) - max(l_start[a], r_start[b])
        if length > floor:
            out[n] = length
            n += 1
    return n


JOINS: dict[str, Any] = {
    "DIP": DisjointPartitionJoin,
    "FS": ForwardScanJoin,
    "OIP": OverlapPartitionJoin,
    "SM": SortMergeJoin,
    "TS": TimeSweepJoin,
}
"""The five local joins by the source's short names, in the order of its tables."""
MODELS: dict[str, Algorithm] = {
    "DIP": "dip",
    "FS": "forward_scan",
    "OIP": "oip",
    "SM": "sort_merge",
    "TS": "time_sweep",
}
Form = Literal["count", "empty", "top", "rows"]
ROWS_A_BATCH = 8_192
AMPLE = "8GB"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run counted; `seconds` is the time of the join alone, input already in memory."""

    seconds: float
    pairs: int
    compared: int
    spills: int
    frames_written: int
    frames_read: int
    peak: int
    metrics: Metrics

    @property
    def frames(self) -> int:
        """Frames written and read."""
        return self.frames_written + self.frames_read

    @property
    def moved(self) -> bool:
        """Whether anything went to disk."""
        return self.metrics.value("rows_written") > 0


def run(
    name: str,
    left: Side,
    right: Side,
    expected: int,
    *,
    relation: str = "overlapping",
    strict: bool = False,
    form: Form = "count",
    frames: Frames | None = None,
    k: int = 100,
    budget: str = AMPLE,
    **options: Any,
) -> Ran:
    """Run one of the five joins; DataError unless it finds exactly the expected number of pairs.

    Forms of the result, as in the source: only counted; formed as pairs and thrown away; the `k` longest overlaps kept;
    or whole rows.
    """
    emit = {"count": "count", "empty": "pairs", "top": "pairs", "rows": "rows"}[form]
    spec = JOINS[name](relation=Relation.parse(relation, strict), emit=emit, frames=frames, **options)
    schemas = {"left": left.rows.schema, "right": right.rows.schema}
    top = TopOverlaps((left.starts, left.ends), (right.starts, right.ends), k)
    with spec.open(MemoryBudget(budget), schemas) as operator:
        began = time.perf_counter()
        given = 0
        for answer in operator.join(batches(left), batches(right)):
            given += answer.num_rows
            if form == "top":
                top.offer(answer["left"].to_numpy(), answer["right"].to_numpy())
        seconds = time.perf_counter() - began
        metrics: Metrics = operator.metrics
    found = metrics.value("pairs")
    if found != expected or (form != "count" and given != expected):
        raise DataError(f"{name} found {found:,} pairs of {left.name}, {relation}; there are {expected:,}.")
    return _ran(seconds, found, metrics)


def _ran(seconds: float, found: int, metrics: Metrics) -> Ran:
    return Ran(
        seconds,
        found,
        metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive"),
        metrics.value("spills"),
        metrics.value("frames_written"),
        metrics.value("frames_read"),
        metrics.value("active_peak"),
        metrics,
    )


def best(times: int, *args: Any, **options: Any) -> Ran:
    """The quickest of so many runs."""
    return min((run(*args, **options) for _ in range(times)), key=lambda ran: ran.seconds)


def warm() -> None:
    """Compile, or load, what the joins run on, so that no figure includes it."""
    forms: tuple[Form, ...] = ("count", "top", "rows")
    few = Side("warm", pa.record_batch({"_start": [0, 1, 2], "_end": [2, 3, 4], "id": [0, 1, 2]}))
    for name in JOINS:
        for form in forms:
            run(name, few, few, 7, form=form)


def batches(side: Side) -> Iterator[pa.RecordBatch]:
    """The input in batches, as a scan delivers it."""
    rows = side.rows
    return (rows.slice(at, ROWS_A_BATCH) for at in range(0, rows.num_rows, ROWS_A_BATCH))
