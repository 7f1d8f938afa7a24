"""HMJ, the hash-merge join: pairs of buckets are flushed as sorted segments, which are merged in pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.flush import HMJ, HMJ_SMALLEST
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hashed import HashedJoin, HashedOperator
from dovetail.joins.online.operators.merging import MergingOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMergeJoin(HashedJoin):
    """When memory is full, both sides of a bucket go to disk, each sorted: the largest pair that keeps the sides alike.

    `flush="smallest"` takes the smallest pair of at least a block instead. In pauses, and at the end, up to `fan_in`
    pairs of segments of a bucket are merged: pairs of rows of different segments come out, and the merged pair is one
    segment from then on. A merge is the unit of work, after which `until` is asked; it grows as segments grow.
    Reference: Bornea 2010, 2; Naeem 2012, 2.3.4; docs/algorithms/online.md, 2.5.
    """

    flush: Literal["largest", "smallest"] = "largest"

    def __post_init__(self) -> None:
        super(HashedJoin, self).__post_init__()
        if self.flush not in ("largest", "smallest"):
            raise PlanError(f"flush={self.flush!r} is not one of ['largest', 'smallest'].")

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return HmjOperator

    def options(self) -> list[str]:
        """Which pair is flushed."""
        return [f"flush={self.flush}"]


class HmjOperator(HashedOperator, MergingOperator):
    """A running hash-merge join. A block's group is its segment pair: the tick of its flush or merge."""

    policy: ClassVar[int] = HMJ

    def chosen_policy(self) -> int:
        """Largest or smallest pair."""
        assert isinstance(self.spec, HashMergeJoin)  # noqa: S101  (for the type checker)
        return HMJ if self.spec.flush == "largest" else HMJ_SMALLEST

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Both sides of one flush are one segment pair."""
        self.write_blocks(side, rows, tick, bucket, group=tick)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Merges, of the bucket with the most segments first, until every bucket has one or `until()`."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=True)
            if until():
                return

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """The segments of each bucket are merged; what nobody will read any more is not written."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=not self._finished)
