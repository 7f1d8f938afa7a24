"""Figures 10 to 12, 14, 15 and 18: synthetic keys whose skew, means, variances, order, drift or numbers vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.context import BenchContext
from bench.experiments.online.counting import counted
from bench.experiments.online.shares import FULL, NAMED, Shares, Size, Sweep, proofs_of, shares_of, size_of
from bench.experiments.online.streams import SOURCE_ROWS, Streams, synthetic
from bench.judge import Figures
from dovetail.engine.kernels.arrays import int64s
from dovetail.workloads.relation_sets import NormalKeys, Relation

PERMUTATIONS = {"small": 3, "full": 10}


def wide_means(x: float, rows: int, seed: int = 1) -> Streams:
    """Normal keys as `normal_means`, but read with a standard deviation of 50 in place of a variance of 50."""
    laws = [NormalKeys(500.0, 2500.0), NormalKeys(500.0 + x, 2500.0)]
    sides = [Relation(rows, f"wide {side}", (("key", law),), seed) for side, law in zip("lr", laws, strict=True)]
    left, right = (int64s(side.table().column("key").to_numpy()) for side in sides)
    return Streams(f"wide_means {x:g}", left, right)


def _streams(name: str, x: float, size: Size, seed: int = 1) -> Streams:
    """One set of keys; of "sizes" the right relation has x percent of the rows of the left one."""
    if name == "wide_means":
        return wide_means(x, size.rows, seed)
    if name == "sizes":
        return synthetic("zipf", 1, size.rows, round(size.rows * x) // 100)
    return synthetic(name, x, size.rows, seed=seed)


def _mean(several: Sequence[Shares]) -> Shares:
    return {name: sum(shares[name] for shares in several) / len(several) for name in several[0]}


def laws(
    bench: BenchContext,
    sets: Mapping[str, Mapping[str, Any]],
    proof: Sequence[Any],
    full: bool = False,
    permuted: bool = False,
    regions: Sequence[Any] = (),
) -> Figures:
    """Shares of all joins over sets of keys, each a `Sweep` by its name; a set gets its `values` and `label`.

    `full` sweeps have the source's size at any scale, `permuted` ones are means over permutations, and `regions` is a
    set of which DINER's flushes are told apart. `stocks` are shares on the stand-in for stock data.
    """
    size = FULL if full else size_of(bench)
    seeds = range(1, 1 + PERMUTATIONS[bench.scale]) if permuted else range(1, 2)
    named: dict[str, Any] = {"every": [], "permutations": len(seeds), "size": size}
    for name, told in sets.items():
        kind, single = told.get("set", name), {}
        for x in told["values"]:
            single[x] = [size.shares(_streams(kind, x, size, seed)) for seed in seeds]
            named["every"] += single[x]
        named[name] = Sweep(kind, told["label"], {x: _mean(some) for x, some in single.items()}, size)
    if regions:
        streams = _streams(regions[0], regions[1], size)
        named["regions"] = counted("DINER", streams, size.memory, size.block).regions
    stocks = synthetic("csco", None, SOURCE_ROWS["csco"])
    named["stocks"] = lambda: shares_of(stocks, stocks.rows // 20, 10, ("DINER", *NAMED["RIVALS"]))
    return replace(Figures(NAMED | named), rows=proofs_of([synthetic(*proof)]))
