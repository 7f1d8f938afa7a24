"""INLJ: reads the page of every stream row for that row alone, unless a cache of recent pages has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.key_cache import hits_until
from dovetail.joins.semistream.kernels.segment_match import empty_scratch, scratch_bytes
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.master_rows import Loaded, Read
from dovetail.joins.semistream.operators.operator import NothingWaits, SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import Rows, places_by_value
from dovetail.joins.semistream.sizes import Part, Sizes, asks_for_keys, footprint

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.pages import Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlj(SemiStreamJoin):
    """One page read for each stream row that has a home: nothing waits, and nothing is shared.

    With `sizes.page_cache` the pages used last are kept, and rows whose page is there need no read. Without it, pages
    of `sizes.together` rows that follow each other are read in one round, which is ours: a page that several
    of these rows ask for is then read once.
    Reference: Naeem 2012, 2.4.1 and 5.1.2; docs/algorithms/semistream.md, 2.1.
    """

    parts: ClassVar[tuple[Part, ...]] = ()

    def fit(self, limit: int, stream: pa.Schema) -> Sizes:
        """Sizes for one page at a time, whatever the budget; `PlanError` if one page does not fit."""
        kept = self.sizes.page_cache or 0
        keyed = asks_for_keys(self.pages, self.parts)
        cost = footprint(self.pages, stream, 1, 0, 0, 1, keyed)
        least = cost.fixed + kept * cost.segment
        if limit < least:
            raise PlanError(
                f"{limit} bytes of memory are not enough for one page and {kept} cached ones; give {least}.",
                argument="memory",
            )
        fuller = footprint(self.pages, stream, 1, 0, limit, self.sizes.together, keyed)
        rounds = not kept and fuller.fixed + scratch_bytes(fuller.round_rows) <= limit
        return Sizes(per_segment=1, page_cache=kept, together=self.sizes.together if rounds else 1)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> PageByPage:
        """The running join with these sizes."""
        return PageByPage(self, budget, stream, shape, sizes)


class PageByPage(NothingWaits):
    """The running join: one load a row, and between loads the rows whose pages are kept."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: dict[int, Loaded] = {}
        self._pages = self.budget.reserve("page cache")  # given back with the pages
        self._index = self.own(self.budget.reserve("page cache index"))
        self._start_cache()
        self._round = self.own(self.budget.reserve("round"))
        self._fit_rounds()

    def _fit_rounds(self) -> None:
        """Set the number of rows that are looked up together: as many as certainly fit, or 1 with a page cache."""
        cost = self.disk.cost
        rows = cost.round_rows if self.disk.keyed else cost.round_rows // max(1, cost.segments.most_rows)
        self._together = 1 if self.sizes.page_cache else max(1, min(cost.round_segments, rows))
        self._round.resize(cost.round + scratch_bytes(cost.round_rows) if self._together > 1 else 0)
        self._wide = empty_scratch(cost.round_rows if self._together > 1 else 0)

    def _start_cache(self) -> None:
        places, pages = self.sizes.page_cache or 0, self.disk.segments.n if self.sizes.page_cache else 0
        self._index.resize(16 * places + 4 * pages)
        self._place, self._used = np.full(pages, -1, np.int32), np.zeros(places, np.int64)
        self._page = np.zeros(places, np.int64)
        self._requests = 0

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """One page after the other, as the rows ask for them; runs of rows whose pages are kept need none."""
        self.counts["admits"] += len(rows.codes)
        start, n = 0, len(rows.codes)
        if self._together > 1:
            for start in range(0, n, self._together):
                yield from self._round_of(rows.some(slice(start, start + self._together)))
            return
        while start < n:
            stop = self._hits(rows, start)
            if stop > start:
                yield from self._from_kept(rows, start, stop)
            if stop < n:
                page = int(rows.segments[stop])
                yield from self.disk.load(page, 1)
                yield from self._meet(rows, np.array([stop]), "answered_by_page")
                self._keep(page)
            start = stop + 1

    def _round_of(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """The pages of these rows, or only their keys if the store finds those, by one call; then all are answered."""
        disk = self.disk
        disk.use(None)
        yield from self.answers.flush()
        picked = np.unique(rows.segments)
        found = disk.read_keys(picked, rows.codes, rows.refs)
        if found is None:
            n = disk.affordable(picked)
            found = disk.read_segments(picked[:n])
            if n < len(picked):  # pages are larger than estimated: the rest is another round
                is_late = rows.segments > picked[n - 1]
                yield from self._met(rows.some(np.flatnonzero(~is_late)), found)
                yield from self._round_of(rows.some(np.flatnonzero(is_late)))
                return
        yield from self._met(rows, found)

    def _met(self, rows: Rows, found: Read) -> Iterator[pa.RecordBatch]:
        if found.batch.num_rows > len(self._wide.following):
            self._round.grow(scratch_bytes(found.batch.num_rows))
            self._wide = empty_scratch(found.batch.num_rows)
        self.disk.hold_round(found.batch)
        yield from self._meet(rows, np.arange(len(rows.codes)), "answered_by_page")

    def _hits(self, rows: Rows, start: int) -> int:
        if not self._kept:
            return start
        stop = hits_until(rows.segments, start, self._place, self._used, self._requests)
        self._requests += stop - start
        return stop

    def _from_kept(self, rows: Rows, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for page, places in places_by_value(rows.segments[start:stop]):
            self.disk.use(self._kept[page])
            yield from self._meet(rows, places + start, "answered_by_cache")
        self.disk.use(None)

    def _keep(self, page: int) -> None:
        """Keep the loaded page; it replaces the least recently used one if there is no free place."""
        if not self.sizes.page_cache:
            return
        place = len(self._kept)
        if place == self.sizes.page_cache:
            place = int(np.argmin(self._used))
            self._forget(int(self._page[place]))
        self.disk.keep(self.disk.loaded.chunk, self._pages)
        self._kept[page] = self.disk.loaded
        self._place[page], self._page[place] = place, page
        self._used[place] = self._requests
        self._requests += 1

    def _forget(self, page: int) -> None:
        self.disk.let_go(self._kept.pop(page).chunk)
        self._place[page] = -1

    def _meet(self, rows: Rows, some: I64, answered_by: str) -> Iterator[pa.RecordBatch]:
        wanted = rows.some(some)
        scratch = self._wide if self._together > 1 else None
        yield from self.disk.match(wanted.codes, wanted.refs, self.disk.loaded, answered_by, scratch)

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Keep another number of pages, starting with none."""
        if sizes.page_cache is not None:
            yield from self.answers.flush()
            for page in list(self._kept):
                self._forget(page)
            self.disk.release()
            self.sizes = replace(self.sizes, page_cache=sizes.page_cache)
            self._start_cache()
            self._fit_rounds()

    def regroup(self, pages: Pages) -> None:
        """Also fit rounds to the pages."""
        super().regroup(pages)
        self._fit_rounds()

    def report(self, metrics: Metrics) -> None:
        """Add all counts, with the probes of rounds."""
        self.disk.scratch.probes[0] += self._wide.probes[0]
        self._wide.probes[0] = 0
        super().report(metrics)

    def adopted(self, changed: I64 | None) -> None:
        """Drop kept pages that changed."""
        kept = {} if changed is None else {p: page for p, page in self._kept.items() if p not in changed}
        for page in [page for page in self._kept if page not in kept]:
            self._forget(page)
        order = sorted(kept, key=lambda page: int(self._used[self._place[page]]))
        self._start_cache()
        self._requests = len(order)
        for at, page in enumerate(order):
            self._place[page], self._page[at], self._used[at] = at, page, at
        self.disk.release()
