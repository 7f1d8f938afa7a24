"""The running online join of any number of inputs, and the two parts that make it an algorithm.

`Index` is its memory: how an arriving row finds its partners, and which rows leave when memory is full. `Disk` is how
blocks on disk are joined, in pauses and at the end. Everything else is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorError, Until
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.answers import Answers
from dovetail.joins.online.blocks import Blocks, Leaving
from dovetail.joins.online.joining import JoiningOperator
from dovetail.joins.online.kernels.rows import (
    BYTES,
    CLOCK,
    COMPARED,
    DONE,
    DROPPED,
    FOUND,
    GONE,
    H_BUCKET,
    H_KIND,
    H_ROWS,
    H_SIDE,
    H_TICK,
    HEADS,
    HELD,
    INDEX_FULL,
    LOAD_FULL,
    MAX_BYTES,
    MAX_ROWS,
    N_FREE,
    STUCK,
    Arrivals,
    arrivals,
    claim,
    empty_outcome,
    empty_rows,
    release,
)
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.row_pages import RowPages, mean_row_bytes, picked
from dovetail.joins.online.sizes import Fitted

if TYPE_CHECKING:
    from dovetail.joins.online.operators.spec import OnlineSpec

_NONE: I64 = np.empty(0, np.int64)


class Index(ABC):
    """The rows in memory of a join: their slots, and what finds them. Kernels tell in `out` what met and what left."""

    ranged: ClassVar[bool] = True
    """Whether arriving rows come with the range of keys that match them, which two inputs have."""
    apart: ClassVar[bool] = False
    """Whether the rows of each flush are gathered by themselves."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, flushes: int, named: bool = False) -> None:
        self.fitted, self.keys = fitted, keys
        self.out = empty_outcome(fitted.combinations, fitted.slots, flushes, len(keys.counts))
        sizes = (fitted.slots, fitted.rows, fitted.row_bytes, len(keys.counts), int(keys.widths.max()))
        self.rows = empty_rows(*sizes, keys.order, named=named)

    def empty(self) -> None:
        """No row will be in memory again: only the clock is left."""
        clock, sides = self.rows.meta[CLOCK], len(self.keys.counts)
        self.rows, self.out = empty_rows(0, 0, 0, sides), empty_outcome(0, 0, 0, sides)
        self.rows.meta[CLOCK] = clock
        self.forget()

    @abstractmethod
    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive until there is a reason to stop, and say which."""

    @abstractmethod
    def flush(self) -> bool:
        """Whether rows left memory, into the outcome, as the policy says."""

    @abstractmethod
    def store(self, side: int, slots: I32) -> None:
        """Rows of one input that have slots, in order of arrival, count as in memory and are found from now on."""

    @abstractmethod
    def drop(self, side: int, slots: I32) -> None:
        """These rows of an input leave memory, into the outcome, as rows that are needed no more."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of arrays that only rows in memory need."""

    def enlarge(self) -> None:
        """Make room in the index, which has asked for it."""
        raise OperatorError(f"{type(self).__name__} cannot grow.")

    def sorted_by(self, side: int, bucket: int) -> int:
        """The number of the key that rows of a flush are sorted by on disk."""
        return -1

    def count(self, names: Sequence[str], metrics: Metrics) -> None:
        """Write down what only this index knows."""
        return


