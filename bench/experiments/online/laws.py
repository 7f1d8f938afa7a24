"""Figures 10 to 12, 14, 15 and 18: synthetic keys whose skew, means, variances, order, drift or numbers vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.context import BenchContext
from bench.experiment import Experiment, Findings, Grid, Part, extent
from bench.experiments.online.counting import counted
from bench.experiments.online.shares import (
    FULL,
    RIVALS,
    Shares,
    Size,
    factor,
    factors_chart,
    findings,
    labelled,
    reference,
    remarks,
    shares_chart,
    shares_grid,
    shares_of,
    shown,
    size_of,
)
from bench.experiments.online.streams import SOURCE_ROWS, Streams, synthetic
from dovetail.engine.kernels.arrays import int64s
from dovetail.workloads.key_laws import NormalKeys
from dovetail.workloads.relation_sets import Relation

SKEWS = (1, 2, 3, 4, 5)
MEANS, WIDE_MEANS, VARIANCES = (0, 10, 20, 30), (0, 50, 100, 150, 200), (0, 25, 50, 100, 200, 400)
RUNS, SHIFTS = (5, 10, 20, 50, 100), (0, 2, 5, 10, 20, 100)
PERCENT = (10, 25, 50, 75, 100)
"""Rows of the smaller relation in percent of the other's."""
PERMUTATIONS = {"small": 3, "full": 10}
GROWN, SAME, CLEAR, FASTER, PRINTED_GAIN = 1.15, 0.98, 1.1, 1.3, 3.0
Found = Mapping[float, Shares]


def wide_means(x: float, rows: int, seed: int = 1) -> Streams:
    """Normal keys as `normal_means`, but read with a standard deviation of 50 in place of a variance of 50."""
    laws = [NormalKeys(500.0, 2500.0), NormalKeys(500.0 + x, 2500.0)]
    sides = [Relation(rows, f"wide {side}", (("key", law),), seed) for side, law in zip("lr", laws, strict=True)]
    left, right = (int64s(side.table().column("key").to_numpy()) for side in sides)
    return Streams(f"wide_means {x:g}", left, right)


def _swept(set_name: str, xs: Sequence[float], size: Size) -> dict[float, Shares]:
    return {x: size.shares(synthetic(set_name, x, size.rows)) for x in xs}


