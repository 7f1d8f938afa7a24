"""Runs an online join of any number of inputs; its two `parts` define the algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import RealClock
from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Drains, Ends, OperatorBase, OperatorError, Resizes, Restores, Retires, Until
from dovetail.engine.rows.columns import row_bytes
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.answers import ARRIVING, CLEANUP, REACTIVE, Answers, Asked, Progress
from dovetail.joins.online.blocks import Blocks, Leaving
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    COMPARED,
    DONE,
    DROPPED,
    FOUND,
    H_BUCKET,
    H_KIND,
    H_ROWS,
    H_SIDE,
    H_TICK,
    HELD,
    INDEX_FULL,
    LOAD_FULL,
    MAX_BYTES,
    STUCK,
    Rows,
    arrivals,
    claim,
    fill,
    lacks_room,
    release,
    taken_gone,
)
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.parts import BlockBuffer, Disk, Index
from dovetail.joins.online.row_pages import RowPages, mean_row_bytes
from dovetail.joins.online.sizes import Fitted, beside_bytes

if TYPE_CHECKING:
    from dovetail.joins.online.operators.spec import OnlineSpec

_WASTE = 0.5
Stored = Iterable[tuple[str, pa.RecordBatch]]
"""Rows with their input, in order of arrival, that are joined with each other."""


class OnlineOperator(OperatorBase, Ends, Drains, Restores[Stored], Retires, Resizes[int]):
    """An online join in progress.

    `push` ends with all answers of arriving rows and rows in memory given. Rows leave memory by the flush policy of the
    algorithm. `idle` joins rows on disk, and calls `until` after each unit of that work. `drain` and `finish` give all
    owed results. Nothing is owed after `drain`: the state then consists of its rows alone. Another operator of any
    algorithm and budget loads them with `restore`, without joining them again, and `retire` drops the oldest of them.
    """

    index: Index
    disk: Disk
    pages: list[RowPages]
    answers: Answers
    rows: Rows
    fitted: Fitted

    def __init__(
        self, spec: OnlineSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        clock, self._columns = RealClock(), spec.answer(schemas)
        super().__init__(self._columns.schema, budget, Metrics())
        self.spec, self.names, self._clock = spec, spec.sides, clock
        self.schemas = tuple(schemas[name] for name in self.names)
        self.keys = JoinKeys(spec.graph, schemas, spec.hash_bits)
        self.progress = Progress(clock)
        self._limit = budget.available
        if spec.beside:
            self.own(budget.reserve("matched rows")).grow(beside_bytes(self._limit))
        self.buffer = BlockBuffer(self, self.own(budget.reserve("disk buffer")))
        self._index = self.own(budget.reserve("index"))
        self._arriving = self.own(budget.reserve("arriving rows"))
        self._begun = self.finished = False
        self._ended: set[int] = set()
        self.widest = [0] * len(self.names)
        """Bytes of the widest row of each input so far."""
        self._beside = [spec.arriving_bytes(r) for r in range(len(self.names))]
        """Bytes of each arriving row beside its columns, by input."""
        self.blocks = [
            self.own(Blocks(schema, int(n), spec.loaded_bytes(r), budget, spill_dir, f"online-{r}"))
            for r, (schema, n) in enumerate(zip(self.schemas, self.keys.widths, strict=True))
        ]

    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows of the widths seen, by input; memory must be empty."""
        if not self._begun:
            self.allocate(self.spec.fit(self._limit, self.schemas, seen))
            self._begun = True

    def allocate(self, fitted: Fitted) -> None:
        """Reserve and create all parts of the split."""
        self.fitted = fitted
        self._index.grow(fitted.index_bytes)
        self.index = self.spec.index(fitted, self.keys)
        self.rows = self.index.rows
        self.pages = [
            self.own(RowPages(schema, self.budget.reserve(f"rows of {name}"), self.rows.ref, fitted.chunk_bytes))
            for name, schema in zip(self.names, self.schemas, strict=True)
        ]
        room = self.own(self.budget.reserve("answers"))
        room.grow(fitted.answer_bytes)
        self.answers = Answers(self._columns, self.keys, room, sum(fitted.widths), self.progress)
        self._combinations = self.own(self.budget.reserve("combinations"))
        self._combinations.grow(fitted.needs.combination * fitted.combinations)
        self.disk = self.spec.disk(self)

    # ------------------------------------------------------------------ rows that come

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one input; yields their answers with rows in memory."""
        number = self._input_number(side, batch)
        if batch.num_rows == 0:
            return
        self.metrics.add("rows", batch.num_rows, side)
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width})
        step = self._chunk_rows(number, width)
        for start in range(0, batch.num_rows, step):
            yield from self._take(number, batch.slice(start, step), width)
        self.metrics.peak("memory", self.pages[number].held, side)

    def _input_number(self, side: str, batch: pa.RecordBatch) -> int:
        """The number of the input that a batch is of; an error if it cannot be pushed there."""
        if side not in self.names or self.finished or self.names.index(side) in self._ended:
            ended = "after finish or its end" if side in self.names else f"to an input that is not one of {self.names}"
            raise OperatorError(f"push({side!r}) {ended}.")
        number = self.names.index(side)
        if not batch.schema.equals(self.schemas[number]):
            raise OperatorError(f"a batch of {side} has schema {batch.schema}; announced was {self.schemas[number]}.")
        return number

    def _chunk_rows(self, number: int, width: int) -> int:
        fits = (self.fitted.chunk_bytes - 256) // (width + self._beside[number])
        return max(1, min(self.fitted.chunk_rows, fits))

    def _take(self, number: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        self.progress.arrived += chunk.num_rows
        n = chunk.num_rows
        chunk, key = self.keys.keyed(number, chunk)
        if chunk.num_rows < n:
            self.metrics.add("null_keys", n - chunk.num_rows, self.names[number])
        if chunk.num_rows:
            needed = self._needed(number, chunk, width)
            while self.budget.available < needed and self.squeeze_or_flush():
                pass
            if self.budget.available < needed:
                yield from self._end_load(ARRIVING)
            with self._arrays_of(number, chunk), self._refusing():
                if len(self._ended) == len(self.names) - 1 and self.disk.reload(number):
                    yield from self.disk.receive_last(chunk, key)
                else:
                    yield from self.receive(number, chunk, key, width)

    def end(self, side: str) -> None:
        """Note that no more rows of this input come; once one input is left, memory is for rows of the others."""
        self._ended.add(self.names.index(side))

    def _needed(self, number: int, chunk: pa.RecordBatch, width: int) -> int:
        """Bytes that arriving rows need; memory for rows excludes the directories of blocks."""
        n, listed = int(chunk.num_rows), sum(store.directory.nbytes for store in self.blocks)
        self.rows.meta[MAX_BYTES] = max(1, self.fitted.row_bytes - listed)
        self.widest[number] = max(self.widest[number], int(row_bytes(chunk).max()))
        return self._beside[number] * n + width * n * 5 // 4 + 512 + self._lacking_answer_room()

    def _lacking_answer_room(self) -> int:
        """Bytes more that an answer of the widest rows needs."""
        return max(0, sum(self.widest) - self.answers.room.used)

    @contextmanager
    def _arrays_of(self, number: int, chunk: pa.RecordBatch) -> Iterator[None]:
        """Reserve the arrays of arriving rows beside their columns, and room for the widest answer."""
        size = self._beside[number] * chunk.num_rows
        self._arriving.grow(size)
        self.answers.room.try_grow(self._lacking_answer_room())
        yield
        self._arriving.shrink(size)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise `BudgetExceeded` with the reason if the join cannot spill."""
        try:
            yield
        except (BudgetExceeded, OperatorError) as error:
            if (text := self.disk.refusal()) is None:
                raise
            raise BudgetExceeded(text) from error

    def receive(self, side: int, chunk: pa.RecordBatch, key: I64, width: int) -> Iterator[pa.RecordBatch]:
        """Take rows with keys: yields their answers, and writes the rows that must leave memory."""
        slots = np.full(chunk.num_rows, -1, np.int32)
        first = self.pages[side].add(chunk, slots)
        new = arrivals(side, first, key, np.full(len(slots), width, np.int64), slots)
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
                raise OperatorError(f"{self.spec.explain()} found nothing to flush with {self.rows.meta} in memory.")
        self.compared(int(self.rows.meta[COMPARED]))
        self.rows.meta[COMPARED] = 0
        self.pages[side].settle(first)

    def _take_found(self) -> Iterator[pa.RecordBatch]:
        """Yields the combinations that a kernel found."""
        out = self.index.out
        if n := int(out.n[FOUND]):
            refs = [self.rows.ref[slots] for slots in out.slots[:n].T]
            yield from self.answers.batches([pages.rows() for pages in self.pages], refs, ARRIVING)
            out.n[FOUND] = 0

    # ------------------------------------------------------------------ rows that are restored

    def restore(self, state: Stored) -> Iterator[pa.RecordBatch]:
        """Load stored rows without joining them; no answers.

        They are in memory afterwards if all of them fit, else all on disk, as after a drain.
        """
        for side, batch in state:
            number = self._input_number(side, batch)
            if batch.num_rows:
                self._load(number, batch)
        if self._begun and self.disk.collects:
            self._spill()
        if self._begun and self.is_spilled:
            self._spill()
            self.all_met()
        return iter(())

    def _load(self, number: int, batch: pa.RecordBatch) -> None:
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width})
        step = min(self._chunk_rows(number, width), self.fitted.rows)
        for start in range(0, batch.num_rows, step):
            self._hold(number, batch.slice(start, step), width)

    def _hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """Load rows of one input into memory and the index; all other rows are spilled if needed."""
        chunk, key = self.keys.keyed(number, chunk)
        n = chunk.num_rows
        if n == 0:
            return
        if self.budget.available < self._needed(number, chunk, width) or lacks_room(self.rows, n, width):
            self._spill()
        with self._refusing(), self._arrays_of(number, chunk):
            if lacks_room(self.rows, n, width):
                raise BudgetExceeded(
                    f"{self.spec.explain()} cannot flush {self.rows.meta[HELD]} rows to take {n} more."
                )
            slots = claim(self.rows, n)
            first = self.pages[number].add(chunk, slots)
            fill(self.rows, slots, first, key, width)
            self.index.store(number, slots)
            self.pages[number].settle(first)

    def _spill(self) -> None:
        """Spill every row, to make room for restored rows."""
        self.disk.spill_load()
        self.flush_all()

    # ------------------------------------------------------------------ rows that leave

    @property
    def clock(self) -> int:
        """The last tick: one for each row that arrived or was restored, and one for each flush."""
        return int(self.rows.meta[CLOCK])

    def tick(self) -> int:
        """The next tick."""
        self.rows.meta[CLOCK] += 1
        return self.clock

    def squeeze_or_flush(self) -> bool:
        """Free memory, of dead rows first, then by a flush; whether some was freed."""
        freed = [pages.squeeze(0.98) for pages in self.pages]
        return any(freed) or self._flush_once()

    def _flush_once(self) -> bool:
        if self.rows.meta[HELD] == 0 or not self.index.flush():
            return False
        self.write_gone()
        for pages in self.pages:
            pages.tidy()
        return True

    def flush_all(self) -> None:
        """Spill every row."""
        while self._flush_once():
            pass

    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""
        self.write_flushes(*taken_gone(self.index.out))

    def write_flushes(self, heads: I64, gone: I32) -> None:
        """Write rows that left in these flushes, one after the other; dropped ones are not written."""
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
        for first in range(0, len(flush), window):
            rows, of = self._leaving(side, slots[first : first + window]), flush[first : first + window]
            edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)]
            for start, stop in pairwise(edges):
                head = heads[of[start]].tolist()
                self.disk.write(side, head[H_BUCKET], head[H_KIND], head[H_TICK], rows.slice(start, stop - start))

    def _leaving(self, side: int, slots: I32) -> Leaving:
        batch = self.pages[side].gather(self.rows.ref[slots])
        return Leaving(batch, self.rows.keys[: self.keys.widths[side], slots], self.rows.ats[slots])

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        """Write sorted rows in blocks, with fewer rows each if rows are wide: some blocks must fit in memory."""
        most = self.fitted.rows_of_a_block(mean_row_bytes(rows.batch))
        self.blocks[side].append_cut(rows, most, self.index.sorted_by(side, bucket), tick, bucket, group)

    def empty_memory(self) -> None:
        """Spill every row and drop the index: the whole budget is for blocks."""
        self.flush_all()
        self.index.empty()
        self.rows = self.index.rows
        self._index.resize(self.fitted.needs.kept * self.fitted.slots)

    def forget_memory(self) -> None:
        """Drop the rows in memory, which owe no results: the whole budget is for blocks."""
        for pages in self.pages:
            pages.close()
        self.rows.held[:] = self.rows.meta[HELD] = 0
        self.empty_memory()

    def retire(self, until: int) -> None:
        """Drop rows that arrived up to this tick from memory and disk; nothing may be owed."""
        self.begin({})
        self.disk.release()
        for number, pages in enumerate(self.pages):
            slots = pages.slots()
            slots = slots[self.rows.ats[slots] <= until]
            if len(slots):
                self.index.drop(number, slots)
                self.write_gone()
                pages.tidy()
        for store in self.blocks:
            store.retire(until)
        if any(len(store) for store in self.blocks):
            self.all_met()

    # ------------------------------------------------------------------ work on disk

    @property
    def phase(self) -> str:
        """The phase of work on disk."""
        return CLEANUP if self.finished else REACTIVE

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Join rows on disk until all is done or `until()`, which is called after each unit of work."""
        self.begin({})
        asked = Asked(until, self._clock)
        if self._can_react:
            yield from self.disk.react(asked)
        asked.record(self.metrics)

    @property
    def _can_react(self) -> bool:
        """Whether blocks of all inputs fit beside the index; else all work on disk waits for the end of input."""
        needed = self.disk.blocks_at_once * sum(store.largest for store in self.blocks) + 1024
        return self.finished or self.buffer.room > needed

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give all owed results."""
        self.begin({})
        self.finished = True
        yield from self._end_load(self.phase)
        self.disk.release()
        self.disk.leave_memory()
        yield from self.disk.settle_all()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all owed results of the rows so far, without ending: nothing is owed afterwards.

        While no row is on disk, nothing is owed. Otherwise DINER and MINER join few new rows beside those in memory; in
        other cases memory is empty afterwards, and fewer results come early until it has filled again.
        """
        self.begin({})
        yield from self._end_load(self.phase)
        if self.is_spilled:
            self.disk.release()
            yield from self.disk.settle()
            self.all_met()
        else:
            self.disk.note_met()

    def _end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Join the rows collected in memory and spill them, while no chunk is arriving."""
        if self.disk.collects:
            yield from self.disk.end_load(phase)
            for pages in self.pages:
                pages.tidy()

    def all_met(self) -> None:
        """Mark all rows on disk as joined; files are rewritten once half of their rows have left."""
        for store in self.blocks:
            if store.waste >= _WASTE:
                size = 2 * store.largest
                self.buffer.reserve(size)
                store.compact()
                self.buffer.release(size)
        self.disk.renumber()
        for store in self.blocks:
            store.drained = self.clock

    @property
    def is_spilled(self) -> bool:
        """Whether rows are on disk."""
        return any(len(store.living()) for store in self.blocks)

    @property
    def owes(self) -> bool:
        """Whether results may be owed: rows are on disk, or collected in memory to be joined later."""
        return self._begun and (self.disk.collects or self.is_spilled)

    @property
    def would_fit(self) -> bool:
        """Whether rows are on disk although all of them would fit in half of memory."""
        rows, size = map(sum, zip(*(store.living_size() for store in self.blocks), strict=True))
        return not self.disk.collects and 0 < 2 * rows <= self.fitted.rows and 2 * size <= self.fitted.row_bytes

    def resize(self, sizes: int) -> Iterator[pa.RecordBatch]:
        """Raise the budget to this many bytes, if it is smaller."""
        self.budget.raise_limit(sizes)
        return iter(())

    # ------------------------------------------------------------------ what is counted

    def compared(self, n: int) -> None:
        """Count rows that were compared to find matches."""
        self.metrics.add("comparisons", n)

    def close(self) -> None:
        """Record the counters, and free memory and files."""
        if not self.metrics.value("closed"):
            self.metrics.add("closed", 1, unit="operators")
            self._count_all()
        super().close()

    def _count_all(self) -> None:
        """Record results with their times, blocks written and read, and the counters of the index."""
        self.progress.record(self.metrics)
        for name, store in zip(self.names, self.blocks, strict=True):
            store.record(self.metrics, name)
        if self._begun:
            self.index.count(self.names, self.metrics)
