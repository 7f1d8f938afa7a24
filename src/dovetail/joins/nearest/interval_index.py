"""Indexes right intervals by (key, start), and finds the nearest ones of left intervals.

A right row that starts before a left one ends overlaps it or lies before it: of these rows the nearest are those that
end last, whether they overlap or not. Of the others, which lie after it, the nearest are those that start first.
Reference: docs/algorithms/interval.md, 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.point_join import Found
from dovetail.engine.rows.columns import take_columns, valid_rows
from dovetail.engine.rows.keys import KeyEncoder, bound_codes, bound_numbers
from dovetail.engine.rows.ties import tie_order
from dovetail.joins.interval.relation import USABLE, classify
from dovetail.joins.nearest.kernels.nearest import nearest_rows, sorted_runs, top_places

if TYPE_CHECKING:
    from dovetail.joins.nearest.operator import NearestJoin


class IntervalIndex:
    """The right rows of a nearest join, sorted by key and start; then the last end first, then by their columns.

    All rows must be usable. The caller reserves memory for the rows and `ROW_BYTES` for each; distinct keys are
    charged to `budget`, which may refuse (`BudgetExceeded`).
    """

    def __init__(self, spec: NearestJoin, rows: pa.RecordBatch, budget: MemoryBudget) -> None:
        self.spec, self.rows = spec, rows
        self._held = budget.reserve("keys of the index")
        self._encoder: KeyEncoder | None = None
        starts, ends = (spec.mirror(bound_codes(rows[name])) for name in spec.bounds("right"))
        order = stable_order(starts)
        keys = np.zeros(rows.num_rows, np.int64)
        try:
            if spec.by:
                self._encoder = KeyEncoder([rows[right].type for _, right in spec.by], self._held)
                keys, _ = self._encoder.encode([rows[right] for _, right in spec.by])
                order = stable_order(keys, order)
            self.order = _without_ties(rows, order, keys, starts, ends)
        except BaseException:
            self.close()
            raise
        keys, self._starts = keys[self.order], starts[self.order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.intp)
        numbers = [spec.mirror(_numbers(rows[name]))[self.order] for name in spec.bounds("right")]
        at = np.append(first, len(keys)).astype(np.int64)
        self._runs = sorted_runs(keys[first], at, numbers[0], numbers[1], spec.k)

    def find(self, rows: pa.RecordBatch) -> Found:
        """The nearest right rows of each left row, nearest first, with their distances; left rows are usable."""
        spec = self.spec
        keys, known = np.zeros(rows.num_rows, np.int64), np.ones(rows.num_rows, np.bool_)
        if self._encoder is not None:
            keys, known = self._encoder.find([rows[left] for left, _ in spec.by])
        starts, ends = (spec.mirror(_numbers(rows[name])) for name in spec.bounds("left"))
        left, places, distances = nearest_rows(self._runs, spec.wanted, keys, known, starts, ends)
        found = int64s(np.where(places >= 0, self.order[places], -1)) if len(self.order) else places
        return Found(left, found, (pa.array(distances, mask=places < 0),))

    def ends(self, last: bool) -> pa.RecordBatch:
        """Of every key the k rows that end last, or that start first."""
        if last:
            return take_columns(self.rows, int64s(self.order[top_places(self._runs)]))
        at = self._runs.at
        return take_columns(self.rows, int64s(self.order[_heads(at[:-1], at[1:], self.spec.k)]))

    def unique(self) -> pa.RecordBatch:
        """The rows without those that k others with their key and start outlast."""
        if not len(self.order):
            return self.rows
        fresh = np.append(True, self._starts[1:] != self._starts[:-1])
        fresh[self._runs.at[:-1]] = True
        starts = np.flatnonzero(fresh)
        return take_columns(
            self.rows, int64s(self.order[_heads(starts, np.append(starts[1:], len(fresh)), self.spec.k)])
        )

    def close(self) -> None:
        """Release the memory of the keys."""
        if self._encoder is not None:
            self._encoder.close()
        self._held.close()


def usable_rows(rows: pa.RecordBatch, bounds: tuple[str, str], by: list[str], closed: str) -> Bool:
    """Which rows can match: bounds in order and neither null nor NaN, an interval that is not empty, no null key."""
    usable: Bool = classify(rows[bounds[0]], rows[bounds[1]], closed) == USABLE  # type: ignore[arg-type]  # one of Closed
    for key in by:
        usable = usable & valid_rows(rows[key])
    return usable


def _numbers(bounds: pa.Array) -> AnyArray:
    numbers = bound_numbers(bounds)
    return numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers


def _heads(starts: AnyArray, stops: AnyArray, k: int) -> AnyArray:
    """The places start, start + 1, ... of each run, at most k of it."""
    lengths = np.minimum(stops - starts, k)
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _without_ties(rows: pa.RecordBatch, order: I64, keys: I64, starts: I64, ends: I64) -> I64:
    """The order by key and start, with rows of one key and start by end, the last first, and then by columns."""
    same = np.zeros(len(order), np.bool_)
    same[1:] = (starts[order[1:]] == starts[order[:-1]]) & (keys[order[1:]] == keys[order[:-1]])
    if not same.any():
        return order
    tied = same.copy()
    tied[:-1] |= same[1:]
    at = np.flatnonzero(tied)
    chosen = order[at]
    groups = int64s(np.cumsum(~same)[at])
    by_end = stable_order(groups, stable_order(~ends[chosen]))
    chosen, apart = chosen[by_end], ends[chosen[by_end]]
    finer = np.cumsum(np.append(True, (groups[1:] != groups[:-1]) | (apart[1:] != apart[:-1])))
    out = order.copy()
    out[at] = chosen if finer[-1] == len(finer) else chosen[tie_order(finer, rows, chosen)]
    return int64s(out)
