"""What online joins of two inputs and of many share: memory and disk inside a budget, pauses, state, counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dovetail.engine.clock import RealClock
from dovetail.engine.columns import row_bytes
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorBase, OperatorError, Until
from dovetail.joins.online.answers import AnswerBatches
from dovetail.joins.online.block_file import BlockFile
from dovetail.joins.online.phases import CLEANUP, REACTIVE, Asked
from dovetail.joins.online.progress import Progress
from dovetail.joins.online.row_pages import RowPages

S = TypeVar("S", bound=BlockFile)


class JoiningOperator(OperatorBase, Generic[S]):
    """An online join in progress, whatever the number of its inputs.

    Rows leave memory by the flush policy of the algorithm, and only so. `idle` works on what is on disk, and asks
    `until` after each unit of that work. `snapshot` and `restore` carry all state, between any two calls.
    """

    blocks: Sequence[S]
    pages: list[RowPages]
    answers: AnswerBatches

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
        self._begun = self._finished = False
        self.widest = [0] * len(self.names)
        """Bytes of the widest row of each input so far."""

    # ------------------------------------------------------------------ what an algorithm adds

    @abstractmethod
    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by input; nothing is in memory before."""

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
    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all that is owed to the rows that have arrived, without ending: nothing is owed afterwards."""

    @abstractmethod
    def snapshot(self) -> dict[str, pa.Table]:
        """All state, as tables by name, between two calls; the operator goes on unchanged."""

    @abstractmethod
    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Take up the state that an operator of the same specification gave; this one must be new."""

    def state(self) -> dict[str, Any]:
        """What an algorithm must remember beyond rows, blocks and `arrays`, as JSON takes it."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """What `state` gave."""

    # ------------------------------------------------------------------ the operator contract

    def input_number(self, side: str, batch: pa.RecordBatch) -> int:
        """The number of the input that a batch is of; an error if it cannot be pushed there."""
        if side not in self.names or self._finished:
            raise OperatorError(f"push({side!r}) after finish, or to an input that is not one of {self.names}.")
        number = self.names.index(side)
        if not batch.schema.equals(self.schemas[number]):
            raise OperatorError(f"a batch of {side} has schema {batch.schema}; announced was {self.schemas[number]}.")
        return number

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

    def directory_bytes(self) -> int:
        """Memory that the lists of blocks take."""
        return sum(store.directory.nbytes for store in self.blocks)

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
