"""Indexes right intervals for coverage: how many overlap each left one, and how much of it they cover together.

An index is 32 bytes a row, of floats 48, and the distinct keys: it is built once and sent to tasks, or built in a task
from the right rows of a range of time, to which the rows of both sides are cut.
Reference: docs/algorithms/sets.md, 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, int64s, readonly
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes
from dovetail.engine.rows.keys import KeyEncoder, bound_numbers, flags_of
from dovetail.errors import DataError
from dovetail.joins.interval.index.answers import COUNT, Cell, run_cell
from dovetail.joins.interval.index.sorted import Segments
from dovetail.joins.interval.relation import USABLE, SideColumns, classify, encode_stream
from dovetail.joins.sets.kernels.coverage import coverage_of, float_coverage_of, union_stretches, union_totals

COVERED = "covered"
ROW_BYTES, FLOAT_ROW_BYTES = 32, 48
"""Of a right row in the index, of whole numbers and of floats."""
KEY_BYTES = 64
"""Of a distinct key in the index beside its text, at most."""
BUILD_BYTES = 128
"""Of a right row while its index is built in a task: the row, codes, numbers, and what sorting needs."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The columns of both sides, how they are closed, and the budget.

    `began` names the columns, one per side, that say whether a row that is cut to a range of time starts in it.
    """

    left: SideColumns
    right: SideColumns
    memory: int
    began: tuple[str, str] | None = None


class Arrays(NamedTuple):
    """Right rows by segment: codes of starts and of ends, both ascending, and the lengths of their union.

    `union` is what `union_totals` gives for whole numbers, and `union_stretches` for floats.
    """

    starts: I64
    ends: I64
    union: tuple[AnyArray, ...]
    offsets: I64
    earlier: I64
    base: AnyArray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (self.starts, self.ends, *self.union, *self.of_segments))

    @property
    def of_segments(self) -> tuple[I64, I64, AnyArray]:
        """Offsets, the numbers of rows that began earlier, and what is covered already, by segment."""
        return self.offsets, self.earlier, self.base

    def received(self) -> Arrays:
        """The arrays as input of kernels, in a task to which they were sent."""
        union = tuple(readonly(array, array.dtype) for array in self.union)
        base = readonly(self.base, self.base.dtype)
        starts, ends, offsets, earlier = map(int64s, (self.starts, self.ends, self.offsets, self.earlier))
        return Arrays(starts, ends, union, offsets, earlier, base)


class CoverIndex:
    """The right rows of a coverage. Answers of indexes of several portions add up, if rows come in order of start."""

    def __init__(
        self, asked: Coverage, arrays: Arrays, segments: Segments, encoder: KeyEncoder | None, keys: pa.RecordBatch
    ) -> None:
        """`keys` are the distinct keys in the order of the segments."""
        self.asked, self.arrays, self.keys = asked, arrays, keys
        self._segments, self._encoder = segments, encoder

    def answer(self, rows: pa.RecordBatch) -> tuple[I64, AnyArray]:
        """Per left row how many right rows overlap it, and how much of it they cover, in units of its codes."""
        own = self.asked.left
        usable, keys = _usable(own, rows, self._encoder, adding=False)
        segments = self._segments.numbers(keys, rows.num_rows)
        codes = encode_stream(rows[own.start], rows[own.end], own.closed, own.closed)
        low, high = _numbers(own, rows)
        began = np.ones(rows.num_rows, np.bool_) if self.asked.began is None else flags_of(rows[self.asked.began[0]])
        arrays = self.arrays
        measure: Callable[..., tuple[I64, AnyArray]] = coverage_of if low.dtype == np.int64 else float_coverage_of
        counts, covered = measure(
            arrays.starts,
            arrays.ends,
            *arrays.union,
            *arrays.of_segments,
            int64s(np.where(usable, segments, -1)),
            (codes.start, codes.end),
            (low, high),
            readonly(began, np.bool_),
        )
        if covered.dtype == np.int64 and covered.min(initial=0) < 0:
            raise DataError("an interval is longer than 2^63 - 1 units, too long for its covered length; shorten it.")
        return counts, covered


class Reached:
    """How far the rows of each key reach so far, by the code of the key."""

    def __init__(self, kind: type[np.float64] | type[np.int64]) -> None:
        self.lowest = -np.inf if kind is np.float64 else np.iinfo(np.int64).min
        self._codes: I64 = int64s([])
        self._reach = np.empty(0, kind)

    def of(self, codes: I64) -> AnyArray:
        """The largest end of each of these keys; the lowest number for one that has no rows yet."""
        found = np.full(len(codes), self.lowest, self._reach.dtype)
        if len(self._codes):
            at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
            found = np.where(self._codes[at] == codes, self._reach[at], found)
        return found

    def update(self, codes: I64, reach: AnyArray) -> None:
        """Set the largest end of these keys."""
        every = np.concatenate([codes, self._codes])
        self._codes, first = np.unique(every, return_index=True)
        self._reach = np.concatenate([reach, self._reach])[first]


def build_index(
    asked: Coverage, rows: pa.RecordBatch, encoder: KeyEncoder | None = None, reached: Reached | None = None
) -> CoverIndex:
    """The index of right rows; `reached` has what earlier rows cover already, and is updated."""
    own = asked.right
    encoder = encoder or (KeyEncoder([rows.schema.field(key).type for key in own.keys]) if own.keys else None)
    usable, keys = _usable(own, rows, encoder, adding=True)
    if not usable.all():
        rows = rows.filter(pa.array(usable))
        keys = None if keys is None else int64s(keys[usable])
    segments = Segments.of(keys)
    number = None if keys is None else segments.numbers(keys, rows.num_rows)
    offsets = np.zeros(segments.count + 1, np.int64)
    offsets[1:] = rows.num_rows if number is None else np.cumsum(np.bincount(number, minlength=segments.count))
    codes = encode_stream(rows[own.start], rows[own.end], own.closed, own.closed)
    order, by_end = _order(codes.start, number), _order(codes.end, number)
    numbers = _numbers(own, rows)
    kind = numbers[0].dtype.type
    reached = reached or Reached(kind)
    codes_of = int64s([0]) if segments.distinct is None else segments.distinct
    base = reached.of(codes_of)
    last = base.copy()
    start, end = (readonly(bound[order], kind) for bound in numbers)
    unite: Callable[..., tuple[AnyArray, ...]] = union_totals if kind is np.int64 else union_stretches
    union = unite(start, end, int64s(offsets), last)
    reached.update(codes_of, last)
    arrays = Arrays(
        int64s(codes.start[order]),
        int64s(codes.end[by_end]),
        tuple(readonly(array, kind) for array in union),
        int64s(offsets),
        _earlier(asked, rows, number, segments.count),
        readonly(base, kind),
    )
    keyed = rows.select(list(own.keys))
    distinct = keyed.take(pa.array(order[offsets[:-1]])) if own.keys and rows.num_rows else keyed.slice(0, 0)
    return CoverIndex(asked, arrays, segments, encoder, distinct)


def _earlier(asked: Coverage, rows: pa.RecordBatch, number: I64 | None, segments: int) -> I64:
    """The number of rows of each segment that began before the range to which they are cut."""
    if asked.began is None:
        return int64s(np.zeros(segments, np.int64))
    late = ~flags_of(rows[asked.began[1]])
    found = np.bincount(np.zeros(rows.num_rows, np.int64) if number is None else number, late, segments)
    return int64s(found.astype(np.int64))


def _order(codes: I64, number: I64 | None) -> I64:
    order = stable_order(codes)
    return order if number is None else stable_order(number, order)


def _usable(
    own: SideColumns, rows: pa.RecordBatch, encoder: KeyEncoder | None, adding: bool
) -> tuple[Bool, I64 | None]:
    """Which rows have an interval and a key that is known, and the codes of the keys."""
    usable: Bool = classify(rows[own.start], rows[own.end], own.closed) == USABLE
    if encoder is None:
        return usable, None
    keys, valid = (encoder.encode if adding else encoder.find)([rows[key] for key in own.keys])
    return usable & valid, keys


def _numbers(own: SideColumns, rows: pa.RecordBatch) -> tuple[AnyArray, AnyArray]:
    """The bounds as int64 or float64, whose differences are lengths."""
    numbers = [bound_numbers(rows[bound]) for bound in (own.start, own.end)]
    kind = np.float64 if numbers[0].dtype.kind == "f" else np.int64
    return readonly(numbers[0], kind), readonly(numbers[1], kind)


def with_answers(rows: pa.RecordBatch, found: Iterable[AnyArray]) -> pa.RecordBatch:
    """Left rows with count and covered length."""
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *(pa.array(column) for column in found)], names=[*rows.schema.names, COUNT, COVERED]
    )


def answer_range(asked: Coverage, batches: Iterable[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The answers of one range of time, from batches in which right rows come first, in order of start."""
    return run_cell(lambda first: _RangeCell(asked, first), batches, metrics)


