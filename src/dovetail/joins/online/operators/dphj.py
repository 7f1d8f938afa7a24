"""DPHJ, the double pipelined hash join: full buckets go to disk for good, a flag tells what has met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.flush import DPHJ, flush_waiting
from dovetail.joins.online.kernels.rows import NEW
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublePipelinedJoin(OnlineJoin):
    """When memory is full, both sides of the bucket with the most rows go to disk, and the bucket is frozen.

    Rows that arrive for a frozen bucket are not probed and go to disk as new; the clean-up joins all but old with old.
    There is no reactive phase. Good for inputs little larger than memory, poor for larger ones.
    Reference: Naeem 2012, 2.3.2; docs/algorithms/online.md, 2.2.
    """

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """Full buckets leave and are frozen."""
        return HashIndex(fitted, keys, DPHJ)

    def disk(self, join: OnlineOperator) -> Disk:
        """Old and new rows of frozen buckets."""
        assert isinstance(join.index, HashIndex)  # noqa: S101  (for the type checker)
        return FrozenBuckets(join, join.index)


class FrozenBuckets(Disk):
    """Blocks of frozen buckets.

    A block's group is the tick at which its bucket was frozen for old rows, and a negative number of its side for new
    ones, so that only old rows of one bucket are of one group.
    """

    def __init__(self, join: OnlineOperator, index: HashIndex) -> None:
        super().__init__(join)
        self.index, self.combinations = index, Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen bucket: those of its flush are old, later ones new."""
        self.join.write_blocks(side, rows, tick, bucket, group=-1 - side if kind == NEW else tick)

    def leave_memory(self) -> None:
        """Rows of frozen buckets go to disk. The others are complete, if never drained."""
        while flush_waiting(self.index.table, self.index.rows, self.index.out):
            self.join.write_gone()
        if any(store.drained_blocks for store in self.blocks):
            self.join.empty_memory()
        else:
            self.join.forget_memory()

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every pair on disk but those of one group."""
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, "group")

    def renumber(self) -> None:
        """All rows on disk are old, and of one group; buckets take rows in memory again."""
        tick = self.join.tick()
        for store in self.blocks:
            store.directory.regroup(tick)
        self.index.table.frozen[:] = 0
