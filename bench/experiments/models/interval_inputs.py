"""Inputs of the interval models' experiments: how many rows start at an instant, and how long they last."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.interval.cost import IntervalStatistics, summarise
from dovetail.joins.interval.operators.spec import END, START

_ROW_BYTES = 24  # start, end and number


@dataclass(frozen=True, slots=True)
class Mix:
    """One input: `rate` rows start at an instant, of which each class (share, duration) has its share.

    Rows of one class come at even steps; a mixture comes at random, as the models assume of neither.
    """

    rate: float
    classes: tuple[tuple[float, int], ...]

    @classmethod
    def even(cls, rate: float, duration: int) -> Mix:
        """Rows that all last the same."""
        return cls(rate, ((1.0, duration),))

    def __str__(self) -> str:
        if len(self.classes) == 1:
            return f"{self.rate:g} x {self.classes[0][1]}"
        parts = ", ".join(f"{share:.0%} {duration}" for share, duration in self.classes)
        return f"{self.rate:g} x ({parts})"

    def bounds(self, span: int, seed: int) -> tuple[I64, I64]:
        """Starts within `span` instants and their ends, in the order of both."""
        n = round(self.rate * span)
        if len(self.classes) == 1:
            start = np.floor(np.arange(n) * (span / n)).astype(np.int64)
            return int64s(start), int64s(start + self.classes[0][1])
        rng = np.random.default_rng([seed, n])
        start = rng.integers(0, span, n)
        cuts = np.rint(np.cumsum([share for share, _ in self.classes]) * n).astype(int)
        lasts = np.array([duration for _, duration in self.classes])
        end = start + rng.permutation(lasts[np.searchsorted(cuts, np.arange(n), side="right").clip(max=len(lasts) - 1)])
        order = np.lexsort((end, start))
        return int64s(start[order]), int64s(end[order])


@dataclass(frozen=True, slots=True)
class Pair:
    """Two inputs over the same instants."""

    left: Mix
    right: Mix
    span: int

    def __str__(self) -> str:
        return f"{self.left} with {self.right}"

    def bounds(self) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
        """Starts and ends of both."""
        return self.left.bounds(self.span, 1), self.right.bounds(self.span, 2)

    def pairs(self) -> int:
        """How many pairs overlap, from sorted bounds: those begun in time less those over."""
        (ls, le), (rs, re) = self.bounds()
        begun = np.searchsorted(np.sort(rs), le, side="left")
        over = np.searchsorted(np.sort(re), ls, side="right")
        return int((begun - over).sum())

    def statistics(self, tuple_bytes: float) -> tuple[IntervalStatistics, IntervalStatistics]:
        """What the models are told, classes included."""
        left, right = (summarise(start, end, tuple_bytes) for start, end in self.bounds())
        return left, right

    def batches(self, pieces: int, payload: int = 0) -> dict[str, list[pa.RecordBatch]]:
        """Both inputs in as many pieces, so that neither runs ahead of the other; `payload` columns of eight bytes."""
        return {
            side: _cut(_rows(side, *bounds, payload), pieces)
            for side, bounds in zip(("left", "right"), self.bounds(), strict=True)
        }


def _rows(side: str, start: I64, end: I64, payload: int) -> pa.RecordBatch:
    number = np.arange(len(start))
    columns = {START: start, END: end, f"{side}_id": number}
    return pa.record_batch(columns | {f"{side}_{i}": number + i for i in range(payload)})


def _cut(rows: pa.RecordBatch, pieces: int) -> list[pa.RecordBatch]:
    edges = np.linspace(0, rows.num_rows, pieces + 1).astype(int)
    return [rows.slice(low, high - low) for low, high in pairwise(edges.tolist()) if high > low]


def row_bytes(payload: int) -> int:
    """Bytes of a row in Arrow form without the codes, which repeat its bounds."""
    return _ROW_BYTES + 8 * payload
