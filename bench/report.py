"""Benchmark results as Rich tables."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.case import Case, CaseResult, Judged, Params, PointResult, RivalResult, Spread
from bench.catalogue import Entry, missing
from bench.experiment import Cell, Experiment, ExperimentResult, Findings
from bench.harness import Report
from dovetail.calibrate.unit_cost import digits, seconds

STYLES = {
    "holds": "green",
    "holds in part": "yellow",
    "reported": "cyan",
    "does not hold": "bold red",
    "not measured": "yellow",
    "other scale": "dim",
}


def entry_list(entries: dict[str, Entry]) -> RenderableType:
    """What exists: what each case asks, varies and claims and who takes part; what each experiment repeats."""
    return Group(*(_told(e) if isinstance(e, Experiment) else _described(e) for e in entries.values()))


def _told(experiment: Experiment) -> Text:
    lines = [experiment.claim, f"repeats {experiment.source}: {', '.join(experiment.places)} ({experiment.ground})"]
    return Text.assemble((experiment.name, "bold"), *(f"\n    {line}" for line in lines))


def _described(case: Case) -> Text:
    rivals = ", ".join(
        rival.name + (f" ({absent})" if (absent := missing(rival.requires)) else "") for rival in case.rivals
    )
    lines = [case.question, f"varies {', '.join(case.varies)}", f"rivals {rivals}"]
    lines += [f"claim  {bound.explain()}" for bound in case.bounds]
    return Text.assemble((case.name, "bold"), *(f"\n    {line}" for line in lines))


def show(report: Report, console: Console) -> None:
    """Print every case with its claims, then the failures."""
    for result in report.results:
        console.print(case_tables(result))
    for found in report.experiments:
        console.print(experiment_tables(found))
    for failure in report.failures:
        console.print(Text(f"FAILED {failure}", style="bold red"))


def experiment_tables(result: ExperimentResult) -> RenderableType:
    """The claim, the verdict and the tables of an experiment; a table for each picture that has none."""
    experiment, findings = result.experiment, result.findings
    head = Text(f"\n{experiment.name} ({result.scale}): {experiment.claim}", style="bold")
    if findings is None:
        return Group(head, Text(f"failed: {result.reason}", style="bold red"))
    verdict = Text.assemble(
        (findings.verdict, STYLES[findings.verdict]), f": {findings.why} ({seconds(result.seconds)})"
    )
    return Group(head, *_grids(findings), verdict)


def _grids(findings: Findings) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for grid in findings.tables:
        table = Table(*grid.heads, box=None, padding=(0, 1), title=grid.title, title_justify="left")
        for row in grid.rows:
            table.add_row(*(cell_text(cell) for cell in row))
        parts.append(table)
    return parts


def cell_text(cell: Cell) -> str:
    """A cell as people read it: four significant digits, thousands apart, a dash for nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def case_tables(result: CaseResult) -> RenderableType:
    """What the case asks, one table a point, and the verdicts on its claims."""
    case = result.case
    parts: list[RenderableType] = [Text(f"\n{case.name} ({result.scale}): {case.question}", style="bold")]
    parts += [_point_block(point, case) for point in result.points]
    parts += [_verdict(judged) for judged in result.judged]
    return Group(*parts)


def _point_block(point: PointResult, case: Case) -> RenderableType:
    """The table of those who finished, and a line for each who did not."""
    table = Table(box=None, padding=(0, 1))
    table.add_column("rival", no_wrap=True, min_width=max(len(name) for name in point.rivals))
    for heading in ("cold", "warm", "min - max", "ratio", "min - max", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    absent = []
    for rival in point.rivals.values():
        if rival.status == "ok":
            ratio = point.ratio(rival.name, case.baseline, "warm")
            table.add_row(rival.name, *_times(rival), *_columns(ratio, _times_as), _memory(rival))
        else:
            style = "bold red" if rival.status in ("wrong", "failed") else "yellow"
            absent.append(Text.assemble(f"{rival.name} ", (f"{rival.status}: {rival.reason}", style)))
    title = Text(
        f"{point_text(point.params)}: {point.expected:,} {case.answer}; ratio to {case.baseline}", style="italic"
    )
    return Group(title, table, *absent, Text())


def _times(rival: RivalResult) -> tuple[str, str, str]:
    cold = rival.spread("cold")
    return (seconds(cold.median) if cold else "-", *_columns(rival.spread("warm"), seconds))


def _memory(rival: RivalResult) -> str:
    peak = max((sample.rss_growth for sample in rival.samples), default=0)
    return f"+{peak / 2**20:,.0f} MiB"


def _verdict(judged: Judged) -> Text:
    bound = judged.bound
    unit = _times_as if bound.against else (seconds if bound.figure == "seconds" else _plain)
    line = Text.assemble((f"{judged.verdict:>13}", STYLES[judged.verdict]), f"  {bound.explain()}")
    if judged.worst is not None and judged.at is not None:
        median, extent = _columns(judged.worst, unit)
        line.append(f"; measured {median} ({extent or 'once'}) at {point_text(judged.at)}", style="dim")
    return line


def _times_as(value: float, like: float | None = None) -> str:
    return f"{digits(value)} x"


def _plain(value: float, like: float | None = None) -> str:
    return f"{value:,.6g} "


def _columns(spread: Spread | None, unit: Callable[[float, float | None], str]) -> tuple[str, str]:
    """The median, and the range that it lies in, without repeating the unit."""
    if spread is None:
        return "-", ""
    low, high = (unit(end, spread.median).rpartition(" ")[0] for end in (spread.low, spread.high))
    return unit(spread.median, None).strip(), "" if spread.n == 1 else f"{low} - {high}"


def point_text(params: Params) -> str:
    """The values of a point in one line."""
    return ", ".join(f"{key}={_value(value)}" for key, value in params.items())


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
