"""Chooses the charts of a step by the names of its values, and turns its samples into columns to draw."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.page import theme
from dovetail.page.units import Unit
from dovetail.pipeline.record.watch import Sample

MEMORY, RESULTS = "memory.", "results."
HIT_SHARE, LOADS_PER_S = "cache_hit_share", "page_loads_per_s"
"""Columns that are computed from totals; samples do not have them."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or layer of a chart: a column of the step's data, its label and its colour."""

    column: str
    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart over the time of the run. `empty` is shown instead as long as every value is zero or missing."""

    key: str
    title: str
    unit: Unit
    series: tuple[Series, ...]
    empty: str
    stacked: bool = False
    limit: Series | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that the chart draws."""
        return tuple(one.column for one in (*self.series, *([self.limit] if self.limit else [])))


def charts_of(names: Collection[str]) -> list[Chart]:
    """The charts of a step whose samples have these names, in the order to show them."""
    found = [
        _lines("throughput", "Arrival and service rate", "rows/s", _THROUGHPUT, names, "No rows have arrived"),
        _lines("backlog", "Backlog", "rows", _BACKLOG, names, "No rows are waiting"),
        _memory(names),
        _lines("latency", "Latency", "s", _LATENCY, names, "No latency measured"),
        _cache(names),
        _loads(names),
        _phases(names),
        _lines("spills", "Spilled to disk", "bytes", _SPILLS, names, "No spills"),
        _lines("batches", "Micro-batch duration", "s", _BATCHES, names, "No micro-batch has ended"),
    ]
    return [chart for chart in found if chart is not None]


_THROUGHPUT = (
    Series("arrival_rows_per_s", "arriving", theme.ORANGE),
    Series("service_rows_per_s", "served", theme.BLUE),
)
_BACKLOG = (Series("backlog_rows", "waiting", theme.PURPLE),)
_LATENCY = (
    Series("latency_p50_s", "median", theme.BLUE),
    Series("latency_p95_s", "95 %", theme.OCHRE),
    Series("latency_p99_s", "99 %", theme.RED),
)
_SPILLS = (Series("spilled_bytes", "in total", theme.BROWN),)
_BATCHES = (Series("batch_s", "duration", theme.SLATE),)


def _lines(
    key: str, title: str, unit: Unit, series: tuple[Series, ...], names: Collection[str], empty: str
) -> Chart | None:
    present = tuple(one for one in series if one.column in names)
    return Chart(key, title, unit, present, empty) if present else None


def _memory(names: Collection[str]) -> Chart | None:
    """Components stacked below the budget; the peak for a join without components."""
    layers = _layers(names, MEMORY, theme.COMPONENTS)
    if not layers and "memory_peak" in names:
        layers = (Series("memory_peak", "peak", theme.BLUE),)
    if not layers:
        return None
    limit = Series("memory_budget", "budget", theme.LIMIT) if "memory_budget" in names else None
    return Chart("memory", "Memory", "bytes", layers, "No memory in use", stacked=True, limit=limit)


def _phases(names: Collection[str]) -> Chart | None:
    layers = _layers(names, RESULTS, theme.PHASES)
    return Chart("results", "Results by phase", "rows", layers, "No results", stacked=True) if layers else None


def _layers(names: Collection[str], prefix: str, known: dict[str, str]) -> tuple[Series, ...]:
    parts = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    parts.sort(key=lambda part: list(known).index(part) if part in known else len(known))
    chosen = theme.colours_of(parts, known)
    return tuple(Series(prefix + part, part, chosen[part]) for part in parts)


def _cache(names: Collection[str]) -> Chart | None:
    if "cache_hits" not in names:
        return None
    share = Series(HIT_SHARE, "of lookups", theme.GREEN)
    return Chart("cache", "Cache hits", "%", (share,), "No hits in the cache")


def _loads(names: Collection[str]) -> Chart | None:
    if "page_loads" not in names:
        return None
    return Chart("loads", "Page loads", "pages/s", (Series(LOADS_PER_S, "loaded", theme.TEAL),), "No page was loaded")


Columns = dict[str, NDArray[np.float64]]
AT = "at"


class Unrolling:
    """Turns samples into columns, piece by piece; the result does not depend on how samples are split into pieces.

    A value that a sample does not have keeps its last value: parts of a step report at different times. Layers of
    stacks start at zero, everything else at NaN, which is not drawn.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(sorted(names))
        self._last = {name: 0.0 if name.startswith((MEMORY, RESULTS)) else math.nan for name in self.names}
        self._derived = _Derived()

    def take(self, samples: Sequence[Sample]) -> Columns:
        """Columns of the next samples: `at`, every name, and the rates computed from them."""
        wanted = (AT, *self.names, *self._derived.columns(self.names))
        columns: Columns = {name: np.empty(len(samples), dtype=np.float64) for name in wanted}
        for row, sample in enumerate(samples):
            self._last.update((name, value) for name, value in sample.values.items() if name in self._last)
            for name, value in {AT: sample.at, **self._last, **self._derived.next(sample.at, self._last)}.items():
                columns[name][row] = value
        return columns


class _Derived:
    """Share of cache hits, and page loads per second, between two samples, from running totals."""

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
        """Values since the last sample; totals that fell, as after a restart, count from zero."""
        found = {}
        if "cache_hits" in values:
            found[HIT_SHARE] = self._hit_share(values["cache_hits"], values.get("cache_misses", math.nan))
        if "page_loads" in values:
            found[LOADS_PER_S] = self._load_rate(at, values["page_loads"])
        self._at = at
        return found

    def _hit_share(self, hits: float, misses: float) -> float:
        """Percent of the lookups since the last sample; unchanged if there were none."""
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
