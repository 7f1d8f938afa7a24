"""HYBRIDJOIN: the oldest waiting row says which segment is loaded, and the load answers all rows that wait for it.

X-HYBRIDJOIN keeps the most wanted pages of the master data in memory beside it, as a plain buffer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.disk_buffer import Loaded
from dovetail.joins.semistream.operators.index_driven import IndexDriven, LookUps
from dovetail.joins.semistream.operators.loads import Kept, Loads, Parts
from dovetail.joins.semistream.operators.operator import Rows
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Part, Sizes


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
        return IndexDriven(self, budget, stream, shape, sizes, Kept, partial(LookUps, lookup=self.lookup))

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class XHybridJoin(SemiStreamJoin):
    """HYBRIDJOIN whose first `sizes.pinned` pages stay in memory and meet all waiting rows before every load.

    Meant for master data with the most wanted rows first. Without `sizes.pinned` the pinned and the swapped part are of
    one size; given both, the parts are tuned independently. `sizes.together` is as in HYBRIDJOIN: the pinned pages meet
    waiting rows before every round.
    Reference: Naeem 2012, 6.2, algorithm 4 and 6.4; docs/algorithms/semistream.md, 2.7 and 2.8.
    """

    lookup: Lookup = OLDEST
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "pinned")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep, schedule = partial(PinnedPages, pages=sizes.pinned), partial(LookUps, lookup=self.lookup)
        return IndexDriven(self, budget, stream, shape, sizes, keep, schedule, pinned=sizes.pinned or 0)

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


class PinnedPages(Kept):
    """The pinned pages: one more segment, which is always there."""

    def __init__(self, parts: Parts, pages: int | None) -> None:
        super().__init__(parts)
        self._pages = pages
        self._payer = parts.budget.reserve("pinned pages")  # given back with the chunk
        self._pinned: Loaded | None = None

    def open(self) -> None:
        """Read the pinned pages."""
        disk, self._pinned = self.parts.disk, None
        if not disk.segments.pinned:
            return
        batch = disk.segments.read(disk.segments.aligned)
        kept, size = batch.select(disk.columns), int(batch.get_total_buffer_size())
        self._pinned = Loaded(kept, disk.codes_of(batch), disk.store.add_charged(kept, size, self._payer))

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Let rows wait, then answer those that wait for the pinned pages."""
        start = self.parts.admit(rows, start)
        if self._pinned is not None:
            yield from self.parts.resolve(self.parts.disk.segments.aligned, self._pinned, "answered_by_cache")
        return start

    def adopted(self, changed: I64 | None) -> None:
        """Read the pinned pages again."""
        if self._pinned is not None:
            self.parts.disk.store.drop([self._pinned.chunk])
        self.open()

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """`PlanError` for another number of pinned pages."""
        if sizes.pinned not in (None, self._pages):
            raise PlanError(
                f"pinned={sizes.pinned}: the pinned pages cannot change while a join runs; start a new one."
            )
        return iter(())
