"""What joins that hash share: the table of rows in memory, and its flush policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.engine.kernels.arrays import I32
from dovetail.joins.online.kernels.flush import flush_hashed
from dovetail.joins.online.kernels.hashed import arrive_hashed, drop_all, put_all
from dovetail.joins.online.kernels.rows import CODE_BYTES, ROW_BYTES, Arrivals
from dovetail.joins.online.kernels.table import BUCKET_BYTES, SLOT_BYTES, Table, empty_table
from dovetail.joins.online.operators.crossing import CrossingOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedJoin(OnlineJoin):
    """An online join whose rows in memory are hashed into buckets, the same ones on both sides."""

    def footprint(self) -> Footprint:
        """Slots with their chains and queues; buckets, and flushes listed of each."""
        code = CODE_BYTES if self.within is not None else 0
        return Footprint(4 + ROW_BYTES + code + SLOT_BYTES, BUCKET_BYTES + 4 * 40, 13 * 40 + 512)


class HashedOperator(CrossingOperator):
    """A running join that hashes."""

    policy: ClassVar[int]

    def allocate(self, fitted: Fitted) -> None:
        """Besides what all joins need, the table."""
        super().allocate(fitted)
        waiting = max(1, fitted.rows // 10)
        self.table: Table = empty_table(
            fitted.slots, self.buckets, self.chosen_policy(), fitted.block_rows, waiting, self.one_side()
        )
        self.knobs = np.array([1.0, float(fitted.block_rows), 0.05])

    @property
    def buckets(self) -> int:
        """How many buckets a side has."""
        return self.fitted.partitions

    def chosen_policy(self) -> int:
        """What leaves when memory is full."""
        return self.policy

    def one_side(self) -> int:
        """The side whose keys are unique, so that matched rows of the other can be dropped; -1 if there is none."""
        return -1

    def flushes_listed(self) -> int:
        """How many flushes a kernel may list before they are written."""
        return 2 * (2 * self.buckets + 2) + 8

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_hashed(self.rows, self.table, new, self.out, self.knobs)

    def flush(self) -> bool:
        """Rows leave as the policy says."""
        return flush_hashed(self.table, self.rows, self.out, self.knobs)

    def drop_index(self) -> None:
        """Forget chains and queues; what is known of buckets stays."""
        small = empty_table(0, 1, self.policy, 1, 1, -1)
        self.table = small._replace(frozen=self.table.frozen, seen=self.table.seen, meta=self.table.meta)

    def store(self, number: int, slots: I32) -> None:
        """The rows are in their buckets."""
        put_all(self.rows, self.table, number, slots)

    def drop(self, number: int, slots: I32) -> None:
        """The rows leave their buckets."""
        drop_all(self.table, self.rows, self.out, number, slots)
        self.write_gone()
