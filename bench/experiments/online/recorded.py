"""Figures 7, 8, 9 and 13 and table 4: recorded data, and synthetic data that stand in for the source's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.online.counting import COLUMNS, Counted, counted
from bench.experiments.online.shares import NAMED, Shares, factor, proofs_of, shares_of, shown
from bench.experiments.online.streams import (
    BANDS,
    MEMORY,
    PRINTED,
    SOURCE_ROWS,
    Streams,
    like_the_source,
    recorded,
    synthetic,
)
from bench.judge import Figures

TENTHS = tuple(n / 10 for n in range(1, 11))


def sized(streams: Streams, percent: int) -> tuple[int, int]:
    """Rows in memory and rows a block, for a memory of so many percent of all rows."""
    memory = streams.rows * percent // 100
    return memory, max(10, memory // 200)


def _time_chart(streams: Streams, found: Mapping[str, Counted]) -> Chart:
    total = streams.pairs
    lines = {
        shown(name): [(round(100 * at), 100.0 * each.found_at(at) / total) for at in TENTHS]
        for name, each in found.items()
    }
    return Chart(
        f"{streams.name}: results over time, memory 5 %", "% of the input that has come", "% of all pairs", lines
    )


def _time_grid(streams: Streams, found: Mapping[str, Counted]) -> Grid:
    rows: list[list[Cell]] = [[shown(name), *(each.found_at(at) for at in TENTHS)] for name, each in found.items()]
    heads = ["pairs when", *(f"{round(100 * at)} % has come" for at in TENTHS)]
    return Grid(f"{streams.name}: {len(streams.left):,} and {len(streams.right):,} rows", heads, rows)


def over_time(bench: BenchContext, stand_in: str, real: str) -> Figures:
    """Figures 7 and 8: pairs by the part of the input that has come; `behind` is where DINER is not first."""
    rows = min(SOURCE_ROWS[stand_in], 10_000) if bench.scale == "small" else SOURCE_ROWS[stand_in]
    sets = [synthetic(stand_in, None, rows), recorded(real)]
    found = [{name: counted(name, one, *sized(one, 5)) for name in COLUMNS} for one in sets]
    ends = {s.name: {name: float(c.found) for name, c in each.items()} for s, each in zip(sets, found, strict=True)}
    drawn: list[Chart | Grid] = [*map(_time_chart, sets, found), *map(_time_grid, sets, found)]
    by_name = {one.name: each for one, each in zip(sets, found, strict=True)}
    return Figures(NAMED | {"found": by_name, "ends": ends, "TENTHS": TENTHS}, drawn, proofs_of(sets))


def by_memory(bench: BenchContext, joins: Sequence[str]) -> Figures:
    """Figure 9 and table 4: percent of the result by set, memory and join."""
    sets = like_the_source(bench.scale == "small")
    found = {s.name: {p: shares_of(s, *sized(s, p), joins or COLUMNS) for p in MEMORY} for s in sets}
    named = NAMED | {"found": found, "MEMORY": MEMORY, "PRINTED": PRINTED}
    return Figures(named, rows=proofs_of([each.first(300) for each in sets]))


def memory(bench: BenchContext) -> Figures:
    """Figure 9: gains by memory."""
    found = by_memory(bench, ())
    every: Mapping[str, Mapping[int, Shares]] = found.named["found"]
    gains = {r: {name: [factor(by[p], r) for p in MEMORY] for name, by in every.items()} for r in NAMED["RIVALS"]}
    lines = {f"{name}, {percent} %": shares for name, by in every.items() for percent, shares in by.items()}
    charts = [
        Chart(
            f"DINER against {shown(rival)} by memory",
            "memory, % of all rows",
            f"pairs of {shown(rival)}, % of DINER's",
            {name: [(p, 100 / factor(by[p], rival)) for p in MEMORY] for name, by in every.items()},
        )
        for rival in (*NAMED["RIVALS"], "oldest")
    ]
    return replace(found, named={**found.named, "gains": gains, "lines": lines}, shown=[*charts, _memory_grid(every)])


def _memory_grid(found: Mapping[str, Mapping[int, Shares]]) -> Grid:
    rows: list[list[Cell]] = []
    for name, by in found.items():
        for percent, shares in by.items():
            gains = [factor(shares, other) for other in ("HMJ", "RPJ 1.0", "oldest")]
            rows.append([name, percent, *(shares[each] for each in COLUMNS), *gains])
        if name in PRINTED["equal"]:
            spec = PRINTED["equal"][name]
            rows.append([f"{name}, reference count", 5, *(spec.get(each) for each in COLUMNS), None, None, None])
    heads = ["set", "memory %", *(shown(name) for name in COLUMNS), "/ HMJ", "/ RPJ", "/ oldest first"]
    return Grid("Equality joins: percent of the result while rows arrive, and DINER's gains", heads, rows)


def shares(bench: BenchContext) -> Figures:
    """Table 4: DINER's share by memory, beside what memory gives whatever the keys are."""
    found = by_memory(bench, ("DINER", "oldest"))
    every = found.named["found"]
    diner = {name: [by[percent]["DINER"] for percent in MEMORY] for name, by in every.items()}
    closed = [round(100 * (2 * p / 100 - (p / 100) ** 2), 2) for p in MEMORY]
    rows: list[list[Cell]] = []
    for name, each in diner.items():
        rows.append([name, "DINER", *each])
        rows.append([name, "oldest first", *(every[name][p]["oldest"] for p in MEMORY)])
        if name in PRINTED["shares"]:
            rows.append([name, "printed, DINER on the source's data", *PRINTED["shares"][name]])
    rows.append(["any without order", "oldest first, in closed form", *closed])
    grid = Grid("Percent of the result while rows arrive", ["set", "", *(f"{p} % memory" for p in MEMORY)], rows)
    lines = {name: list(zip(MEMORY, each, strict=True)) for name, each in diner.items()}
    chart = Chart("DINER's share", "memory, % of all rows", "% of the result while rows arrive", lines)
    return replace(found, named={**found.named, "diner": diner, "closed": closed}, shown=[chart, grid])