class _RangeCell(Cell):
    """Coverage of the left rows of a range; portions of right rows share the codes of keys, and how far they reach."""

    def __init__(self, asked: Coverage, first: pa.RecordBatch) -> None:
        super().__init__((asked.left, asked.right), asked.memory, BUILD_BYTES, first)
        self.asked = asked
        self._reached: Reached | None = None
        kinds = [self.schemas["right"].field(key).type for key in asked.right.keys]
        self._encoder = KeyEncoder(kinds, self.budget.reserve("keys of the index")) if kinds else None

    def index(self, rows: pa.RecordBatch, first: bool) -> tuple[CoverIndex, Reservation]:
        """The index of a portion, and the memory that it holds."""
        held = self.budget.reserve("coverage index")
        held.grow(nbytes(rows) + BUILD_BYTES * rows.num_rows)
        floats = pa.types.is_floating(rows.schema.field(self.asked.right.start).type)
        if first or self._reached is None:
            self._reached = Reached(np.float64 if floats else np.int64)
        index = build_index(self.asked, rows, self._encoder, self._reached)
        held.resize(index.arrays.nbytes)
        return index, held

    def found(self, index: tuple[CoverIndex, Reservation], rows: pa.RecordBatch) -> Sequence[AnyArray]:
        """Counts and covered lengths."""
        return index[0].answer(rows)

    def answers(self, rows: pa.RecordBatch, found: Sequence[AnyArray]) -> pa.RecordBatch:
        """Left rows with both."""
        return with_answers(rows, found)

    def discard(self, index: tuple[CoverIndex, Reservation]) -> None:
        """Release the memory of an index."""
        index[1].close()

    def close(self) -> None:
        """Release memory and disk."""
        super().close()
        if self._encoder is not None:
            self._encoder.close()


