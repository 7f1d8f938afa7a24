"""Rows of all inputs in memory by hash, in buckets that are the same of each of them."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.joins.online.kernels.flush import flush_hashed
from dovetail.joins.online.kernels.hashed import arrive_hashed, drop_all, empty_search, put_all
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.table import Table, bucket_bytes, empty_table, slot_bytes
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.parts import Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


def hashed_footprint(spec: OnlineJoin) -> Footprint:
    """Slots with their chains and queues; buckets, and flushes listed of each."""
    return Footprint(spec.row_bytes + slot_bytes(2), bucket=bucket_bytes(2), fixed=13 * 40 + 512)


class HashIndex(Index):
    """A hash table for all inputs; `policy` says what leaves when memory is full, `knobs` how.

    `one_side` is the side whose keys are unique, so that matched rows of the other can be dropped; -1 if there is none.
    """

    def __init__(
        self, fitted: Fitted, keys: JoinKeys, policy: int, buckets: int | None = None, one_side: int = -1
    ) -> None:
        self.buckets, self.policy, self.sides = buckets or fitted.partitions, policy, len(keys.counts)
        super().__init__(fitted, keys, flushes=2 * (self.sides * self.buckets + 2) + 8)
        waiting = max(1, fitted.rows // 10)
        sizes = (fitted.slots, self.buckets, policy, fitted.block_rows, waiting)
        self.table: Table = empty_table(*sizes, one_side, self.sides)
        self.search = empty_search(self.sides, _bands(keys))
        self.knobs = np.array([1.0, float(fitted.block_rows), 0.05])

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_hashed(self.rows, self.table, self.search, new, self.out, self.knobs)

    def flush(self) -> bool:
        """Rows leave as the policy says."""
        return flush_hashed(self.table, self.rows, self.out, self.knobs)

    def forget(self) -> None:
        """Chains and queues go; what is known of buckets stays."""
        small = empty_table(0, 1, self.policy, 1, 1)
        self.table = small._replace(frozen=self.table.frozen, seen=self.table.seen, meta=self.table.meta)

    def store(self, side: int, slots: I32) -> None:
        """The rows are in their buckets."""
        put_all(self.rows, self.table, side, slots)

    def drop(self, side: int, slots: I32) -> None:
        """The rows leave their buckets."""
        drop_all(self.table, self.rows, self.out, side, slots)

    def sorted_by(self, side: int, bucket: int) -> int:
        """The last key of the input."""
        return int(self.keys.widths[side]) - 1


def _bands(keys: JoinKeys) -> I64:
    """Bands besides the common key, in both directions."""
    found = []
    for edge, end in np.argwhere(keys.near >= 0).tolist():
        ends = [[int(keys.ends[edge, at]), int(keys.near[edge, at])] for at in (end, 1 - end)]
        found.append([*ends[0], *ends[1], *keys.near_around[edge, end].tolist()])
    return np.array(found, np.int64).reshape(-1, 7)
