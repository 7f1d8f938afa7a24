"""Interfaces of the two parts that define the algorithm of an online join.

`Index` is its memory: how an arriving row finds its partners, and which rows leave when memory is full. `Disk` is how
blocks on disk are joined, in pauses and at the end. Everything else is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorError, Until
from dovetail.joins.online.blocks import Blocks, Leaving
from dovetail.joins.online.kernels.rows import CLOCK, Arrivals, empty_outcome, empty_rows
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.sizes import Fitted

if TYPE_CHECKING:
    from dovetail.joins.online.operators.base import OnlineOperator


class Index(ABC):
    """The rows in memory of a join: their slots, and the index. Kernels return matches and evicted rows in `out`."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, flushes: int) -> None:
        self.fitted, self.keys = fitted, keys
        self.out = empty_outcome(fitted.combinations, fitted.slots, flushes, len(keys.counts))
        sizes = (fitted.slots, fitted.rows, fitted.row_bytes, len(keys.counts), int(keys.widths.max()))
        self.rows = empty_rows(*sizes)

    def empty(self) -> None:
        """Free all memory except the clock: no row will be in memory again."""
        clock, sides = self.rows.meta[CLOCK], len(self.keys.counts)
        self.rows, self.out = empty_rows(0, 0, 0, sides), empty_outcome(0, 0, 0, sides)
        self.rows.meta[CLOCK] = clock
        self.forget()

    @abstractmethod
    def arrive(self, new: Arrivals) -> int:
        """Process arriving rows until there is a reason to stop; returns the reason."""

    @abstractmethod
    def flush(self) -> bool:
        """Evict rows by the policy, into `out`; whether there were any."""

    @abstractmethod
    def store(self, side: int, slots: I32) -> None:
        """Insert rows of one input that have slots, in order of arrival, into the index."""

    @abstractmethod
    def drop(self, side: int, slots: I32) -> None:
        """Remove rows of one input from memory, into `out`, as rows that are no longer needed."""

    @abstractmethod
    def forget(self) -> None:
        """Free the arrays of rows in memory."""

    def enlarge(self) -> None:
        """Enlarge the index, on its request."""
        raise OperatorError(f"{type(self).__name__} cannot grow.")

    def sorted_by(self, side: int, bucket: int) -> int:
        """The number of the key that rows of a flush are sorted by on disk."""
        return -1

    def count(self, names: Sequence[str], metrics: Metrics) -> None:
        """Record the counters of this index."""
        return


class BlockBuffer:
    """Memory of loaded blocks: what rows in memory leave free, and what they free by leaving memory."""

    def __init__(self, join: OnlineOperator, reservation: Reservation) -> None:
        self._join, self._reservation = join, reservation

    @property
    def room(self) -> int:
        """Bytes that loaded blocks can have if all rows leave memory."""
        return self._join.budget.available + sum(pages.held for pages in self._join.pages)

    def reserve(self, size: int) -> None:
        """Reserve more bytes, spilling rows if needed; `BudgetExceeded` if that is not enough."""
        if not self.try_reserve(size):
            self._reservation.grow(size)

    def try_reserve(self, size: int) -> bool:
        """Try to reserve more bytes, spilling rows if needed."""
        while not self._reservation.try_grow(size):
            if not self._join.squeeze_or_flush():
                return False
        return True

    def hold(self, number: int, blocks: Sequence[int]) -> int:
        """Reserve bytes for these blocks of an input; returns the bytes."""
        size = sum(self._join.blocks[number].bytes_of(block) for block in blocks)
        self.reserve(size)
        return size

    def release(self, size: int) -> None:
        """Release bytes."""
        self._reservation.shrink(size)


class Disk:
    """The work on disk; this base class has none."""

    blocks_at_once: ClassVar[int] = 3
    """Blocks of each input that must fit in memory; otherwise all work waits for the end of input."""
    collects: ClassVar[bool] = False
    """Whether rows in memory are joined only when they leave together."""

    def __init__(self, join: OnlineOperator) -> None:
        self.join = join

    @property
    def blocks(self) -> Sequence[Blocks]:
        """The blocks of each input."""
        return self.join.blocks

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Write the sorted rows of a flush to disk."""
        self.join.write_blocks(side, rows, tick, bucket)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Deferred work, until it is done or `until()`."""
        return iter(())

    def end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Join the rows collected in memory and spill them."""
        return iter(())

    def spill_load(self) -> None:
        """Spill the rows collected in memory, which are joined already."""

    def leave_memory(self) -> None:
        """Spill the rows in memory at the end of input, so that each has a block and a departure."""
        self.join.empty_memory()

    def reload(self, arriving: int) -> bool:
        """Fill memory with rows of the other inputs, which have ended, unless it is; whether it is."""
        return False

    def receive_last(self, chunk: pa.RecordBatch, keys: I64) -> Iterator[pa.RecordBatch]:
        """Take rows of the only input that has not ended, after a `reload`."""
        raise OperatorError(f"{type(self).__name__} reloads nothing.")

    def release(self) -> None:
        """Free the memory of reloaded rows, and write rows that wait for a full block."""

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """All owed results of rows on disk; memory is empty."""
        return iter(())

    def settle(self) -> Iterator[pa.RecordBatch]:
        """All owed results, in the middle of the input; by default memory is empty afterwards."""
        self.join.flush_all()
        yield from self.settle_all()

    def note_met(self) -> None:
        """Note that all rows, none of which is on disk, have met."""

    def renumber(self) -> None:
        """Reset the bookkeeping after all answers of rows on disk were given; blocks may have new numbers."""

    def refusal(self) -> str | None:
        """Why rows that do not fit in memory cannot be taken; None if they go to disk."""
        return None
