"""HYBRIDJOIN: the oldest waiting row says which segment is loaded, and the load answers all rows that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.semistream.lookup import OLDEST, Lookup
from dovetail.semistream.operators.index_driven import IndexDriven
from dovetail.semistream.operators.spec import SemiStreamJoin
from dovetail.semistream.output import Shape
from dovetail.semistream.sizes import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridJoin(SemiStreamJoin):
    """Waiting rows in a queue; the segment of one of them is loaded, and everything that waits for it is answered.

    With the oldest row looked up a row waits for at most as many loads as there are segments, with alternate and
    guarded look-up twice as many. With `sizes.together` above 1 several segments are picked before the first is loaded:
    as in the paper, but that nothing is admitted between these loads.
    Reference: T 5.2, algorithm 3; H 4.2; look-up positions L 3 and 4.
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
