"""XJoin: the largest partition is flushed; in pauses, partitions on disk are probed against memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.joins.online.kernels.flush import XJOIN
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hashed import HashedJoin
from dovetail.joins.online.operators.visiting import VisitingOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class XJoin(HashedJoin):
    """When memory is full, the largest partition of either side goes to disk; its counterpart stays in memory.

    In pauses the disk part of one side's partition is probed against the memory part of the other's, as often as
    something is new; one such use is the unit of work, after which `until` is asked. Pairs are told apart by ticks and
    by a list of those uses. The clean-up joins what is left.
    Reference: Bornea 2010, 2; Naeem 2012, 2.3.3; docs/algorithms/online.md, 2.3.
    """

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return XJoinOperator


class XJoinOperator(VisitingOperator):
    """A running XJoin."""

    policy: ClassVar[int] = XJOIN

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Stage 2: partitions on disk against memory, the most promising first, while there is something new."""
        while (best := max(self.visitable(), default=None)) is not None:
            yield from self.visit(best.side, best.bucket)
            if until():
                return

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Stage 3: all pairs that no stage has produced."""
        for bucket in self.disk_buckets():
            left, right = (store.of_bucket(bucket).tolist() for store in self.blocks)
            yield from self.cross(left, right, "ticks", self.visits(bucket))
