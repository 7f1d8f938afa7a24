"""The as-of join as a specification, and as an operator in one task and one budget: left rows probe an index of the
right rows. Both sides are collected, in memory while it lasts and on disk from then on. At the end the right rows are
indexed and left rows probe the index. Right rows that do not fit are cut into pieces by boundaries in the order of
(hash of the keys, time), left rows likewise, and each piece is joined alone; the last right row before a boundary, or
the first one after it, is copied to the piece that needs it.
Reference: docs/algorithms/asof.md, 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes, take_columns, taken_bytes
from dovetail.engine.exchanged import Delivery, Places
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.keys import bound_codes
from dovetail.engine.layout import check_columns
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Operator, OperatorBase, OperatorError
from dovetail.engine.spool import Spool
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.asof.kernels.search import pieces_of
from dovetail.joins.asof.right_index import ROW_BYTES, RightIndex, key_hashes, usable_rows

Direction = Literal["backward", "forward", "nearest"]
Tie = Literal["any", "first", "last"]


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """Matches each left row with the last right row before it (or next after it, or nearest) among those of its keys.

    Every left row has at most one match. A null or NaN time and a null key match nothing. Of right rows at one time the
    `tie` decides: the first or the last by the columns `tie_order`, nulls first; rows that are still equal, and all
    rows with "any", by all their columns, so that equal inputs give equal answers. Of two right rows that are equally
    near the earlier one is nearest.
    `tolerance` is the largest distance, in units of the codes (days, microseconds, the last digit) or as a float.
    Output order is unspecified. Reference: docs/algorithms/asof.md, 1 and 2.
    """

    on: tuple[str, str]
    by: tuple[tuple[str, str], ...] = ()
    direction: Direction = "backward"
    tolerance: int | float | None = None
    allow_exact: bool = True
    tie: Tie = "any"
    tie_order: tuple[str, ...] = ()
    how: Literal["inner", "left"] = "inner"
    left_columns: tuple[str, ...] | None = None
    right_columns: tuple[str, ...] | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        """The inputs that `push` takes."""
        return "left", "right"

    def explain(self) -> str:
        """The join in one line."""
        keys = ", ".join(a if a == b else f"{a}={b}" for a, b in self.by) or "none"
        on = self.on[0] if self.on[0] == self.on[1] else "=".join(self.on)
        order = f" by {', '.join(self.tie_order)}" if self.tie_order else ""
        within = "" if self.tolerance is None else f", tolerance={self.tolerance}"
        exact = "" if self.allow_exact else ", no exact matches"
        return f"AsofJoin: {self.direction} on {on}, keys={keys}{within}{exact}, ties={self.tie}{order}, how={self.how}"

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> Operator:
        """The running join; `PlanError` when these schemas do not fit."""
        left, right = schemas["left"], schemas["right"]
        check_columns(left, [self.on[0]], "left", "on")
        check_columns(right, [self.on[1]], "right", "on")
        check_columns(left, [a for a, _ in self.by], "left", "by")
        check_columns(right, [b for _, b in self.by], "right", "by")
        check_columns(right, self.tie_order, "right", "ties")
        pairs = [("on", self.on), *(("by", pair) for pair in self.by)]
        for argument, (a, b) in pairs:
            if left.field(a).type != right.field(b).type:
                raise PlanError(
                    f"{argument}: {a!r} of left is {left.field(a).type} but {b!r} of right is {right.field(b).type}; "
                    "cast one of them so that both are of one type.",
                    argument=argument,
                )
        return AsofOperator(self, budget, schemas, spill_dir)

    def output_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The columns of the answer: left's, then right's, which may be null."""
        mine = [left.field(name) for name in self.left_out(left)]
        theirs = [right.field(name).with_nullable(True) for name in self.right_out(right)]
        return pa.schema([*mine, *theirs])

    def left_out(self, left: pa.Schema) -> list[str]:
        """The columns of left rows that are part of the answer."""
        return list(left.names if self.left_columns is None else self.left_columns)

    def right_out(self, right: pa.Schema) -> list[str]:
        """The columns of right rows that are part of the answer."""
        return list(right.names if self.right_columns is None else self.right_columns)


