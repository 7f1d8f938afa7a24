"""Joins of left rows with right rows near a point: both sides are collected, and left rows probe an index.

Both sides are collected, in memory while it lasts and on disk from then on. At the end the right rows are indexed and
left rows probe the index. Right rows that do not fit are cut into pieces by boundaries in the order of (hash of the
keys, point), left rows likewise, and each piece is joined alone; the right rows that left rows beyond a boundary may
match are copied across it. A family says what the point of a row is, what its index finds, and which rows are copied.
Reference: docs/algorithms/asof.md, 2 and 3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.exchange.delivery import BundledDelivery
from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.kernels.search import pieces_of
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorBase, OperatorError, Specification
from dovetail.engine.rows.columns import (
    nbytes,
    take_columns,
    taken_bytes,
)
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.storage.spool import Spool
from dovetail.errors import BudgetExceeded

RIGHT_SHARE, LEFT_SHARE, KEYS_SHARE, ANSWER_SHARE, MATCH_SHARE = 1 / 2, 3 / 16, 1 / 8, 1 / 8, 1 / 64
"""Of the budget: right rows being indexed, left rows that wait, distinct keys, answers, matches; the rest: blocks."""
_BOUNDARY_ROWS = 4096  # right rows from which boundaries are chosen
MOST_PIECES = 16
BATCH_SHARE = 0.25  # share of a task's budget that is kept free for the current batch, at most
PIECE_ROOM = 1.5  # pieces are not equal: there is room for this many times the rows
MATCH_BYTES = 48  # of a match beside its columns: the numbers of its rows, a distance, and copies of them
ROW_BYTES = 96
"""Of a right row while it is indexed, beside its columns: its codes, orders and what sorting needs."""
_LONGEST = 2**31 - 1  # bytes of text that one Arrow column can hold


class Found(NamedTuple):
    """Matches: the left row of each, None if each left row has one; the right row, -1 for none; further columns."""

    left: I64 | None
    right: I64
    added: tuple[pa.Array, ...] = ()

    def only(self, chosen: Bool) -> Found:
        """The chosen matches."""
        left = None if self.left is None else self.left[chosen]
        return Found(left, self.right[chosen], tuple(column.filter(pa.array(chosen)) for column in self.added))

    def slice(self, first: int, last: int) -> Found:
        """The matches from `first` to before `last`."""
        left = None if self.left is None else self.left[first:last]
        return Found(left, self.right[first:last], tuple(column[first:last] for column in self.added))


class PointIndex(Protocol):
    """Right rows in an order in which left rows are looked up."""

    @property
    def rows(self) -> pa.RecordBatch:
        """The right rows."""
        ...

    def find(self, rows: pa.RecordBatch) -> Found:
        """The matches of these left rows, in their order; a row without one is there with right row -1."""
        ...

    def ends(self, last: bool) -> pa.RecordBatch:
        """The right rows that left rows whose points are after (before) all of these may match."""
        ...

    def unique(self) -> pa.RecordBatch:
        """The right rows without those that match nothing, whatever the left row."""
        ...

    def close(self) -> None:
        """Release the memory of the keys."""
        ...


class PointSpec:
    """What the specifications of these joins share: the keys, and the columns of the answer (None for all)."""

    __slots__ = ()

    by: tuple[tuple[str, str], ...]
    how: Literal["inner", "left"]
    left_columns: tuple[str, ...] | None
    right_columns: tuple[str, ...] | None

    @property
    def sides(self) -> tuple[str, ...]:
        """The inputs that `push` takes."""
        return "left", "right"

    def left_out(self, left: pa.Schema) -> list[str]:
        """The columns of left rows that are part of the answer."""
        return list(left.names if self.left_columns is None else self.left_columns)

    def right_out(self, right: pa.Schema) -> list[str]:
        """The columns of right rows that are part of the answer."""
        return list(right.names if self.right_columns is None else self.right_columns)

    def output_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The columns of the answer: left's, then right's, which may be null."""
        mine = [left.field(name) for name in self.left_out(left)]
        return pa.schema([*mine, *(right.field(name).with_nullable(True) for name in self.right_out(right))])


