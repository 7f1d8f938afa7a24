"""Nested-loop join: tests every pair of rows. Slow and simple, and so the reference for other joins.

It gathers with Arrow's own `take` and compares with Arrow's own functions, so that it shares no code with the joins
that are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorBase, OperatorError
from dovetail.engine.rows.layout import HOWS, How, Key, check_columns, join_layout, key_pairs
from dovetail.engine.storage.spool import Spool
from dovetail.errors import PlanError

Test = Callable[[pa.RecordBatch, pa.RecordBatch], pa.Array]
_Rows = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on pairs of rows: `test` takes two batches of equal length and gives one boolean per row, null as no.

    Only the columns named here reach the test. `text` is what `explain` shows.
    """

    test: Test
    left: tuple[str, ...]
    right: tuple[str, ...]
    text: str = "predicate"


@dataclass(frozen=True, slots=True)
class NestedLoopJoin:
    """Pairs of rows with equal keys that satisfy the predicate, in time proportional to left rows x right rows.

    Null keys match nothing; NaN equals NaN and 0.0 equals -0.0, as in Spark. A key given by one name appears once in
    the result. Order is unspecified. Both sides are buffered in three eighths of the budget, or on disk; the rest is
    for one block of each side, the pairs that are tested at a time and the results being built, so that the smallest
    budget is that of a few rows.
    """

    on: tuple[Key, ...] = ()
    predicate: Predicate | None = None
    how: How = "inner"
    suffixes: tuple[str, str] = ("", "_right")

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise PlanError(f"unknown how={self.how!r}; there are {list(HOWS)}.")
        if not self.on and self.predicate is None:
            raise PlanError("a nested-loop join needs keys (on=...) or a predicate, or both; neither was given.")

    @property
    def sides(self) -> tuple[str, ...]:
        """Left and right."""
        return ("left", "right")

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> NestedLoopOperator:
        """The running join; `PlanError` when columns are missing or keys cannot be compared."""
        return NestedLoopOperator(self, budget, schemas["left"], schemas["right"], spill_dir)

    def explain(self) -> str:
        """The join in one line."""
        keys = ", ".join(a if a == b else f"{a}={b}" for a, b in key_pairs(self.on)) or "none"
        where = f", where={self.predicate.text}" if self.predicate else ""
        return f"NestedLoopJoin: how={self.how}, on={keys}{where}"