class SentIndex(NamedTuple):
    """An index that travels to tasks: its arrays, and the distinct keys in the order of its segments."""

    asked: Coverage
    arrays: Arrays
    keys: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        """Bytes that a task holds of it, twice the keys: as they come, and as they are looked up."""
        return self.arrays.nbytes + int(2 * nbytes(self.keys) + KEY_BYTES * self.keys.num_rows)

    def open(self) -> OpenIndex:
        """The index in a task, inside its budget."""
        budget = MemoryBudget(self.asked.memory, "coverage")
        held = budget.reserve("coverage index")
        held.grow(self.arrays.nbytes + nbytes(self.keys))
        encoder, codes = None, None
        if self.asked.right.keys:
            encoder = KeyEncoder(self.keys.schema.types, budget.reserve("keys of the index"))
            codes, _ = encoder.encode(self.keys.columns)  # new keys get ascending codes, and so have the segments
        arrays = self.arrays.received()
        return OpenIndex(CoverIndex(self.asked, arrays, Segments.of(codes), encoder, self.keys), budget)


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index in a task, and its budget."""

    index: CoverIndex
    budget: MemoryBudget

    @property
    def n_rows(self) -> int:
        """The number of right rows."""
        return len(self.index.arrays.starts)

    def answers(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Left rows with count and covered length."""
        yield with_answers(rows, self.index.answer(rows))

    def close(self) -> None:
        """Nothing: the budget goes with the index."""


def sent_index(asked: Coverage, rows: pa.RecordBatch) -> SentIndex:
    """The index of these right rows, to be sent."""
    index = build_index(asked, rows)
    return SentIndex(asked, index.arrays, index.keys)
