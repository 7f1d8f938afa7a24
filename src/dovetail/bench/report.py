"""Benchmark results as Rich tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.bench.case import Case, Params
from dovetail.bench.harness import Report, unavailable
from dovetail.bench.result import CaseResult, Judged, PointResult, RivalResult, Spread

STYLES = {"holds": "green", "does not hold": "bold red", "not measured": "yellow", "other scale": "dim"}


def case_list(cases: dict[str, Case]) -> Table:
    """The cases that exist: what they ask, what they vary, who takes part and what they claim."""
    table = Table("name", "question", "varies", "rivals", "claims", title="Benchmarks", show_lines=True)
    for case in cases.values():
        rivals = "\n".join(
            rival.name + (f" ({unavailable(rival)})" if unavailable(rival) else "") for rival in case.rivals
        )
        claims = "\n".join(bound.explain() for bound in case.bounds) or "-"
        table.add_row(case.name, case.question, ", ".join(case.varies), rivals, claims)
    return table


def show(report: Report, console: Console) -> None:
    """Print every case with its claims, then the failures."""
    for result in report.results:
        console.print(case_tables(result))
    for failure in report.failures:
        console.print(Text(f"FAILED {failure}", style="bold red"))


def case_tables(result: CaseResult) -> RenderableType:
    """One table of the case's figures and, if it makes claims, one of verdicts."""
    case = result.case
    title = f"{case.name} ({result.scale}): {case.question}"
    table = Table(*case.varies, "rival", title=title, caption=f"ratios are against {case.baseline}; median [min - max]")
    for heading in (case.answer, "cold", "warm", "warm ratio", "memory on top"):
        table.add_column(heading, justify="right")
    for point in result.points:
        for row in _rows(point, case):
            table.add_row(*row)
        table.add_section()
    judged = result.judged
    return Group(table, _verdicts(judged)) if judged else table


def _rows(point: PointResult, case: Case) -> Iterator[tuple[str | Text, ...]]:
    cells = [_value(point.params[name]) for name in case.varies]
    for rival in point.rivals.values():
        if rival.status != "ok":
            style = "bold red" if rival.status in ("wrong", "failed") else "yellow"
            yield (*cells, rival.name, Text(f"{rival.status}: {rival.reason}", style=style), "", "", "", "")
            continue
        ratio = point.ratio(rival.name, case.baseline, "warm")
        yield (*cells, rival.name, f"{point.expected:,}", *_times(rival), _spread(ratio, _times_as), _memory(rival))


def _times(rival: RivalResult) -> tuple[str, str]:
    cold = rival.spread("cold")
    return (seconds(cold.median) if cold else "-", _spread(rival.spread("warm"), seconds))


def _memory(rival: RivalResult) -> str:
    peak = max((sample.rss_growth for sample in rival.samples), default=0)
    return f"{peak / 2**20:,.0f} MiB"


def _verdicts(judged: list[Judged]) -> Table:
    table = Table("claim", "measured", "at", "verdict")
    for one in judged:
        unit = _times_as if one.bound.against else (seconds if one.bound.figure == "seconds" else _plain)
        place = _point(one.at) if one.at else "-"
        table.add_row(
            one.bound.explain(), _spread(one.worst, unit), place, Text(one.verdict, style=STYLES[one.verdict])
        )
    return table


def seconds(value: float) -> str:
    """A duration with three significant digits and a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value:,.0f} s"
    return f"{value * 1e9:.3g} ns"


def _times_as(value: float) -> str:
    return f"{value:.3g}x"


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _spread(spread: Spread | None, unit: Callable[[float], str]) -> str:
    if spread is None:
        return "-"
    if spread.n == 1:
        return unit(spread.median)
    return f"{unit(spread.median)} [{unit(spread.low)} - {unit(spread.high)}]"


def _point(params: Params) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in params.items())


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
