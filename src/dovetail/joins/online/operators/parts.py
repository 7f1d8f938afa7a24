"""The two parts that make an online join an algorithm.

`Index` is its memory: how an arriving row finds its partners, and which rows leave when memory is full. `Disk` is how
blocks on disk are joined, in pauses and at the end. Everything else is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I32
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorError, Until
from dovetail.joins.online.blocks import Blocks, Leaving
from dovetail.joins.online.kernels.rows import CLOCK, Arrivals, empty_outcome, empty_rows
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.sizes import Fitted

if TYPE_CHECKING:
    from dovetail.joins.online.operators.base import OnlineOperator


class Index(ABC):
    """The rows in memory of a join: their slots, and what finds them. Kernels tell in `out` what met and what left."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, flushes: int) -> None:
        self.fitted, self.keys = fitted, keys
        self.out = empty_outcome(fitted.combinations, fitted.slots, flushes, len(keys.counts))
        sizes = (fitted.slots, fitted.rows, fitted.row_bytes, len(keys.counts), int(keys.widths.max()))
        self.rows = empty_rows(*sizes)

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
    """This many blocks of each input must fit in memory, or all work waits for the end of input."""
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
        """What memory collected leaves it unread: its rows have met."""

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
