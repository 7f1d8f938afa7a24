"""MJoin: many streams on one common attribute, whole buckets leave all hash tables at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.kernels.multi_flush import RANDOM
from dovetail.joins.online.kernels.multi_hash import (
    CHAIN_BYTES,
    arrive_tables,
    drop_hashed,
    empty_tables,
    flush_bucket,
    store_hashed,
)
from dovetail.joins.online.kernels.multi_rows import MultiArrivals
from dovetail.joins.online.kernels.tree import LINK_BYTES
from dovetail.joins.online.multiway.base import MultiOperator
from dovetail.joins.online.multiway.miner import MinerOperator
from dovetail.joins.online.multiway.settling import nothing_done
from dovetail.joins.online.multiway.sizes import MultiFootprint
from dovetail.joins.online.multiway.spec import MultiJoin

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

    def footprint(self) -> MultiFootprint:
        """Slots, with chains and cells for each input, or nodes of indexes."""
        chains, links = CHAIN_BYTES + 4 * len(self.inputs), LINK_BYTES * self.most_attributes
        return self.needs(chains if self.graph.is_common else links)

    @property
    def operator(self) -> type[MultiOperator]:
        """The class of the running join."""
        return MJoinOperator if self.graph.is_common else RandomOperator

    def options(self) -> list[str]:
        """Which bucket leaves."""
        return [f"flush={self.flush}" if self.graph.is_common else "flush=random"]


class MJoinOperator(MultiOperator):
    """A running MJoin on a common attribute."""

    by_group: ClassVar[bool] = True

    def index_rows(self) -> None:
        """A hash table for each input."""
        smallest = isinstance(self.spec, MJoin) and self.spec.flush == "smallest"
        self.tables = empty_tables(len(self.names), self.fitted.slots, self.fitted.buckets, smallest, self._bands())

    def _bands(self) -> I64:
        """Bands besides the common key, in both directions."""
        keys, found = self.keys, []
        for edge, end in np.argwhere(keys.near >= 0).tolist():
            ends = [[int(keys.ends[edge, at]), int(keys.near[edge, at])] for at in (end, 1 - end)]
            found.append([*ends[0], *ends[1], *keys.near_around[edge, end].tolist()])
        return np.array(found, np.int64).reshape(-1, 7)

    def drop_index(self) -> None:
        """Forget all tables."""
        self.tables = empty_tables(len(self.names), 0, self.fitted.buckets, False)

    def arrive(self, new: MultiArrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_tables(self.rows, self.tables, new, self.stack, self.out)

    def flush(self) -> bool:
        """One bucket leaves all tables."""
        return flush_bucket(self.rows, self.tables, self.out)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Bucket by bucket all combinations but those of one generation; then all rows are of one."""
        for bucket in range(self.fitted.buckets):
            numbers = [store.of_mark(bucket) for store in self.blocks]
            yield from self.settle(numbers, nothing_done(len(numbers)))

    def renumber(self) -> None:
        """All rows on disk are of one generation."""
        for store in self.blocks:
            store.directory.regroup(0)

    def store(self, r: int, slots: I32) -> None:
        """The rows are in their table."""
        store_hashed(self.rows, self.tables, r, slots.astype(np.int64))

    def drop(self, number: int, slots: I32) -> None:
        """The rows leave their table, whose chains are walked once."""
        drop_hashed(self.rows, self.tables, self.out, number, int(self.rows.ats[slots].max()))
        self.forget_gone(number)


class RandomOperator(MinerOperator):
    """A running MJoin on another tree: rows leave by chance, and disks are read at the end only."""

    policy: ClassVar[int] = RANDOM

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nothing: the source has no work in pauses."""
        return iter(())
