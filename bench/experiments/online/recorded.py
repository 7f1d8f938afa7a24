"""Figures 7, 8, 9 and 13 and table 4: recorded data, and synthetic data that stand in for the source's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid, Part
from bench.experiments.online.counting import COLUMNS, Counted, counted
from bench.experiments.online.shares import (
    RIVALS,
    Shares,
    beyond,
    factor,
    findings,
    shares_of,
    shown,
)
from bench.experiments.online.streams import (
    BANDS,
    MEMORY,
    PRINTED_SHARES,
    SOURCE_ROWS,
    SPECIFIED_BANDS,
    SPECIFIED_EQUAL,
    Streams,
    like_the_source,
    recorded,
    synthetic,
)

TENTHS = tuple(n / 10 for n in range(1, 11))
RIVALS_OVER_TIME = ("HMJ", "RPJ 1.0", "XJoin")
PRINTED_GAIN = 2.5
STOCKS = ("csco", "ipix", "MSFT", "IBM")


def sized(streams: Streams, percent: int) -> tuple[int, int]:
    """Rows in memory and rows a block, for a memory of so many percent of all rows."""
    memory = streams.rows * percent // 100
    return memory, max(10, memory // 200)


def _over_time(streams: Streams) -> dict[str, Counted]:
    memory, block = sized(streams, 5)
    return {name: counted(name, streams, memory, block) for name in COLUMNS}


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


def _first_over_time(streams: Streams, found: Mapping[str, Counted]) -> Part:
    """From the moment on when memory is full."""
    behind = [
        f"{shown(rival)} at {round(100 * at)} %"
        for at in TENTHS
        for rival in RIVALS_OVER_TIME
        if found["DINER"].found_at(at) < found[rival].found_at(at)
    ]
    leads = [found["DINER"].found / max(1, found[rival].found) for rival in RIVALS_OVER_TIME]
    says = f"{streams.name}: DINER is first at all times (behind: {', '.join(behind[:4]) or 'none'}"
    return (f"{says}; at the end {min(leads):.2f} times the next)", not behind)


def _catches_up(streams: Streams, found: Mapping[str, Counted]) -> Part:
    rpj, xjoin = found["RPJ 1.0"], found["XJoin"]
    early, end = rpj.found_at(0.3) / max(1, xjoin.found_at(0.3)), rpj.found / max(1, xjoin.found)
    says = f"{streams.name}: RPJ starts behind XJoin and catches up ({early:.2f} of its pairs at 30 %,"
    return (f"{says} {end:.2f} at the end)", early < 0.95 <= end)


def over_time(bench: BenchContext, stand_in: str, real: str) -> Findings:
    """Figures 7 and 8: pairs by the part of the input that has come."""
    rows = min(SOURCE_ROWS[stand_in], 10_000) if bench.scale == "small" else SOURCE_ROWS[stand_in]
    sets = [synthetic(stand_in, None, rows), recorded(real)]
    found = [_over_time(streams) for streams in sets]
    parts = [_first_over_time(streams, each) for streams, each in zip(sets, found, strict=True)]
    if stand_in == "csco":
        parts += [_catches_up(streams, each) for streams, each in zip(sets, found, strict=True)]
    ends = {s.name: {name: float(c.found) for name, c in each.items()} for s, each in zip(sets, found, strict=True)}
    charts, tables = list(map(_time_chart, sets, found)), list(map(_time_grid, sets, found))
    note = f"{beyond(ends)} Rows come one by one at an even pace, so time is the part of the input that has come."
    return findings(parts, note, *charts, *tables, proofs=sets)


def _by_memory(sets: Sequence[Streams], names: Sequence[str]) -> dict[str, dict[int, Shares]]:
    return {each.name: {percent: shares_of(each, *sized(each, percent), names) for percent in MEMORY} for each in sets}


def memory(bench: BenchContext) -> Findings:
    """Figure 9: gains by memory."""
    sets = like_the_source(bench.scale == "small")
    found = _by_memory(sets, COLUMNS)
    parts = []
    for rival in RIVALS:
        gains = {name: [factor(by[percent], rival) for percent in MEMORY] for name, by in found.items()}
        least, best = min(min(each) for each in gains.values()), max(max(each) for each in gains.values())
        parts.append((f"ahead of {shown(rival)} on every set and memory (least gain {least:.2f})", least >= 1.0))
        fewer = [name for name, each in gains.items() if each[0] <= each[-1]]
        says = f"more gain over {shown(rival)} with less memory (not on {', '.join(fewer) or 'none'})"
        parts.append((says, not fewer))
        parts.append((f"up to some {PRINTED_GAIN} times {shown(rival)} (found {best:.2f})", best >= 0.8 * PRINTED_GAIN))
    lines = {f"{name}, {percent} %": shares for name, by in found.items() for percent, shares in by.items()}
    charts = [
        Chart(
            f"DINER against {shown(rival)} by memory",
            "memory, % of all rows",
            f"pairs of {shown(rival)}, % of DINER's",
            {name: [(p, 100 / factor(by[p], rival)) for p in MEMORY] for name, by in found.items()},
        )
        for rival in (*RIVALS, "oldest")
    ]
    return findings(parts, beyond(lines), *charts, _memory_grid(found), proofs=[each.first(300) for each in sets])


def _memory_grid(found: Mapping[str, Mapping[int, Shares]]) -> Grid:
    rows: list[list[Cell]] = []
    for name, by in found.items():
        for percent, shares in by.items():
            gains = [factor(shares, other) for other in ("HMJ", "RPJ 1.0", "oldest")]
            rows.append([name, percent, *(shares[each] for each in COLUMNS), *gains])
        if name in SPECIFIED_EQUAL:
            spec = SPECIFIED_EQUAL[name]
            rows.append([f"{name}, reference count", 5, *(spec.get(each) for each in COLUMNS), None, None, None])
    heads = ["set", "memory %", *(shown(name) for name in COLUMNS), "/ HMJ", "/ RPJ", "/ oldest first"]
    return Grid("Equality joins: percent of the result while rows arrive, and DINER's gains", heads, rows)


def shares(bench: BenchContext) -> Findings:
    """Table 4: DINER's share by memory, beside what memory gives whatever the keys are."""
    sets = like_the_source(bench.scale == "small")
    found = _by_memory(sets, ("DINER", "oldest"))
    diner = {name: [by[percent]["DINER"] for percent in MEMORY] for name, by in found.items()}
    parts = [
        ("the share grows with memory on every set", all(a < b for each in diner.values() for a, b in pairwise(each))),
        (
            f"at 20 % more than half of the result on every stock ({min(diner[n][-1] for n in STOCKS):.1f} % at least)",
            all(diner[name][-1] > 50 for name in STOCKS),
        ),
        (
            "at 5 % memory well above 5 % of the result (found "
            f"{min(each[0] for each in diner.values()):.1f} to {max(each[0] for each in diner.values()):.1f})",
            all(each[0] >= 10 for each in diner.values()),
        ),
    ]
    closed = [round(100 * (2 * p / 100 - (p / 100) ** 2), 2) for p in MEMORY]
    rows: list[list[Cell]] = []
    for name, each in diner.items():
        rows.append([name, "DINER", *each])
        rows.append([name, "oldest first", *(found[name][p]["oldest"] for p in MEMORY)])
        if name in PRINTED_SHARES:
            rows.append([name, "printed, DINER on the source's data", *PRINTED_SHARES[name]])
    rows.append(["any without order", "oldest first, in closed form", *closed])
    note = (
        "The printed shares of the weather data (10, 17, 24 and 29 %) are not above what rows that leave oldest first "
        f"give on any data without order: {', '.join(f'{share:g}' for share in closed)} %."
    )
    grid = Grid("Percent of the result while rows arrive", ["set", "", *(f"{p} % memory" for p in MEMORY)], rows)
    lines = {name: [(p, share) for p, share in zip(MEMORY, each, strict=True)] for name, each in diner.items()}
    chart = Chart("DINER's share", "memory, % of all rows", "% of the result while rows arrive", lines)
    return findings(parts, note, chart, grid, proofs=[each.first(300) for each in sets])


