"""Oldest first: the baseline that looks at no data; on rows in random order it gives 2f - f² of the result online."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.joins.online.kernels.flush import OLDEST
from dovetail.joins.online.nested_loop import NestedLoop
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoopOperator
from dovetail.joins.online.operators.hashed import HashedJoin, HashedOperator
from dovetail.joins.online.sizes import Fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestFirst(HashedJoin):
    """The oldest block of the side with more rows in memory leaves; blocks meet as those of DINER do.

    With f the share of each side that fits in memory, 2f - f² of the result comes online if the order is random.
    A baseline of ours, not of the sources.
    Reference: docs/algorithms/online.md, 6.4.
    """

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return OldestOperator


class OldestOperator(HashedOperator, BlockLoopOperator):
    """A running oldest-first join."""

    policy: ClassVar[int] = OLDEST

    def allocate(self, fitted: Fitted) -> None:
        """Besides the table, the nested loop over blocks."""
        super().allocate(fitted)
        self.loop = NestedLoop()

    @property
    def buckets(self) -> int:
        """One: the queue of all rows of a side."""
        return 1
