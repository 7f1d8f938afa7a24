"""What all online joins share: memory and disk inside a budget, pauses, rows that are taken up
from the state and rows that leave it, counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from dovetail.engine.clock import RealClock
from dovetail.engine.columns import row_bytes
from dovetail.engine.kernels.arrays import I32
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Drains, OperatorBase, OperatorError, Resizes, Restores, Retires, Until
from dovetail.joins.online.answers import Answers
from dovetail.joins.online.blocks import Blocks
from dovetail.joins.online.kernels.rows import Rows
from dovetail.joins.online.phases import CLEANUP, REACTIVE, Asked
from dovetail.joins.online.progress import Progress
from dovetail.joins.online.row_pages import RowPages, mean_row_bytes
from dovetail.joins.online.sizes import Fitted

_WASTE = 0.5
Stored = Iterable[tuple[str, pa.RecordBatch]]
"""Rows with their input, in their order of arrival, whose answers with each other were all given."""


class JoiningOperator(OperatorBase, Drains, Restores[Stored], Retires, Resizes[int]):
    """An online join in progress, whatever the number of its inputs.

    `push` ends with all answers of arriving rows and rows in memory given. Rows leave memory by the flush policy of the
    algorithm. `idle` works on what is on disk, and asks `until` after each unit of that work. `drain` and `finish` give
    all that is still owed.

    Nothing is owed after `drain`. Such a state is no more than its rows: another operator of any algorithm and budget
    takes them up with `restore`, without joining them again, and `retire` lets the oldest of them go.
    """

    blocks: Sequence[Blocks]
    pages: list[RowPages]
    answers: Answers
    rows: Rows
    fitted: Fitted

    def __init__(
        self, names: Sequence[str], schemas: Mapping[str, pa.Schema], schema: pa.Schema, budget: MemoryBudget
    ) -> None:
        clock = RealClock()
        super().__init__(schema, budget, Metrics(clock))
        self.names, self._clock = tuple(names), clock
        self.schemas = tuple(schemas[name] for name in names)
        self.progress = Progress(clock)
        self._limit = budget.available
        self._buffer = self.own(budget.reserve("disk buffer"))
        self._index = self.own(budget.reserve("index"))
        self._arriving = self.own(budget.reserve("arriving rows"))
        self._begun = self._finished = False
        self.widest = [0] * len(self.names)
        """Bytes of the widest row of each input so far."""

    # ------------------------------------------------------------------ what an algorithm adds

    @abstractmethod
    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by input; nothing is in memory before."""

    @property
    @abstractmethod
    def clock(self) -> int:
        """The last tick: one for each row that arrived or was taken up, and one for each flush."""

    @abstractmethod
    def rows_held(self) -> int:
        """Rows in memory."""

    @abstractmethod
    def flush(self) -> bool:
        """Whether rows left memory, into the outcome, as the policy says."""

    @abstractmethod
    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Deferred work, until it is done or `until()`."""
        return iter(())

    @property
    @abstractmethod
    def can_react(self) -> bool:
        """Whether blocks fit beside the index; else all work on disk waits for the end of input."""

    @abstractmethod
    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """All that is still owed to rows on disk; there are none in memory."""

    @abstractmethod
    def beside(self, number: int) -> int:
        """Bytes of each arriving row of an input beside its columns."""

    @abstractmethod
    def take(self, number: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        """Rows of an input arrive: their answers with rows in memory."""

    @abstractmethod
    def hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """Rows of an input are in memory, where they can be found, without having looked for others."""

    @abstractmethod
    def limit_rows(self, size: int) -> None:
        """Columns of rows in memory may have so many bytes."""

    @abstractmethod
    def drop(self, number: int, slots: I32) -> None:
        """These rows of an input leave memory, and are not written."""

    def renumber(self) -> None:
        """All answers of rows on disk were given, and blocks may have new numbers."""

    # ------------------------------------------------------------------ the operator contract

    def input_number(self, side: str, batch: pa.RecordBatch) -> int:
        """The number of the input that a batch is of; an error if it cannot be pushed there."""
        if side not in self.names or self._finished:
            raise OperatorError(f"push({side!r}) after finish, or to an input that is not one of {self.names}.")
        number = self.names.index(side)
        if not batch.schema.equals(self.schemas[number]):
            raise OperatorError(f"a batch of {side} has schema {batch.schema}; announced was {self.schemas[number]}.")
        return number

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one input and give their answers with rows in memory."""
        number = self.input_number(side, batch)
        if batch.num_rows == 0:
            return
        self.metrics.add("rows", batch.num_rows, side)
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width})
        step = self._chunk_rows(number, width)
        for start in range(0, batch.num_rows, step):
            yield from self.take(number, batch.slice(start, step), width)
        self.metrics.peak("memory", self.pages[number].held, side)

    def _chunk_rows(self, number: int, width: int) -> int:
        fits = (self.fitted.chunk_bytes - 256) // (width + self.beside(number))
        return max(1, min(self.fitted.chunk_rows, fits))

    def needed(self, number: int, chunk: pa.RecordBatch, width: int) -> int:
        """Bytes that rows need which are about to arrive; memory for rows is what lists of blocks leave of it."""
        self.limit_rows(max(1, self.fitted.row_bytes - sum(store.directory.nbytes for store in self.blocks)))
        n = int(chunk.num_rows)
        return self.beside(number) * n + width * n * 5 // 4 + 512 + self.answer_room(number, chunk)

    @contextmanager
    def arrays_of(self, number: int, chunk: pa.RecordBatch) -> Iterator[None]:
        """Room for what rows have beside their columns while they arrive, and for the answer of the widest one."""
        size = self.beside(number) * chunk.num_rows
        self._arriving.grow(size)
        self.grow_answers()
        yield
        self._arriving.shrink(size)

    def restore(self, state: Stored) -> Iterator[pa.RecordBatch]:
        """Take rows up; they are compared with none, and give nothing."""
        for side, batch in state:
            self._load(self.input_number(side, batch), batch)
        self.loaded()
        return iter(())

    def _load(self, number: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        width = max(1, mean_row_bytes(batch))
        self.begin({number: width})
        step = min(self._chunk_rows(number, width), self.fitted.rows)
        for start in range(0, batch.num_rows, step):
            self.hold(number, batch.slice(start, step), width)

    def loaded(self) -> None:
        """All rows were taken up: they are in memory if all of them fit, else all on disk, as after a drain."""
        if self._begun and self.is_spilled:
            self.spill()
            self.all_met()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all that is owed to the rows that have arrived, without ending: nothing is owed afterwards.

        While nothing is on disk nothing is owed. Else memory is empty afterwards, since its rows may have missed rows
        that left before they came, and fewer results come early until it has filled again.
        """
        self.begin({})
        if self.is_spilled:
            self.flush_all()
            yield from self.settle_all()
            self.all_met()

    def resize(self, sizes: int) -> Iterator[pa.RecordBatch]:
        """Raise the budget to so many bytes, if it is smaller."""
        self.budget.raise_limit(sizes)
        return iter(())

    def retire(self, until: int) -> None:
        """Rows that arrived up to this tick leave memory and disk; nothing may be owed."""
        self.begin({})
        for number, pages in enumerate(self.pages):
            slots = pages.slots()
            slots = slots[self.rows.ats[slots] <= until]
            if len(slots):
                self.drop(number, slots)
                pages.tidy()
        for store in self.blocks:
            store.retire(until)
        if any(len(store) for store in self.blocks):
            self.all_met()

    def all_met(self) -> None:
        """Nothing is owed to rows on disk; what has left is removed from files where it is half of them."""
        for store in self.blocks:
            if store.waste >= _WASTE:
                size = 2 * store.largest
                self.make_room(self._buffer, size)
                store.compact()
                self.let_blocks_go(size)
        self.renumber()

    @property
    def is_spilled(self) -> bool:
        """Whether rows are on disk."""
        return any(len(store.living()) for store in self.blocks)

    @property
    def would_fit(self) -> bool:
        """Whether rows are on disk though all of them would fill half of memory at most, if they were loaded anew."""
        living = [(store, store.living()) for store in self.blocks]
        rows = sum(int(store.column("rows")[numbers].sum()) for store, numbers in living)
        size = sum(store.file.size_of(number) for store, numbers in living for number in numbers.tolist())
        return 0 < 2 * rows <= self.fitted.rows and 2 * size <= self.fitted.row_bytes

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Join what lies on disk until all of it is done or `until()`, which is asked after each unit of work."""
        self.begin({})
        asked = Asked(until, self._clock)
        if self.can_react:
            yield from self.react(asked)
        asked.record(self.metrics)

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
        for name, store in zip(self.names, self.blocks, strict=True):
            self.metrics.add("blocks_flushed", store.blocks_written, name, unit="blocks")
            self.metrics.add("blocks_read", store.blocks_read, name, unit="blocks")
            self.metrics.add("bytes_flushed", store.bytes_written, name, unit="bytes")

    def compared(self, n: int) -> None:
        """Count rows that were compared to find matches."""
        self.metrics.add("comparisons", n)

    @property
    def phase(self) -> str:
        """The phase of work on disk."""
        return CLEANUP if self._finished else REACTIVE

    # ------------------------------------------------------------------ room

    def squeeze_or_flush(self) -> bool:
        """Whether memory was freed: dead rows first, then a flush."""
        freed = [pages.squeeze(0.98) for pages in self.pages]
        return any(freed) or self._flush_once()

    def _flush_once(self) -> bool:
        if self.rows_held() == 0 or not self.flush():
            return False
        self.write_gone()
        for pages in self.pages:
            pages.tidy()
        return True

    def flush_all(self) -> None:
        """Every row leaves memory."""
        while self._flush_once():
            pass

    def spill(self) -> None:
        """Every row leaves memory, to make room for rows that are taken up."""
        self.flush_all()

    def make_room(self, reservation: Reservation, n: int) -> None:
        """Reserve `n` more bytes, flushing rows if need be; `BudgetExceeded` when all memory is not enough."""
        while not reservation.try_grow(n):
            if not self.squeeze_or_flush():
                reservation.grow(n)

    def answer_room(self, number: int, batch: pa.RecordBatch) -> int:
        """Bytes more that an answer needs if rows of an input are as wide as these; then `grow_answers`."""
        self.widest[number] = max(self.widest[number], int(row_bytes(batch).max()))
        return max(0, sum(self.widest) - self.answers.room.used)

    def grow_answers(self) -> None:
        """Have room for an answer of the widest rows, if there is any: they need not match."""
        self.answers.room.try_grow(max(0, sum(self.widest) - self.answers.room.used))

    def hold_blocks(self, number: int, blocks: Sequence[int]) -> int:
        """Bytes reserved in the disk buffer for these blocks of an input."""
        size = sum(self.blocks[number].bytes_of(block) for block in blocks)
        self.make_room(self._buffer, size)
        return size

    def let_blocks_go(self, size: int) -> None:
        """Give back bytes of the disk buffer."""
        self._buffer.shrink(size)

    @property
    def block_room(self) -> int:
        """Bytes that loaded blocks can have if all rows leave memory."""
        return self.budget.available + sum(pages.held for pages in self.pages)
