"""What running online joins share: rows in, pairs out, flushed rows to disk, room made when it is needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import RealClock
from dovetail.engine.layout import Layout
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorBase, OperatorError, Until
from dovetail.kernels.arrays import I32, I64, U8, AnyArray, int64s
from dovetail.kernels.online_match import Visits, match
from dovetail.kernels.online_rows import (
    CLOCK,
    DONE,
    DROPPED,
    GONE,
    H_BUCKET,
    H_KIND,
    H_ROWS,
    H_SIDE,
    H_TICK,
    HEADS,
    INDEX_FULL,
    LEFT,
    MAX_BYTES,
    PAIRS,
    STUCK,
    Arrivals,
    empty_outcome,
    empty_rows,
    outcome_bytes,
    release,
)
from dovetail.kernels.online_sorted import arrivals
from dovetail.online.answers import Answers, with_phase
from dovetail.online.blocks import BlockStore, Leaving, Loaded
from dovetail.online.keys import SIDES, RowKeys
from dovetail.online.phases import ARRIVING, CLEANUP, REACTIVE, Handover
from dovetail.online.progress import Progress
from dovetail.online.sizes import Fitted
from dovetail.online.snapshot import dump, load
from dovetail.online.store import RowPages, mean_row_bytes, picked

if TYPE_CHECKING:
    from dovetail.online.operators.spec import OnlineJoin

NOWHERE = Visits(int64s(np.empty(0, np.int64)), int64s(np.empty(0, np.int64)))


class OnlineOperator(OperatorBase):
    """An online join in progress.

    `push` ends with all pairs of arriving rows with rows in memory given. `idle` works on what is on disk, and asks
    `until` after each unit of that work. `finish` gives every pair still owed. `snapshot` and `restore` carry all
    state, between any two of these calls.
    """

    def __init__(
        self,
        spec: OnlineJoin,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        layout: Layout,
        spill_dir: Path | None,
    ) -> None:
        clock = RealClock()
        super().__init__(with_phase(layout, spec.with_phase), budget, Metrics(clock))
        self.spec, self._layout, self._clock = spec, layout, clock
        self.schemas = tuple(schemas[side] for side in SIDES)
        self.keys = RowKeys(spec.predicate, schemas, spec.hash_bits)
        self.progress = Progress(clock)
        self.blocks = [self._blocks_of(side, spill_dir) for side in (0, 1)]
        self._limit = budget.available
        self._buffer = self.own(budget.reserve("disk buffer"))
        self._index = self.own(budget.reserve("index"))
        self._begun = self._finished = False

    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by side; nothing is in memory before."""
        if not self._begun:
            self._begun = True
            self.allocate(self.spec.fit(self._limit, self.schemas, seen))

    def allocate(self, fitted: Fitted) -> None:
        """Reserve and make everything that the split gives room for."""
        self.fitted, needs = fitted, self.spec.footprint()
        self._index.grow(needs.fixed + needs.slot * fitted.slots + needs.bucket * fitted.partitions)
        self.rows = empty_rows(fitted.slots, fitted.rows, fitted.row_bytes, self.keys.coded)
        self.out = empty_outcome(fitted.pairs, fitted.slots, self.flushes_listed())
        self.pages = [self._pages_of(side) for side in (0, 1)]
        room = self.own(self.budget.reserve("answers"))
        room.grow(fitted.answer_bytes)
        self.answers = Answers(self._layout, self.schema, self.keys, room, sum(fitted.widths), self.progress)
        self._pairs = self.own(self.budget.reserve("pairs"))
        self._pairs.grow(8 * fitted.pairs)

    def _pages_of(self, side: int) -> RowPages:
        reservation = self.budget.reserve(f"rows of {SIDES[side]}")
        return self.own(RowPages(self.schemas[side], reservation, self.rows.ref, self.fitted.chunk_bytes))

    def _blocks_of(self, side: int, spill_dir: Path | None) -> BlockStore:
        name = f"online-{SIDES[side]}"
        times = self.spec.event_times
        event_time = None if times is None else times[side]
        return self.own(BlockStore(side, self.schemas[side], self.keys, self.budget, spill_dir, name, event_time))

    def flushes_listed(self) -> int:
        """How many flushes a kernel may list before they are written."""
        return 24

    @property
    def clock(self) -> int:
        """The last tick."""
        return int(self.rows.meta[CLOCK])

    def tick(self) -> int:
        """The next tick."""
        self.rows.meta[CLOCK] += 1
        return self.clock

    def in_memory(self, side: int) -> int:
        """Rows of one side in memory."""
        return int(self.rows.meta[LEFT + side])

    # ------------------------------------------------------------------ what an algorithm adds

    @abstractmethod
    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive until there is a reason to stop, and say which."""

    @abstractmethod
    def flush(self) -> bool:
        """Whether rows left memory, into the outcome, as the policy says."""

    def enlarge(self) -> None:
        """Make room in the index, which has asked for it."""
        raise OperatorError(f"{type(self).__name__} has an index that cannot grow.")

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows that left go to disk; they are sorted by key."""
        self.write_blocks(side, rows, tick, bucket)

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        """Sorted rows go to disk in blocks, fewer in each where rows are wide: two blocks must fit in memory."""
        most = self._limit // (8 * max(1, mean_row_bytes(rows.batch)))
        self.blocks[side].append_cut(rows, max(1, min(self.fitted.block_rows, most)), tick, bucket, group)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Deferred work, until it is done or `until()`."""
        return iter(())

    @abstractmethod
    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every pair of rows on disk that is still owed; there are none in memory."""

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """Every pair still owed: all rows go to disk, so that each has a block and a departure."""
        self.empty_memory()
        yield from self.settle_all()

    def renumber(self) -> None:
        """All pairs of rows on disk are done, and blocks may have new numbers: positions start anew."""

    # ------------------------------------------------------------------ the operator contract

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one side and give their pairs with rows in memory."""
        number = self._side(side, batch)
        self.metrics.add("rows", batch.num_rows, side)
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width} if batch.num_rows else {})
        step = max(1, min(self.fitted.chunk_rows, (self.fitted.chunk_bytes - 256) // width))
        for start in range(0, batch.num_rows, step):
            yield from self._take(number, batch.slice(start, step), width)
        self.metrics.peak("memory", self.pages[number].held, side)

    def _side(self, side: str, batch: pa.RecordBatch) -> int:
        if side not in SIDES or self._finished:
            raise OperatorError(f"push({side!r}) after finish, or to a side that is not one of {SIDES}.")
        number = SIDES.index(side)
        if not batch.schema.equals(self.schemas[number]):
            raise OperatorError(f"a batch of {side} has schema {batch.schema}; announced was {self.schemas[number]}.")
        return number

    def _take(self, side: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        coded = self.keys.encode(side, chunk)
        self.progress.arrived += chunk.num_rows
        key, code = coded.key, coded.code
        if not coded.valid.all():
            some = np.flatnonzero(coded.valid)
            self.metrics.add("null_keys", chunk.num_rows - len(some), SIDES[side])
            chunk, key, code = picked(chunk, some), key[some], code[some]
        if len(key):
            self.rows.meta[MAX_BYTES] = max(1, self.fitted.row_bytes - self._directories())
            while self.budget.available < 2 * width * len(key) + 512 and self.squeeze_or_flush():
                pass
            yield from self.receive(side, chunk, int64s(key), int64s(code), width)

    def _directories(self) -> int:
        return sum(store.directory.nbytes for store in self.blocks)

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
        self.pages[side].settle(first)

    def take_outcome(self) -> Iterator[pa.RecordBatch]:
        """Give the pairs that a kernel found, and write the rows that left."""
        n = int(self.out.n[PAIRS])
        if n:
            left, right = self.rows.ref[self.out.left[:n]], self.rows.ref[self.out.right[:n]]
            yield from self.answers.batches(self.pages[0].gather, left, self.pages[1].gather, right, ARRIVING)
            self.out.n[PAIRS] = 0
        self.write_gone()

    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""
        heads, gone = self.out.heads[: self.out.n[HEADS]].copy(), self.out.gone[: self.out.n[GONE]].copy()
        self.out.n[GONE] = self.out.n[HEADS] = 0
        self.write_flushes(heads, gone)

    def write_flushes(self, heads: I64, gone: I32) -> None:
        """Write rows that left in these flushes, one after the other; dropped ones are only forgotten."""
        flush = np.repeat(np.arange(len(heads)), heads[:, H_ROWS])
        for side in (0, 1):
            mine = heads[flush, H_SIDE] == side
            if mine.any():
                slots = gone[mine]
                kept = heads[flush[mine], H_KIND] != DROPPED
                self._write_side(side, heads, slots[kept], flush[mine][kept])
                self.pages[side].forget(self.rows.ref[slots])
                release(self.rows, slots)

    def _write_side(self, side: int, heads: I64, slots: I32, flush: I64) -> None:
        """Rows sorted by key within each flush, gathered for several flushes at a time but never for too many rows."""
        self.metrics.add("rows_flushed", len(slots), SIDES[side])
        order = np.lexsort((self.rows.key[slots], flush))
        slots, flush = slots[order], flush[order]
        window = max(self.fitted.block_rows, self.fitted.chunk_bytes // self.fitted.widths[side])
        for start in range(0, len(slots), window):
            rows, of = self.leaving(side, slots[start : start + window]), flush[start : start + window]
            edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)]
            for first, last in pairwise(edges):
                head = heads[of[first]].tolist()
                self.write(side, head[H_BUCKET], head[H_KIND], head[H_TICK], rows.slice(first, last - first))

    def leaving(self, side: int, slots: I32) -> Leaving:
        """The rows of these slots."""
        r = self.rows
        return Leaving(self.pages[side].gather(r.ref[slots], distinct=True), r.key[slots], r.code[slots], r.ats[slots])

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Join what lies on disk until all of it is done or `until()`, which is asked after each unit of work."""
        self.begin({})
        started, longest = self._clock.now_ns(), 0

        def asked() -> bool:
            nonlocal started, longest
            now = self._clock.now_ns()
            longest, started = max(longest, now - started), now
            return until()

        if self.can_react:
            yield from self.react(asked)
        self.metrics.peak("handover_delay", max(longest, 0), unit="ns")
        if isinstance(until, Handover):
            self.metrics.peak("input_buffer", until.largest, unit="rows")

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

    def close(self) -> None:
        """Write down what was counted, and free memory and files."""
        if not self.metrics.value("closed"):
            self.metrics.add("closed", 1, unit="operators")
            self.count_all()
        super().close()

    def count_all(self) -> None:
        """Results by phase, when they came, and blocks written and read."""
        for phase, n in self.progress.results.items():
            self.metrics.add(f"results_{phase}", n)
        self.progress.record(self.metrics)
        for side, store in zip(SIDES, self.blocks, strict=True):
            self.metrics.add("blocks_flushed", store.blocks_written, side, unit="blocks")
            self.metrics.add("blocks_read", store.blocks_read, side, unit="blocks")
            self.metrics.add("bytes_flushed", store.bytes_written, side, unit="bytes")

    # ------------------------------------------------------------------ room, and joins of what was loaded

    def squeeze_or_flush(self) -> bool:
        """Whether memory was freed: dead rows first, then a flush."""
        freed = [pages.squeeze(0.98) for pages in self.pages]
        if any(freed):
            return True
        if not self.flush():
            return False
        self.write_gone()
        for pages in self.pages:
            pages.tidy()
        return True

    def make_room(self, reservation: Reservation, n: int) -> None:
        """Reserve `n` more bytes, flushing rows if need be; `BudgetExceeded` when all memory is not enough."""
        while not reservation.try_grow(n):
            if not self.squeeze_or_flush():
                reservation.grow(n)

    def empty_memory(self) -> None:
        """Every row leaves memory, and the index with them: all the budget is for blocks."""
        self.flush_all()
        clock = self.clock
        self.rows = empty_rows(0, 0, 0, coded=False)
        self.rows.meta[CLOCK] = clock
        self.out = empty_outcome(0, 0, 0)
        self.drop_index()
        self._index.close()

    def forget_memory(self) -> None:
        """What is in memory is owed nothing any more: all the budget is for blocks."""
        for pages in self.pages:
            pages.close()
        self.rows.meta[LEFT] = self.rows.meta[LEFT + 1] = 0
        self.empty_memory()

    def drop_index(self) -> None:
        """Forget arrays that only rows in memory need."""

    def flush_all(self) -> None:
        """Every row leaves memory."""
        while self.in_memory(0) + self.in_memory(1) > 0 and self.flush():
            self.write_gone()
            for pages in self.pages:
                pages.tidy()

    def hold_blocks(self, side: int, numbers: Sequence[int]) -> int:
        """Bytes reserved in the disk buffer for these blocks."""
        size = sum(self.blocks[side].bytes_of(number) for number in numbers)
        self.make_room(self._buffer, size)
        return size

    def let_blocks_go(self, size: int) -> None:
        """Give back bytes of the disk buffer."""
        self._buffer.shrink(size)

    @property
    def block_room(self) -> int:
        """Bytes that loaded blocks can have if all rows leave memory."""
        held = sum(pages.held for pages in self.pages)
        return self.budget.available + held

    @property
    def can_react(self) -> bool:
        """Whether blocks of both sides fit beside the index; else all work on disk waits for the end of input."""
        return self._finished or self.block_room > 3 * (self.blocks[0].largest + self.blocks[1].largest) + 1024

    def joined(
        self, left: Loaded, right: Loaded, phase: str, visits: tuple[Visits, Visits] = (NOWHERE, NOWHERE)
    ) -> Iterator[pa.RecordBatch]:
        """New pairs of loaded rows; `visits` are those of left's and of right's disk part."""
        n = max(16, self.fitted.pairs // 2)
        cursor = np.array([0, 0, -1], np.int64)
        rows, mates = np.empty(n, np.int64), np.empty(n, np.int64)
        while cursor[0] < len(right.refs):
            found = match(left.stretch, right.stretch, self.keys.coded, *visits, cursor, rows, mates)
            yield from self.answers.batches(left.rows, rows[:found], right.rows, mates[:found], phase)

    # ------------------------------------------------------------------ state as tables

    def snapshot(self) -> dict[str, pa.Table]:
        """All state, as tables by name, between two calls; the operator goes on unchanged."""
        self.begin({})
        return dump(self)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Take up the state that an operator of the same specification gave; this one must be new."""
        load(self, tables)

    def state(self) -> dict[str, Any]:
        """What an algorithm must remember beyond rows, blocks and `arrays`, as JSON takes it."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """What `state` gave."""

    def arrays(self) -> dict[str, AnyArray]:
        """Arrays of the algorithm's own, which are copied as they are."""
        return {}

    def waits(self, side: int, slots: I32) -> U8:
        """For rows in memory whether they only wait to be written."""
        return np.zeros(len(slots), np.uint8)

    @abstractmethod
    def rebuild(self, side: int, slots: I32, waits: U8) -> None:
        """Rows in order of arrival are in memory again, and must be found."""

    @property
    def phase(self) -> str:
        """The phase of work on disk."""
        return CLEANUP if self._finished else REACTIVE


def outcome_footprint(flushes: int) -> tuple[int, int]:
    """Bytes a slot, and fixed ones, of what kernels tell."""
    return 4, outcome_bytes(0, 0, flushes)