RIGHT_SHARE, LEFT_SHARE, KEYS_SHARE, ANSWER_SHARE = 1 / 2, 3 / 16, 1 / 8, 1 / 8
"""Of the budget: right rows being indexed, left rows that wait, distinct keys, answers; the rest is for blocks."""
SAMPLE_ROWS = 4096  # right rows from which boundaries are chosen
MOST_PIECES = 16
BATCH_SHARE = 0.25  # share of a task's budget that is kept free for the current batch, at most
PIECE_ROOM = 1.5  # pieces are not equal: there is room for this many times the rows
_LONGEST = 2**31 - 1  # bytes of text that one Arrow column can hold


class AsofOperator(OperatorBase):
    """An as-of join in progress."""

    def __init__(
        self, spec: AsofJoin, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec.output_schema(schemas["left"], schemas["right"]), budget)
        self.spec = spec
        self._schemas, self._spill_dir = schemas, spill_dir
        self._limit = budget.available
        self._by = {"left": [a for a, _ in spec.by], "right": [b for _, b in spec.by]}
        self._on = dict(zip(("left", "right"), spec.on, strict=True))
        self._left_out = spec.left_out(schemas["left"])
        self._right_out = spec.right_out(schemas["right"])
        self._keys = budget.child("index", max(1, int(self._limit * KEYS_SHARE)))
        self._left = self.own(_Rows(self, "left", int(self._limit * LEFT_SHARE), self._limit // 32))
        self._right = self.own(_Rows(self, "right", self._room // 2, self._limit // 32))

    @property
    def _room(self) -> int:
        """Bytes that right rows may take while they are indexed: twice their own size and `ROW_BYTES` each."""
        return max(1, min(int(self._limit * RIGHT_SHARE), _LONGEST))

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows; left rows that cannot match are output at once if they are part of the answer."""
        if side not in self._on:
            raise OperatorError(f"an as-of join has no side {side!r}; it has left and right.")
        self.metrics.add("rows", batch.num_rows, side=side)
        usable = usable_rows(batch, self._on[side], self._by[side])
        if not usable.all():
            if side == "left" and self.spec.how == "left":
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

    def _index(self, rights: _Rows, carried: list[pa.RecordBatch], held: Reservation) -> RightIndex | None:
        """An index of all right rows, for which memory is held; None if it does not fit."""
        more = sum(nbytes(rows) + ROW_BYTES * rows.num_rows for rows in carried)
        needed = rights.indexed_bytes + more
        if needed > self._room or not held.try_grow(needed - rights.held_bytes):
            return None
        try:
            index = RightIndex(self.spec, rights.whole(carried), self._keys)
        except BudgetExceeded:
            return None
        rights.close()
        held.resize(min(held.used, nbytes(index.rows) + index.rows.num_rows * ROW_BYTES))
        return index

    def _answers(self, index: RightIndex, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found = index.find(rows)
        matched = found >= 0
        self.metrics.add("matched", int(matched.sum()))
        if self.spec.how == "inner" and not matched.all():
            rows, found = rows.filter(pa.array(matched)), found[matched]
        yield from self._paired(rows, index.rows.select(self._right_out), found)

    def _paired(self, rows: pa.RecordBatch, right: pa.RecordBatch, found: I64) -> Iterator[pa.RecordBatch]:
        """Left rows beside their right rows, as many at a time as the output's share of the budget takes."""
        if not len(found):
            return
        if not self._right_out:
            yield self._batch(rows, [])
            return
        size, half = taken_bytes(right, found) + nbytes(rows), len(found) // 2
        with self.budget.reserve("answer") as held:
            if not half:
                held.grow(size)
            if not half or (size <= self._limit * ANSWER_SHARE and held.try_grow(size)):
                yield self._batch(rows, take_columns(right, found).columns)
                return
        yield from self._paired(rows.slice(0, half), right, found[:half])
        yield from self._paired(rows.slice(half), right, found[half:])

    def _unmatched(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        nulls = [pa.nulls(rows.num_rows, self._schemas["right"].field(name).type) for name in self._right_out]
        yield self._batch(rows, nulls)

    def _batch(self, rows: pa.RecordBatch, right: list[pa.Array]) -> pa.RecordBatch:
        left = [rows[name] for name in self._left_out]
        return pa.RecordBatch.from_arrays([*left, *right], schema=self.schema)

    def _split(self, rights: _Rows, lefts: _Rows, carried: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers of rows that do not fit, piece by piece."""
        hashes, times = self._points(rights)
        if len(times) < 2:  # all rows at one key and time: one of them is enough
            yield from self._join(self._folded(rights), lefts, carried)
            return
        wanted = min(MOST_PIECES, max(2, ceil(PIECE_ROOM * rights.indexed_bytes / self._room)))
        at = np.unique(np.maximum(1, np.arange(1, wanted) * len(times) // wanted))
        cuts = _Cuts(self.spec, hashes[at], times[at], self.budget)
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
        step = max(1, rights.rows // SAMPLE_ROWS)
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
        return key_hashes(rows, self._by[side]), bound_codes(rows[self._on[side]])

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
                index = RightIndex(self.spec, together, self.budget)
                best = index.unique()
                index.close()
            rights.close()
            assert best is not None, "rows that do not fit are some"  # noqa: S101  (our caller's)
            if best.num_rows == rights.rows:
                raise BudgetExceeded(
                    f"{best.num_rows} right rows of {format_bytes(nbytes(best))} do not fit "
                    f"{format_bytes(self.budget.limit)}; give the join more memory."
                )
            kept.append(best)
        return kept


class _Rows:
    """The rows of one side in a spool, with their number and size."""

    def __init__(self, operator: AsofOperator, side: str, memory: int, block: int) -> None:
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

    def __init__(self, spec: AsofJoin, hashes: I64, times: I64, budget: MemoryBudget) -> None:
        self.spec, self.hashes, self.times = spec, hashes, times
        self._budget = budget
        self._held = budget.reserve("carried rows")
        self._last: dict[int, pa.RecordBatch] = {}
        self._first: dict[int, pa.RecordBatch] = {}

    def carry(self, rows: pa.RecordBatch, hashes: I64, times: I64) -> None:
        """Record, for every boundary, the last right rows before it and the first ones after it, of its key."""
        for cut in range(len(self.times)):
            here = hashes == self.hashes[cut]
            if not here.any():
                continue
            earlier = times < self.times[cut]
            if self.spec.direction != "forward":
                self._remember(self._last, cut, rows, here & earlier, True)
            if self.spec.direction != "backward":
                self._remember(self._first, cut, rows, here & ~earlier, False)

    def _remember(
        self, known: dict[int, pa.RecordBatch], cut: int, rows: pa.RecordBatch, chosen: I64, last: bool
    ) -> None:
        if not chosen.any():
            return
        before = nbytes(known[cut]) if cut in known else 0
        more = rows.filter(pa.array(chosen))
        together = pa.concat_batches([known[cut], more]) if cut in known else more
        index = RightIndex(self.spec, together, self._budget)
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
class AsofTask:
    """The specification of a task: the join, the positions of the columns of both sides, and the budget."""

    spec: AsofJoin
    places: Places
    memory: int


def join_task(task: AsofTask, batches: Iterable[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The answers of one partition. Spark's batches are held beside the operator, which has the rest of the budget."""
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    budget = MemoryBudget(task.memory, "as-of join")
    delivery = Delivery(task.places.left, task.places.right, first, budget, BATCH_SHARE)
    operator = task.spec.open(budget.child("operator", task.memory - delivery.room), delivery.schemas)
    with operator:
        for batch in chain([first], batches):
            for piece in delivery.take(batch):
                for side, rows, _ in delivery.by_side(piece):
                    yield from operator.push(side, rows)
        yield from operator.finish()
        metrics.include(operator.metrics)
        delivery.record(metrics, budget)
