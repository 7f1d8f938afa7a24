"""HYBRIDJOIN: the oldest waiting row says which segment is loaded, and the load answers all rows that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.index_driven import IndexDriven
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridJoin(SemiStreamJoin):
    """Waiting rows in a queue; the segment of one of them is loaded, and everything that waits for it is answered.

    With the oldest row looked up a row waits for at most as many loads as there are segments, with alternate and
    guarded look-up twice as many. With `sizes.together` above 1 several segments are picked before the first is loaded:
    as in the source, but that nothing is admitted between these loads.
    Reference: Naeem 2012, 5.2 and algorithm 3; Naeem 2011, 4.2; Naeem 2014, 3 and 4;
    docs/algorithms/semistream.md, 2.6 and 2.12.
    """

    lookup: Lookup = OLDEST

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        operator = IndexDriven(self, budget, stream, shape, sizes)
        operator.lookup = self.lookup
        return operator

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]