def run_zipf(bench: BenchContext) -> Findings:
    """Figure 10, with the gains on the stand-in for the stock data beside it."""
    size = size_of(bench)
    found, stocks = _swept("zipf", SKEWS, size), synthetic("csco", None, SOURCE_ROWS["csco"])
    real, parts = shares_of(stocks, stocks.rows // 20, 10, ("DINER", *RIVALS)), list[Part]()
    for rival in RIVALS:
        best, there = max(factor(shares, rival) for shares in found.values()), factor(real, rival)
        ahead = all(shares["DINER"] >= SAME * shares[rival] for shares in found.values())
        parts.append((f"at least as many pairs as {shown(rival)} at every skew", ahead))
        says = f"the largest gain over {shown(rival)}, {best:.2f} times, is above the {there:.2f} of the stock stand-in"
        parts.append((says, best > there))
    lines, wanted = labelled(found, "skew {x:g}"), reference("zipf", SKEWS, "skew {x:g}")
    charts = [shares_chart("Zipf keys", "skew", found), factors_chart("DINER's gain", "skew", found)]
    tables = [shares_grid(f"Zipf keys, {size}", lines, wanted)]
    return findings(parts, remarks(lines, wanted, size), charts, tables, [synthetic("zipf", 1, 600)])


def _growth(found: Found, rival: str) -> tuple[float, float]:
    """DINER's factor over a join at the smallest and at the largest divergence."""
    return factor(found[min(found)], rival), factor(found[max(found)], rival)


def _growing(found: Found, what: str) -> list[Part]:
    parts = []
    for rival in RIVALS:
        first, last = _growth(found, rival)
        says = (
            f"{what}: the gain over {shown(rival)} goes from {first:.2f} to {last:.2f} (asked: {GROWN} times the first)"
        )
        parts.append((says, last >= GROWN * first))
    return parts


def _regions(what: str, streams: Streams, size: Size) -> tuple[tuple[int, int, int], Grid]:
    found = counted("DINER", streams, size.memory, size.block).regions
    heads = ("keys", "lower region", "middle region", "upper region")
    return found, Grid("Where DINER's flushes begin", heads, [(what, *found)])


def run_means(bench: BenchContext) -> Findings:
    """Figure 11, in both readings of its "variance 50", always at the source's size: with fewer rows too few match."""
    size = FULL
    near = _swept("normal_means", MEANS, size)
    wide: dict[float, Shares] = {x: size.shares(wide_means(x, size.rows)) for x in WIDE_MEANS}
    regions, grid = _regions("means 500 and 530", synthetic("normal_means", 30, size.rows), size)
    says = f"the middle region is flushed for its own sake ({regions[1]} of {sum(regions)} flushes)"
    parts = [*_growing(near, "variance 50"), *_growing(wide, "deviation 50"), (says, regions[1] >= 0.1 * sum(regions))]
    labels = "variance 50, +{x:g}", "deviation 50, +{x:g}"
    lines = labelled(near, labels[0]) | labelled(wide, labels[1])
    wanted = reference("normal_means", MEANS, labels[0]) | reference("wide_means", WIDE_MEANS, labels[1])
    charts = [
        factors_chart("DINER's gain, variance 50", "distance of the means", near),
        factors_chart("DINER's gain, deviation 50", "distance of the means", wide),
    ]
    tables = [shares_grid(f"Normal keys with different means, {size}", lines, wanted), grid]
    return findings(parts, remarks(lines, wanted, size), charts, tables, [synthetic("normal_means", 20, 600)])


def run_variances(bench: BenchContext) -> Findings:
    """Figure 12, with the growth of figure 11 beside it."""
    size = size_of(bench)
    found, apart = _swept("normal_variances", VARIANCES, size), _swept("normal_means", (0, 30), size)
    parts = _growing(found, "variances 50 and 450")
    for rival in RIVALS:
        (a, b), (c, d) = _growth(found, rival), _growth(apart, rival)
        says = f"growth over {shown(rival)} is weaker ({b / a:.2f} times) than for means ({d / c:.2f} times)"
        parts.append((says, b / a < d / c))
    regions, grid = _regions("variances 50 and 450", synthetic("normal_variances", 400, size.rows), size)
    outer = regions[0] + regions[2]
    parts.append((f"most flushes are of the outer regions ({outer} of {sum(regions)})", outer > regions[1]))
    lines, wanted = labelled(found, "+{x:g}"), reference("normal_variances", VARIANCES, "+{x:g}")
    charts = [factors_chart("DINER's gain", "variance added on one side", found)]
    tables = [shares_grid(f"Normal keys with different variances, {size}", lines, wanted), grid]
    return findings(parts, remarks(lines, wanted, size), charts, tables, [synthetic("normal_variances", 100, 600)])


def run_partly_sorted(bench: BenchContext) -> Findings:
    """Figure 14: the mean over several permutations, and each of them."""
    size, seeds = size_of(bench), range(1, 1 + PERMUTATIONS[bench.scale])
    single = {x: [size.shares(synthetic("partly_sorted", x, size.rows, seed=s)) for s in seeds] for x in RUNS}
    every = [shares for several in single.values() for shares in several]
    found: dict[float, Shares] = {
        x: {name: sum(shares[name] for shares in several) / len(several) for name in several[0]}
        for x, several in single.items()
    }
    parts = []
    for rival in RIVALS:
        factors = [factor(shares, rival) for shares in found.values()]
        says = f"on average over permutations at least {CLEAR} times the pairs of {shown(rival)} at every number of "
        parts.append((f"{says}intervals (found {extent(factors)})", min(factors) >= CLEAR))
        lost = sum(shares["DINER"] < shares[rival] for shares in every)
        parts.append((f"ahead of {shown(rival)} in every permutation (behind in {lost} of {len(every)})", lost == 0))
    lines, wanted = labelled(found, "{x:g} intervals"), reference("partly_sorted", RUNS, "{x:g} intervals")
    aged = sum(shares["DINER"] < shares["RPJ 0.9"] for shares in every)
    note = (
        f"Behind ageing RPJ in {aged} permutations. The order of intervals decides, so means of {len(seeds)} "
        f"permutations differ from the ten of the reference counts. {remarks(lines, wanted, size)}"
    )
    charts = [
        shares_chart("Partly sorted Zipf keys", "sorted intervals", found, log_x=True),
        factors_chart("DINER's gain", "sorted intervals", found, log_x=True),
    ]
    tables = [shares_grid(f"Means of {len(seeds)} permutations, {size}", lines, wanted)]
    return findings(parts, note, charts, tables, [synthetic("partly_sorted", 10, 600)])


def run_moving_mean(bench: BenchContext) -> Findings:
    """Figure 15."""
    size, parts = size_of(bench), list[Part]()
    found = _swept("moving_mean", SHIFTS, size)
    for rival in RIVALS:
        best, (first, last) = max(factor(shares, rival) for shares in found.values()), _growth(found, rival)
        parts.append(
            (f"up to {PRINTED_GAIN:g} times the pairs of {shown(rival)} (found {best:.2f})", best >= PRINTED_GAIN)
        )
        says = f"the gain over {shown(rival)} grows with the shift ({first:.2f} to {last:.2f}, asked {FASTER} times)"
        parts.append((says, last >= FASTER * first))
    lines, wanted = labelled(found, "shift {x:g}"), reference("moving_mean", SHIFTS, "shift {x:g}")
    aged = extent(factor(shares, "RPJ 0.9") for shares in found.values())
    note = (
        f"An RPJ that forgets old arrivals is {aged} times behind: what DINER gains is mostly that it adapts. "
        f"{remarks(lines, wanted, size)}"
    )
    charts = [
        shares_chart("Normal keys whose mean moves", "shift from period to period", found),
        factors_chart("DINER's gain", "shift from period to period", found),
    ]
    tables = [shares_grid(f"Moving means, {size}", lines, wanted)]
    return findings(parts, note, charts, tables, [synthetic("moving_mean", 5, 600)])


def run_unequal(bench: BenchContext) -> Findings:
    """Figure 18: both relations come at one rate; memory is the same for all sizes."""
    size = size_of(bench)
    found: dict[float, Shares] = {
        x: size.shares(synthetic("zipf", 1, size.rows, size.rows * x // 100)) for x in PERCENT
    }
    diner = [shares["DINER"] for shares in found.values()]
    falls = all(smaller > larger for smaller, larger in pairwise(diner))
    parts = [(f"DINER's share rises as the other relation shrinks ({diner[-1]:.1f} to {diner[0]:.1f} %)", falls)]
    for rival in RIVALS:
        factors = {x: factor(shares, rival) for x, shares in found.items()}
        worst = min(factors, key=factors.__getitem__)
        says = f"ahead of {shown(rival)} at every size (least: {factors[worst]:.2f} times at {worst:g} %)"
        parts.append((says, factors[worst] >= 1.0))
    first = {x: max(shares, key=shares.__getitem__) for x, shares in found.items()}
    ahead = [f"{shown(name)} at {x:g} %" for x, name in first.items() if name != "DINER"]
    lines, wanted = labelled(found, "{x:g} %"), reference("sizes", PERCENT, "{x:g} %")
    note = f"First where DINER is not: {', '.join(ahead) or 'none'}. {remarks(lines, wanted, size)}"
    charts = [shares_chart("Zipf keys, one relation smaller", "rows in % of the other relation", found)]
    tables = [shares_grid(f"One relation smaller, {size}", lines, wanted)]
    return findings(parts, note, charts, tables, [synthetic("zipf", 1, 600, 150)])


EXPERIMENTS = (
    Experiment(
        "online-zipf",
        ("figure 10",),
        "On Zipf keys DINER gains more over HMJ and RPJ than on recorded data, whatever the skew.",
        run_zipf,
    ),
    Experiment(
        "online-means",
        ("figure 11",),
        "The further the means of two normal distributions are apart, the more DINER gains over HMJ and RPJ: its "
        "middle region gives up the keys between them.",
        run_means,
    ),
    Experiment(
        "online-variances",
        ("figure 12",),
        "The more the variances of two normal distributions differ, the more DINER gains, though less than for means; "
        "flushes are mostly of its lower and upper regions.",
        run_variances,
    ),
    Experiment(
        "online-partly-sorted",
        ("figure 14",),
        "Where sorted intervals of Zipf keys come in random order, DINER gives many more pairs than HMJ and RPJ, in "
        "all cases.",
        run_partly_sorted,
    ),
    Experiment(
        "online-moving-mean",
        ("figure 15",),
        "Where the mean of the keys moves up from period to period, DINER gives up to three times the pairs of HMJ and "
        "RPJ, the more the faster it moves.",
        run_moving_mean,
    ),
    Experiment(
        "online-unequal-sizes",
        ("figure 18",),
        "The smaller one of two relations, the larger the share of the result that DINER gives while they come, since "
        "memory holds more of the smaller one; it stays ahead of HMJ and RPJ.",
        run_unequal,
    ),
)
