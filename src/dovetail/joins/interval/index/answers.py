"""Answers questions about left rows without forming pairs: left rows probe an index of the right rows.

The number of matches of a left row, whether it has any, and its first match each take a few searches in sorted arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.exchange.delivery import RowDelivery
from dovetail.engine.kernels.arrays import AnyArray
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes, one_batch, take_columns
from dovetail.engine.rows.keys import KeyEncoder
from dovetail.engine.storage.spool import Spool
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.relation import Relation, SideColumns, classify, encode_stream

Kind = Literal["count", "left_semi", "left_anti", "first", "last", "any"]
COUNT = "n_overlaps"
INDEX_BYTES = 112  # of a right row while its index is built: the row, two orders, and what sorting needs


@dataclass(frozen=True, slots=True)
class Question:
    """A question about each left row; `outer` keeps rows without a match if the kind is first, last or any.

    `started` names the columns, one per side, that say whether a row starts in this cell: a pair is then counted only
    in the cell in which one of the two starts.
    """

    kind: Kind
    relation: Relation
    left: SideColumns
    right: SideColumns
    memory: int
    outer: bool = False
    started: tuple[str, str] | None = None


class RightIndex:
    """The right rows of a question, indexed; charged to the budget until closed."""

    def __init__(self, question: Question, rows: pa.RecordBatch, budget: MemoryBudget) -> None:
        from dovetail.joins.interval.operators.spec import RowBytes  # the driver, which asks, needs no operators

        self.question, self.budget = question, budget
        self.table = question.relation.table()
        own, other = question.right, question.left
        self._held = budget.reserve("right rows")
        self._held.grow(nbytes(rows))
        usable = classify(rows[own.start], rows[own.end], own.closed) == 0
        self._keys = KeyEncoder([rows.schema.field(key).type for key in own.keys]) if own.keys else None
        keys: npt.NDArray[np.int64] | None = None
        if self._keys is not None:
            keys, valid = self._keys.encode([rows[key] for key in own.keys])
            usable &= valid
        codes = encode_stream(rows[own.start], rows[own.end], own.closed, other.closed)
        self.positions = np.flatnonzero(usable)
        chosen = None if keys is None else keys[usable]
        self.rows = rows
        self._weights = RowBytes(rows.schema).each(rows)
        self.index = OverlapIndex.build(chosen, codes.start[usable], codes.end[usable], budget, codes.h, codes.shift)

    def ask(self, rows: pa.RecordBatch, kind: Kind) -> npt.NDArray[np.int64]:
        """Per left row: the number of matches, 1 or 0 for whether there is one, or the right row's position or -1."""
        own, other = self.question.left, self.question.right
        usable = classify(rows[own.start], rows[own.end], own.closed) == 0
        keys: npt.NDArray[np.int64] | None = None
        if self._keys is not None:
            keys, valid = self._keys.find([rows[key] for key in own.keys])
            usable &= valid
        keys = None if keys is None else keys[usable]
        codes = encode_stream(rows[own.start], rows[own.end], own.closed, other.closed)
        some = (keys, codes.start[usable], codes.end[usable], self.table)
        if kind in ("first", "last", "any"):
            answer = np.full(rows.num_rows, -1, np.int64)
            found = getattr(self.index, kind)(*some)
            answer[usable] = np.where(
                found >= 0, self.positions[np.maximum(found, 0)] if len(self.positions) else -1, -1
            )
            return answer
        answer = np.zeros(rows.num_rows, np.int64)
        answer[usable] = self.index.count(*some) if kind == "count" else self.index.exists(*some)
        return answer

    def weights(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bytes of the right rows at these positions; a few for no row."""
        some = self._weights[np.maximum(found, 0)] if len(self._weights) else np.ones(len(found), np.int64)
        return np.where(found >= 0, some, 1)

    @property
    def n_rows(self) -> int:
        """The number of right rows, those that match nothing among them."""
        return int(self.rows.num_rows)

    def answers(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Left rows with their answers; right rows are added in as large batches as the budget allows."""
        from dovetail.joins.interval.operators.spec import stretches  # as above

        question = self.question
        found = self.ask(rows, question.kind)
        if question.kind in ("count", "left_semi", "left_anti"):
            yield finished(question, rows, found, None)
            return
        weights = self.weights(found)
        for first, last in stretches(weights, rows.num_rows, min(question.memory // 8, self.budget.available)):
            with self.budget.reserve("answers") as held:
                held.grow(int(weights[first:last].sum()))
                yield finished(question, rows.slice(first, last - first), found[first:last], self.rows)

    def close(self) -> None:
        """Release the memory."""
        self.index.close()
        self._held.close()


@dataclass(frozen=True, slots=True)
class SentRight:
    """A question and all right rows, as Arrow bytes, on their way to tasks."""

    question: Question
    right: bytes

    def open(self) -> RightIndex:
        """The index of the right rows in a task."""
        rows = one_batch(pa.ipc.open_stream(self.right).read_all())
        return RightIndex(self.question, rows, MemoryBudget(self.question.memory, "interval answers"))


def sent_right(question: Question, right: pa.Table) -> SentRight:
    """The right rows of a question, to be sent."""
    output = pa.BufferOutputStream()
    with pa.ipc.new_stream(output, right.schema) as writer:
        writer.write_table(right.combine_chunks())
    return SentRight(question, output.getvalue().to_pybytes())


def finished(question: Question, rows: pa.RecordBatch, found: AnyArray, right: pa.RecordBatch | None) -> pa.RecordBatch:
    """Left rows with their answer: with a count or a right row added, or filtered."""
    kind = question.kind
    if kind == "count":
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(found)], names=[*rows.schema.names, COUNT])
    if kind in ("left_semi", "left_anti"):
        return rows.filter(pa.array((found > 0) == (kind == "left_semi")))
    assert right is not None, "a right row was asked for, but the right rows are not there"  # noqa: S101  (our callers)
    if not question.outer:
        rows, found = rows.filter(pa.array(found >= 0)), found[found >= 0]
    matched = take_columns(right, found)
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *matched.columns], names=[*rows.schema.names, *right.schema.names]
    )


