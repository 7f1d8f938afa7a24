"""Seed 004: looking up a second position of the queue in turn with the oldest row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import Curves, curves, over, shown
from bench.experiments.semistream.counting import (
    Point,
    count,
    counted,
    describe,
    divisor,
    master_rows,
    memories,
)
from bench.experiments.semistream.hybrid_rates import EXPONENTS
from bench.experiments.semistream.judging import judged, ratios
from bench.experiments.semistream.media import Runner, everywhere
from dovetail.joins.semistream.options import Lookup

HYBRID, OPTIMISED, GUARDED = "HYBRIDJOIN", "HYBRIDJOIN, second position", "HYBRIDJOIN, guarded (ours)"
CACHE, OPTIMISED_CACHE = "CACHEJOIN", "CACHEJOIN, second position"
ALTERNATE, GUARD = Lookup("alternate", 0.3), Lookup("guarded", 0.3)
_SOURCE = "Naeem 2014"
_COARSE = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)
_FEW = (0.01, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
_FINE = (0.01, *(n / 20 for n in range(1, 21)))


def _joins(divide: int) -> dict[str, Point]:
    plain = Point(divide=divide)
    cache = replace(plain, algorithm="cachejoin")
    return {HYBRID: plain, OPTIMISED: replace(plain, lookup=ALTERNATE), GUARDED: replace(plain, lookup=GUARD),
            CACHE: cache, OPTIMISED_CACHE: replace(cache, lookup=ALTERNATE)}  # fmt: skip


def _positions(bench: BenchContext, runner: Runner) -> Findings:
    plain = Point(divide=runner.divide)
    values = _FEW if runner.few else _FINE if bench.scale == "full" else _COARSE
    rates = [runner.rate(replace(plain, lookup=Lookup("alternate", c))) for c in values]
    best, oldest = values[rates.index(max(rates))], runner.rate(plain)
    checks = [
        Part(f"the best position is {best:g} of the queue from its newest row, printed 0.3", 0.15 <= best <= 0.4),
        Part(f"the rate at 0.3 is {rates[values.index(0.3)] / max(rates):.1%} of the best",
              rates[values.index(0.3)] > 0.95 * max(rates)),
        Part(f"at the front it is {rates[0] / max(rates):.0%} of the best and at the end {rates[-1] / max(rates):.0%}",
              rates[0] < 0.97 * max(rates) and rates[-1] < 0.7 * max(rates)),
    ]  # fmt: skip
    lines = {"in turn with the oldest row": list(zip(values, rates, strict=True)),
             "oldest row only": [(values[0], oldest), (1.0, oldest)]}  # fmt: skip
    chart = Chart("HYBRIDJOIN, exponent 1", "position, from the newest row", "rows a second", lines)
    return judged(checks, runner.note, [chart])


def _gains(found: Curves, loads: Curves) -> tuple[list[float], list[float], list[float]]:
    rate = over(found[OPTIMISED], found[HYBRID])
    return rate, over(loads[OPTIMISED], loads[HYBRID]), over(found[OPTIMISED_CACHE], found[CACHE])


def _both(bench: BenchContext, axis: str, values: Sequence[float]) -> tuple[Curves, Curves]:
    joins = _joins(divisor(bench))
    return curves(joins, axis, values), curves(joins, axis, values, lambda of: of.rows_per_load)


def _by_memory(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "memory_mb", memories(bench))
    rate, load, cache = _gains(found, loads)
    checks = [
        Part(f"it needs about a third of the loads: {ratios(load)} times the rows per load", min(load) > 2.5),
        Part(f"its rate is about three times HYBRIDJOIN's: {ratios(rate)} times", min(rate) > 2.5),
        Part(f"CACHEJOIN gains less: {ratios(cache)} times", min(cache) > 1 and max(cache) < min(rate)),
    ]
    chart, table = shown("Exponent 1, 2 million rows", "memory, MB", "rows a second", memories(bench), found)
    note = f"What is left of an iteration are the steps, which no look-up saves. {describe(divisor(bench))}"
    return judged(checks, note, [chart], [table])


def _by_rows(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "rows", master_rows(bench))
    rate, load, cache = _gains(found, loads)
    checks = [
        Part(f"it has more than twice the rows per load: {ratios(load)} times", min(load) > 2),
        Part(f"and more than twice the rate: {ratios(rate)} times", min(rate) > 2),
        Part(f"CACHEJOIN gains as well: {ratios(cache)} times", min(cache) > 1),
    ]
    chart, table = shown(
        "Exponent 1, 50 MB", "master rows", "rows a second", master_rows(bench), found, log_x=True, log_y=True
    )
    return judged(checks, describe(divisor(bench)), [chart], [table])


def _by_skew(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "exponent", EXPONENTS)
    rate, load, cache = _gains(found, loads)
    guarded = over(found[GUARDED], found[HYBRID])
    unsorted = Point(divide=divisor(bench), algorithm="cachejoin", order="none")
    worse = count(replace(unsorted, lookup=ALTERNATE)).per_second / count(unsorted).per_second
    checks = [
        Part(f"the gain grows with skew: {ratios(load)} times the rows per load, {ratios(rate)} times the rate",
              load[-1] > load[2] > load[0]),
        Part(f"it is about three at exponent 1: {load[-1]:.2f} in loads", load[-1] > 2.5),
        Part(f"and it is never worse: {rate[0]:.2f} at exponent 0", min(rate) > 0.99),
    ]  # fmt: skip
    note = (
        f"Our guarded look-up is never worse: {ratios(guarded)} times. CACHEJOIN gains {ratios(cache)}; over master "
        f"data in any order it has {worse:.2f} times its rate at exponent 1. {describe(divisor(bench))}"
    )
    chart, table = shown("50 MB, 2 million rows", "exponent", "rows a second", EXPONENTS, found)
    return judged(checks, note, [chart], [table])


EXPERIMENTS = (
    *everywhere(
        "position",
        ("figure 4",),
        "Looking up a second position in turn with the oldest row is best at 0.3 of the "
        "queue, counted from its newest row.",
        _positions,
        _SOURCE,
    ),
    counted(
        "position-memory",
        ("figure 5 (a)",),
        "With a second look-up position HYBRIDJOIN is three times as fast with any memory; CACHEJOIN gains less.",
        _by_memory,
        _SOURCE,
    ),
    counted(
        "position-master",
        ("figure 5 (b)",),
        "It is more than twice as fast for every size of the master data.",
        _by_rows,
        _SOURCE,
    ),
    counted(
        "position-skew",
        ("figure 5 (c)",),
        "The gain grows with skew to about three at exponent 1, and there is no loss for uniform keys.",
        _by_skew,
        _SOURCE,
    ),
)
