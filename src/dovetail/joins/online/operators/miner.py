"""MINER: many streams, rows of little benefit leave memory by regions of each join attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dovetail.engine.kernels.arrays import I32
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.online.kernels.areas import BENEFIT, drop_rows, empty_areas, flush_areas
from dovetail.joins.online.kernels.indexed import arrive_multi, edges_of, empty_stack, store_all
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.tree import LINK_BYTES, empty_trees
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.diner import count_regions
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Fitted, Footprint

CLEANUPS = ("survivors", "odometer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Miner(MultiJoin):
    """Rows that took part in fewest results leave memory first, by three regions of each join attribute.

    Arriving rows probe along the edges of least selectivity. In pauses blocks of all inputs meet in nested loops that
    stop after each block when input is back, and pass over what cannot match. Decisions are those of the
    tuple-at-a-time algorithm, whatever the size of batches. `cleanup` is how what is owed at the end is found:
    "survivors" holds rows that can still match, "odometer" goes on with the nested loops of the pauses.
    Reference: Bornea 2010, 4; docs/algorithms/online.md, 4 and 5.3.
    """

    cleanup: Literal["survivors", "odometer"] = "survivors"

    def check(self) -> None:
        """`PlanError` for predicates that make no tree and a clean-up that there is not."""
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
        """One block of the input with the most rows leaves."""
        return flush_areas(self.areas, self.rows, self.trees, self.out)

    def store(self, side: int, slots: I32) -> None:
        """The rows are in all indexes."""
        store_all(self.rows, self.areas, self.trees, side, slots.astype(np.int64))

    def drop(self, side: int, slots: I32) -> None:
        """The rows leave all indexes."""
        drop_rows(self.areas, self.rows, self.trees, self.out, side, slots)

    def forget(self) -> None:
        """All indexes go."""
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
