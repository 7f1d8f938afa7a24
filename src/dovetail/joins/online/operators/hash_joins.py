"""Joins over a hash index: SHJ, DPHJ and EHJ.

`HashIndex` holds rows of all inputs by hash, in buckets that all inputs share; XJoin, RPJ, HMJ and MJoin use it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import format_bytes
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving, Rule
from dovetail.joins.online.kernels.hashed import arrive_hashed, drop_all, empty_search, put_all
from dovetail.joins.online.kernels.rows import HELD, NEW, Arrivals
from dovetail.joins.online.kernels.table import (
    DPHJ,
    EHJ,
    NEVER,
    ONE_SIDE,
    Table,
    empty_table,
    flush_hashed,
    flush_waiting,
)
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted


class HashIndex(Index):
    """A hash table for all inputs; `policy` says what leaves when memory is full.

    `one_side` is the side whose keys are unique, so that matched rows of the other can be dropped; -1 if there is none.
    `ageing` is by what RPJ multiplies its counts of arrivals at each flush.
    """

    def __init__(
        self,
        fitted: Fitted,
        keys: JoinKeys,
        policy: int,
        buckets: int | None = None,
        one_side: int = -1,
        ageing: float = 1.0,
    ) -> None:
        self.buckets, self.policy, self.sides = buckets or fitted.partitions, policy, len(keys.counts)
        super().__init__(fitted, keys, flushes=2 * (self.sides * self.buckets + 2) + 8)
        waiting = max(1, fitted.rows // 10)
        sizes = (fitted.slots, self.buckets, policy, fitted.block_rows, waiting)
        self.table: Table = empty_table(*sizes, one_side, self.sides)
        self.search = empty_search(self.sides, _bands(keys))
        self.ageing = float(ageing)

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        if self.keys.grows:
            self.search.bands[:] = _bands(self.keys)
        return arrive_hashed(self.rows, self.table, self.search, new, self.out, self.ageing)

    def flush(self) -> bool:
        """Flush rows by the policy."""
        return flush_hashed(self.table, self.rows, self.out, self.ageing)

    def forget(self) -> None:
        """Drop chains and queues; statistics of buckets stay."""
        small = empty_table(0, 1, self.policy, 1, 1)
        self.table = small._replace(frozen=self.table.frozen, seen=self.table.seen, meta=self.table.meta)

    def store(self, side: int, slots: I32) -> None:
        """Insert the rows into their buckets."""
        put_all(self.rows, self.table, side, slots)

    def drop(self, side: int, slots: I32) -> None:
        """Remove the rows from their buckets."""
        drop_all(self.table, self.rows, self.out, side, slots)

    def sorted_by(self, side: int, bucket: int) -> int:
        """The last key of the input."""
        return int(self.keys.widths[side]) - 1


def hash_index(join: OnlineOperator) -> HashIndex:
    """The index of a join that hashes."""
    assert isinstance(join.index, HashIndex)  # noqa: S101  (for the type checker)
    return join.index


def _bands(keys: JoinKeys) -> I64:
    """Bands besides the common key, in both directions."""
    found = []
    for edge, end in np.argwhere(keys.near >= 0).tolist():
        ends = [[int(keys.ends[edge, at]), int(keys.near[edge, at])] for at in (end, 1 - end)]
        found.append([*ends[0], *ends[1], *keys.near_around[edge, end].tolist()])
    return np.array(found, np.int64).reshape(-1, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricHashJoin(OnlineJoin):
    """All results in the arriving phase, with both inputs in memory: `BudgetExceeded` when they do not fit.

    Nothing is flushed, so there is no reactive phase, no clean-up, and no pair can come twice.
    Reference: Naeem 2012, 2.3.1; docs/algorithms/online.md, 2.1.
    """

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One bucket: buckets are for flushing."""
        return HashIndex(fitted, keys, NEVER, buckets=1)

    def disk(self, join: OnlineOperator) -> Disk:
        """No work on disk."""
        return NoDisk(join)


