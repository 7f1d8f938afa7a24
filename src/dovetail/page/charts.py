"""Which charts a step deserves, decided from the names of its values alone; no drawing here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dovetail.page import colours
from dovetail.page.units import Unit

MEMORY, RESULTS = "memory.", "results."
HIT_SHARE, LOADS_PER_S = "cache_hit_share", "page_loads_per_s"
"""Columns that are computed from totals; no sample carries them."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one layer of a chart: a column of the step's data, what it is called, its colour."""

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
    """The charts that apply to a step whose samples carry these names, in the order to read them."""
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
    Series("arrival_rows_per_s", "arriving", colours.ORANGE),
    Series("service_rows_per_s", "served", colours.BLUE),
)
_BACKLOG = (Series("backlog_rows", "waiting", colours.PURPLE),)
_LATENCY = (
    Series("latency_p50_s", "median", colours.BLUE),
    Series("latency_p95_s", "95 %", colours.OCHRE),
    Series("latency_p99_s", "99 %", colours.RED),
)
_SPILLS = (Series("spilled_bytes", "in total", colours.BROWN),)
_BATCHES = (Series("batch_s", "duration", colours.SLATE),)


def _lines(
    key: str, title: str, unit: Unit, series: tuple[Series, ...], names: Collection[str], empty: str
) -> Chart | None:
    present = tuple(one for one in series if one.column in names)
    return Chart(key, title, unit, present, empty) if present else None


def _memory(names: Collection[str]) -> Chart | None:
    """Components stacked below the budget; a join that does not tell them apart shows its peak."""
    layers = _layers(names, MEMORY, colours.COMPONENTS)
    if not layers and "memory_peak" in names:
        layers = (Series("memory_peak", "peak", colours.BLUE),)
    if not layers:
        return None
    limit = Series("memory_budget", "budget", colours.LIMIT) if "memory_budget" in names else None
    return Chart("memory", "Memory", "bytes", layers, "No memory in use", stacked=True, limit=limit)


def _phases(names: Collection[str]) -> Chart | None:
    layers = _layers(names, RESULTS, colours.PHASES)
    return Chart("results", "Results by phase", "rows", layers, "No results", stacked=True) if layers else None


def _layers(names: Collection[str], prefix: str, known: dict[str, str]) -> tuple[Series, ...]:
    parts = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    parts.sort(key=lambda part: list(known).index(part) if part in known else len(known))
    chosen = colours.colours_of(parts, known)
    return tuple(Series(prefix + part, part, chosen[part]) for part in parts)


def _cache(names: Collection[str]) -> Chart | None:
    if "cache_hits" not in names:
        return None
    share = Series(HIT_SHARE, "of lookups", colours.GREEN)
    return Chart("cache", "Cache hits", "%", (share,), "No hits in the cache")


def _loads(names: Collection[str]) -> Chart | None:
    if "page_loads" not in names:
        return None
    return Chart("loads", "Page loads", "pages/s", (Series(LOADS_PER_S, "loaded", colours.TEAL),), "No page was loaded")
