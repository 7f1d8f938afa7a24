"""Figure 18: one relation is smaller than the other."""

from __future__ import annotations

from itertools import pairwise

from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.online.judging import (
    RIVALS,
    apart_from,
    beyond,
    experiment,
    factor,
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
        "unequal-sizes",
        ("figure 18",),
        "The smaller one of two relations, the larger the share of the result that DINER gives while they come, since "
        "memory holds more of the smaller one; it stays ahead of HMJ and RPJ.",
        run_unequal,
    ),
)
