"""CACHEJOIN and SSCJ: HYBRIDJOIN that learns which master rows to keep in memory from how many rows wait for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.cached import Cached
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import ADAPTIVE, LEAST_FREQUENT, OLDEST, CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Part, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheJoin(SemiStreamJoin):
    """Rows whose key is in a cache of frequent master rows are answered at once; the others wait as in HYBRIDJOIN.

    The master data may lie in any order. `cache` says how keys enter and leave; `max_probe` bounds how many rows are
    looked at between two loads (default: as many as can wait). With `sizes.together` above 1 the disk-probing phase
    loads several segments, picked one after the other, and keys enter the cache after all of them.
    Reference: Naeem 2012, 8.2 and algorithm 6; docs/algorithms/semistream.md, 2.10, and 6.7 for the adaptive cache.
    """

    lookup: Lookup = OLDEST
    cache: CachePolicy = ADAPTIVE
    max_probe: int | None = None
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "cached")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        if self.max_probe is not None and self.max_probe < 1:
            raise PlanError(f"max_probe={self.max_probe}: at least one row must be looked at; leave it out for all.")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> Cached:
        """The running join with these sizes."""
        base, capacity = (self, budget, stream, shape, sizes), max(1, sizes.cached or 0)
        operator = Cached(*base, policy=self._policy(), capacity=capacity, learns=True, max_probe=self.max_probe)
        operator.lookup = self.lookup
        return operator

    def options(self) -> list[str]:
        """The look-up policy and the cache."""
        return [f"lookup={self.lookup}", f"cache={self._policy()}"]

    def _policy(self) -> CachePolicy:
        """How keys get in and out, with the threshold of the sizes if they have one."""
        tuned = self.sizes.threshold
        return self.cache if tuned is None else replace(self.cache, threshold=tuned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sscj(CacheJoin):
    """CACHEJOIN that makes room in its cache by dropping the key with the fewest hits.

    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.11.
    """

    cache: CachePolicy = LEAST_FREQUENT
