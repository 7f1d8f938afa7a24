"""Rows of two inputs in memory by hash, in buckets that are the same on both sides."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32
from dovetail.joins.online.kernels.flush import flush_hashed
from dovetail.joins.online.kernels.hashed import arrive_hashed, drop_all, put_all
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.table import BUCKET_BYTES, SLOT_BYTES, Table, empty_table
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


def hashed_footprint(spec: OnlineJoin) -> Footprint:
    """Slots with their chains and queues; buckets, and flushes listed of each."""
    return Footprint(spec.row_bytes + SLOT_BYTES, bucket=BUCKET_BYTES + 4 * 40, fixed=13 * 40 + 512)


class HashIndex(Index):
    """A hash table for both sides; `policy` says what leaves when memory is full, `knobs` how.

    `one_side` is the side whose keys are unique, so that matched rows of the other can be dropped; -1 if there is none.
    """

    def __init__(
        self, fitted: Fitted, keys: JoinKeys, policy: int, buckets: int | None = None, one_side: int = -1
    ) -> None:
        self.buckets, self.policy = buckets or fitted.partitions, policy
        super().__init__(fitted, keys, flushes=2 * (2 * self.buckets + 2) + 8)
        waiting = max(1, fitted.rows // 10)
        self.table: Table = empty_table(fitted.slots, self.buckets, policy, fitted.block_rows, waiting, one_side)
        self.knobs = np.array([1.0, float(fitted.block_rows), 0.05])

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_hashed(self.rows, self.table, new, self.out, self.knobs)

    def flush(self) -> bool:
        """Rows leave as the policy says."""
        return flush_hashed(self.table, self.rows, self.out, self.knobs)

    def forget(self) -> None:
        """Chains and queues go; what is known of buckets stays."""
        small = empty_table(0, 1, self.policy, 1, 1, -1)
        self.table = small._replace(frozen=self.table.frozen, seen=self.table.seen, meta=self.table.meta)

    def store(self, side: int, slots: I32) -> None:
        """The rows are in their buckets."""
        put_all(self.rows, self.table, side, slots)

    def drop(self, side: int, slots: I32) -> None:
        """The rows leave their buckets."""
        drop_all(self.table, self.rows, self.out, side, slots)
