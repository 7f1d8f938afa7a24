"""X-HYBRIDJOIN: HYBRIDJOIN with the most wanted pages of the master data pinned in memory as a plain buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.base import Loaded, Rows
from dovetail.joins.semistream.operators.index_driven import IndexDriven
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Part, Segments, Sizes

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.pages import Pages


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
        operator = PinnedPages(self, budget, stream, shape, sizes)
        operator.lookup = self.lookup
        return operator

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


class PinnedPages(IndexDriven):
    """The running join: the pinned pages are one more segment, which is always there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pinned_rows = self.budget.reserve("pinned pages")  # given back with the chunk
        self._pin()

    def geometry(self, pages: Pages) -> Segments:
        """Segments of the pages that are not pinned, and the pinned ones."""
        return Segments(pages, self.sizes.per_segment or 1, self.sizes.pinned or 0)

    def _pin(self) -> None:
        self._pinned: Loaded | None = None
        if not self.segments.pinned:
            return
        batch = self.segments.read(self.segments.aligned)
        kept = batch.select(self.kept_columns())
        size = int(batch.get_total_buffer_size())
        chunk = self.master.add_charged(kept, size, self._pinned_rows)
        codes, _ = self.key_codes.encode([batch.column(batch.schema.get_field_index(k)) for k in self.pages.key])
        self._pinned = Loaded(kept, codes, chunk)

    def lasting(self) -> set[int]:
        """The pinned pages."""
        pinned = getattr(self, "_pinned", None)
        return set() if pinned is None else {pinned.chunk}

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Admit, meet the pinned pages, and load when no slot is free."""
        start, n = 0, len(rows.codes)
        while start < n:
            start = self.admit(rows, start)
            yield from self.meet_pinned()
            if start < n and self.waiting.slots == len(self.waiting):
                yield from self.make_slots()
        while self.waiting.overdue(self.spec.max_residence, self._clock.now_ns()):
            yield from self.work()

    def meet_pinned(self) -> Iterator[pa.RecordBatch]:
        """Answer what waits for the pinned pages."""
        if self._pinned is not None:
            yield from self.resolve(self.segments.aligned, self._pinned, "answered_by_cache")

    def adopted(self, changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Read the pinned pages anew."""
        if self._pinned is not None:
            self.master.drop([self._pinned.chunk])
        self._pin()
        return iter(())

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Take up another number of waiting rows; the pinned part stays as it is."""
        if sizes.pinned not in (None, self.sizes.pinned):
            raise PlanError(
                f"pinned={sizes.pinned}: the pinned pages cannot change while a join runs; start a new one."
            )
        yield from super().resize(replace(sizes, pinned=None))
