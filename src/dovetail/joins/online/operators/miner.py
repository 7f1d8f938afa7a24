"""MINER and MJoin: joins of many streams.

MINER evicts rows of little benefit, by regions of each join attribute; MJoin evicts whole buckets of all hash tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.areas import BENEFIT, RANDOM, SIDE_BYTES, drop_rows, empty_areas, flush_areas
from dovetail.joins.online.kernels.indexed import arrive_multi, edges_of, empty_stack, store_all
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.table import MJOIN, MJOIN_SMALLEST, bucket_bytes, slot_bytes
from dovetail.joins.online.kernels.tree import LINK_BYTES, empty_trees
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.diner import count_regions
from dovetail.joins.online.operators.hash_joins import HashIndex
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Fitted, Footprint

CLEANUPS = ("survivors", "odometer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Miner(MultiJoin):
    """Rows that took part in fewest results leave memory first, by three regions of each join attribute.

    Arriving rows probe along the edges of least selectivity. In pauses blocks of all inputs are joined in nested loops
    that stop after each block when input resumes, and skip blocks that cannot match. Decisions are those of the
    tuple-at-a-time algorithm, for every batch size. `cleanup` is how owed results are found at the end: "survivors"
    holds rows that can still match, "odometer" continues the nested loops of the pauses.
    Reference: Bornea 2010, 4; docs/algorithms/online.md, 4 and 5.3.
    """

    cleanup: Literal["survivors", "odometer"] = "survivors"

    def check(self) -> None:
        """`PlanError` for predicates that form no tree, or an unknown clean-up."""
        MultiJoin.check(self)
        if self.cleanup not in CLEANUPS:
            raise PlanError(f"cleanup={self.cleanup!r} is not one of {CLEANUPS}.")

    def footprint(self) -> Footprint:
        """Slots, and nodes of the indexes for each attribute."""
        return self.needs(LINK_BYTES * self.most_attributes)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Ordered indexes, whose rows of least benefit leave."""
        return TreeIndex(fitted, keys, self.seed, BENEFIT)

    def disk(self, join: OnlineOperator) -> Disk:
        """Nested loops over blocks."""
        return BlockLoop(join, settles=self.cleanup == "survivors")


class TreeIndex(Index):
    """An ordered index with three regions for each input and attribute, and the join tree along which rows probe."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, seed: int, policy: int) -> None:
        super().__init__(fitted, keys, flushes=32)
        self.stack = empty_stack(len(keys.counts))
        self.trees = empty_trees(len(keys.counts), int(keys.counts.max()), fitted.slots)
        self.areas = empty_areas(keys.counts, fitted.block_rows, seed, policy, fitted.slots, keys.order)
        each = (keys.ends, keys.attributes, keys.around, keys.near, keys.near_around)
        self.edges = edges_of(*(np.array(some) for some in each))

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_multi(self.rows, self.areas, self.trees, self.edges, new, self.stack, self.out)

    def flush(self) -> bool:
        """Flush one block of the input with the most rows."""
        return flush_areas(self.areas, self.rows, self.trees, self.out)

    def store(self, side: int, slots: I32) -> None:
        """Insert the rows into all indexes."""
        store_all(self.rows, self.areas, self.trees, side, slots.astype(np.int64))

    def drop(self, side: int, slots: I32) -> None:
        """Remove the rows from all indexes."""
        drop_rows(self.areas, self.rows, self.trees, self.out, side, slots)

    def forget(self) -> None:
        """Drop all indexes."""
        self.trees = empty_trees(len(self.keys.counts), 1, 0)

    def sorted_by(self, side: int, bucket: int) -> int:
        """The attribute that the flush was chosen by."""
        return bucket

    def count(self, names: Sequence[str], metrics: Metrics) -> None:
        """How often each region was flushed first, and selectivities."""
        count_regions(self.areas, names, metrics)
        for edge, ends in enumerate(self.keys.ends.tolist()):
            label = "-".join(names[r] for r in ends)
            metrics.peak("sigma", int(1e9 * self.edges.sigma[edge]), label, unit="per billion")


FLUSHES = ("largest", "smallest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MJoin(MultiJoin):
    """A hash table for each input on one common key; a bucket is flushed from all of them together.

    Where one attribute is equal in all inputs, a combination was produced exactly if its rows have one generation of
    their bucket; `flush` is which bucket leaves, the one with most rows as in the source, or with fewest. Other trees
    are ours: there rows leave at random, and combinations are told apart by ticks, as in MINER. There is no work in
    pauses.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.8.
    """

    flush: Literal["largest", "smallest"] = "largest"

    def check(self) -> None:
        """`PlanError` for predicates that form no tree, or an unknown flush."""
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
        """Hash tables on a common key; else ordered indexes, whose rows leave at random."""
        if not self.graph.is_common:
            return TreeIndex(fitted, keys, self.seed, RANDOM)
        return HashIndex(fitted, keys, MJOIN if self.flush == "largest" else MJOIN_SMALLEST)

    def disk(self, join: OnlineOperator) -> Disk:
        """Generations of buckets on a common key; else all owed results are found at the end."""
        return Generations(join) if self.graph.is_common else BlockLoop(join, reacts=False)

    def options(self) -> list[str]:
        """Which bucket leaves."""
        return [f"flush={self.flush}" if self.graph.is_common else "flush=random"]


class Generations(Disk):
    """Blocks of one bucket and generation have been joined. A block's group is its generation: the tick of its
    flush."""

    blocks_at_once: ClassVar[int] = 2

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.combinations = Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of all inputs that left together are of one generation."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Bucket by bucket all combinations except those of one generation; afterwards all rows are of one
        generation."""
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, "group")

    def renumber(self) -> None:
        """All rows on disk are of one generation."""
        for store in self.blocks:
            store.directory.regroup(0)
