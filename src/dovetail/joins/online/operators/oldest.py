"""Oldest first: the baseline that looks at no data; on rows in random order it gives 2f - f² of the result online."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.joins.online.kernels.flush import OLDEST
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestFirst(OnlineJoin):
    """The oldest block of the side with more rows in memory leaves; blocks meet as those of DINER do.

    With f the share of each side that fits in memory, 2f - f² of the result comes online if the order is random.
    A baseline of ours, not of the sources.
    Reference: docs/algorithms/online.md, 6.4.
    """

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One bucket: the queue of all rows of a side."""
        return HashIndex(fitted, keys, OLDEST, buckets=1)

    def disk(self, join: OnlineOperator) -> Disk:
        """The nested loop over blocks."""
        return BlockLoop(join)
