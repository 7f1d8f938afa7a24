"""Results as tables and lines of text, for the terminal and for the page: both show the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.case import Case, CaseResult, Params
from bench.catalogue import Entry, missing
from bench.experiment import Cell, Experiment, ExperimentResult, Grid
from bench.harness import Report
from dovetail.calibrate.unit_cost import digits, seconds

STYLES = {"holds": "green", "does not hold": "bold red", "not tested here": "yellow"}
Found = Mapping[str, Any]
"""A part of the JSON that a run writes."""


def entry_list(entries: dict[str, Entry]) -> RenderableType:
    """A list of all cases with their questions, claims and rivals, and of all experiments."""
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
    """The claim, the verdict and the tables of an experiment."""
    experiment, findings = result.experiment, result.findings
    head = Text(f"\n{experiment.name} ({result.scale}): {experiment.claim}", style="bold")
    if findings is None:
        return Group(head, Text(f"failed: {result.reason}", style="bold red"))
    said = [Text.assemble((s.verdict, STYLES[s.verdict]), s.explain()) for s in findings.statements]
    note = Text(f"{findings.note} ({seconds(result.seconds)})".strip())
    return Group(head, *(_printed(grid, grid.title) for grid in findings.tables), *said, note)


def case_tables(result: CaseResult) -> RenderableType:
    """The question of a case, one table a point, and the verdicts on its claims."""
    found = result.to_json()
    parts: list[RenderableType] = [Text(f"\n{found['name']} ({found['scale']}): {found['question']}", style="bold")]
    many = len(found["points"]) > MANY
    if many:
        parts.append(_printed(cells_grid(found), cells_grid(found).title))
    for point in found["points"]:
        grid = point_grid(found, point)
        if not many:
            parts += [Text(grid.title, style="italic"), _printed(grid, justify="right")]
        parts += [line for line in _absent(point) if not many or " sat out" not in line.plain]
    parts.append(Text())
    for bound in found["bounds"]:
        verdict = (f"{bound['verdict']:>15}", STYLES[bound["verdict"]])
        parts.append(Text.assemble(verdict, f"  {bound['claim']}", (measured(bound), "dim")))
    return Group(*parts)


def _printed(grid: Grid, title: str | None = None, justify: Literal["left", "right"] = "left") -> Table:
    table = Table(box=None, padding=(0, 1), title=title, title_justify="left")
    for number, head in enumerate(grid.heads):
        table.add_column(head, justify=justify if number else "left", no_wrap=justify == "right")
    for row in grid.rows:
        table.add_row(*map(cell_text, row))
    return table


def _absent(point: Found) -> list[Text]:
    """A line for each rival that did not finish."""
    style = {"wrong": "bold red", "failed": "bold red"}
    others = (rival for rival in point["rivals"] if rival["status"] != "ok")
    return [Text.assemble(f"{r['name']} ", (outcome(r), style.get(r["status"], "yellow"))) for r in others]


def outcome(rival: Found) -> str:
    """The end of a rival that did not finish, and why."""
    return f"{rival['status']}: {rival['reason']}"


def point_grid(case: Found, point: Found) -> Grid:
    """Times, ratios to the baseline and memory of the rivals that finished at a point."""
    heads = ("rival", "cold", "warm", "min - max", "ratio", "min - max", "memory")
    title = f"{point_text(point['params'])}: {point['expected']:,} {case['answer']}; ratio to {case['baseline']}"
    return Grid(title, heads, [_rival_row(rival) for rival in point["rivals"] if rival["status"] == "ok"])


def cells_grid(case: Found) -> Grid:
    """All points of a case in one table, a row each: warm medians, and ours over the best other; losses come first."""
    names = list(dict.fromkeys(rival["name"] for point in case["points"] for rival in point["rivals"]))
    heads = (*case["varies"], case["answer"], *(f"{name}, s" for name in names), f"{case['baseline']} / best other")
    rows: list[list[Cell]] = []
    for point in case["points"]:
        warm = {r["name"]: r["warm_s"]["median"] for r in point["rivals"] if r["status"] == "ok" and r["warm_s"]}
        others = [seconds for name, seconds in warm.items() if name != case["baseline"]]
        ratio = warm[case["baseline"]] / min(others) if others and case["baseline"] in warm else None
        rows.append([*point["params"].values(), point["expected"], *(warm.get(name) for name in names), ratio])
    lost = sum(isinstance(row[-1], float) and row[-1] > 1 for row in rows)
    rows.sort(key=lambda row: -row[-1] if isinstance(row[-1], float) else 0.0)
    return Grid(f"{len(rows)} points, {lost} of them lost to another", heads, rows)


MANY = 12
"""A case of this many points or more is shown as one table."""


def _rival_row(rival: Found) -> list[Cell]:
    cold, peak = rival["cold_s"], max((sample["rss_growth"] for sample in rival["samples"]), default=0)
    times = _columns(rival["warm_s"], seconds), _columns(rival["warm_ratio"], _times_as)
    first = seconds(cold["median"]) if cold else "-"
    return [rival["name"], first, *times[0], *times[1], f"+{peak / 2**20:,.0f} MiB"]


def measured(bound: Found) -> str:
    """The worst figure of a claim and where it was; of one that was not tested, why."""
    if bound["worst"] is None or bound["at"] is None:
        return f"; {bound['untested']}"
    unit = _times_as if bound["against"] else (seconds if bound["figure"] == "seconds" else _plain)
    median, spread = _columns(bound["worst"], unit)
    return f"; measured {median} ({spread or 'once'}) at {point_text(bound['at'])}"


def cell_text(cell: Cell) -> str:
    """A cell as people read it: four significant digits, thousands apart, a dash for nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _times_as(value: float, like: float | None = None) -> str:
    return f"{digits(value)} x"


def _plain(value: float, like: float | None = None) -> str:
    return f"{value:,.6g} "


def _columns(spread: Found | None, unit: Callable[[float, float | None], str]) -> tuple[str, str]:
    """The median, and the range that it lies in, without repeating the unit."""
    if spread is None:
        return "-", ""
    low, high = (unit(spread[end], spread["median"]).rpartition(" ")[0] for end in ("low", "high"))
    return unit(spread["median"], None).strip(), "" if spread["n"] == 1 else f"{low} - {high}"


def point_text(params: Params) -> str:
    """The values of a point in one line."""
    return ", ".join(f"{key}={_value(value)}" for key, value in params.items())


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