class Disk:
    """The work on disk of a join that has none; see the methods for what others have."""

    blocks_at_once: ClassVar[int] = 3
    """So many blocks of each input must fit in memory, or all work waits for the end of input."""
    collects: ClassVar[bool] = False
    """Whether rows in memory have not met each other before they leave together."""

    def __init__(self, join: OnlineOperator) -> None:
        self.join = join

    @property
    def blocks(self) -> Sequence[Blocks]:
        """The blocks of each input."""
        return self.join.blocks

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Sorted rows that left in a flush go to disk."""
        self.join.write_blocks(side, rows, tick, bucket)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Deferred work, until it is done or `until()`."""
        return iter(())

    def end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Join what memory collected, which leaves it."""
        return iter(())

    def spill_load(self) -> None:
        """What memory collected leaves it without a look: it has met."""

    def leave_memory(self) -> None:
        """Rows in memory go to disk at the end of input, so that each has a block and a departure."""
        self.join.empty_memory()

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """All that is still owed to rows on disk; there are none in memory."""
        return iter(())

    def renumber(self) -> None:
        """All answers of rows on disk were given, and blocks may have new numbers."""

    def refusal(self) -> str | None:
        """Why rows that do not fit in memory cannot be taken; None if they go to disk."""
        return None


class OnlineOperator(JoiningOperator):
    """An online join in progress."""

    index: Index
    disk: Disk

    def __init__(
        self, spec: OnlineSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        self._columns = spec.answer(schemas)
        super().__init__(spec.sides, schemas, self._columns.schema, budget)
        self.spec, self._beside = spec, [spec.arriving_bytes(r) for r in range(len(self.names))]
        self.keys = JoinKeys(spec.graph, schemas, spec.hash_bits)
        self.blocks = [
            self.own(Blocks(schema, int(n), spec.loaded_bytes(r), budget, spill_dir, f"online-{r}"))
            for r, (schema, n) in enumerate(zip(self.schemas, self.keys.widths, strict=True))
        ]

    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by input; nothing is in memory before."""
        if not self._begun:
            self.allocate(self.spec.fit(self._limit, self.schemas, seen))
            self._begun = True

    def allocate(self, fitted: Fitted) -> None:
        """Reserve and make everything that the split gives room for."""
        self.fitted = fitted
        self._index.grow(fitted.index_bytes)
        self.index = self.spec.index(fitted, self.keys)
        self.rows = self.index.rows
        self.pages = [self._pages_of(side) for side in range(len(self.names))]
        room = self.own(self.budget.reserve("answers"))
        room.grow(fitted.answer_bytes)
        self.answers = Answers(self._columns, self.keys, room, sum(fitted.widths), self.progress)
        self._combinations = self.own(self.budget.reserve("combinations"))
        self._combinations.grow(fitted.needs.combination * fitted.combinations)
        self.disk = self.spec.disk(self)

    def _pages_of(self, side: int) -> RowPages:
        reservation = self.budget.reserve(f"rows of {self.names[side]}")
        return self.own(RowPages(self.schemas[side], reservation, self.rows.ref, self.fitted.chunk_bytes))

    # ------------------------------------------------------------------ rows that come

    def beside(self, number: int) -> int:
        """Keys, ranges, sizes and slots."""
        return self._beside[number]

    def take(self, number: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        """Rows of one input arrive: their answers with rows in memory."""
        self.progress.arrived += chunk.num_rows
        chunk, key = self._keyed(number, chunk, counts=True)
        if chunk.num_rows:
            needed = self.needed(number, chunk, width)
            while self.budget.available < needed and self.squeeze_or_flush():
                pass
            if self.budget.available < needed:
                yield from self._end_load(ARRIVING)
            with self.arrays_of(number, chunk), self._refusing():
                yield from self.receive(number, chunk, key, width)

    def _keyed(self, side: int, chunk: pa.RecordBatch, counts: bool) -> tuple[pa.RecordBatch, I64]:
        """Rows that can match something, with their keys."""
        key, valid = self.keys.encode(side, chunk)
        if not valid.all():
            some = np.flatnonzero(valid)
            if counts:
                self.metrics.add("null_keys", chunk.num_rows - len(some), self.names[side])
            chunk, key = picked(chunk, some), key[:, some]
        return chunk, key

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Where rows that do not fit have nowhere to go, the error says so."""
        try:
            yield
        except BudgetExceeded as error:
            if (text := self.disk.refusal()) is None:
                raise
            raise BudgetExceeded(text) from error

    def receive(self, side: int, chunk: pa.RecordBatch, key: I64, width: int) -> Iterator[pa.RecordBatch]:
        """Rows with keys arrive: their answers come out, and what must leave memory is written."""
        slots = np.full(chunk.num_rows, -1, np.int32)
        first = self.pages[side].add(chunk, slots)
        ranges = self.keys.ranges(side, key[-1]) if self.index.ranged else (_NONE, _NONE)
        new = arrivals(side, first, key, np.full(len(slots), width, np.int64), slots, ranges)
        status = -1
        while status != DONE:
            status = self.index.arrive(new)
            yield from self._take_found()
            self.write_gone()
            if status == INDEX_FULL:
                self.index.enlarge()
            elif status == LOAD_FULL:
                yield from self.disk.end_load(ARRIVING)
            elif status == STUCK:
                raise self._stuck()
        self.compared(int(self.rows.meta[COMPARED]))
        self.rows.meta[COMPARED] = 0
        self.pages[side].settle(first)

    def _take_found(self) -> Iterator[pa.RecordBatch]:
        """Give the combinations that a kernel found."""
        out = self.index.out
        if n := int(out.n[FOUND]):
            refs = [self.rows.ref[slots] for slots in out.slots[:n].T]
            yield from self.answers.batches([pages.rows() for pages in self.pages], refs, ARRIVING)
            out.n[FOUND] = 0

    def _stuck(self) -> Exception:
        text = f"{self.spec.explain()} found nothing to flush with {self.rows.meta} in memory."
        return OperatorError(text) if self.disk.refusal() is None else BudgetExceeded(text)

    def hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """Rows of one input are in memory and can be found; all others make room if need be."""
        chunk, key = self._keyed(number, chunk, counts=False)
        n = chunk.num_rows
        if n == 0:
            return
        if self.budget.available < self.needed(number, chunk, width) or self._lacks_room(n, width):
            self.spill()
        with self._refusing(), self.arrays_of(number, chunk):
            if self._lacks_room(n, width):
                raise BudgetExceeded(f"{self.spec.explain()} cannot flush {self.rows_held()} rows to take {n} more.")
            slots = claim(self.rows, n)
            first = self.pages[number].add(chunk, slots)
            self.fill(slots, first, key, width)
            self.index.store(number, slots)
            self.pages[number].settle(first)

    def _lacks_room(self, n: int, width: int) -> bool:
        """Whether so many rows of this width do not fit beside those in memory."""
        m = self.rows.meta
        full = m[HELD] + n > m[MAX_ROWS] or m[BYTES] + n * width > m[MAX_BYTES] or n > m[N_FREE]
        return bool(m[HELD] and full)

    def fill(self, slots: I32, first: int, key: I64, width: int) -> None:
        """Rows have these slots, each with a tick of its own."""
        r, n = self.rows, len(slots)
        r.keys[: len(key), slots] = key
        r.ref[slots], r.size[slots], r.bit[slots] = first + np.arange(n), width, 0
        r.ats[slots] = self.clock + 1 + np.arange(n)
        r.meta[CLOCK] += n

    def limit_rows(self, size: int) -> None:
        """Columns of rows in memory may have so many bytes."""
        self.rows.meta[MAX_BYTES] = size

    # ------------------------------------------------------------------ rows that leave

    @property
    def clock(self) -> int:
        """The last tick."""
        return int(self.rows.meta[CLOCK])

    def tick(self) -> int:
        """The next tick."""
        self.rows.meta[CLOCK] += 1
        return self.clock

    def in_memory(self, side: int) -> int:
        """Rows of one input in memory."""
        return int(self.rows.held[side])

    def rows_held(self) -> int:
        """Rows in memory."""
        return int(self.rows.meta[HELD])

    def flush(self) -> bool:
        """Whether rows left memory, into the outcome, as the policy says."""
        return self.index.flush()

    def drop(self, number: int, slots: I32) -> None:
        """These rows of an input leave memory, and are not written."""
        self.index.drop(number, slots)
        self.write_gone()

    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""
        out = self.index.out
        heads, gone = out.heads[: out.n[HEADS]].copy(), out.gone[: out.n[GONE]].copy()
        out.n[GONE] = out.n[HEADS] = 0
        self.write_flushes(heads, gone)

    def write_flushes(self, heads: I64, gone: I32) -> None:
        """Write rows that left in these flushes, one after the other; dropped ones are only forgotten."""
        flush = np.repeat(np.arange(len(heads)), heads[:, H_ROWS])
        for side in range(len(self.names)):
            mine = heads[flush, H_SIDE] == side
            if mine.any():
                slots = gone[mine]
                kept = heads[flush[mine], H_KIND] != DROPPED
                self._write_side(side, heads, slots[kept], flush[mine][kept])
                self.pages[side].forget(self.rows.ref[slots])
        release(self.rows, gone)

    def _write_side(self, side: int, heads: I64, slots: I32, flush: I64) -> None:
        """Rows sorted within each flush, gathered for several flushes at a time but never for too many rows."""
        self.metrics.add("rows_flushed", len(slots), self.names[side])
        by = np.array([self.index.sorted_by(side, bucket) for bucket in heads[:, H_BUCKET].tolist()], np.int64)
        order = np.lexsort((self.rows.keys[by[flush], slots], flush))
        slots, flush = slots[order], flush[order]
        window = max(self.fitted.block_rows, self.fitted.chunk_bytes // self.fitted.widths[side])
        for first, last in _windows(flush, window, self.index.apart):
            rows, of = self.leaving(side, slots[first:last]), flush[first:last]
            edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)]
            for start, stop in pairwise(edges):
                head = heads[of[start]].tolist()
                self.disk.write(side, head[H_BUCKET], head[H_KIND], head[H_TICK], rows.slice(start, stop - start))

    def leaving(self, side: int, slots: I32) -> Leaving:
        """The rows of these slots."""
        batch = self.pages[side].gather(self.rows.ref[slots], distinct=True)
        return Leaving(batch, self.rows.keys[: self.keys.widths[side], slots], self.rows.ats[slots])

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        """Sorted rows go to disk in blocks, fewer in each where rows are wide: some blocks must fit in memory."""
        most = self.fitted.rows_of_a_block(mean_row_bytes(rows.batch))
        self.blocks[side].append_cut(rows, most, self.index.sorted_by(side, bucket), tick, bucket, group)

    def empty_memory(self) -> None:
        """Every row leaves memory, and the index with them: all the budget is for blocks."""
        self.flush_all()
        self.index.empty()
        self.rows = self.index.rows
        self._index.resize(self.fitted.needs.kept * self.fitted.slots)

    def forget_memory(self) -> None:
        """What is in memory is owed nothing any more: all the budget is for blocks."""
        for pages in self.pages:
            pages.close()
        self.rows.held[:] = self.rows.meta[HELD] = 0
        self.empty_memory()

    # ------------------------------------------------------------------ work on disk

    @property
    def finished(self) -> bool:
        """Whether all inputs have ended."""
        return self._finished

    @property
    def can_react(self) -> bool:
        """Whether blocks of all inputs fit beside the index; else all work on disk waits for the end of input."""
        needed = self.disk.blocks_at_once * sum(store.largest for store in self.blocks) + 1024
        return self._finished or self.block_room > needed

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Deferred work, until it is done or `until()`."""
        return self.disk.react(until)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """All that is still owed to rows on disk; there are none in memory."""
        return self.disk.settle_all()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give all that is still owed."""
        self.begin({})
        self._finished = True
        yield from self._end_load(self.phase)
        self.disk.leave_memory()
        yield from self.settle_all()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all that is owed to the rows that have arrived, without ending: nothing is owed afterwards."""
        self.begin({})
        yield from self._end_load(self.phase)
        yield from super().drain()

    def _end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """What memory has collected is joined and leaves, while no chunk is arriving."""
        if self.disk.collects:
            yield from self.disk.end_load(phase)
            for pages in self.pages:
                pages.tidy()

    def spill(self) -> None:
        """Every row leaves memory, to make room for rows that are taken up."""
        self.disk.spill_load()
        super().spill()

    def loaded(self) -> None:
        """All rows were taken up: they are in memory if all of them fit, else all on disk, as after a drain."""
        if self._begun and self.disk.collects:
            self.spill()
        super().loaded()

    @property
    def would_fit(self) -> bool:
        """Whether rows are on disk though all of them would fill half of memory at most, if they were loaded anew."""
        return not self.disk.collects and super().would_fit

    def renumber(self) -> None:
        """All answers of rows on disk were given."""
        self.disk.renumber()
        for store in self.blocks:
            store.drained, store.drained_blocks = self.clock, len(store)

    def reserve_blocks(self, size: int) -> None:
        """Bytes more of the disk buffer, rows having left memory if need be."""
        self.make_room(self._buffer, size)

    def try_reserve_blocks(self, size: int) -> bool:
        """Whether so many bytes more of the disk buffer are reserved now, rows having left memory if need be."""
        while not self._buffer.try_grow(size):
            if not self.squeeze_or_flush():
                return False
        return True

    def count_all(self) -> None:
        """Besides what all joins count, what only the index knows."""
        super().count_all()
        if self._begun:
            self.index.count(self.names, self.metrics)


def _windows(flush: I64, rows: int, apart: bool) -> Iterator[tuple[int, int]]:
    """From and to where rows are gathered together, at most so many; of one flush only if they are `apart`."""
    edges = [0, *(np.flatnonzero(np.diff(flush)) + 1).tolist(), len(flush)] if apart else [0, len(flush)]
    for first, last in pairwise(edges):
        for start in range(first, last, rows):
            yield start, min(last, start + rows)
