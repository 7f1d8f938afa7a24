"""Answers questions about left rows without forming pairs: left rows probe an index of the right rows.

The number of matches of a left row, whether it has any, and its first match each take a few searches in sorted arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.columns import nbytes, take_columns
from dovetail.engine.exchanged import Delivery
from dovetail.engine.kernels.arrays import I64, AnyArray, Bool
from dovetail.engine.keys import KeyEncoder, bound_numbers
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.spool import Spool
from dovetail.errors import DataError
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.relation import EncodedSide, Relation, SideColumns, classify, encode_stream

Kind = Literal["count", "cover", "coverage", "left_semi", "left_anti", "first", "last", "any"]
COUNT, COVERED = "n_overlaps", "covered"
INDEX_BYTES = 112  # of a right row while its index is built: the row, two orders, and what sorting needs
UNION_BYTES = 48  # of a right row beside that: its bounds as numbers, and running totals of the union


@dataclass(frozen=True, slots=True)
class Question:
    """A question about each left row; `outer` keeps rows without a match if the kind is first, last or any.

    `cover` is how much of a row the right rows cover together, in units of their codes; `coverage` is that and count.
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
        wanted = question.kind in ("cover", "coverage")
        numbers = _numbers(rows[own.start], rows[own.end], usable) if wanted else None
        self.index = OverlapIndex.build(
            chosen, codes.start[usable], codes.end[usable], budget, codes.h, codes.shift, numbers
        )

    def ask(self, rows: pa.RecordBatch, kind: Kind) -> npt.NDArray[np.int64]:
        """Per left row: the number of matches, 1 or 0 for whether there is one, or the right row's position or -1."""
        usable, keys, codes = self._encoded(rows)
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

    def _encoded(self, rows: pa.RecordBatch) -> tuple[Bool, I64 | None, EncodedSide]:
        """Which left rows are usable, the key codes of these, and the codes of all bounds."""
        own, other = self.question.left, self.question.right
        usable = classify(rows[own.start], rows[own.end], own.closed) == 0
        keys: npt.NDArray[np.int64] | None = None
        if self._keys is not None:
            keys, valid = self._keys.find([rows[key] for key in own.keys])
            usable &= valid
        codes = encode_stream(rows[own.start], rows[own.end], own.closed, other.closed)
        return usable, None if keys is None else keys[usable], codes

    def covered(self, rows: pa.RecordBatch) -> AnyArray:
        """Per left row how much of it the right rows cover together."""
        own = self.question.left
        usable, keys, codes = self._encoded(rows)
        numbers = _numbers(rows[own.start], rows[own.end], usable)
        answer = np.zeros(rows.num_rows, numbers[0].dtype)
        answer[usable] = self.index.covered(keys, codes.start[usable], codes.end[usable], numbers)
        if answer.dtype == np.int64 and answer.min(initial=0) < 0:
            raise DataError("an interval is longer than 2^63 - 1 units, too long for its covered length; shorten it.")
        return answer

    def weights(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bytes of the right rows at these positions; a few for no row."""
        some = self._weights[np.maximum(found, 0)] if len(self._weights) else np.ones(len(found), np.int64)
        return np.where(found >= 0, some, 1)

    def close(self) -> None:
        """Release the memory."""
        self.index.close()
        self._held.close()


def answer(question: Question, index: RightIndex, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The answers for a batch of left rows; right rows are added in as large batches as the budget allows."""
    from dovetail.joins.interval.operators.spec import stretches  # as above

    if question.kind == "coverage":
        counted = finished(replace(question, kind="count"), rows, index.ask(rows, "count"), None)
        yield finished(replace(question, kind="cover"), counted, index.covered(rows), None)
        return
    found = index.ask(rows, question.kind)
    if question.kind in ("count", "left_semi", "left_anti"):
        yield finished(question, rows, found, None)
        return
    weights = index.weights(found)
    for first, last in stretches(weights, rows.num_rows, min(question.memory // 8, index.budget.available)):
        with index.budget.reserve("answers") as held:
            held.grow(int(weights[first:last].sum()))
            yield finished(question, rows.slice(first, last - first), found[first:last], index.rows)


def finished(question: Question, rows: pa.RecordBatch, found: AnyArray, right: pa.RecordBatch | None) -> pa.RecordBatch:
    """Left rows with their answer: with a count, a length or a right row added, or filtered."""
    kind = question.kind
    if kind in ("count", "cover"):
        added = COUNT if kind == "count" else COVERED
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(found)], names=[*rows.schema.names, added])
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
    """The answers of one cell (count, cover, semi or anti) from batches in which all right rows come first.

    Right rows that do not fit the budget are indexed in portions; left rows are then spooled, as many at a time as the
    budget can hold answers for, and read once per portion.
    """
    run: _Cell | None = None
    try:
        for batch in batches:
            run = run or _Cell(question, batch)
            yield from run.take(batch)
        if run is not None:
            yield from run.finish()
            if metrics is not None:
                metrics.merge(run.metrics)
    finally:
        if run is not None:
            run.close()


class _Cell:
    def __init__(self, question: Question, first: pa.RecordBatch) -> None:
        self.question, self.metrics = question, Metrics()
        self.budget = MemoryBudget(question.memory, "interval answers")
        self._delivery = Delivery(question.left.columns, question.right.columns, first, self.budget, 0.0)
        self._right, self._left = self._spool("right"), self._spool("left")
        room = question.memory // 8
        self._left_rows = max(1024, room // 8)  # left rows whose answers are held at once
        each = (INDEX_BYTES + UNION_BYTES * (question.kind == "cover")) * (2 if question.started else 1)
        self._portion_rows = max(1024, question.memory // 2 // each)
        self._portion_bytes, self._right_bytes = room // (2 if question.started else 1), 0
        self._portions: list[RightIndex] | None = None

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
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
        if self._portions is None:
            self._portions = self._indexes(_whole(self._right.read(), self._delivery.schemas["right"]))
        yield finished(self.question, rows, self._found(self._portions, rows), None)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._left.rows:
            yield from self._by_portions()
        self._delivery.record(self.metrics, self.budget)

    def _by_portions(self) -> Iterator[pa.RecordBatch]:
        with self.budget.reserve("answers") as held:
            held.grow(8 * self._left.rows)
            found = np.zeros(self._left.rows, self._kind)
            for portion in _portions(self._right.read(), self._portion_rows, self._portion_bytes):
                self.metrics.add("portions", 1, unit="indexes")
                indexes, at = self._indexes(portion), 0
                for rows in self._left.read():
                    found[at : at + rows.num_rows] += self._found(indexes, rows)
                    at += rows.num_rows
                for index in indexes:
                    index.close()
            at = 0
            for rows in self._left.read():
                yield finished(self.question, rows, found[at : at + rows.num_rows], None)
                at += rows.num_rows
        self._left.close()
        self._left = self._spool("left")

    def _spool(self, side: str) -> Spool:
        room = self.question.memory // 8
        kept = self.budget.child(f"{side} spool", room)
        return Spool(self._delivery.schemas[side], kept, self.budget, room // 4, side)

    def _indexes(self, rows: pa.RecordBatch) -> list[RightIndex]:
        """An index of all rows and, where pairs are counted in one cell only, one of those that start here."""
        indexes = [RightIndex(self.question, rows, self.budget)]
        if self.question.started:
            indexes.append(RightIndex(self.question, rows.filter(rows[self.question.started[1]]), self.budget))
        return indexes

    @property
    def _kind(self) -> type[np.float64] | type[np.int64]:
        """The type of the answers."""
        bounds = self._delivery.schemas["left"].field(self.question.left.start).type
        return np.float64 if self.question.kind == "cover" and pa.types.is_floating(bounds) else np.int64

    def _found(self, indexes: list[RightIndex], rows: pa.RecordBatch) -> AnyArray:
        """Answers that add up over portions of the right rows: lengths do, because these are disjoint."""
        kind: Kind = "count" if self.question.kind == "count" else "left_semi"
        found = [each.covered(rows) if self.question.kind == "cover" else each.ask(rows, kind) for each in indexes]
        if not self.question.started:
            return found[0]
        return np.where(np.asarray(rows[self.question.started[0]]), *found)

    def close(self) -> None:
        for index in self._portions or []:
            index.close()
        self._right.close()
        self._left.close()


def _numbers(start: pa.Array, end: pa.Array, usable: Bool) -> tuple[AnyArray, AnyArray]:
    """The bounds of usable rows as int64 or float64, whose differences are lengths."""
    numbers = [bound_numbers(bound)[usable] for bound in (start, end)]
    kind = np.float64 if numbers[0].dtype.kind == "f" else np.int64
    return numbers[0].astype(kind, copy=False), numbers[1].astype(kind, copy=False)


def _whole(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(list(batches), schema).combine_chunks()
    return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], schema))


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
