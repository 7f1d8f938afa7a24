"""Figures 10 to 12, 14, 15 and 18: synthetic keys whose skew, means, variances, order, drift or numbers vary."""

from __future__ import annotations

from itertools import pairwise

from bench.context import BenchContext
from bench.experiment import Findings, Grid, Part, extent
from bench.experiments.online.counting import counted
from bench.experiments.online.shares import (
    FULL,
    RIVALS,
    Shares,
    Size,
    Sweep,
    factor,
    findings,
    shares_of,
    shown,
    size_of,
)
from bench.experiments.online.streams import SOURCE_ROWS, Streams, synthetic
from dovetail.engine.kernels.arrays import int64s
from dovetail.workloads.relation_sets import NormalKeys, Relation

SKEWS = (1, 2, 3, 4, 5)
MEANS, WIDE_MEANS, VARIANCES = (0, 10, 20, 30), (0, 50, 100, 150, 200), (0, 25, 50, 100, 200, 400)
RUNS, SHIFTS = (5, 10, 20, 50, 100), (0, 2, 5, 10, 20, 100)
PERCENT = (10, 25, 50, 75, 100)
"""Rows of the smaller relation in percent of the other's."""
PERMUTATIONS = {"small": 3, "full": 10}
GROWN, SAME, CLEAR, FASTER, PRINTED_GAIN = 1.15, 0.98, 1.1, 1.3, 3.0


def wide_means(x: float, rows: int, seed: int = 1) -> Streams:
    """Normal keys as `normal_means`, but read with a standard deviation of 50 in place of a variance of 50."""
    laws = [NormalKeys(500.0, 2500.0), NormalKeys(500.0 + x, 2500.0)]
    sides = [Relation(rows, f"wide {side}", (("key", law),), seed) for side, law in zip("lr", laws, strict=True)]
    left, right = (int64s(side.table().column("key").to_numpy()) for side in sides)
    return Streams(f"wide_means {x:g}", left, right)


