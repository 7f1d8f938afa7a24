"""MJoin: many streams on one common attribute, whole buckets leave all hash tables at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.areas import RANDOM, SIDE_BYTES
from dovetail.joins.online.kernels.flush import MJOIN, MJOIN_SMALLEST
from dovetail.joins.online.kernels.table import bucket_bytes, slot_bytes
from dovetail.joins.online.kernels.tree import LINK_BYTES
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_index import HashIndex
from dovetail.joins.online.operators.miner import TreeIndex
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Fitted, Footprint

FLUSHES = ("largest", "smallest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MJoin(MultiJoin):
    """A hash table for each input on one common key; a bucket is flushed from all of them together.

    Where one attribute is equal in all inputs, a combination was produced exactly if its rows have one generation of
    their bucket; `flush` is which bucket leaves, the one with most rows as in the source, or with fewest. Other trees
    are not the source's: there rows leave by chance and combinations are told apart by ticks, as in MINER. There is no
    work in pauses.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.8.
    """

    flush: Literal["largest", "smallest"] = "largest"

    def check(self) -> None:
        """`PlanError` for predicates that make no tree and a flush that there is not."""
        MultiJoin.check(self)
        if self.flush not in FLUSHES:
            raise PlanError(f"flush={self.flush!r} is not one of {FLUSHES}.")

    def footprint(self) -> Footprint:
        """Slots, with chains and cells for each input, or nodes of indexes."""
        if self.graph.is_common:
            n = len(self.inputs)
            return replace(self.needs(slot_bytes(n)), bucket=bucket_bytes(n))
        return self.needs(LINK_BYTES * self.most_attributes + SIDE_BYTES)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Hash tables on a common key; else ordered indexes, whose rows leave by chance."""
        if not self.graph.is_common:
            return TreeIndex(fitted, keys, self.seed, RANDOM)
        return HashIndex(fitted, keys, MJOIN if self.flush == "largest" else MJOIN_SMALLEST)

    def disk(self, join: OnlineOperator) -> Disk:
        """Generations of buckets on a common key; else all that is owed is found at the end."""
        return Generations(join) if self.graph.is_common else BlockLoop(join, reacts=False)

    def options(self) -> list[str]:
        """Which bucket leaves."""
        return [f"flush={self.flush}" if self.graph.is_common else "flush=random"]


class Generations(Disk):
    """Blocks of one bucket and generation have met. A block's group is its generation: the tick of its flush."""

    blocks_at_once: ClassVar[int] = 2

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.combinations = Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of all inputs that left together are of one generation."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Bucket by bucket all combinations but those of one generation; then all rows are of one."""
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, "group")

    def renumber(self) -> None:
        """All rows on disk are of one generation."""
        for store in self.blocks:
            store.directory.regroup(0)
