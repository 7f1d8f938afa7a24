"""Figures 10 to 12, 14, 15 and 18: synthetic keys whose law, means, order or sizes vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.context import BenchContext
from bench.experiment import Cell, Findings, Grid
from bench.experiments.online.counting import COLUMNS, counted
from bench.experiments.online.judging import (
    FULL,
    RIVALS,
    Shares,
    Size,
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
from bench.experiments.online.streams import Streams, synthetic
from bench.experiments.parts import Part
from dovetail.engine.kernels.arrays import int64s
from dovetail.workloads.key_laws import NormalKeys
from dovetail.workloads.relation_sets import Relation

SKEWS = (1, 2, 3, 4, 5)

MEANS, WIDE_MEANS, VARIANCES = (0, 10, 20, 30), (0, 50, 100, 150, 200), (0, 25, 50, 100, 200, 400)

GROWN, SAME = 1.15, 0.98

STANDING = 10_355

"""Rows a side of the stand-in for the stock data that gains on skewed keys are compared with."""


def wide_means(x: float, rows: int, seed: int = 1) -> Streams:
    """Normal keys as `normal_means`, but read with a standard deviation of 50 in place of a variance of 50."""
    laws = [NormalKeys(500.0, 2500.0), NormalKeys(500.0 + x, 2500.0)]
    sides = [Relation(rows, f"wide {side}", (("key", law),), seed) for side, law in zip("lr", laws, strict=True)]
    left, right = (int64s(side.table().column("key").to_numpy()) for side in sides)
    return Streams(f"wide_means {x:g}", left, right)


def _swept(set_name: str, xs: tuple[int, ...], size: Size) -> dict[float, dict[str, float]]:
    return {x: shares_of(synthetic(set_name, x, size.rows), size.memory, size.block) for x in xs}


def _lines(found: Mapping[float, Shares], label: str) -> dict[str, Shares]:
    return {label.format(x=x): shares for x, shares in found.items()}


def run_zipf(bench: BenchContext) -> Findings:
    """Figure 10."""
    size = size_of(bench)
    found = _swept("zipf", SKEWS, size)
    stocks = synthetic("csco", None, STANDING)
    real = shares_of(stocks, stocks.rows // 20, 10, ("DINER", *RIVALS))
    parts = []
    for rival in RIVALS:
        best, there = max(factor(shares, rival) for shares in found.values()), factor(real, rival)
        ahead = all(shares["DINER"] >= SAME * shares[rival] for shares in found.values())
        parts.append(Part(f"at least as many pairs as {shown(rival)} at every skew", ahead))
        says = f"the largest gain over {shown(rival)}, {best:.2f} times, is above the {there:.2f} of the stock stand-in"
        parts.append(Part(says, best > there))
    lines, wanted = _lines(found, "skew {x:g}"), specified_lines("zipf", SKEWS, "skew {x:g}")
    note = f"{beyond(lines)} {apart_from(lines, wanted)} {size}."
    charts = [shares_chart("Zipf keys", "skew", found), factors_chart("DINER's gain", "skew", found)]
    proofs = [synthetic("zipf", 1, 600)]
    return findings(parts, note, charts, [shares_grid(f"Zipf keys, {size}", lines, wanted)], proofs)


def _growth(found: Mapping[float, Shares], rival: str) -> tuple[float, float]:
    """DINER's factor over a join at the smallest and at the largest divergence."""
    xs = sorted(found)
    return factor(found[xs[0]], rival), factor(found[xs[-1]], rival)


def _growing(found: Mapping[float, Shares], rival: str, what: str) -> Part:
    first, last = _growth(found, rival)
    says = f"{what}: the gain over {shown(rival)} goes from {first:.2f} to {last:.2f} (asked: {GROWN} times the first)"
    return Part(says, last >= GROWN * first)


def _regions(streams: Mapping[str, Streams], size: Size) -> dict[str, tuple[int, int, int]]:
    return {name: counted("DINER", each, size.memory, size.block).regions for name, each in streams.items()}


def _regions_grid(regions: Mapping[str, tuple[int, int, int]]) -> Grid:
    rows: list[list[Cell]] = [[name, *counts] for name, counts in regions.items()]
    return Grid("Where DINER's flushes begin", ["keys", "lower region", "middle region", "upper region"], rows)


def run_means(bench: BenchContext) -> Findings:
    """Figure 11, in both readings of its "variance 50", always at the source's size: with fewer rows too few match."""
    size = FULL
    near = _swept("normal_means", MEANS, size)
    wide = {float(x): shares_of(wide_means(x, size.rows), size.memory, size.block) for x in WIDE_MEANS}
    parts = [_growing(near, rival, "variance 50") for rival in RIVALS]
    parts += [_growing(wide, rival, "deviation 50") for rival in RIVALS]
    regions = _regions({"means 500 and 530": synthetic("normal_means", 30, size.rows)}, size)
    ((lower, middle, upper),) = regions.values()
    says = f"the middle region is flushed for its own sake ({middle} of {lower + middle + upper} flushes)"
    parts.append(Part(says, middle >= 0.1 * (lower + middle + upper)))
    label = "variance 50, +{x:g}", "deviation 50, +{x:g}"
    lines = _lines(near, label[0]) | _lines(wide, label[1])
    wanted = specified_lines("normal_means", MEANS, label[0]) | specified_lines("wide_means", WIDE_MEANS, label[1])
    note = f"{beyond(lines)} {apart_from(lines, wanted)} {size}."
    charts = [
        factors_chart("DINER's gain, variance 50", "distance of the means", near),
        factors_chart("DINER's gain, deviation 50", "distance of the means", wide),
    ]
    tables = [shares_grid(f"Normal keys with different means, {size}", lines, wanted), _regions_grid(regions)]
    return findings(parts, note, charts, tables, [synthetic("normal_means", 20, 600)])