def zipf(bench: BenchContext) -> Findings:
    """Figure 10, with the gains on the stand-in for the stock data beside it."""
    size = size_of(bench)
    sweep, stocks = Sweep.over(SKEWS, "zipf", "skew {x:g}", size), synthetic("csco", None, SOURCE_ROWS["csco"])
    real, parts = shares_of(stocks, stocks.rows // 20, 10, ("DINER", *RIVALS)), list[Part]()
    for rival in RIVALS:
        best, there = max(sweep.factors(rival)), factor(real, rival)
        ahead = all(shares["DINER"] >= SAME * shares[rival] for shares in sweep.found.values())
        parts.append((f"at least as many pairs as {shown(rival)} at every skew", ahead))
        says = f"the largest gain over {shown(rival)}, {best:.2f} times, is above the {there:.2f} of the stock stand-in"
        parts.append((says, best > there))
    charts = sweep.shares_chart("Zipf keys", "skew"), sweep.factors_chart("skew")
    return findings(parts, sweep.remarks(), *charts, sweep.grid("Zipf keys"), proofs=[synthetic("zipf", 1, 600)])


def _growth(sweep: Sweep, rival: str) -> tuple[float, float]:
    """DINER's factor over a join at the smallest and at the largest divergence."""
    return factor(sweep.found[min(sweep.found)], rival), factor(sweep.found[max(sweep.found)], rival)


def _growing(sweep: Sweep, what: str) -> list[Part]:
    parts = []
    for rival in RIVALS:
        first, last = _growth(sweep, rival)
        says = (
            f"{what}: the gain over {shown(rival)} goes from {first:.2f} to {last:.2f} (asked: {GROWN} times the first)"
        )
        parts.append((says, last >= GROWN * first))
    return parts


def _regions(what: str, streams: Streams, size: Size) -> tuple[tuple[int, ...], Grid]:
    found = counted("DINER", streams, size.memory, size.block).regions
    heads = ("keys", "lower region", "middle region", "upper region")
    return found, Grid("Where DINER's flushes begin", heads, [(what, *found)])


def means(bench: BenchContext) -> Findings:
    """Figure 11, in both readings of its "variance 50", always at the source's size: with fewer rows too few match."""
    near = Sweep.over(MEANS, "normal_means", "variance 50, +{x:g}", FULL)
    shares: dict[float, Shares] = {x: FULL.shares(wide_means(x, FULL.rows)) for x in WIDE_MEANS}
    wide = Sweep("wide_means", "deviation 50, +{x:g}", shares, FULL)
    regions, grid = _regions("means 500 and 530", synthetic("normal_means", 30, FULL.rows), FULL)
    says = f"the middle region is flushed for its own sake ({regions[1]} of {sum(regions)} flushes)"
    parts = [*_growing(near, "variance 50"), *_growing(wide, "deviation 50"), (says, regions[1] >= 0.1 * sum(regions))]
    axis = "distance of the means"
    charts = [s.factors_chart(axis, f"DINER's gain, {t} 50") for s, t in ((near, "variance"), (wide, "deviation"))]
    tables = near.grid("Normal keys with different means", wide), grid
    return findings(parts, near.remarks(wide), *charts, *tables, proofs=[synthetic("normal_means", 20, 600)])


def variances(bench: BenchContext) -> Findings:
    """Figure 12, with the growth of figure 11 beside it."""
    size = size_of(bench)
    sweep = Sweep.over(VARIANCES, "normal_variances", "+{x:g}", size)
    apart = Sweep.over((0, 30), "normal_means", "+{x:g}", size)
    parts = _growing(sweep, "variances 50 and 450")
    for rival in RIVALS:
        (a, b), (c, d) = _growth(sweep, rival), _growth(apart, rival)
        says = f"growth over {shown(rival)} is weaker ({b / a:.2f} times) than for means ({d / c:.2f} times)"
        parts.append((says, b / a < d / c))
    regions, grid = _regions("variances 50 and 450", synthetic("normal_variances", 400, size.rows), size)
    outer = regions[0] + regions[2]
    parts.append((f"most flushes are of the outer regions ({outer} of {sum(regions)})", outer > regions[1]))
    shown_all = sweep.factors_chart("variance added on one side"), sweep.grid("Normal keys with different variances")
    return findings(parts, sweep.remarks(), *shown_all, grid, proofs=[synthetic("normal_variances", 100, 600)])


def partly_sorted(bench: BenchContext) -> Findings:
    """Figure 14: the mean over several permutations, and each of them."""
    size, seeds = size_of(bench), range(1, 1 + PERMUTATIONS[bench.scale])
    single = {x: [size.shares(synthetic("partly_sorted", x, size.rows, seed=s)) for s in seeds] for x in RUNS}
    every = [shares for several in single.values() for shares in several]
    found: dict[float, Shares] = {
        x: {name: sum(shares[name] for shares in several) / len(several) for name in several[0]}
        for x, several in single.items()
    }
    sweep, parts = Sweep("partly_sorted", "{x:g} intervals", found, size), list[Part]()
    for rival in RIVALS:
        factors = sweep.factors(rival)
        says = f"on average over permutations at least {CLEAR} times the pairs of {shown(rival)} at every number of "
        parts.append((f"{says}intervals (found {extent(factors)})", min(factors) >= CLEAR))
        lost = sum(shares["DINER"] < shares[rival] for shares in every)
        parts.append((f"ahead of {shown(rival)} in every permutation (behind in {lost} of {len(every)})", lost == 0))
    aged = sum(shares["DINER"] < shares["RPJ 0.9"] for shares in every)
    note = (
        f"Behind ageing RPJ in {aged} permutations. The order of intervals decides, so means of {len(seeds)} "
        f"permutations differ from the ten of the reference counts. {sweep.remarks()}"
    )
    charts = (
        sweep.shares_chart("Partly sorted Zipf keys", "sorted intervals", log_x=True),
        sweep.factors_chart("sorted intervals", log_x=True),
    )
    grid = sweep.grid(f"Means of {len(seeds)} permutations")
    return findings(parts, note, *charts, grid, proofs=[synthetic("partly_sorted", 10, 600)])


def moving_mean(bench: BenchContext) -> Findings:
    """Figure 15."""
    sweep, parts = Sweep.over(SHIFTS, "moving_mean", "shift {x:g}", size_of(bench)), list[Part]()
    for rival in RIVALS:
        best, (first, last) = max(sweep.factors(rival)), _growth(sweep, rival)
        says = f"up to {PRINTED_GAIN:g} times the pairs of {shown(rival)} (found {best:.2f})"
        parts.append((says, best >= PRINTED_GAIN))
        says = f"the gain over {shown(rival)} grows with the shift ({first:.2f} to {last:.2f}, asked {FASTER} times)"
        parts.append((says, last >= FASTER * first))
    note = (
        f"An RPJ that forgets old arrivals is {extent(sweep.factors('RPJ 0.9'))} times behind: what DINER gains is "
        f"mostly that it adapts. {sweep.remarks()}"
    )
    axis = "shift from period to period"
    charts = sweep.shares_chart("Normal keys whose mean moves", axis), sweep.factors_chart(axis)
    return findings(parts, note, *charts, sweep.grid("Moving means"), proofs=[synthetic("moving_mean", 5, 600)])


def unequal(bench: BenchContext) -> Findings:
    """Figure 18: both relations come at one rate; memory is the same for all sizes."""
    size = size_of(bench)
    found: dict[float, Shares] = {
        x: size.shares(synthetic("zipf", 1, size.rows, size.rows * x // 100)) for x in PERCENT
    }
    sweep, diner = Sweep("sizes", "{x:g} %", found, size), [shares["DINER"] for shares in found.values()]
    falls = all(smaller > larger for smaller, larger in pairwise(diner))
    parts = [(f"DINER's share rises as the other relation shrinks ({diner[-1]:.1f} to {diner[0]:.1f} %)", falls)]
    for rival in RIVALS:
        least, worst = min(zip(sweep.factors(rival), found, strict=True))
        says = f"ahead of {shown(rival)} at every size (least: {least:.2f} times at {worst:g} %)"
        parts.append((says, least >= 1.0))
    first = {x: max(shares, key=shares.__getitem__) for x, shares in found.items()}
    ahead = [f"{shown(name)} at {x:g} %" for x, name in first.items() if name != "DINER"]
    note = f"First where DINER is not: {', '.join(ahead) or 'none'}. {sweep.remarks()}"
    chart = sweep.shares_chart("Zipf keys, one relation smaller", "rows in % of the other relation")
    return findings(parts, note, chart, sweep.grid("One relation smaller"), proofs=[synthetic("zipf", 1, 600, 150)])
