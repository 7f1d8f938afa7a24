"""The operator contract of online joins: rows in, pairs out, work in pauses, all that is owed at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64, int64s
from dovetail.engine.operator import OperatorError
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.blocks import Loaded
from dovetail.joins.online.kernels.match import Visits, match
from dovetail.joins.online.kernels.rows import (
    BYTES,
    CLOCK,
    COMPARED,
    DONE,
    INDEX_FULL,
    MAX_BYTES,
    MAX_ROWS,
    N_FREE,
    PAIRS,
    STUCK,
    Arrivals,
    claim,
    outcome_bytes,
)
from dovetail.joins.online.kernels.sorted import arrivals
from dovetail.joins.online.keys import SIDES
from dovetail.joins.online.operators.holding import HoldingOperator
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.row_pages import picked
from dovetail.joins.online.sizes import ARRIVING_BYTES

NOWHERE = Visits(int64s(np.empty(0, np.int64)), int64s(np.empty(0, np.int64)))


class OnlineOperator(HoldingOperator):
    """An online join of two inputs in progress."""

    # ------------------------------------------------------------------ what an algorithm adds

    @abstractmethod
    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive until there is a reason to stop, and say which."""

    def enlarge(self) -> None:
        """Make room in the index, which has asked for it."""
        raise OperatorError(f"{type(self).__name__} has an index that cannot grow.")

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """Every pair still owed: all rows go to disk, so that each has a block and a departure."""
        self.empty_memory()
        yield from self.settle_all()

    @abstractmethod
    def store(self, number: int, slots: I32) -> None:
        """Rows of one side that have slots, in order of arrival, count as in memory and are found from now on."""

    # ------------------------------------------------------------------ the operator contract

    def beside(self, number: int) -> int:
        """Keys, ranges, sizes and slots."""
        return ARRIVING_BYTES

    def take(self, number: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        """Rows of one side arrive: their pairs with rows in memory."""
        self.progress.arrived += chunk.num_rows
        chunk, key, code = self._keyed(number, chunk, counts=True)
        if len(key):
            yield from self.make_ready(self.needed(number, chunk, width))
            with self.arrays_of(number, chunk):
                yield from self.receive(number, chunk, key, code, width)

    def hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """Rows of one side are in memory and can be found; all others make room if need be."""
        chunk, key, code = self._keyed(number, chunk, counts=False)
        n = len(key)
        if n == 0:
            return
        if self.budget.available < self.needed(number, chunk, width) or self.lacks_room(n, width):
            self.spill()
        if self.lacks_room(n, width):
            raise BudgetExceeded(f"{type(self).__name__} cannot flush {self.rows_held()} rows to take {n} more.")
        with self.arrays_of(number, chunk):
            slots = claim(self.rows, n)
            first = self.pages[number].add(chunk, slots)
            self.fill(slots, first, key, code, width)
            self.store(number, slots)
            self.pages[number].settle(first)

    def _keyed(self, side: int, chunk: pa.RecordBatch, counts: bool) -> tuple[pa.RecordBatch, I64, I64]:
        """Rows that can match something, with their keys and codes."""
        coded = self.keys.encode(side, chunk)
        key, code = coded.key, coded.code
        if not coded.valid.all():
            some = np.flatnonzero(coded.valid)
            if counts:
                self.metrics.add("null_keys", chunk.num_rows - len(some), SIDES[side])
            chunk, key, code = picked(chunk, some), key[some], code[some]
        return chunk, int64s(key), int64s(code)

    def limit_rows(self, size: int) -> None:
        """Columns of rows in memory may have so many bytes."""
        self.rows.meta[MAX_BYTES] = size

    def lacks_room(self, n: int, width: int) -> bool:
        """Whether so many rows of this width do not fit beside those in memory."""
        m = self.rows.meta
        held = self.rows_held()
        full = held + n > m[MAX_ROWS] or m[BYTES] + n * width > m[MAX_BYTES] or n > m[N_FREE]
        return bool(held and full)

    def fill(self, slots: I32, first: int, key: I64, code: I64, width: int) -> None:
        """Rows have these slots, each with a tick of its own."""
        r, n = self.rows, len(slots)
        r.key[slots], r.ref[slots], r.size[slots], r.bit[slots] = key, first + np.arange(n), width, 0
        if self.keys.coded:
            r.code[slots] = code
        r.ats[slots] = self.clock + 1 + np.arange(n)
        r.meta[CLOCK] += n

    def make_ready(self, n: int) -> Iterator[pa.RecordBatch]:
        """Free `n` bytes for rows that are about to arrive, as far as rows can leave."""
        while self.budget.available < n and self.squeeze_or_flush():
            pass
        return iter(())

    def receive(self, side: int, chunk: pa.RecordBatch, key: I64, code: I64, width: int) -> Iterator[pa.RecordBatch]:
        """Rows with keys arrive: their pairs come out, and what must leave memory is written."""
        slots = np.full(len(key), -1, np.int32)
        first = self.pages[side].add(chunk, slots)
        low, high = self.keys.ranges(side, key)
        size = int64s(np.full(len(key), width, np.int64))
        new = arrivals(side, first, key, code, int64s(low), int64s(high), size)._replace(slot=slots)
        status = -1
        while status != DONE:
            status = self.arrive(new)
            yield from self.take_outcome()
            if status == INDEX_FULL:
                self.enlarge()
            elif status == STUCK:
                raise OperatorError(f"{type(self).__name__} found nothing to flush with {self.rows.meta} in memory.")
        self.compared(int(self.rows.meta[COMPARED]))
        self.rows.meta[COMPARED] = 0
        self.pages[side].settle(first)

    def take_outcome(self) -> Iterator[pa.RecordBatch]:
        """Give the pairs that a kernel found, and write the rows that left."""
        n = int(self.out.n[PAIRS])
        if n:
            left, right = self.rows.ref[self.out.left[:n]], self.rows.ref[self.out.right[:n]]
            yield from self.answers.batches([pages.rows() for pages in self.pages], [left, right], ARRIVING)
            self.out.n[PAIRS] = 0
        self.write_gone()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give every pair still owed."""
        self.begin({})
        self._finished = True
        yield from self.clean_up()

    def joined(
        self, left: Loaded, right: Loaded, phase: str, visits: tuple[Visits, Visits] = (NOWHERE, NOWHERE)
    ) -> Iterator[pa.RecordBatch]:
        """New pairs of loaded rows; `visits` are those of left's and of right's disk part."""
        n = max(8, self.fitted.pairs // 2)  # two numbers each, beside the slots of the arriving phase
        cursor = np.array([0, 0, -1, 0], np.int64)
        rows, mates = np.empty(n, np.int64), np.empty(n, np.int64)
        while cursor[0] < len(right.refs):
            found = match(left.stretch, right.stretch, self.keys.coded, *visits, cursor, rows, mates)
            refs = [left.refs[rows[:found]], right.refs[mates[:found]]]
            yield from self.answers.batches([left.rows, right.rows], refs, phase)
        self.compared(int(cursor[3]))

    def all_met(self) -> None:
        """Rows that have arrived owe each other nothing."""
        super().all_met()
        for store in self.blocks:
            store.drained, store.drained_blocks = self.clock, len(store)


def outcome_footprint(flushes: int) -> tuple[int, int]:
    """Bytes a slot, and fixed ones, of what kernels tell."""
    return 4, outcome_bytes(0, 0, flushes)
