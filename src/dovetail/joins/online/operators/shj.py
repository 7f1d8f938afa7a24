"""SHJ, the symmetric hash join: both inputs in memory, every pair as soon as its later row arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.kernels.flush import NEVER
from dovetail.joins.online.kernels.rows import STUCK, Arrivals
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hashed import HashedJoin, HashedOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricHashJoin(HashedJoin):
    """All results in the arriving phase, with both inputs in memory: `BudgetExceeded` when they do not fit.

    Nothing is flushed, so there is no reactive phase, no clean-up, and no pair can come twice.
    Reference: Naeem 2012, 2.3.1; docs/algorithms/online.md, 2.1.
    """

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return ShjOperator


class ShjOperator(HashedOperator):
    """A running symmetric hash join."""

    policy: ClassVar[int] = NEVER

    @property
    def buckets(self) -> int:
        """One: buckets are for flushing."""
        return 1

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one, while there is room."""
        status = super().arrive(new)
        if status == STUCK:
            raise BudgetExceeded(self._refusal())
        return status

    def receive(self, side: int, chunk: pa.RecordBatch, key: I64, code: I64, width: int) -> Iterator[pa.RecordBatch]:
        """As other joins, but rows that do not fit have nowhere to go."""
        try:
            yield from super().receive(side, chunk, key, code, width)
        except BudgetExceeded as error:
            raise BudgetExceeded(self._refusal()) from error

    def hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """As other joins, but rows that do not fit have nowhere to go."""
        try:
            super().hold(number, chunk, width)
        except BudgetExceeded as error:
            raise BudgetExceeded(self._refusal()) from error

    def _refusal(self) -> str:
        held = self.in_memory(0) + self.in_memory(1)
        return (
            f"the symmetric hash join keeps both inputs in memory, and {format_bytes(self.budget.limit)} are full "
            f"after {held} rows; give it more memory, or use Diner or another join that can flush."
        )

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """Nothing is owed."""
        return iter(())

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Nothing is owed."""
        return iter(())
