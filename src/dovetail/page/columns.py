"""The samples of a step as columns to draw: gaps filled with what was last known, rates made from totals."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.page.charts import HIT_SHARE, LOADS_PER_S, MEMORY, RESULTS
from dovetail.pipeline.record.watch import Sample

Columns = dict[str, NDArray[np.float64]]
AT = "at"


class Unrolling:
    """Turns samples into columns piece by piece; the pieces together equal what one call would give.

    A value that a sample leaves out keeps its last value: parts of a step report at different moments. Layers of
    stacks start at zero, everything else at NaN, which draws nothing.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(sorted(names))
        self._last = {name: 0.0 if name.startswith((MEMORY, RESULTS)) else math.nan for name in self.names}
        self._derived = _Derived()

    def take(self, samples: Sequence[Sample]) -> Columns:
        """Columns of the next samples: `at`, every name, and the rates that follow from them."""
        wanted = (AT, *self.names, *self._derived.columns(self.names))
        columns: Columns = {name: np.empty(len(samples), dtype=np.float64) for name in wanted}
        for row, sample in enumerate(samples):
            self._last.update((name, value) for name, value in sample.values.items() if name in self._last)
            for name, value in {AT: sample.at, **self._last, **self._derived.next(sample.at, self._last)}.items():
                columns[name][row] = value
        return columns


class _Derived:
    """Share of cache hits and page loads a second between one sample and the next, from running totals."""

    def __init__(self) -> None:
        self._at = 0.0
        self._hits = self._lookups = self._loads = 0.0
        self._share = math.nan

    @staticmethod
    def columns(names: Collection[str]) -> tuple[str, ...]:
        """The columns that `next` gives for samples with these names."""
        pairs = (("cache_hits", HIT_SHARE), ("page_loads", LOADS_PER_S))
        return tuple(column for name, column in pairs if name in names)

    def next(self, at: float, values: dict[str, float]) -> dict[str, float]:
        """Values since the sample before; totals that fell, as after a restart, count from zero."""
        found = {}
        if "cache_hits" in values:
            found[HIT_SHARE] = self._hit_share(values["cache_hits"], values.get("cache_misses", math.nan))
        if "page_loads" in values:
            found[LOADS_PER_S] = self._load_rate(at, values["page_loads"])
        self._at = at
        return found

    def _hit_share(self, hits: float, misses: float) -> float:
        """Percent of the lookups since the sample before; as it was while there were none."""
        lookups = hits + misses
        if lookups < self._lookups or hits < self._hits:
            self._hits = self._lookups = 0.0
        if lookups > self._lookups:
            self._share = 100.0 * (hits - self._hits) / (lookups - self._lookups)
            self._hits, self._lookups = hits, lookups
        return self._share

    def _load_rate(self, at: float, loads: float) -> float:
        if math.isnan(loads):
            return math.nan
        before, self._loads = (self._loads if loads >= self._loads else 0.0), loads
        return (loads - before) / (at - self._at) if at > self._at else 0.0
