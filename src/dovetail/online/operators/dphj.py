"""DPHJ, the double pipelined hash join: full buckets go to disk for good, a flag tells what has met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.kernels.online_flush import DPHJ, flush_waiting
from dovetail.kernels.online_rows import NEW
from dovetail.online.blocks import Leaving
from dovetail.online.operators.base import OnlineOperator
from dovetail.online.operators.hashed import HashedJoin, HashedOperator

_OLD = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublePipelinedJoin(HashedJoin):
    """When memory is full, both sides of the bucket with the most rows go to disk, and the bucket is frozen.

    Rows that arrive for a frozen bucket are not probed and go to disk as new; the clean-up joins all but old with old.
    There is no reactive phase. Good for inputs little larger than memory, poor for larger ones.
    Reference: specs/online.md, 2.2; seed 000, section 2.3.2.
    """

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return DphjOperator


class DphjOperator(HashedOperator):
    """A running double pipelined hash join. A block's group is 0 for old rows, and a number of its side for new."""

    policy: ClassVar[int] = DPHJ

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen bucket: those of its flush are old, later ones new."""
        group = 1 + side if kind == NEW else _OLD
        self.write_blocks(side, rows, tick, bucket, group)

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """Frozen buckets: every pair but those of two old rows. The others are complete."""
        while flush_waiting(self.table, self.rows, self.out):
            self.write_gone()
        self.forget_memory()
        for bucket in self.disk_buckets():
            left, right = (store.of_bucket(bucket).tolist() for store in self.blocks)
            yield from self.cross(left, right, "group")
