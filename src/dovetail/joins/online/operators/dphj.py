"""DPHJ, the double pipelined hash join: full buckets go to disk for good, a flag tells what has met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.flush import DPHJ, flush_waiting
from dovetail.joins.online.kernels.rows import NEW
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hashed import HashedJoin, HashedOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublePipelinedJoin(HashedJoin):
    """When memory is full, both sides of the bucket with the most rows go to disk, and the bucket is frozen.

    Rows that arrive for a frozen bucket are not probed and go to disk as new; the clean-up joins all but old with old.
    There is no reactive phase. Good for inputs little larger than memory, poor for larger ones.
    Reference: Naeem 2012, 2.3.2; docs/algorithms/online.md, 2.2.
    """

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return DphjOperator


class DphjOperator(HashedOperator):
    """A running double pipelined hash join.

    A block's group is the tick at which its bucket was frozen for old rows, and a negative number of its side for new
    ones, so that only old rows of one bucket are of one group.
    """

    policy: ClassVar[int] = DPHJ

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen bucket: those of its flush are old, later ones new."""
        self.write_blocks(side, rows, tick, bucket, group=-1 - side if kind == NEW else tick)

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """Frozen buckets: every pair but those of two old rows. The others are complete, if never drained."""
        while flush_waiting(self.table, self.rows, self.out):
            self.write_gone()
        if any(store.drained_blocks for store in self.blocks):
            self.empty_memory()
        else:
            self.forget_memory()
        yield from self.settle_all()

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every pair on disk but those of one group."""
        for bucket in self.disk_buckets():
            left, right = (store.of_bucket(bucket).tolist() for store in self.blocks)
            yield from self.cross(left, right, "group")

    def renumber(self) -> None:
        """All rows on disk are old, and of one group; buckets take rows in memory again."""
        tick = self.tick()
        for store in self.blocks:
            store.directory.regroup(tick)
        self.table.frozen[:] = 0
