"""Chapters 6 to 8 by the clock: tuning by the models of this machine against tuning by runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import Point
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.media import ClockRunner, on_stores
from bench.experiments.semistream.real_model import calculated, units_of
from bench.experiments.semistream.real_rates import CACHE, JOINS, OPTIMISED, X

_SEGMENTS = (250, 500, 1000, 2000)
_PINNED = (500, 1000, 2000, 4000)
_CACHES = (16_000, 32_000, 64_000, 128_000)
_TABLE = 64_000  # rows in the table while segments are tuned
_NEAR = 0.1


@dataclass(frozen=True, slots=True)
class _Curve:
    """Rates over one size, by the clock and by the model."""

    size: str
    values: Sequence[int]
    clock: list[float]
    model: list[float]

    @property
    def regret(self) -> float:
        """What the size that the model would take loses against the best one."""
        return 1 - self.clock[self.model.index(max(self.model))] / max(self.clock)

    def says(self) -> str:
        """The best sizes by both."""
        best, chosen = (self.values[rates.index(max(rates))] for rates in (self.clock, self.model))
        return f"the best {self.size} is {chosen:,} by the model and {best:,} by the clock"


def _curve(runner: ClockRunner, plain: Point, field: str, size: str, values: Sequence[int]) -> _Curve:
    points = [replace(plain, **{field: value}) for value in values]  # type: ignore[arg-type]  # a field
    pages = runner.pages(plain.master_rows)
    costs = units_of(pages)
    model = [calculated(point, pages, costs).mu for point in points]
    return _Curve(size, values, [runner.rate(point) for point in points], model)


def _tuned(bench: BenchContext, runner: ClockRunner, name: str) -> Findings:
    plain = replace(JOINS[name], divide=runner.divide)
    if name == X:
        curves = [_curve(runner, replace(plain, pinned=2000), "segment", "d_S", _SEGMENTS),
                  _curve(runner, plain, "pinned", "d_N", _PINNED)]  # fmt: skip
    else:
        curves = [_curve(runner, replace(plain, cached=_TABLE), "segment", "d", _SEGMENTS),
                  _curve(runner, plain, "cached", "h_R", _CACHES)]  # fmt: skip
    checks = [
        Part(f"{of.says()}, which loses {of.regret:.0%} of the rate ({_NEAR:.0%} was allowed)", of.regret <= _NEAR)
        for of in curves
    ]
    off = [m / c - 1 for of in curves for m, c in zip(of.model, of.clock, strict=True)]
    checks.append(Part(f"calculated rates lie {min(off):+.0%} to {max(off):+.0%} from the clock's (25 % was allowed)",
                       max(map(abs, off)) <= 0.25))  # fmt: skip
    if name == X:
        best, untuned = max(rate for of in curves for rate in of.clock), runner.rate(plain)
        checks.append(
            Part(f"tuned it has {best / untuned:.2f} times the rate (significant: 1.1)", best > 1.1 * untuned)
        )
    charts, tables = [], []
    for of in curves:
        lines = {"clock": [*zip(of.values, of.clock, strict=True)], "model": [*zip(of.values, of.model, strict=True)]}
        charts.append(Chart(f"{name}: {of.size}", of.size, "rows a second", lines, log_x=True))
        tables.append(grid(f"By {of.size}", (of.size, "rows/s by the clock", "by the model"),
                           zip(of.values, of.clock, of.model, strict=True)))  # fmt: skip
    return judged(checks, f"Our models with this machine's unit costs. {runner.note}", charts, tables)


EXPERIMENTS = (
    *on_stores(
        "x-tuning-by-model",
        ("figure 6.7", "figure 6.8"),
        "Tuning by calculation agrees with tuning by measurement, and tuned X-HYBRIDJOIN is significantly faster.",
        partial(_tuned, name=X),
    ),
    *on_stores(
        "optimised-tuning-by-model",
        ("figure 7.3",),
        "Tuning Optimised X-HYBRIDJOIN by calculation agrees with tuning by measurement.",
        partial(_tuned, name=OPTIMISED),
    ),
    *on_stores(
        "cache-tuning-by-model",
        ("figure 8.2",),
        "Tuning CACHEJOIN by calculation agrees with tuning by measurement.",
        partial(_tuned, name=CACHE),
    ),
)
