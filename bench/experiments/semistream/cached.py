"""Chapters 7 and 8: the most wanted master rows in a hash table, known from the order or learned while running."""

from __future__ import annotations

from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import Curves, curves, over, shown
from bench.experiments.semistream.counting import Point, counted, describe, divisor, master_rows, memories
from bench.experiments.semistream.hybrid_rates import EXPONENTS
from bench.experiments.semistream.judging import judged, ratios

OPTIMISED, X, HYBRID, MESH, R_MESH = "Optimised X-HYBRIDJOIN", "X-HYBRIDJOIN", "HYBRIDJOIN", "MESHJOIN", "R-MESHJOIN"
CACHE = "CACHEJOIN, unsorted"


def _joins(divide: int, *names: str) -> dict[str, Point]:
    plain = Point(divide=divide)
    every = {
        OPTIMISED: replace(plain, algorithm="optimised_x_hybridjoin"),
        CACHE: replace(plain, algorithm="cachejoin", order="none"),
        X: replace(plain, algorithm="x_hybridjoin"),
        HYBRID: plain,
        R_MESH: replace(plain, algorithm="r_meshjoin"),
        MESH: replace(plain, algorithm="meshjoin"),
    }
    return {name: every[name] for name in names}


def _best(found: Curves, mine: str) -> Part:
    others = [max(rates[at] for name, rates in found.items() if name != mine) for at in range(len(found[mine]))]
    gains = over(found[mine], others)
    return Part(f"{mine} has {ratios(gains)} times the rate of the next best", min(gains) > 1)


def _optimised(bench: BenchContext) -> Findings:
    joins = _joins(divisor(bench), OPTIMISED, X, HYBRID, R_MESH, MESH)
    by_rows, by_memory = curves(joins, "rows", master_rows(bench)), curves(joins, "memory_mb", memories(bench))
    checks = [_best(by_rows, OPTIMISED), _best(by_memory, OPTIMISED)]
    first = shown("50 MB", "master rows", "rows a second", master_rows(bench), by_rows, log_x=True, log_y=True)
    second = shown("2 million rows", "memory, MB", "rows a second", memories(bench), by_memory)
    return judged(checks, f"Exponent 1. {describe(divisor(bench))}", [first[0], second[0]], [first[1], second[1]])


def _behind(found: Curves) -> list[Part]:
    near, far = over(found[CACHE], found[OPTIMISED]), over(found[CACHE], found[HYBRID])
    return [
        Part(f"CACHEJOIN reaches {ratios(near)} of Optimised X-HYBRIDJOIN's rate", 0.9 < min(near) <= max(near) < 1.01),
        Part(f"and has {ratios(far)} times HYBRIDJOIN's", min(far) > 1.3),
    ]


def _cachejoin(bench: BenchContext) -> Findings:
    joins = _joins(divisor(bench), OPTIMISED, CACHE, HYBRID, R_MESH, MESH)
    by_rows, by_memory = curves(joins, "rows", master_rows(bench)), curves(joins, "memory_mb", memories(bench))
    first = shown("50 MB", "master rows", "rows a second", master_rows(bench), by_rows, log_x=True, log_y=True)
    second = shown("2 million rows", "memory, MB", "rows a second", memories(bench), by_memory)
    checks = [*_behind(by_rows), *_behind(by_memory)]
    return judged(checks, f"Exponent 1. {describe(divisor(bench))}", [first[0], second[0]], [first[1], second[1]])


def _skew(bench: BenchContext) -> Findings:
    joins = _joins(divisor(bench), OPTIMISED, CACHE, HYBRID, R_MESH, MESH)
    found = curves(joins, "exponent", EXPONENTS)
    near, mesh = over(found[CACHE], found[OPTIMISED]), over(found[CACHE], found[MESH])
    rest = [max(found[name][at] for name in (HYBRID, R_MESH, MESH)) for at in range(len(EXPONENTS))]
    ahead = over(found[CACHE], rest)
    checks = [
        Part(f"CACHEJOIN is about as fast as Optimised X-HYBRIDJOIN: {ratios(near)} of its rate", min(near) > 0.9),
        Part(f"from exponent 0.75 on it is ahead of the others: {ratios(ahead[3:])} times", min(ahead[3:]) > 1),
        Part(f"at exponent 0 it is below MESHJOIN: {mesh[0]:.2f} times its rate", mesh[0] < 1),
    ]
    chart, table = shown("50 MB, 2 million rows", "exponent", "rows a second", EXPONENTS, found)
    note = (
        "A load in any order costs less than twice one in turn on this disk, as the source says of its own; below "
        f"MESHJOIN it would have to cost 2.15 times as much. {describe(divisor(bench))}"
    )
    return judged(checks, note, [chart], [table])


def _small_cache(bench: BenchContext) -> tuple[Chart, float]:
    divide = divisor(bench)
    point = Point(divide=divide, algorithm="cachejoin", order="none")
    sizes = (0, 2000, 8000, 16_000, 64_000)
    found = curves({CACHE: point}, "cached", sizes)[CACHE]
    chart, _ = shown("Exponent 1", "cached rows", "rows a second", sizes, {CACHE: found})
    return chart, found[1] / found[0]


def _little(bench: BenchContext) -> Findings:
    chart, gain = _small_cache(bench)
    share = 2000 * 260 / (50 * 2**20)
    checks = [Part(f"a cache of {share:.1%} of memory gives {gain:.2f} times the rate without one", gain > 1.4)]
    return judged(checks, describe(divisor(bench)), [chart])


EXPERIMENTS = (
    counted(
        "optimised-rate",
        ("figure 7.4 (a)", "figure 7.4 (b)"),
        "Optimised X-HYBRIDJOIN is the fastest of all for every size of the master data and with any memory.",
        _optimised,
    ),
    counted(
        "cache-rate",
        ("figure 8.3 (a)", "figure 8.3 (b)"),
        "CACHEJOIN, which needs no order, is a little slower "
        "than Optimised X-HYBRIDJOIN and far faster than HYBRIDJOIN and the MESHJOINs.",
        _cachejoin,
    ),
    counted(
        "cache-skew-rate",
        ("figure 8.3 (c)",),
        "CACHEJOIN keeps up with Optimised X-HYBRIDJOIN and is ahead of the "
        "rest from moderate skew on; for uniform keys it is slower than MESHJOIN.",
        _skew,
    ),
    counted(
        "cache-little",
        ("section 8.2.1",),
        "A remarkably small stream-probing phase delivers a substantial gain.",
        _little,
    ),
)
