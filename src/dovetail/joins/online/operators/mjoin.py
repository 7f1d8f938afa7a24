"""MJoin: many streams on one common attribute, whole buckets leave all hash tables at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.areas import RANDOM
from dovetail.joins.online.kernels.indexed import empty_stack
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.tables import (
    CHAIN_BYTES,
    arrive_tables,
    drop_hashed,
    empty_tables,
    flush_bucket,
    store_hashed,
)
from dovetail.joins.online.kernels.tree import LINK_BYTES
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import Disk, Index, OnlineOperator
from dovetail.joins.online.operators.miner import MinerLoops, TreeIndex
from dovetail.joins.online.operators.settling import Combinations, nothing_done
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
        chains, links = CHAIN_BYTES + 4 * len(self.inputs), LINK_BYTES * self.most_attributes
        return self.needs(chains if self.graph.is_common else links)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Hash tables on a common key; else ordered indexes, whose rows leave by chance."""
        if not self.graph.is_common:
            return TreeIndex(fitted, keys, self.seed, RANDOM)
        return TablesIndex(fitted, keys, self.flush == "smallest")

    def disk(self, join: OnlineOperator) -> Disk:
        """Generations of buckets on a common key; else all that is owed is found at the end."""
        return Generations(join) if self.graph.is_common else MinerLoops(join, reacts=False)

    def options(self) -> list[str]:
        """Which bucket leaves."""
        return [f"flush={self.flush}" if self.graph.is_common else "flush=random"]


class TablesIndex(Index):
    """A hash table for each input on the common key, with buckets that leave all of them at once."""

    ranged: ClassVar[bool] = False
    apart: ClassVar[bool] = True

    def __init__(self, fitted: Fitted, keys: JoinKeys, smallest: bool) -> None:
        super().__init__(fitted, keys, flushes=32)
        self.stack = empty_stack(len(keys.counts))
        self.tables = empty_tables(len(keys.counts), fitted.slots, fitted.partitions, smallest, _bands(keys))

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_tables(self.rows, self.tables, new, self.stack, self.out)

    def flush(self) -> bool:
        """One bucket leaves all tables."""
        return flush_bucket(self.rows, self.tables, self.out)

    def store(self, side: int, slots: I32) -> None:
        """The rows are in their table."""
        store_hashed(self.rows, self.tables, side, slots.astype(np.int64))

    def drop(self, side: int, slots: I32) -> None:
        """The rows leave their table, whose chains are walked once."""
        drop_hashed(self.rows, self.tables, self.out, side, int(self.rows.ats[slots].max()))

    def forget(self) -> None:
        """All tables go."""
        self.tables = empty_tables(len(self.keys.counts), 0, self.fitted.partitions, smallest=False)

    def sorted_by(self, side: int, bucket: int) -> int:
        """The common key; of a join with bands, buckets of small numbers are sorted by the bands' keys."""
        return bucket if bucket < self.keys.widths[side] else 0


def _bands(keys: JoinKeys) -> I64:
    """Bands besides the common key, in both directions."""
    found = []
    for edge, end in np.argwhere(keys.near >= 0).tolist():
        ends = [[int(keys.ends[edge, at]), int(keys.near[edge, at])] for at in (end, 1 - end)]
        found.append([*ends[0], *ends[1], *keys.near_around[edge, end].tolist()])
    return np.array(found, np.int64).reshape(-1, 7)


class Generations(Disk):
    """Blocks of one bucket and generation have met. A block's group is its generation: the tick of its flush."""

    blocks_at_once: ClassVar[int] = 2

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.combinations = Combinations(join, "group")

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of all inputs that left together are of one generation."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Bucket by bucket all combinations but those of one generation; then all rows are of one."""
        for bucket in range(self.join.fitted.partitions):
            numbers = [store.of_bucket(bucket).tolist() for store in self.blocks]
            yield from self.combinations.settle(numbers, nothing_done(len(numbers)))

    def renumber(self) -> None:
        """All rows on disk are of one generation."""
        for store in self.blocks:
            store.directory.regroup(0)