class NoDisk(Disk):
    """No row ever leaves memory, so nothing is owed."""

    def leave_memory(self) -> None:
        """Rows stay where they are."""

    def refusal(self) -> str:
        """The reason: this join does not spill."""
        return (
            f"the symmetric hash join keeps both inputs in memory, and {format_bytes(self.join.budget.limit)} are full "
            f"after {self.join.rows.meta[HELD]} rows; give it more memory, or use Diner or another join that can flush."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublePipelinedJoin(OnlineJoin):
    """When memory is full, both sides of the bucket with the most rows go to disk, and the bucket is frozen.

    Rows that arrive for a frozen bucket are not probed and go to disk as new; the clean-up produces all pairs except
    old with old. There is no reactive phase. Good for inputs little larger than memory, poor for larger ones.
    Reference: Naeem 2012, 2.3.2; docs/algorithms/online.md, 2.2.
    """

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """Full buckets leave and are frozen."""
        return HashIndex(fitted, keys, DPHJ)

    def disk(self, join: OnlineOperator) -> Disk:
        """Old and new rows of frozen buckets."""
        return FrozenBuckets(join)


class FrozenBuckets(Disk):
    """Blocks of frozen buckets.

    A block's group is the tick at which its bucket was frozen for old rows, and a negative number of its side for new
    ones, so that only old rows of one bucket are of one group.
    """

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.index, self.combinations = hash_index(join), Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen bucket: those of its flush are old, later ones new."""
        self.join.write_blocks(side, rows, tick, bucket, group=-1 - side if kind == NEW else tick)

    def leave_memory(self) -> None:
        """Write rows of frozen buckets to disk. The others are complete, if never drained."""
        while flush_waiting(self.index.table, self.index.rows, self.index.out):
            self.join.write_gone()
        if any(store.drained for store in self.blocks):
            self.join.empty_memory()
        else:
            self.join.forget_memory()

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every pair on disk except those of one group."""
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, "group")

    def renumber(self) -> None:
        """All rows on disk are old, and of one group; buckets take rows in memory again."""
        tick = self.join.tick()
        for store in self.blocks:
            store.directory.regroup(tick)
        self.index.table.frozen[:] = 0


Cardinality = Literal["many_to_many", "one_to_many", "many_to_one"]
_ONE = {"many_to_many": -1, "one_to_many": 0, "many_to_one": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyHashJoin(OnlineJoin):
    """When memory is full, the largest partition of the relation that has sent more rows goes to disk and is frozen;
    if it has none left, the smallest partition of the other.

    A row still probes the opposite partition while that is not frozen; a row of a frozen partition goes to disk. With
    `cardinality="one_to_many"` left keys are unique ("many_to_one": right ones), and a row of the other side is
    dropped once it has found its match; where keys are hashed (text, several columns) this is treated as many to many.
    There is no reactive phase.
    Reference: Naeem 2012, 2.3.5; docs/algorithms/online.md, 2.7.
    """

    cardinality: Cardinality = "many_to_many"

    def __post_init__(self) -> None:
        OnlineJoin.__post_init__(self)
        if self.cardinality not in get_args(Cardinality):
            raise PlanError(f"cardinality={self.cardinality!r} is not one of {list(get_args(Cardinality))}.")

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One side is that of unique keys, if keys are exact and nothing but equality decides."""
        one = _ONE[self.cardinality] if keys.exact and not keys.banded else -1
        return HashIndex(fitted, keys, EHJ, one_side=one)

    def disk(self, join: OnlineOperator) -> Disk:
        """Frozen partitions."""
        return FrozenPartitions(join)

    def options(self) -> list[str]:
        """The cardinality."""
        return [f"cardinality={self.cardinality}"]


class FrozenPartitions(Disk):
    """Blocks of frozen partitions. A block's departure is the tick at which its partition was frozen."""

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.index, self.combinations = hash_index(join), Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen partition, of its flush or later ones."""
        frozen = int(self.index.table.frozen[side * self.index.buckets + bucket])
        self.join.write_blocks(side, rows, frozen, bucket)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every partition: pairs whose later row arrived after the earlier one's partition was frozen."""
        rule: Rule = "ticks" if self.index.table.meta[ONE_SIDE] < 0 else "none"
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, rule)

    def renumber(self) -> None:
        """Partitions take rows in memory again."""
        self.index.table.frozen[:] = 0
