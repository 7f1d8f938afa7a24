"""EHJ, the early hash join: the larger relation's partitions are frozen first, arrival ticks suffice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving, Rule
from dovetail.joins.online.kernels.flush import EHJ
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hashed import HashedJoin, HashedOperator

Cardinality = Literal["many_to_many", "one_to_many", "many_to_one"]
_ONE = {"many_to_many": -1, "one_to_many": 0, "many_to_one": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyHashJoin(HashedJoin):
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
        super(HashedJoin, self).__post_init__()
        if self.cardinality not in get_args(Cardinality):
            raise PlanError(f"cardinality={self.cardinality!r} is not one of {list(get_args(Cardinality))}.")

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return EhjOperator

    def options(self) -> list[str]:
        """The cardinality."""
        return [f"cardinality={self.cardinality}"]


class EhjOperator(HashedOperator):
    """A running early hash join. A block's departure is the tick at which its partition was frozen."""

    policy: ClassVar[int] = EHJ

    def one_side(self) -> int:
        """The side of unique keys, if keys are exact and nothing but equality decides."""
        assert isinstance(self.spec, EarlyHashJoin)  # noqa: S101  (for the type checker)
        return _ONE[self.spec.cardinality] if self.keys.exact and not self.keys.banded else -1

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows of a frozen partition, of its flush or later ones."""
        frozen = int(self.table.frozen[side * self.buckets + bucket])
        self.write_blocks(side, rows, frozen, bucket)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every partition: pairs whose later row arrived after the earlier one's partition was frozen."""
        rule: Rule = "ticks" if self.one_side() < 0 else "none"
        for bucket in self.disk_buckets():
            left, right = (store.of_bucket(bucket).tolist() for store in self.blocks)
            yield from self.cross(left, right, rule)

    def renumber(self) -> None:
        """Partitions take rows in memory again."""
        self.table.frozen[:] = 0