class NestedLoopOperator(OperatorBase):
    """A nested-loop join in progress: both sides are spooled, and joined block by block at the end."""

    def __init__(
        self, spec: NestedLoopJoin, budget: MemoryBudget, left: pa.Schema, right: pa.Schema, spill_dir: Path | None
    ) -> None:
        self._spec, self._keys = spec, key_pairs(spec.on)
        self._layout = join_layout(left, right, spec.on, spec.how, spec.suffixes)
        super().__init__(self._layout.schema, budget)
        self._check(left, right)
        rows = budget.child("rows", max(1, 3 * budget.limit // 8))
        self._share = max(1, budget.limit // 8)
        self._sides = {
            side: self.own(Spool(schema, rows, budget, self._share // 2, side, spill_dir))
            for side, schema in (("left", left), ("right", right))
        }
        self._pairs = self.own(budget.reserve("pairs"))
        self._answer = self.own(budget.reserve("answer"))

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the batch; answers come with `finish`."""
        if side not in self._sides:
            raise OperatorError(f"a nested-loop join has sides {list(self._sides)}, not {side!r}.")
        self.metrics.add("rows_in", batch.num_rows, side, per_task=True)
        self._sides[side].append(batch)
        return iter(())

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Every answer."""
        for left in self._sides["left"].read():
            matched = np.zeros(left.num_rows, np.bool_)
            for right in self._sides["right"].read():
                yield from self._joined(left, right, matched)
            yield from self._left_rows(left, matched)
        if self._spec.how in ("right", "full"):
            yield from self._unmatched_right()
        self._report()

    def _joined(self, left: pa.RecordBatch, right: pa.RecordBatch, matched: _Mask) -> Iterator[pa.RecordBatch]:
        for i, j in self._matches(left, right):
            matched[i] = True
            if self._spec.how not in ("left_semi", "left_anti"):
                self.metrics.add("pairs", len(i), unit="pairs")
                yield from self._answers(left, i, right, j)

    def _left_rows(self, left: pa.RecordBatch, matched: _Mask) -> Iterator[pa.RecordBatch]:
        wanted = {"left": ~matched, "full": ~matched, "left_anti": ~matched, "left_semi": matched}.get(self._spec.how)
        if wanted is not None:
            yield from self._answers(left, np.flatnonzero(wanted), None, None)

    def _unmatched_right(self) -> Iterator[pa.RecordBatch]:
        # A second pass with the roles exchanged, rather than a flag for every right row, which may not fit.
        for right in self._sides["right"].read():
            matched = np.zeros(right.num_rows, np.bool_)
            for left in self._sides["left"].read():
                for _, j in self._matches(left, right):
                    matched[j] = True
            yield from self._answers(None, None, right, np.flatnonzero(~matched))

    def _matches(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[tuple[_Rows, _Rows]]:
        """Row numbers of matching pairs, a bounded number of pairs tried at a time."""
        lefts, rights = self._compared(left, 0), self._compared(right, 1)
        # Two row numbers, the gathered values, and as much again for the intermediate results of the test.
        pair_bytes = 2 * (16 + _widest_row(lefts) + _widest_row(rights))
        at_once = max(1, self._share // pair_bytes)
        for start in range(0, left.num_rows * right.num_rows, at_once):
            size = min(at_once, left.num_rows * right.num_rows - start)
            with self._pairs as charged:
                charged.grow(size * pair_bytes)
                i, j = np.divmod(np.arange(start, start + size, dtype=np.int64), right.num_rows)
                hits = self._tested(lefts.take(pa.array(i)), rights.take(pa.array(j)))
                self.metrics.add("comparisons", size, unit="pairs")
                yield i[hits], j[hits]

    def _compared(self, batch: pa.RecordBatch, side: int) -> pa.RecordBatch:
        predicate = self._spec.predicate
        asked = () if predicate is None else (predicate.left, predicate.right)[side]
        return batch.select(list(dict.fromkeys([pair[side] for pair in self._keys] + list(asked))))

    def _tested(self, left: pa.RecordBatch, right: pa.RecordBatch) -> _Mask:
        hits = np.ones(left.num_rows, np.bool_)
        for a, b in self._keys:
            hits &= _equal(left.column(a), right.column(b))
        predicate = self._spec.predicate
        if predicate is not None:
            asked = left.select(list(predicate.left)), right.select(list(predicate.right))
            hits &= _as_mask(predicate.test(*asked))
        return hits

    def _answers(
        self, left: pa.RecordBatch | None, i: _Rows | None, right: pa.RecordBatch | None, j: _Rows | None
    ) -> Iterator[pa.RecordBatch]:
        width = sum(_widest_row(side) for side in (left, right) if side is not None) + 2 * len(self.schema)
        rows = len(i if i is not None else j if j is not None else ())
        at_once = max(1, self._share // (2 * max(1, width)))
        for start in range(0, rows, at_once):
            part = slice(start, min(start + at_once, rows))
            with self._answer as charged:
                charged.grow((part.stop - part.start) * 2 * width)
                batch = self._layout.batch(
                    self._taken("left", left, i, part),
                    self._taken("right", right, j, part) if self._layout.right or self._layout.shared else None,
                )
                self.metrics.add("rows_out", batch.num_rows)
                yield batch

    def _taken(self, side: str, batch: pa.RecordBatch | None, rows: _Rows | None, part: slice) -> pa.RecordBatch:
        if batch is not None and rows is not None:
            return batch.take(pa.array(rows[part]))
        schema, n = self._sides[side].schema, part.stop - part.start
        return pa.RecordBatch.from_arrays([pa.nulls(n, field.type) for field in schema], names=schema.names)

    def _report(self) -> None:
        for side, spool in self._sides.items():
            self.metrics.add("spilled", spool.spill.bytes_written, side, unit="bytes")
            self.metrics.add("spill_reads", spool.spill.bytes_read, side, unit="bytes")

    def _check(self, left: pa.Schema, right: pa.Schema) -> None:
        if self._spec.predicate is not None:
            check_columns(left, self._spec.predicate.left, "left")
            check_columns(right, self._spec.predicate.right, "right")
        for a, b in self._keys:
            kind = left.field(a).type
            try:
                _equal(pa.array([], kind), pa.array([], kind))
            except pa.ArrowNotImplementedError as error:
                raise PlanError(
                    f"keys {a!r} and {b!r} are {kind}, which cannot be compared for equality; "
                    f"join on their parts, or on text made of them."
                ) from error


def _equal(left: pa.Array, right: pa.Array) -> _Mask:
    if pa.types.is_dictionary(left.type):
        left, right = left.dictionary_decode(), right.dictionary_decode()
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return _as_mask(same)


def _as_mask(hits: pa.Array) -> _Mask:
    return np.asarray(pc.fill_null(pa.array(hits), False), np.bool_)


def _widest_row(batch: pa.RecordBatch) -> int:
    """An upper bound of the bytes that any one row of the batch takes when gathered."""
    return sum(_widest_value(column) for column in batch.columns)


def _widest_value(column: pa.Array) -> int:
    kind = column.type
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return 9 + int(pc.max(pc.binary_length(column)).as_py() or 0)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return 1 + (int(kind.bit_width) + 7) // 8
    return 1 + int(column.nbytes)  # nested: no row is wider than all rows together
