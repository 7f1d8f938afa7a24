"""The operator contract of online joins: rows in, pairs out, work in pauses, all that is owed at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64, U8, AnyArray, int64s
from dovetail.engine.operator import OperatorError
from dovetail.joins.online.blocks import Loaded
from dovetail.joins.online.kernels.match import Visits, match
from dovetail.joins.online.kernels.rows import (
    COMPARED,
    DONE,
    INDEX_FULL,
    MAX_BYTES,
    PAIRS,
    STUCK,
    Arrivals,
    outcome_bytes,
)
from dovetail.joins.online.kernels.sorted import arrivals
from dovetail.joins.online.keys import SIDES
from dovetail.joins.online.operators.holding import HoldingOperator
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.row_pages import mean_row_bytes, picked
from dovetail.joins.online.sizes import ARRIVING_BYTES
from dovetail.joins.online.snapshot import dump, load

NOWHERE = Visits(int64s(np.empty(0, np.int64)), int64s(np.empty(0, np.int64)))


class OnlineOperator(HoldingOperator):
    """An online join in progress.

    `push` ends with all pairs of arriving rows with rows in memory given. `idle` works on what is on disk, and asks
    `until` after each unit of that work. `finish` gives every pair still owed. `snapshot` and `restore` carry all
    state, between any two of these calls.
    """

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

    def renumber(self) -> None:
        """All pairs of rows on disk are done, and blocks may have new numbers: positions start anew."""

    # ------------------------------------------------------------------ the operator contract

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one side and give their pairs with rows in memory."""
        number = self.input_number(side, batch)
        if batch.num_rows == 0:
            return
        self.metrics.add("rows", batch.num_rows, side)
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width})
        step = max(1, min(self.fitted.chunk_rows, (self.fitted.chunk_bytes - 256) // (width + ARRIVING_BYTES)))
        for start in range(0, batch.num_rows, step):
            yield from self._take(number, batch.slice(start, step), width)
        self.metrics.peak("memory", self.pages[number].held, side)

    def _take(self, side: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        coded = self.keys.encode(side, chunk)
        self.progress.arrived += chunk.num_rows
        key, code = coded.key, coded.code
        if not coded.valid.all():
            some = np.flatnonzero(coded.valid)
            self.metrics.add("null_keys", chunk.num_rows - len(some), SIDES[side])
            chunk, key, code = picked(chunk, some), key[some], code[some]
        if len(key):
            self.rows.meta[MAX_BYTES] = max(1, self.fitted.row_bytes - self.directory_bytes())
            arrays = ARRIVING_BYTES * len(key)
            yield from self.make_ready(arrays + width * len(key) * 5 // 4 + 512 + self.answer_room(side, chunk))
            self._arriving.grow(arrays)
            self.grow_answers()
            yield from self.receive(side, chunk, int64s(key), int64s(code), width)
            self._arriving.shrink(arrays)

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

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give every pair of the rows that have arrived, without ending: nothing is owed afterwards.

        While nothing is on disk nothing is owed. Else memory is empty afterwards, since its rows may have missed rows
        that left before they came, and fewer results come early until it has filled again.
        """
        self.begin({})
        if not any(len(store) for store in self.blocks):
            return
        self.flush_all()
        yield from self.settle_all()
        for store in self.blocks:
            store.drained, store.drained_blocks = self.clock, len(store)
        self.renumber()

    def retire(self, before: tuple[Any, Any]) -> Iterator[pa.RecordBatch]:
        """Let blocks go whose rows are all older than `before`, by side; rows that come must not match them any more.

        Everything owed is given first. Needs `event_times`.
        """
        self.begin({})
        self.flush_all()
        yield from self.drain()
        for store, bound in zip(self.blocks, before, strict=True):
            kept = store.not_before(bound)
            self.metrics.add("blocks_retired", len(store) - len(kept), SIDES[store.side], unit="blocks")
            if len(kept) < len(store):
                store.keep_only(kept)
        self.renumber()

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

    # ------------------------------------------------------------------ state as tables

    def snapshot(self) -> dict[str, pa.Table]:
        """All state, as tables by name, between two calls; the operator goes on unchanged."""
        self.begin({})
        return dump(self)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Take up the state that an operator of the same specification gave; this one must be new."""
        load(self, tables)

    def arrays(self) -> dict[str, AnyArray]:
        """Arrays of the algorithm's own, which are copied as they are."""
        return {}

    def waits(self, side: int, slots: I32) -> U8:
        """For rows in memory whether they only wait to be written."""
        return np.zeros(len(slots), np.uint8)

    @abstractmethod
    def rebuild(self, side: int, slots: I32, waits: U8) -> None:
        """Rows in order of arrival are in memory again, and must be found."""


def outcome_footprint(flushes: int) -> tuple[int, int]:
    """Bytes a slot, and fixed ones, of what kernels tell."""
    return 4, outcome_bytes(0, 0, flushes)
