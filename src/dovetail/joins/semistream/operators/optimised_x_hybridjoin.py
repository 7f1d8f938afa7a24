"""Optimised X-HYBRIDJOIN: the most wanted master rows in a hash table that the stream probes before it waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.cached import Cached
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import OLDEST, CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Part, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisedXHybridJoin(SemiStreamJoin):
    """Rows whose key lies in the first `sizes.pinned` pages are answered at once; the others wait as in HYBRIDJOIN.

    Meant for master data with the most wanted rows first. At most `max_probe` rows (default: as many as can wait) are
    looked at between two loads, so that waiting rows do not starve while every arrival hits. `sizes.together` is as in
    HYBRIDJOIN.
    Reference: Naeem 2012, 7.2 and algorithm 5; docs/algorithms/semistream.md, 2.9.
    """

    lookup: Lookup = OLDEST
    max_probe: int | None = None
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "pinned")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        if self.max_probe is not None and self.max_probe < 1:
            raise PlanError(f"max_probe={self.max_probe}: at least one row must be looked at; leave it out for all.")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> Prefilled:
        """The running join with these sizes."""
        rows = int(self.pages.starts[min(sizes.pinned or 0, len(self.pages.starts) - 1)])
        policy, capacity = CachePolicy("random"), max(1, rows)
        base = self, budget, stream, shape, sizes
        operator = Prefilled(*base, policy=policy, capacity=capacity, learns=False, max_probe=self.max_probe)
        operator.lookup = self.lookup
        operator.prefill()
        return operator

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


class Prefilled(Cached):
    """The running join: a cache that is filled once and never changes."""

    def prefill(self) -> None:
        """Read the first pages into the cache."""
        count = min(self.sizes.pinned or 0, self.segments.n_pages)
        if not count:
            return
        batch = self.pages.read(0, count)
        codes, _ = self.key_codes.encode([batch.column(batch.schema.get_field_index(k)) for k in self.pages.key])
        self.cache.fill(batch.select(self.kept_columns()), codes, self._page_of)

    def _page_of(self, rows: I64) -> I64:
        return self.segments.page_of(0, rows)

    def adopted(self, changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Read the first pages anew."""
        self.cache.forget(None)
        rows = int(self.segments.starts[min(self.sizes.pinned or 0, self.segments.n_pages)])
        self.cache.resize(max(1, rows), self.cache_limit(max(1, rows)))
        self.prefill()
        return iter(())