def run_variances(bench: BenchContext) -> Findings:
    """Figure 12, with the growth of figure 11 beside it."""
    size = size_of(bench)
    found = _swept("normal_variances", VARIANCES, size)
    parts = [_growing(found, rival, "variances 50 and 450") for rival in RIVALS]
    apart = {float(x): shares_of(synthetic("normal_means", x, size.rows), size.memory, size.block) for x in (0, 30)}
    for rival in RIVALS:
        (a, b), (c, d) = _growth(found, rival), _growth(apart, rival)
        says = f"growth over {shown(rival)} is weaker ({b / a:.2f} times) than for means ({d / c:.2f} times)"
        parts.append(Part(says, b / a < d / c))
    regions = _regions({"variances 50 and 450": synthetic("normal_variances", 400, size.rows)}, size)
    ((lower, middle, upper),) = regions.values()
    says = f"most flushes are of the outer regions ({lower + upper} of {lower + middle + upper})"
    parts.append(Part(says, lower + upper > middle))
    lines = _lines(found, "+{x:g}")
    wanted = specified_lines("normal_variances", VARIANCES, "+{x:g}")
    note = f"{beyond(lines)} {apart_from(lines, wanted)} {size}."
    charts = [factors_chart("DINER's gain", "variance added on one side", found)]
    tables = [shares_grid(f"Normal keys with different variances, {size}", lines, wanted), _regions_grid(regions)]
    return findings(parts, note, charts, tables, [synthetic("normal_variances", 100, 600)])


RUNS, SHIFTS = (5, 10, 20, 50, 100), (0, 2, 5, 10, 20, 100)

PERMUTATIONS = {"small": 3, "full": 10}

CLEAR, FASTER, PRINTED_GAIN = 1.1, 1.3, 3.0


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
        says = f"the gain over {shown(rival)} grows with the shift ({first:.2f} to {last:.2f}, asked {FASTER} times)"
        parts.append(Part(says, last >= FASTER * first))
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


PERCENT = (10, 25, 50, 75, 100)

"""Rows of the smaller relation in percent of the other's."""


def run_unequal(bench: BenchContext) -> Findings:
    """Both relations come at one rate; memory is the same for all sizes."""
    size = size_of(bench)
    found = {
        float(x): shares_of(synthetic("zipf", 1, size.rows, size.rows * x // 100), size.memory, size.block)
        for x in PERCENT
    }
    diner = [shares["DINER"] for shares in found.values()]
    falls = all(smaller > larger for smaller, larger in pairwise(diner))
    parts = [Part(f"DINER's share rises as the other relation shrinks ({diner[-1]:.1f} to {diner[0]:.1f} %)", falls)]
    for rival in RIVALS:
        factors = {x: factor(shares, rival) for x, shares in found.items()}
        worst = min(factors, key=lambda x: factors[x])
        says = f"ahead of {shown(rival)} at every size (least: {factors[worst]:.2f} times at {worst:g} %)"
        parts.append(Part(says, factors[worst] >= 1.0))
    first = {x: max(shares, key=lambda name: shares[name]) for x, shares in found.items()}
    ahead = [f"{shown(name)} at {x:g} %" for x, name in first.items() if name != "DINER"]
    lines = {f"{x:g} %": shares for x, shares in found.items()}
    wanted = specified_lines("sizes", PERCENT, "{x:g} %")
    note = (
        f"First where DINER is not: {', '.join(ahead) or 'none'}. {beyond(lines)} {apart_from(lines, wanted)} {size}."
    )
    charts = [shares_chart("Zipf keys, one relation smaller", "rows in % of the other relation", found)]
    tables = [shares_grid(f"One relation smaller, {size}", lines, wanted)]
    return findings(parts, note, charts, tables, [synthetic("zipf", 1, 600, 150)])


EXPERIMENTS = (
    experiment(
        "zipf",
        ("figure 10",),
        "On Zipf keys DINER gains more over HMJ and RPJ than on recorded data, whatever the skew.",
        run_zipf,
    ),
    experiment(
        "means",
        ("figure 11",),
        "The further the means of two normal distributions are apart, the more DINER gains over HMJ and RPJ: its "
        "middle region gives up the keys between them.",
        run_means,
    ),
    experiment(
        "variances",
        ("figure 12",),
        "The more the variances of two normal distributions differ, the more DINER gains, though less than for means; "
        "flushes are mostly of its lower and upper regions.",
        run_variances,
    ),
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
    experiment(
        "unequal-sizes",
        ("figure 18",),
        "The smaller one of two relations, the larger the share of the result that DINER gives while they come, since "
        "memory holds more of the smaller one; it stays ahead of HMJ and RPJ.",
        run_unequal,
    ),
)
