"""Figure 13: pairs of prices within 5 cents, and of temperatures within 5 degrees."""

from __future__ import annotations

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid
from bench.experiments.online.judging import experiment, findings, shares_of, shown
from bench.experiments.online.published import SPECIFIED_BANDS
from bench.experiments.online.streams import BANDS, RECORDED_PACKAGES, Streams, like_the_source
from bench.experiments.parts import Part

NAMES = ("DINER", "PMJ", "oldest")
CLEAR = 1.3


def band_shares(streams: Streams, percent: int) -> dict[str, float]:
    """Percent online with so many percent of all rows in memory, blocks of a 200th of that, at least 10."""
    memory = streams.rows * percent // 100
    return shares_of(streams, memory, max(10, memory // 200), NAMES)


def run_bands(bench: BenchContext) -> Findings:
    """DINER and PMJ at 5 and 20 % memory; the hash joins find no bands."""
    sets = {each.name: each.within(BANDS[each.name]) for each in like_the_source(bench.scale == "small")}
    found = {(name, percent): band_shares(each, percent) for name, each in sets.items() for percent in (5, 20)}
    rows: list[list[Cell]] = []
    for (name, percent), shares in found.items():
        printed = SPECIFIED_BANDS.get(name, (None,) * 4)
        at = 0 if percent == 5 else 1
        ratio = shares["DINER"] / max(shares["PMJ"], 1e-9)
        cells = [round(shares[each], 2) for each in NAMES]
        rows.append([name, len(sets[name].left), percent, *cells, round(ratio, 2), printed[at], printed[at + 2]])
    factors = [found[name, 5]["DINER"] / max(found[name, 5]["PMJ"], 1e-9) for name in sets]
    parts = [
        Part(
            f"at 5 % memory at least {CLEAR} times the pairs of PMJ on every set (found {min(factors):.2f} to "
            f"{max(factors):.2f})",
            min(factors) >= CLEAR,
        )
    ]
    behind = [name for name in sets if found[name, 5]["DINER"] < found[name, 5]["oldest"]]
    note = (
        "Rows that leave oldest first give more than DINER on "
        f"{', '.join(behind) or 'none of these sets'}: PMJ loses by waiting for full memory, not by what it keeps."
    )
    heads = [
        "set",
        "rows a side",
        "memory %",
        "DINER",
        "PMJ",
        "oldest first",
        "DINER / PMJ",
        "DINER, spec.",
        "PMJ, spec.",
    ]
    bars = {shown(each): [(name, round(found[name, 5][each], 2)) for name in sets] for each in NAMES}
    chart = Chart("Band joins, memory 5 %", "set", "% of the result while rows arrive", bars, kind="bar")
    tables = [Grid("Band joins: percent of the result while rows arrive", heads, rows)]
    return findings(parts, note, [chart], tables, [each.first(300) for each in sets.values()])


EXPERIMENTS = (
    experiment(
        "bands",
        ("figure 13",),
        "Of band joins, which hash joins cannot do, DINER gives a far larger share while rows come than PMJ, which "
        "waits for full memory.",
        run_bands,
        RECORDED_PACKAGES,
    ),
)
