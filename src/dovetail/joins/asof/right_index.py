"""Indexes right rows by (key, time), one row for each, and looks left rows up in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.point_join import Found
from dovetail.engine.rows.columns import take_columns, valid_rows
from dovetail.engine.rows.keys import KeyEncoder, bound_codes, bound_numbers
from dovetail.engine.rows.ties import tie_order
from dovetail.joins.asof.kernels.search import Runs, entries_after, entries_before

if TYPE_CHECKING:
    from dovetail.joins.asof.operator import AsofJoin


class RightIndex:
    """The right rows of an as-of join, sorted; of rows with equal key and time only the one that wins the tie.

    All rows must be usable. The caller reserves memory for the rows and `ROW_BYTES` for each; distinct keys are
    charged to `budget`, which may refuse (`BudgetExceeded`).
    """

    def __init__(self, spec: AsofJoin, rows: pa.RecordBatch, budget: MemoryBudget) -> None:
        self.spec, self.rows = spec, rows
        self._held = budget.reserve("keys of the index")
        self._encoder: KeyEncoder | None = None
        times = bound_codes(rows[spec.on[1]])
        order = stable_order(times)
        keys: I64 | None = None
        try:
            if spec.by:
                self._encoder = KeyEncoder([rows[right].type for _, right in spec.by], self._held)
                keys, _ = self._encoder.encode([rows[right] for _, right in spec.by])
                order = stable_order(keys, order)
        except BaseException:
            self.close()
            raise
        keys, times = None if keys is None else keys[order], times[order]
        same = _same_as_before(keys, times)
        if same.any():
            chosen = _winners(spec, rows, order, same)
            order, times, keys = order[chosen], times[chosen], None if keys is None else keys[chosen]
        self.order, self.times = order, int64s(times)
        starts = _run_starts(keys, len(times))
        run_keys = np.zeros(len(starts), np.int64) if keys is None else keys[starts]
        self._runs = Runs.of(run_keys, int64s(np.append(starts, len(times))), self.times)
        self._numbers = self._measured(rows[spec.on[1]])[order] if self._measures else None

    @property
    def _measures(self) -> bool:
        return self.spec.tolerance is not None or self.spec.direction == "nearest"

    def _measured(self, times: pa.Array) -> AnyArray:
        """Numbers whose differences are distances: doubles, or codes as unsigned numbers, which cannot overflow."""
        numbers = bound_numbers(times)
        return numbers.astype(np.float64) if numbers.dtype.kind == "f" else int64s(numbers).view(np.uint64)

    def find(self, rows: pa.RecordBatch) -> Found:
        """The right row that belongs to each left row; left rows are usable."""
        spec = self.spec
        column = rows[spec.on[0]]
        times, known = bound_codes(column), None
        keys = np.zeros(rows.num_rows, np.int64)
        if self._encoder is not None:
            keys, known = self._encoder.find([rows[left] for left, _ in spec.by])
        sought = self._runs, keys, times, spec.allow_exact
        before = entries_before(*sought) if spec.direction != "forward" else None
        after = entries_after(*sought) if spec.direction != "backward" else None
        entries = self._chosen(before, after, column)
        if known is not None and not known.all():
            entries = np.where(known, entries, -1)
        found = int64s(np.where(entries >= 0, self.order[entries], -1)) if len(self.order) else entries
        return Found(None, found)

    def _chosen(self, before: I64 | None, after: I64 | None, times: pa.Array) -> I64:
        """One entry a row: of two the nearer, and of equally near ones the earlier; none beyond the tolerance."""
        if before is None or after is None:
            only = before if before is not None else after
            assert only is not None, "a direction has one entry or two"  # noqa: S101  (by the caller)
            if self.spec.tolerance is None or not len(self.times):
                return only
            return np.where(self._distances(only, times) <= self.spec.tolerance, only, -1)
        if not len(self.times):
            return before
        far, near = self._distances(before, times), self._distances(after, times)
        chosen = np.where((before >= 0) & ((after < 0) | (far <= near)), before, after)
        if self.spec.tolerance is None:
            return chosen
        return np.where(np.where(chosen == before, far, near) <= self.spec.tolerance, chosen, -1)

    def _distances(self, entries: I64, times: pa.Array) -> AnyArray:
        """The distance of each entry from the time of its row; undefined for no entry."""
        assert self._numbers is not None, "distances are kept where they are asked for"  # noqa: S101  (by _measures)
        mine, theirs = self._measured(times), self._numbers[np.maximum(entries, 0)]
        if mine.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                return np.where(mine == theirs, 0.0, np.abs(mine - theirs))  # two infinities have no difference
        later = mine.view(np.int64) >= theirs.view(np.int64)
        return np.where(later, mine - theirs, theirs - mine)

    def ends(self, last: bool) -> pa.RecordBatch:
        """The last or the first row of every key."""
        at = self._runs.starts[1:] - 1 if last else self._runs.starts[:-1]
        return take_columns(self.rows, int64s(self.order[at]))

    def unique(self) -> pa.RecordBatch:
        """The rows that are indexed: one for each key and time."""
        return take_columns(self.rows, int64s(self.order))

    def close(self) -> None:
        """Release the memory of the keys."""
        if self._encoder is not None:
            self._encoder.close()
        self._held.close()


def usable_rows(rows: pa.RecordBatch, on: str, by: list[str]) -> Bool:
    """Which rows can match: their time is neither null nor NaN and no key is null."""
    usable = valid_rows(rows[on])
    if pa.types.is_floating(rows[on].type):
        usable = usable & ~np.isnan(bound_numbers(rows[on]))
    for key in by:
        usable = usable & valid_rows(rows[key])
    return usable


def _same_as_before(keys: I64 | None, times: I64) -> Bool:
    same = np.zeros(len(times), np.bool_)
    same[1:] = times[1:] == times[:-1]
    if keys is not None:
        same[1:] &= keys[1:] == keys[:-1]
    return same


def _run_starts(keys: I64 | None, n: int) -> npt.NDArray[np.intp]:
    if keys is None or n == 0:
        return np.zeros(min(n, 1), np.intp)
    return np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))


def _winners(spec: AsofJoin, rows: pa.RecordBatch, order: I64, same: Bool) -> npt.NDArray[np.intp]:
    """Of sorted rows, the places of those that are alone at their key and time, and of one row of each tie."""
    tied = same.copy()
    tied[:-1] |= same[1:]
    at = np.flatnonzero(tied)
    groups = np.cumsum(~same)[at]
    ranked = tie_order(groups, rows, order[at], spec.tie_order)
    ends = groups[ranked]
    wins = np.append(True, ends[1:] != ends[:-1]) if spec.tie == "first" else np.append(ends[1:] != ends[:-1], True)
    chosen = ~tied
    chosen[at[ranked[wins]]] = True
    return np.flatnonzero(chosen)
