"""A plain hash join, for master data that fits in memory: all of it is read once and indexed by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.engine.rows.named_rows import SHIFT
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.segment_match import index_rows, match_indexed
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.operator import NothingWaits, SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import Rows
from dovetail.joins.semistream.sizes import Part, Sizes, footprint

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.pages import Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class HashJoin(SemiStreamJoin):
    """A hash table of all master rows: stream rows are answered at once, and none waits.

    The whole master data is one segment, read when the first rows come, and again for each version. It is no
    semi-stream join: it is planned where the budget makes these pointless. `PlanError` if the master data does not fit.
    Reference: docs/algorithms/semistream.md, 1.6.
    """

    parts: ClassVar[tuple[Part, ...]] = ("resident",)
    needs_index: ClassVar[bool] = False

    def fit(self, limit: int, stream: pa.Schema) -> Sizes:
        """One segment of all pages; `PlanError`, with the memory that it needs, if that is not within `limit`."""
        pages = max(1, len(self.pages.starts) - 1)
        cost = footprint(self.pages, stream, pages, 0, limit, 1)
        if cost.fixed > limit:
            rows = int(self.pages.starts[-1])
            raise PlanError(
                f"{format_bytes(limit)} of memory cannot hold all {rows:,} master rows in a hash table, which takes "
                f"{format_bytes(cost.fixed)} ({cost.fixed} bytes); give more, or use a semi-stream join such as "
                f"algorithm='cachejoin'.",
                argument="memory",
            )
        return Sizes(per_segment=pages, together=1)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> WholeMaster:
        """The running join."""
        return WholeMaster(self, budget, stream, shape, sizes)


class WholeMaster(NothingWaits):
    """The running join: the table is built from one read, then only probed."""

    def __init__(self, *arguments: Any) -> None:
        self._mask: int | None = None
        super().__init__(*arguments)

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Answer the rows from the table, which is built for the first of them."""
        self.counts["admits"] += len(rows.codes)
        if not self.disk.segments.n:
            self.counts["misses"] += len(rows.codes)
            yield from self.answers.misses(rows.refs)
            return
        if self._mask is None:
            yield from self.disk.load(*self.disk.segments.run(0))
            self._mask = index_rows(self.disk.loaded.codes, self.disk.scratch)
        answers, done, n = self.answers, 0, len(rows.codes)
        source, scratch = self.disk.loaded.chunk << SHIFT, self.disk.scratch
        while done < n:
            at, before = answers.n, done
            state = rows.codes, rows.refs, done, self._mask, source, scratch, answers.written_how
            answers.n, done, missed = match_indexed(*state, answers.out, at)
            missed += answers.wrong(at)
            self.counts["misses"] += missed
            self.counts["answered_by_cache"] += done - before - missed
            if done < n:
                yield from answers.flush()

    def regroup(self, pages: Pages) -> None:
        """Read the table again from these pages; `PlanError` if they no longer fit."""
        fitted = replace(self.spec, pages=pages).fit(self._limit, self._stream_schema)
        self._mask, self.sizes = None, fitted
        super().regroup(pages)

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """There is one size only: all of the master data."""
        return iter(())

    def adopted(self, changed: I64 | None) -> None:
        """The table is built when the next rows come."""