BAND_JOINS = ("DINER", "PMJ", "oldest")
CLEAR_IN_BANDS = 1.3


def band_shares(streams: Streams, percent: int) -> dict[str, float]:
    """Percent online with so many percent of all rows in memory, blocks of a 200th of that, at least 10."""
    memory = streams.rows * percent // 100
    return shares_of(streams, memory, max(10, memory // 200), BAND_JOINS)


def bands(bench: BenchContext) -> Findings:
    """DINER and PMJ at 5 and 20 % memory; the hash joins find no bands."""
    sets = {each.name: each.within(BANDS[each.name]) for each in like_the_source(bench.scale == "small")}
    found = {(name, percent): band_shares(each, percent) for name, each in sets.items() for percent in (5, 20)}
    rows: list[list[Cell]] = []
    for (name, percent), shares in found.items():
        printed = SPECIFIED_BANDS.get(name, (None,) * 4)
        at = 0 if percent == 5 else 1
        ratio = shares["DINER"] / max(shares["PMJ"], 1e-9)
        cells = [shares[each] for each in BAND_JOINS]
        rows.append([name, len(sets[name].left), percent, *cells, ratio, printed[at], printed[at + 2]])
    factors = [found[name, 5]["DINER"] / max(found[name, 5]["PMJ"], 1e-9) for name in sets]
    parts = [
        (
            f"at 5 % memory at least {CLEAR_IN_BANDS} times the pairs of PMJ on every set (found {min(factors):.2f} to "
            f"{max(factors):.2f})",
            min(factors) >= CLEAR_IN_BANDS,
        )
    ]
    behind = [name for name in sets if found[name, 5]["DINER"] < found[name, 5]["oldest"]]
    note = (
        "Rows that leave oldest first give more than DINER on "
        f"{', '.join(behind) or 'none of these sets'}: PMJ loses by waiting for full memory, not by what it keeps."
    )
    heads = ("set", "rows a side", "memory %", "DINER", "PMJ", "oldest first", "DINER / PMJ")
    bars = {shown(each): [(name, found[name, 5][each]) for name in sets] for each in BAND_JOINS}
    chart = Chart("Band joins, memory 5 %", "set", "% of the result while rows arrive", bars, kind="bar")
    title, specified = "Band joins: percent of the result while rows arrive", ("DINER, spec.", "PMJ, spec.")
    grid = Grid(title, (*heads, *specified), rows)
    return findings(parts, note, chart, grid, proofs=[each.first(300) for each in sets.values()])
