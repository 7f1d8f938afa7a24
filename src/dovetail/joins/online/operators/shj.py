"""SHJ, the symmetric hash join: both inputs in memory, every pair as soon as its later row arrives."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.engine.memory import format_bytes
from dovetail.joins.online.kernels.flush import NEVER
from dovetail.joins.online.kernels.rows import HELD
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricHashJoin(OnlineJoin):
    """All results in the arriving phase, with both inputs in memory: `BudgetExceeded` when they do not fit.

    Nothing is flushed, so there is no reactive phase, no clean-up, and no pair can come twice.
    Reference: Naeem 2012, 2.3.1; docs/algorithms/online.md, 2.1.
    """

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One bucket: buckets are for flushing."""
        return HashIndex(fitted, keys, NEVER, buckets=1)

    def disk(self, join: OnlineOperator) -> Disk:
        """Nothing goes there."""
        return NoDisk(join)


class NoDisk(Disk):
    """No row ever leaves memory, so nothing is owed."""

    def leave_memory(self) -> None:
        """Rows stay where they are."""

    def refusal(self) -> str:
        """Rows that do not fit have nowhere to go."""
        return (
            f"the symmetric hash join keeps both inputs in memory, and {format_bytes(self.join.budget.limit)} are full "
            f"after {self.join.rows.meta[HELD]} rows; give it more memory, or use Diner or another join that can flush."
        )