def answer_cell(
    question: Question, batches: Iterable[pa.RecordBatch], metrics: Metrics | None = None
) -> Iterator[pa.RecordBatch]:
    """The answers of one cell (count, semi or anti) from batches in which all right rows come first."""
    return run_cell(lambda first: _QuestionCell(question, first), batches, metrics)


def run_cell(
    make: Callable[[pa.RecordBatch], Cell], batches: Iterable[pa.RecordBatch], metrics: Metrics | None = None
) -> Iterator[pa.RecordBatch]:
    """The answers of a cell, which is made when the first batch is there."""
    run: Cell | None = None
    try:
        for batch in batches:
            run = run or make(batch)
            yield from run.take(batch)
        if run is not None:
            yield from run.finish()
            if metrics is not None:
                metrics.merge(run.metrics)
    finally:
        if run is not None:
            run.close()


class Cell:
    """Answers about the left rows of a cell from an index of its right rows, which come first.

    Right rows that do not fit the budget are indexed in portions; left rows are then spooled, as many at a time as the
    budget can hold answers for, and read once per portion. Answers of portions are added up.
    """

    def __init__(
        self, sides: tuple[SideColumns, SideColumns], memory: int, row_bytes: int, first: pa.RecordBatch
    ) -> None:
        """`row_bytes` is what a right row takes while it is indexed."""
        self.metrics = Metrics()
        self.budget, self._memory = MemoryBudget(memory, "interval answers"), memory
        self._delivery = RowDelivery(sides[0].columns, sides[1].columns, first, self.budget, 0.0)
        self.schemas = self._delivery.schemas
        self._right, self._left = self._spool("right"), self._spool("left")
        room = memory // 8
        self._left_rows = max(1024, room // 16)  # left rows whose answers are held at once
        self._portion_rows = max(1024, memory // 2 // row_bytes)
        self._portion_bytes, self._right_bytes = room * INDEX_BYTES // max(INDEX_BYTES, row_bytes), 0
        self._whole: Any = None

    @abstractmethod
    def index(self, rows: pa.RecordBatch, first: bool) -> Any:
        """The index of a portion of right rows; `first` of those that are read in order."""

    @abstractmethod
    def found(self, index: Any, rows: pa.RecordBatch) -> Sequence[AnyArray]:
        """The answers of left rows from a portion, as columns."""

    @abstractmethod
    def answers(self, rows: pa.RecordBatch, found: Sequence[AnyArray]) -> pa.RecordBatch:
        """Left rows with their answers."""

    @abstractmethod
    def discard(self, index: Any) -> None:
        """Release the memory of an index."""

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep right rows; answer left rows, or keep them if there are several portions."""
        found = {side: rows for side, rows, _ in self._delivery.by_side(batch)}
        if (right := found.get("right")) is not None:
            self._right.append(right)
            self._right_bytes += nbytes(right)
        if (rows := found.get("left")) is None:
            return
        if self._right.rows > self._portion_rows or self._right_bytes > self._portion_bytes:
            self._left.append(rows)
            if self._left.rows >= self._left_rows:
                yield from self._by_portions()
            return
        if self._whole is None:
            self._whole = self.index(one_batch(pa.Table.from_batches(self._right.read(), self.schemas["right"])), True)
        yield self.answers(rows, self.found(self._whole, rows))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The answers of left rows that were kept."""
        if self._left.rows:
            yield from self._by_portions()
        self._delivery.record(self.metrics, self.budget)

    def _by_portions(self) -> Iterator[pa.RecordBatch]:
        with self.budget.reserve("answers") as held:
            found: list[AnyArray] = []
            for portion in _portions(self._right.read(), self._portion_rows, self._portion_bytes):
                self.metrics.add("portions", 1, unit="indexes")
                index, at = self.index(portion, not found), 0
                for rows in self._left.read():
                    part = self.found(index, rows)
                    if not found:
                        held.grow(8 * len(part) * self._left.rows)
                        found = [np.zeros(self._left.rows, column.dtype) for column in part]
                    for whole, column in zip(found, part, strict=True):
                        whole[at : at + rows.num_rows] += column
                    at += rows.num_rows
                self.discard(index)
            at = 0
            for rows in self._left.read():
                yield self.answers(rows, [column[at : at + rows.num_rows] for column in found])
                at += rows.num_rows
        self._left.close()
        self._left = self._spool("left")

    def _spool(self, side: str) -> Spool:
        room = self._memory // 8
        kept = self.budget.child(f"{side} spool", room)
        return Spool(self.schemas[side], kept, self.budget, room // 4, side)

    def close(self) -> None:
        """Release memory and disk."""
        if self._whole is not None:
            self.discard(self._whole)
        self._right.close()
        self._left.close()


class _QuestionCell(Cell):
    """Counts, semi and anti joins: an index of all rows and, if pairs count in one cell, of those that start there."""

    def __init__(self, question: Question, first: pa.RecordBatch) -> None:
        self.question = question
        each = INDEX_BYTES * (2 if question.started else 1)
        super().__init__((question.left, question.right), question.memory, each, first)

    def index(self, rows: pa.RecordBatch, first: bool) -> list[RightIndex]:
        """One index, or two."""
        indexes = [RightIndex(self.question, rows, self.budget)]
        if self.question.started:
            indexes.append(RightIndex(self.question, rows.filter(rows[self.question.started[1]]), self.budget))
        return indexes

    def found(self, index: list[RightIndex], rows: pa.RecordBatch) -> Sequence[AnyArray]:
        """The number of matches of each row, or 1 and 0 for whether there are some."""
        kind: Kind = "count" if self.question.kind == "count" else "left_semi"
        found = [each.ask(rows, kind) for each in index]
        if not self.question.started:
            return found
        return [np.where(np.asarray(rows[self.question.started[0]]), *found)]

    def answers(self, rows: pa.RecordBatch, found: Sequence[AnyArray]) -> pa.RecordBatch:
        """Left rows with their number, or those with a match, or without."""
        return finished(self.question, rows, found[0], None)

    def discard(self, index: list[RightIndex]) -> None:
        """Close the indexes."""
        for each in index:
            each.close()


def _portions(batches: Iterator[pa.RecordBatch], most: int, size: int) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        more = [*held, batch]
        if held and (sum(b.num_rows for b in more) > most or sum(map(nbytes, more)) > size):
            yield pa.concat_batches(held)
            held = []
        held.append(batch)
    if held:
        yield pa.concat_batches(held)
