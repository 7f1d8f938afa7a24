"""Figures 7, 8, 9 and 13 and table 4: recorded data, and synthetic data that stand in for the source's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Cell, Grid
from bench.experiments.online.counting import COLUMNS, counted
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
    """Rows in memory and rows a block, for a memory of `percent` percent of all rows."""
    memory = streams.rows * percent // 100
    return memory, max(10, memory // 200)


def over_time(bench: BenchContext, stand_in: str, real: str) -> list[Figures]:
    """Figures 7 and 8: pairs by the part of the input that has come, of a stand-in and of recorded data."""
    rows = min(SOURCE_ROWS[stand_in], 10_000) if bench.scale == "small" else SOURCE_ROWS[stand_in]
    every = []
    for one in (synthetic(stand_in, None, rows), recorded(real)):
        found = {name: counted(name, one, *sized(one, 5)) for name in COLUMNS}
        named = NAMED | {"found": found, "keys": one, "total": one.pairs, "TENTHS": TENTHS}
        every.append(Figures(named, rows=proofs_of([one])))
    return every


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
    gains = {
        r: {name: [factor(by[p], r) for p in MEMORY] for name, by in every.items()}
        for r in (*NAMED["RIVALS"], "oldest")
    }
    lines = {f"{name}, {percent} %": shares for name, by in every.items() for percent, shares in by.items()}
    return replace(found, named={**found.named, "gains": gains, "lines": lines}, shown=[_memory_grid(every)])


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
    oldest = {name: [by[percent]["oldest"] for percent in MEMORY] for name, by in every.items()}
    closed = [round(100 * (2 * p / 100 - (p / 100) ** 2), 2) for p in MEMORY]
    return replace(found, named={**found.named, "diner": diner, "oldest": oldest, "closed": closed})


BAND_JOINS = ("DINER", "PMJ", "oldest")


def band_shares(streams: Streams, percent: int) -> dict[str, float]:
    """Percent online with `percent` percent of all rows in memory, in blocks of a 200th of that, at least 10."""
    return shares_of(streams, *sized(streams, percent), BAND_JOINS)


def bands(bench: BenchContext) -> Figures:
    """DINER and PMJ at 5 and 20 % memory; the hash joins find no bands."""
    sets = {each.name: each.within(BANDS[each.name]) for each in like_the_source(bench.scale == "small")}
    every = {(name, percent): band_shares(each, percent) for name, each in sets.items() for percent in (5, 20)}
    printed = {
        (name, percent): PRINTED["bands"][name][percent == 20 :: 2] if name in PRINTED["bands"] else (None, None)
        for name, percent in every
    }
    named = NAMED | {"every": every, "found": {name: every[name, 5] for name in sets}, "printed": printed, "sets": sets}
    return Figures(named, rows=proofs_of([each.first(300) for each in sets.values()]))