class PointJoinOperator(OperatorBase):
    """A join in progress. Every left row has at most `matches` matches."""

    def __init__(
        self,
        spec: PointSpec,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        spill_dir: Path | None,
        carries: tuple[bool, bool],
        matches: int = 1,
    ) -> None:
        """`carries`: if last and if first right rows are copied."""
        left, right = schemas["left"], schemas["right"]
        super().__init__(spec.output_schema(left, right), budget)
        self._schemas, self._spill_dir, self._how = schemas, spill_dir, spec.how
        self._limit = budget.available
        self._by = {"left": [a for a, _ in spec.by], "right": [b for _, b in spec.by]}
        self._left_out, self._right_out = spec.left_out(left), spec.right_out(right)
        self._carries, self._matches = carries, matches
        self._keys = budget.child("index", max(1, int(self._limit * KEYS_SHARE)))
        self._left = self.own(_Rows(self, "left", int(self._limit * LEFT_SHARE), self._limit // 32))
        self._right = self.own(_Rows(self, "right", self._room // 2, self._limit // 32))

    @abstractmethod
    def usable(self, side: str, rows: pa.RecordBatch) -> Bool:
        """Which rows can match something."""

    @abstractmethod
    def points(self, side: str, rows: pa.RecordBatch) -> I64:
        """The point of each row, as a code."""

    @abstractmethod
    def index(self, rows: pa.RecordBatch, budget: MemoryBudget) -> PointIndex:
        """An index of right rows; the caller reserves memory for the rows, `budget` is charged for distinct keys."""

    @property
    def _room(self) -> int:
        """Bytes that right rows may take while they are indexed: twice their own size and `ROW_BYTES` each."""
        return max(1, min(int(self._limit * RIGHT_SHARE), _LONGEST))

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows; left rows that cannot match are output at once if they are part of the answer."""
        if side not in self._by:
            raise OperatorError(f"this join has no side {side!r}; it has left and right.")
        self.metrics.add("rows", batch.num_rows, side=side)
        usable = self.usable(side, batch)
        if not usable.all():
            if side == "left" and self._how == "left":
                yield from self._unmatched(batch.filter(pa.array(~usable)))
            batch = batch.filter(pa.array(usable))
        if batch.num_rows:
            (self._left if side == "left" else self._right).append(batch)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All answers."""
        yield from self._join(self._right, self._left, [])

    def _join(self, rights: _Rows, lefts: _Rows, carried: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers of these rows, with right rows from beyond their boundaries; both sides are closed at the end."""
        if not lefts.rows:
            rights.close()
            return
        with self.budget.reserve("index") as held:
            index = self._index(rights, carried, held)
            if index is not None:
                try:
                    for rows in lefts.read():
                        yield from self._answers(index, rows)
                finally:
                    index.close()
                    lefts.close()
                return
        yield from self._split(rights, lefts, carried)

    def _index(self, rights: _Rows, carried: list[pa.RecordBatch], held: Reservation) -> PointIndex | None:
        """An index of all right rows, for which memory is held; None if it does not fit."""
        more = sum(nbytes(rows) + ROW_BYTES * rows.num_rows for rows in carried)
        needed = rights.indexed_bytes + more
        if needed > self._room or not held.try_grow(needed - rights.held_bytes):
            return None
        try:
            index = self.index(rights.whole(carried), self._keys)
        except BudgetExceeded:
            return None
        rights.close()
        held.resize(min(held.used, nbytes(index.rows) + index.rows.num_rows * ROW_BYTES))
        return index

    def _answers(self, index: PointIndex, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        each = MATCH_BYTES * self._matches
        step = max(1, int(self._limit * MATCH_SHARE / each))
        right = index.rows.select(self._right_out)
        with self.budget.reserve("matches") as held:
            held.grow(min(step, rows.num_rows) * each)
            for first in range(0, rows.num_rows, step):
                part = rows.slice(first, step)
                found = index.find(part)
                matched = found.right >= 0
                self.metrics.add("matched", int(matched.sum()))
                if self._how == "inner" and not matched.all():
                    part = part.filter(pa.array(matched)) if found.left is None else part
                    found = found.only(matched)
                yield from self._paired(part.select(self._left_out), right, found)

    def _paired(self, rows: pa.RecordBatch, right: pa.RecordBatch, found: Found) -> Iterator[pa.RecordBatch]:
        """Left rows beside their right rows, as many at a time as the output's share of the budget takes."""
        n = len(found.right)
        if not n:
            return
        if not self._right_out and found.left is None:
            yield self._batch(rows.columns, [], found.added)
            return
        size = taken_bytes(right, found.right) + sum(column.nbytes for column in found.added)
        size += nbytes(rows) if found.left is None else taken_bytes(rows, found.left)
        with self.budget.reserve("answer") as held:
            if n == 1:
                held.grow(size)
            if n == 1 or (size <= self._limit * ANSWER_SHARE and held.try_grow(size)):
                left = rows if found.left is None else take_columns(rows, found.left)
                yield self._batch(left.columns, take_columns(right, found.right).columns, found.added)
                return
        for first, last in ((0, n // 2), (n // 2, n)):
            part = rows if found.left is not None else rows.slice(first, last - first)
            yield from self._paired(part, right, found.slice(first, last))

    def _unmatched(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        left = rows.select(self._left_out).columns
        kinds = [field.type for field in self.schema][len(left) :]
        yield self._batch(left, [pa.nulls(rows.num_rows, kind) for kind in kinds])

    def _batch(self, left: list[pa.Array], right: list[pa.Array], added: tuple[pa.Array, ...] = ()) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*left, *right, *added], schema=self.schema)

    def _split(self, rights: _Rows, lefts: _Rows, carried: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers of rows that do not fit, piece by piece."""
        if not rights.rows:
            raise self._too_small([*carried])
        hashes, times = self._points(rights)
        if len(times) < 2:  # all rows at one key and time: one of them is enough
            yield from self._join(self._folded(rights), lefts, carried)
            return
        wanted = min(MOST_PIECES, max(2, ceil(PIECE_ROOM * rights.indexed_bytes / self._room)))
        at = np.unique(np.maximum(1, np.arange(1, wanted) * len(times) // wanted))
        cuts = _Cuts(self, hashes[at], times[at])
        block = max(1, self._limit // (64 * (len(at) + 1)))
        pieces = [(_Rows(self, "right", 1, block), _Rows(self, "left", 1, block)) for _ in range(len(at) + 1)]
        try:
            beyond = self._carried(carried, cuts)
            self._route(rights, cuts, [right for right, _ in pieces])
            self._route(lefts, cuts, [left for _, left in pieces])
            self.metrics.add("pieces", len(pieces), unit="pieces")
            for number, (right, left) in enumerate(pieces):
                yield from self._join(right, left, [*beyond[number], *cuts.carried_to(number)])
        finally:
            for piece in pieces:
                for rows in piece:
                    rows.close()
            cuts.close()

    def _carried(self, carried: list[pa.RecordBatch], cuts: _Cuts) -> list[list[pa.RecordBatch]]:
        """Rows from beyond the boundaries of all pieces, for each piece: the first or the last, and over its cuts."""
        found: list[list[pa.RecordBatch]] = [[] for _ in range(len(cuts.times) + 1)]
        for rows in carried:
            hashes, times = self._codes("right", rows)
            cuts.carry(rows, hashes, times)
            places = pieces_of(hashes, times, cuts.hashes, cuts.times)
            for number in np.unique(places):
                found[number].append(rows.filter(pa.array(places == number)))
        return found

    def _points(self, rights: _Rows) -> tuple[I64, I64]:
        """Distinct (hash, time) of a sample of the right rows, in order."""
        step = max(1, rights.rows // _BOUNDARY_ROWS)
        hashes, times, seen = [], [], 0
        for rows in rights.read():
            chosen = np.arange(-seen % step, rows.num_rows, step)
            seen += rows.num_rows
            codes = self._codes("right", rows)
            hashes.append(codes[0][chosen])
            times.append(codes[1][chosen])
        found = np.unique(np.stack([np.concatenate(hashes), np.concatenate(times)]), axis=1)
        return found[0], found[1]

    def _codes(self, side: str, rows: pa.RecordBatch) -> tuple[I64, I64]:
        return key_hashes(rows, self._by[side]), self.points(side, rows)

    def _route(self, rows: _Rows, cuts: _Cuts, pieces: list[_Rows]) -> None:
        """Write rows to their pieces, and close them; right rows that must be carried are recorded."""
        for block in rows.read():
            hashes, times = self._codes(rows.side, block)
            if rows.side == "right":
                cuts.carry(block, hashes, times)
            places = pieces_of(hashes, times, cuts.hashes, cuts.times)
            order = np.argsort(places, kind="stable")
            ends = np.searchsorted(places[order], np.arange(len(pieces) + 1))
            with self.budget.reserve("routed rows") as held:
                held.grow(nbytes(block) + 16 * block.num_rows)
                placed = take_columns(block, order)
                for number, piece in enumerate(pieces):
                    if ends[number + 1] > ends[number]:
                        piece.append(placed.slice(ends[number], ends[number + 1] - ends[number]))
        rows.close()

    def _folded(self, rights: _Rows) -> _Rows:
        """The right rows without those that lose a tie."""
        kept = self.own(_Rows(self, "right", self._room // 2, self._limit // 32))
        best: pa.RecordBatch | None = None
        with self.budget.reserve("tied rows") as held:
            for block in rights.read():
                together = block if best is None else pa.concat_batches([best, block])
                held.resize(2 * nbytes(together) + ROW_BYTES * together.num_rows)
                index = self.index(together, self.budget)
                best = index.unique()
                index.close()
            rights.close()
            assert best is not None, "rows that do not fit are some"  # noqa: S101  (our caller's)
            if best.num_rows == rights.rows:
                raise self._too_small([best])
            kept.append(best)
        return kept

    def _too_small(self, rows: list[pa.RecordBatch]) -> BudgetExceeded:
        n, size = sum(each.num_rows for each in rows), sum(map(nbytes, rows))
        return BudgetExceeded(
            f"{n} right rows of {format_bytes(size)} do not fit {format_bytes(self.budget.limit)}; "
            "give the join more memory."
        )


class _Rows:
    """The rows of one side in a spool, with their number and size."""

    def __init__(self, operator: PointJoinOperator, side: str, memory: int, block: int) -> None:
        self.side, self.size = side, 0
        self._operator = operator
        schema = operator._schemas[side]
        kept = operator.budget.child(f"{side} rows", max(1, memory))
        self._spool = Spool(
            schema, kept, operator.budget.child(f"{side} block"), block, f"{side} rows", operator._spill_dir
        )
        self._memory = kept

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._spool.rows

    @property
    def held_bytes(self) -> int:
        """Bytes of them that are reserved already."""
        return min(self._memory.used, self.size)

    @property
    def indexed_bytes(self) -> int:
        """Bytes that they take while they are indexed: as they are, as one batch, and their codes."""
        return 2 * self.size + ROW_BYTES * self.rows

    def append(self, rows: pa.RecordBatch) -> None:
        """Append these rows."""
        self.size += nbytes(rows)
        self._spool.append(rows)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All rows, block by block."""
        return self._spool.read()

    def whole(self, more: list[pa.RecordBatch]) -> pa.RecordBatch:
        """All rows, and more, as one batch."""
        schema = self._operator._schemas[self.side]
        blocks = [*self._spool.read(), *more]
        return pa.concat_batches(blocks) if blocks else pa.RecordBatch.from_pylist([], schema)

    def close(self) -> None:
        """Free memory and disk; the counts of what was written are added to the operator's metrics."""
        spill = self._spool.spill
        if spill.bytes_written:
            self._operator.metrics.add("bytes_written", spill.bytes_written, self.side, "bytes")
            spill.bytes_written = 0
        self._spool.close()


class _Cuts:
    """Boundaries in the order of (hash of the keys, time), and the right rows that are carried across them."""

    def __init__(self, operator: PointJoinOperator, hashes: I64, times: I64) -> None:
        self.hashes, self.times = hashes, times
        self._operator = operator
        self._held = operator.budget.reserve("carried rows")
        self._last: dict[int, pa.RecordBatch] = {}
        self._first: dict[int, pa.RecordBatch] = {}

    def carry(self, rows: pa.RecordBatch, hashes: I64, times: I64) -> None:
        """Record, for every boundary, the last right rows before it and the first ones after it, of its key."""
        for cut in range(len(self.times)):
            here = hashes == self.hashes[cut]
            if not here.any():
                continue
            earlier = times < self.times[cut]
            last, first = self._operator._carries
            if last:
                self._remember(self._last, cut, rows, here & earlier, True)
            if first:
                self._remember(self._first, cut, rows, here & ~earlier, False)

    def _remember(
        self, known: dict[int, pa.RecordBatch], cut: int, rows: pa.RecordBatch, chosen: I64, last: bool
    ) -> None:
        if not chosen.any():
            return
        before = nbytes(known[cut]) if cut in known else 0
        more = rows.filter(pa.array(chosen))
        together = pa.concat_batches([known[cut], more]) if cut in known else more
        index = self._operator.index(together, self._operator.budget)
        known[cut] = index.ends(last)
        index.close()
        self._held.resize(self._held.used - before + nbytes(known[cut]))

    def carried_to(self, piece: int) -> list[pa.RecordBatch]:
        """The right rows of other pieces that left rows of this piece may match."""
        found = [self._last.get(piece - 1), self._first.get(piece)]
        return [rows for rows in found if rows is not None]

    def close(self) -> None:
        """Drop the rows."""
        self._last.clear()
        self._first.clear()
        self._held.close()


@dataclass(frozen=True, slots=True)
class PointTask:
    """The specification of a task: the join, the columns of both sides, and the budget."""

    spec: Specification
    schemas: Mapping[str, pa.Schema]
    memory: int


def join_task(task: PointTask, batches: Iterable[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The answers of one partition. Spark's batches are held beside the operator, which has the rest of the budget."""
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    budget = MemoryBudget(task.memory, "join")
    delivery = BundledDelivery(task.schemas, first, budget, BATCH_SHARE)
    operator = task.spec.open(budget.child("operator", task.memory - delivery.room), delivery.schemas)
    with operator:
        for batch in chain([first], batches):
            for side, rows in delivery.take(batch):
                yield from operator.push(side, rows)
        yield from operator.finish()
        metrics.include(operator.metrics)
        delivery.record(metrics, budget)


def key_hashes(rows: pa.RecordBatch, by: list[str]) -> I64:
    """A hash of the keys of each row; 0 without keys."""
    columns = [rows[name] for name in by]
    return KeyCodes([column.type for column in columns]).encode(columns)[0] if by else np.zeros(rows.num_rows, np.int64)