BAND_JOINS = ("DINER", "PMJ", "oldest")


def band_shares(streams: Streams, percent: int) -> dict[str, float]:
    """Percent online with so many percent of all rows in memory, blocks of a 200th of that, at least 10."""
    return shares_of(streams, *sized(streams, percent), BAND_JOINS)


def bands(bench: BenchContext) -> Figures:
    """DINER and PMJ at 5 and 20 % memory; the hash joins find no bands."""
    sets = {each.name: each.within(BANDS[each.name]) for each in like_the_source(bench.scale == "small")}
    found = {(name, percent): band_shares(each, percent) for name, each in sets.items() for percent in (5, 20)}
    rows: list[list[Cell]] = []
    for (name, percent), shares in found.items():
        printed = PRINTED["bands"].get(name, (None,) * 4)
        at = 0 if percent == 5 else 1
        ratio = shares["DINER"] / max(shares["PMJ"], 1e-9)
        cells = [shares[each] for each in BAND_JOINS]
        rows.append([name, len(sets[name].left), percent, *cells, ratio, printed[at], printed[at + 2]])
    heads = (
        "set",
        "rows a side",
        "memory %",
        "DINER",
        "PMJ",
        "oldest first",
        "DINER / PMJ",
        "DINER, spec.",
        "PMJ, spec.",
    )
    bars = {shown(each): [(name, found[name, 5][each]) for name in sets] for each in BAND_JOINS}
    chart = Chart("Band joins, memory 5 %", "set", "% of the result while rows arrive", bars, kind="bar")
    grid = Grid("Band joins: percent of the result while rows arrive", heads, rows)
    few = {name: found[name, 5] for name in sets}
    return Figures({"found": few}, [chart, grid], proofs_of([each.first(300) for each in sets.values()]))
