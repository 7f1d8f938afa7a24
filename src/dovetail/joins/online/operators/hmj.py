"""HMJ, the hash-merge join: pairs of buckets are flushed as sorted segments, which are merged in pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.kernels.flush import HMJ, HMJ_SMALLEST
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.merging import Segments
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMergeJoin(OnlineJoin):
    """When memory is full, both sides of a bucket go to disk, each sorted: the largest pair that keeps the sides alike.

    `flush="smallest"` takes the smallest pair of at least a block instead. In pauses, and at the end, up to `fan_in`
    pairs of segments of a bucket are merged: pairs of rows of different segments come out, and the merged pair is one
    segment from then on. A merge is the unit of work, after which `until` is asked; it grows as segments grow.
    Reference: Bornea 2010, 2; Naeem 2012, 2.3.4; docs/algorithms/online.md, 2.5.
    """

    flush: Literal["largest", "smallest"] = "largest"

    def __post_init__(self) -> None:
        OnlineJoin.__post_init__(self)
        if self.flush not in ("largest", "smallest"):
            raise PlanError(f"flush={self.flush!r} is not one of ['largest', 'smallest'].")

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """A pair of buckets leaves."""
        return HashIndex(fitted, keys, HMJ if self.flush == "largest" else HMJ_SMALLEST)

    def disk(self, join: OnlineOperator) -> Disk:
        """Merges of segments."""
        return MergedInPauses(join)

    def options(self) -> list[str]:
        """Which pair is flushed."""
        return [f"flush={self.flush}"]


class MergedInPauses(Segments):
    """Segments of HMJ: both sides of one flush are one pair, named by the tick of the flush or merge."""

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Merges, of the bucket with the most segments first, until every bucket has one or `until()`."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=True)
            if until():
                return
