"""EHJ, the early hash join: the larger relation's partitions are frozen first, arrival ticks suffice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving, Rule
from dovetail.joins.online.kernels.flush import EHJ
from dovetail.joins.online.kernels.table import ONE_SIDE
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint

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

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One side is that of unique keys, if keys are exact and nothing but equality decides."""
        one = _ONE[self.cardinality] if keys.exact and not keys.banded else -1
        return HashIndex(fitted, keys, EHJ, one_side=one)

    def disk(self, join: OnlineOperator) -> Disk:
        """Frozen partitions."""
        assert isinstance(join.index, HashIndex)  # noqa: S101  (for the type checker)
        return FrozenPartitions(join, join.index)

    def options(self) -> list[str]:
        """The cardinality."""
        return [f"cardinality={self.cardinality}"]


class FrozenPartitions(Disk):
    """Blocks of frozen partitions. A block's departure is the tick at which its partition was frozen."""

    def __init__(self, join: OnlineOperator, index: HashIndex) -> None:
        super().__init__(join)
        self.index, self.combinations = index, Combinations(join)

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
