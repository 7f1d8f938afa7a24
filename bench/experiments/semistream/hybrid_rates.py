"""Chapter 5: HYBRIDJOIN's service rate against MESHJOIN's and INLJ's, by master data, memory and skew."""

from __future__ import annotations

from collections.abc import Sequence

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import (
    Point,
    counted,
    describe,
    divisor,
    master_rows,
    memories,
    rate,
)
from bench.experiments.semistream.judging import grid, judged, ratios

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
HYBRID, MESH, INLJ, FROM_KEY = "HYBRIDJOIN", "MESHJOIN", "INLJ", "HYBRIDJOIN, loads from the key"
_NAMES = (INLJ, MESH, FROM_KEY, HYBRID)


def _point(name: str, divide: int, **setting: float) -> Point:
    algorithm = {MESH: "meshjoin", INLJ: "inlj"}.get(name, "hybridjoin")
    return Point(divide=divide, algorithm=algorithm, from_key=name == FROM_KEY, **setting)  # type: ignore[arg-type]  # fields of numbers


def _rates(bench: BenchContext, axis: str, values: Sequence[float]) -> dict[str, list[float]]:
    divide = divisor(bench)
    return {name: [rate(_point(name, divide, **{axis: value})) for value in values] for name in _NAMES}


def _shown(
    found: dict[str, list[float]], axis: str, values: Sequence[float], log: bool = False
) -> tuple[list[Chart], list[Grid]]:
    lines = {name: list(zip(values, rates, strict=True)) for name, rates in found.items()}
    rows = [(value, *(found[name][at] for name in _NAMES)) for at, value in enumerate(values)]
    table = grid("Rows a second", (axis, *_NAMES), rows)
    return [Chart("Service rate", axis, "rows a second", lines, log_x=log, log_y=True)], [table]


def _above(found: dict[str, list[float]]) -> list[Part]:
    gains = [mine / theirs for mine, theirs in zip(found[HYBRID], found[MESH], strict=True)]
    plain = [mine / theirs for mine, theirs in zip(found[MESH], found[INLJ], strict=True)]
    return [
        Part(f"HYBRIDJOIN has {ratios(gains)} times MESHJOIN's rate", min(gains) > 1),
        Part(f"MESHJOIN has at least {min(plain):.0f} times INLJ's", min(plain) > 1),
        Part(f"HYBRIDJOIN is much faster than MESHJOIN, which we take as 1.5 times; it is {max(gains):.2f} times at "
              "most", min(gains) > 1.5),
    ]  # fmt: skip


def _by_rows(bench: BenchContext) -> Findings:
    found = _rates(bench, "rows", master_rows(bench))
    charts, tables = _shown(found, "master rows", master_rows(bench), log=True)
    return judged(_above(found), describe(divisor(bench)), charts, tables)


def _by_memory(bench: BenchContext) -> Findings:
    found = _rates(bench, "memory_mb", memories(bench))
    charts, tables = _shown(found, "memory, MB", memories(bench))
    return judged(_above(found), describe(divisor(bench)), charts, tables)


def _by_skew(bench: BenchContext) -> Findings:
    found = _rates(bench, "exponent", EXPONENTS)
    aligned, from_key, mesh = found[HYBRID], found[FROM_KEY], found[MESH]
    gains = [a / b for a, b in zip(aligned, mesh, strict=True)]
    checks = [
        Part(f"at exponent 0 HYBRIDJOIN is below MESHJOIN: {gains[0]:.2f} times its rate", gains[0] < 1),
        Part(f"its advantage grows with skew: {ratios(gains)} times MESHJOIN's rate", gains[-1] > 1.1 * gains[0]),
        Part(f"above exponent 0 it is faster, {min(gains[1:]):.2f} times at least", min(gains[1:]) > 1),
    ]
    shape = from_key[0] < mesh[0] and from_key[-1] > 1.2 * from_key[0]
    says = "do" if shape else "do not"
    note = (
        f"Every segment is asked for several times a window, so that skew spares no reads. Loads that begin at the key "
        f"{says} show the printed shape ({from_key[0]:,.0f} rows/s at exponent 0, {from_key[-1]:,.0f} at 1), but are "
        f"slower throughout. {describe(divisor(bench))}"
    )
    charts, tables = _shown(found, "exponent", EXPONENTS)
    return judged(checks, note, charts, tables)


EXPERIMENTS = (
    counted(
        "hybrid-master-rate",
        ("figure 5.7 (c)", "Naeem 2011 figure 7 (c)"),
        "HYBRIDJOIN is much faster than MESHJOIN and INLJ for every size of the master data (exponent 1, 50 MB).",
        _by_rows,
    ),
    counted(
        "hybrid-memory-rate",
        ("figure 5.7 (d)", "Naeem 2011 figure 7 (d)"),
        "HYBRIDJOIN is much faster than MESHJOIN and INLJ with any memory (exponent 1, 2 million rows).",
        _by_memory,
    ),
    counted(
        "hybrid-skew-rate",
        ("figure 5.7 (e)", "Naeem 2011 figure 7 (e)"),
        "HYBRIDJOIN is slower than MESHJOIN for "
        "uniform keys only, and its advantage grows with skew (50 MB, 2 million rows).",
        _by_skew,
    ),
)
