"""Figures 14 and 15: keys that come partly sorted, and keys whose mean moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.online.counting import COLUMNS
from bench.experiments.online.judging import (
    RIVALS,
    Shares,
    apart_from,
    beyond,
    experiment,
    factor,
    factors_chart,
    findings,
    shares_chart,
    shares_grid,
    shares_of,
    shown,
    size_of,
    specified_lines,
)
from bench.experiments.online.streams import synthetic
from bench.experiments.parts import Part

RUNS, SHIFTS = (5, 10, 20, 50, 100), (0, 2, 5, 10, 20, 100)
PERMUTATIONS = {"small": 3, "full": 10}
CLEAR, GROWN, PRINTED_GAIN = 1.1, 1.3, 3.0


def _mean(several: Sequence[Shares]) -> dict[str, float]:
    return {name: sum(shares[name] for shares in several) / len(several) for name in several[0]}


def run_partly_sorted(bench: BenchContext) -> Findings:
    """Figure 14: the mean over several permutations, and each of them."""
    size, seeds = size_of(bench), range(1, 1 + PERMUTATIONS[bench.scale])
    single = {
        x: [
            shares_of(synthetic("partly_sorted", x, size.rows, seed=seed), size.memory, size.block, COLUMNS)
            for seed in seeds
        ]
        for x in RUNS
    }
    found = {float(x): _mean(several) for x, several in single.items()}
    parts = []
    for rival in RIVALS:
        factors = [factor(shares, rival) for shares in found.values()]
        says = f"on average over permutations at least {CLEAR} times the pairs of {shown(rival)} at every number of "
        parts.append(Part(f"{says}intervals (found {min(factors):.2f} to {max(factors):.2f})", min(factors) >= CLEAR))
        lost = sum(shares["DINER"] < shares[rival] for several in single.values() for shares in several)
        says = f"ahead of {shown(rival)} in every permutation (behind in {lost} of {len(RUNS) * len(seeds)})"
        parts.append(Part(says, lost == 0))
    lines = {f"{x:g} intervals": shares for x, shares in found.items()}
    wanted = specified_lines("partly_sorted", RUNS, "{x:g} intervals")
    aged = sum(s["DINER"] < s["RPJ 0.9"] for several in single.values() for s in several)
    note = (
        f"{beyond(lines)} Behind ageing RPJ in {aged} permutations. The order of intervals decides, so means of "
        f"{len(seeds)} permutations differ from the ten of the reference counts. {apart_from(lines, wanted)} {size}."
    )
    charts = [
        shares_chart("Partly sorted Zipf keys", "sorted intervals", found, log_x=True),
        factors_chart("DINER's gain", "sorted intervals", found, log_x=True),
    ]
    tables = [shares_grid(f"Means of {len(seeds)} permutations, {size}", lines, wanted)]
    return findings(parts, note, charts, tables, [synthetic("partly_sorted", 10, 600)])


def _moving_parts(found: Mapping[float, Shares]) -> list[Part]:
    parts = []
    for rival in RIVALS:
        factors = {x: factor(shares, rival) for x, shares in found.items()}
        best, first, last = max(factors.values()), factors[SHIFTS[0]], factors[SHIFTS[-1]]
        parts.append(
            Part(f"up to {PRINTED_GAIN:g} times the pairs of {shown(rival)} (found {best:.2f})", best >= PRINTED_GAIN)
        )
        says = f"the gain over {shown(rival)} grows with the shift ({first:.2f} to {last:.2f}, asked {GROWN} times)"
        parts.append(Part(says, last >= GROWN * first))
    return parts


def run_moving_mean(bench: BenchContext) -> Findings:
    """Figure 15."""
    size = size_of(bench)
    found = {
        float(x): shares_of(synthetic("moving_mean", x, size.rows), size.memory, size.block, COLUMNS) for x in SHIFTS
    }
    lines = {f"shift {x:g}": shares for x, shares in found.items()}
    wanted = specified_lines("moving_mean", SHIFTS, "shift {x:g}")
    aged = [factor(shares, "RPJ 0.9") for shares in found.values()]
    note = (
        f"{beyond(lines)} An RPJ that forgets old arrivals is {min(aged):.2f} to {max(aged):.2f} times behind: what "
        f"DINER gains is mostly that it adapts. {apart_from(lines, wanted)} {size}."
    )
    charts = [
        shares_chart("Normal keys whose mean moves", "shift from period to period", found),
        factors_chart("DINER's gain", "shift from period to period", found),
    ]
    tables = [shares_grid(f"Moving means, {size}", lines, wanted)]
    return findings(_moving_parts(found), note, charts, tables, [synthetic("moving_mean", 5, 600)])


EXPERIMENTS = (
    experiment(
        "partly-sorted",
        ("figure 14",),
        "Where sorted intervals of Zipf keys come in random order, DINER gives many more pairs than HMJ and RPJ, in "
        "all cases.",
        run_partly_sorted,
    ),
    experiment(
        "moving-mean",
        ("figure 15",),
        "Where the mean of the keys moves up from period to period, DINER gives up to three times the pairs of HMJ and "
        "RPJ, the more the faster it moves.",
        run_moving_mean,
    ),
)
