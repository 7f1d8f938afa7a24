"""Figures kept from one run to the next, and the page of them all: claims, verdicts, pictures and tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.case import SCALES, Case
from bench.catalogue import LONG, Entry, load_all
from bench.chart import case_chart, draw_all
from bench.experiment import FAMILIES, Chart, Experiment, Grid, Statement, worst
from bench.harness import FORMAT, Report
from bench.machine import digest
from bench.report import MANY, cell_text, cells_grid, measured, outcome, point_grid, point_text
from dovetail.errors import DataError

TITLES = {**{name: family.title for name, family in FAMILIES.items()}, "cases": "Rivals side by side"}
SOURCES = {
    "Naeem 2012": "M. A. Naeem, Efficient Joins to Process Stream Data, thesis, University of Auckland, 2012",
    "Bornea 2010": "M. A. Bornea, V. Vassalos, Y. Kotidis, A. Deligiannakis, Adaptive Join Operators for Result Rate "
    "Optimization on Streaming Inputs, IEEE Transactions on Knowledge and Data Engineering, 2010",
    "Carman 2020": "E. P. Carman, Jr., Interval Joins for Big Data, dissertation, UC Riverside, 2020",
    "Naeem 2011": "M. A. Naeem, G. Dobbie, G. Weber, HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 7(4), 2011",
    "Naeem 2014": "M. A. Naeem, G. Weber, C. Lutteroth, G. Dobbie, Optimizing Queue-based Semi-Stream Joins with "
    "Indexed Master Data, DaWaK 2014",
}
WHERE = ("machine", "versions", "commit", "java")
"""The place where a report was measured, as the page shows it."""


def keep(report: Report, directory: Path) -> None:
    """Write what the report holds, each entry to a file of its own that appears whole."""
    directory.mkdir(parents=True, exist_ok=True)
    whole = report.to_json()
    where = {key: whole[key] for key in WHERE if key in whole}
    for kind in ("cases", "experiments"):
        for entry in whole[kind]:
            target = directory / f"{entry['name']}.{entry['scale']}.json"
            staged = target.with_suffix(".tmp")
            staged.write_text(json.dumps({"format": FORMAT, "kind": kind, **where, "entry": entry}, indent=1) + "\n")
            staged.replace(target)


def kept(directory: Path) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Figures by name and scale; DataError for a file that holds none."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path in sorted(directory.glob("*.json")):
        whole = _read(path)
        entry = whole["entry"]
        found.setdefault(entry["name"], {})[entry["scale"]] = whole
    return found


def is_measured(entry: Entry, whole: Mapping[str, Any] | None) -> bool:
    """Whether these kept figures are of today's code, and of a run that did not fail."""
    if whole is None or whole["entry"]["code"] != digest(entry.measures):
        return False
    return isinstance(entry, Case) or whole["entry"]["findings"] is not None


def _read(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text())
        known = whole["format"] == FORMAT and whole["kind"] in ("cases", "experiments") and "entry" in whole
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no kept figures: {error}. Make it with `python -m bench run --keep`.") from error
    if not known:
        raise DataError(f"{path} is of another format than {FORMAT}; run the benchmark again.")
    return dict(whole)


@dataclass(slots=True)
class Shown:
    """One entry as the page shows it."""

    name: str
    family: str
    repeats: str
    claim: str
    ground: str
    scale: str
    measured_at: str
    where: str
    stale: bool
    note: str = ""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    svgs: list[Any] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    losses: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The worst of its verdicts."""
        found = [line["verdict"] for line in self.verdicts]
        return "failed" if "failed" in found else worst(found)


def write_page(figures: Path, to: Path) -> tuple[Path, list[str]]:
    """Write `index.html` from the kept figures; its path, and a line for each entry that is missing or failed.

    Entries that take long at any scale may be missing: the page says that they were not measured.
    """
    found, known = kept(figures), load_all()
    if not found:
        raise DataError(f"{figures} holds no kept figures; make some: `python -m bench run --all --keep {figures}`.")
    ours = {name: (known[name], scales) for name, scales in found.items() if name in known}
    shown = [one for entry, scales in ours.values() for one in _shown(entry, telling(entry, scales))]
    _draw(shown)
    absent = [name for name in known if name not in found]
    problems = [f"{name} has no figures" for name in absent if name not in LONG]
    problems += [f"{e.name} failed{line['why']}" for e in shown for line in e.verdicts if line["verdict"] == "failed"]
    to.mkdir(parents=True, exist_ok=True)
    page = to / "index.html"
    page.write_text(_rendered(shown, absent, _best(ours.values())))
    return page, problems


def telling(entry: Entry, scales: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The figures of an entry that the page shows: of today's code, if any; of an experiment at the largest scale."""
    code = digest(entry.measures)
    fresh = {scale: whole for scale, whole in scales.items() if whole["entry"]["code"] == code} or scales
    found = [fresh[scale] for scale in reversed(SCALES) if scale in fresh]
    return found if isinstance(entry, Case) else found[:1]


def _best(entries: Iterable[tuple[Entry, Mapping[str, Mapping[str, Any]]]]) -> dict[str, Any] | None:
    """The table of operators and routes over the settings of all experiments that have some."""
    found = {entry.name: telling(entry, scales)[0]["entry"].get("findings") for entry, scales in entries}
    table = best_table({name: findings for name, findings in found.items() if findings})
    return None if table is None else _table(table)


def _rendered(shown: Sequence[Shown], absent: Sequence[str], best: Mapping[str, Any] | None) -> str:
    import jinja2

    sections = [(f, title, [e for e in shown if e.family == f]) for f, title in TITLES.items()]
    counts = Counter(line["verdict"] for entry in shown for line in entry.verdicts)
    summary = {
        "n": len({entry.name for entry in shown}),
        "claims": counts.total(),
        "verdicts": counts.most_common(),
        "stale": sum(entry.stale for entry in shown),
        "absent": absent,
    }
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(Path(__file__).with_name("page.html").read_text())
    losses = sorted(loss for entry in shown for loss in entry.losses)
    failing = [entry for entry in shown if entry.verdict == "does not hold"]
    found = {"sections": [s for s in sections if s[2]], "summary": summary, "failing": failing, "losses": losses}
    return template.render(**found, sources=SOURCES, best=best)


def _shown(entry: Entry, scales: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """An entry at every scale that is shown; a claim on another scale is left to that one, if it is there."""
    there = {whole["entry"]["scale"] for whole in scales}
    made = []
    for whole in scales:
        found = whole["entry"]
        shown = _headed(entry, found, whole["machine"], str(whole.get("commit") or "")[:8])
        if isinstance(entry, Experiment):
            made.append(_experiment(found, shown))
        else:
            bounds = [b for b in found["bounds"] if b["scale"] in (None, found["scale"]) or b["scale"] not in there]
            made.append(_case(entry, found, shown, bounds))
    return made


def _headed(entry: Entry, found: Mapping[str, Any], machine: Mapping[str, Any], commit: str) -> Shown:
    """The text above the pictures and tables of an entry."""
    if isinstance(entry, Experiment):
        family, claim, ground = entry.family, entry.claim, entry.ground
        repeats = f"{entry.source}: {', '.join(entry.places)}" if entry.places else entry.source
    else:
        family, claim, ground, repeats = "cases", entry.question, "measured", "our own"
    return Shown(
        name=entry.name,
        family=family,
        repeats=repeats,
        claim=claim,
        ground=ground,
        scale=found["scale"],
        measured_at=found["measured_at"][:10] + (f" · commit {commit}" if commit else ""),
        where=f"{machine['usable_cores']} cores, {machine['cpu']}, {machine['memory_bytes'] / 2**30:.0f} GiB",
        stale=found["code"] != digest(entry.measures),
    )


def _experiment(found: Mapping[str, Any], shown: Shown) -> Shown:
    findings = found["findings"]
    if findings is None:
        shown.verdicts = [{"verdict": "failed", "why": f": {found['reason']}"}]
        return shown
    shown.verdicts = [{"verdict": s["verdict"], "why": Statement(**s).explain()} for s in findings["statements"]]
    shown.note = findings["note"] + (f" {findings['rows']:,} rows checked." if findings["rows"] else "")
    shown.charts = [Chart(**chart) for chart in findings["charts"]]
    shown.tables = [_table(Grid(**grid)) for grid in findings["tables"]]
    return shown


def _draw(shown: Sequence[Shown]) -> None:
    """Fill in the pictures of all entries."""
    import markupsafe

    drawn = iter(draw_all([chart for entry in shown for chart in entry.charts]))
    for entry in shown:
        entry.svgs = [markupsafe.Markup(next(drawn)) for _ in entry.charts]  # noqa: S704  (matplotlib escapes its text)


def _table(grid: Grid) -> dict[str, Any]:
    return {"title": grid.title, "heads": grid.heads, "rows": [[cell_text(c) for c in row] for row in grid.rows]}


def _case(case: Case, found: Mapping[str, Any], shown: Shown, bounds: Sequence[Mapping[str, Any]]) -> Shown:
    shown.verdicts = [{"verdict": b["verdict"], "why": _bound_text(b)} for b in bounds]
    broken = [r for p in found["points"] for r in p["rivals"] if r["status"] in ("wrong", "failed")]
    shown.verdicts += [{"verdict": "failed", "why": f": {r['name']} {outcome(r)}"} for r in broken]
    shown.losses = [loss for point in found["points"] for loss in _losses(case, point)]
    if len(found["points"]) > MANY:
        shown.tables = [_table(cells_grid(found))]
        return shown
    for point in found["points"]:
        table = _table(point_grid(found, point))
        others = [[r["name"], outcome(r), *[""] * 5] for r in point["rivals"] if r["status"] != "ok"]
        shown.tables.append(table | {"rows": table["rows"] + others})
    drawn = case_chart(found)
    shown.charts = [drawn] if drawn.lines else []
    return shown


def _bound_text(bound: Mapping[str, Any]) -> str:
    """A claim on our own speed or memory, of which a failure is our code's."""
    whose = " (our code)" if bound["verdict"] == "does not hold" else ""
    return f"{whose}: {bound['claim']}{measured(bound)}."


def _losses(case: Case, point: Mapping[str, Any]) -> list[tuple[str, ...]]:
    own = case.baseline
    rivals = [r for r in point["rivals"] if r["name"] != own and not r["name"].startswith("dovetail")]
    faster = [r for r in rivals if r["warm_ratio"] and r["warm_ratio"]["median"] < 1]
    where = point_text(point["params"])
    return [(case.name, where, r["name"], f"{r['warm_ratio']['median']:.3g}") for r in faster]


_COMPARED = ("models-interval-choice", "models-interval-exam", "models-interval-routes")
_COSTS, _CLEARLY = "Least processor times", 1.5


def best_table(findings: Mapping[str, Mapping[str, Any]]) -> Grid | None:
    """By operator and route of an interval join: settings in which it ran, was the best, and was so by more than 1.5
    times; None without settings. `findings` has what each experiment found, by its name."""
    every = [one for name in _COMPARED if name in findings for one in _settings(findings[name])]
    if not every:
        return None
    names = dict.fromkeys(name for _, costs in every for name in costs)
    rows = [_best_row(name, [(where, costs) for where, costs in every if name in costs]) for name in names]
    heads = ("operator or route", "ran in", "best in", f"best by > {_CLEARLY} x in", "largest margin", "in the setting")
    told = ", ".join(f"{len(list(_settings(findings[name])))} of {name}" for name in _COMPARED if name in findings)
    return Grid(f"Operators and routes of interval joins in {len(every)} settings ({told})", heads, rows)


def _best_row(name: str, settings: Sequence[tuple[str, Mapping[str, float]]]) -> tuple[str, int, int, int, float, str]:
    """What the best other candidate costs over this one decides: above 1 it is the best."""
    margins = [
        (min((cost for other, cost in costs.items() if other != name), default=costs[name]) / costs[name], where)
        for where, costs in settings
    ]
    most, where = max(margins)
    best, clearly = (sum(margin > edge for margin, _ in margins) for edge in (1, _CLEARLY))
    return name, len(margins), best, clearly, most, where


def _settings(findings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Each setting with the least cost of every candidate, in its better orientation."""
    for table in findings["tables"]:
        if not table["title"].startswith(_COSTS):
            continue
        for row in table["rows"]:
            costs = dict[str, float]()
            for head, cost in zip(table["heads"][2:-1], row[2:-1], strict=True):
                name = head.partition(",")[0].partition(" ")[0]
                if cost is not None:
                    costs[name] = min(cost, costs.get(name, cost))
            yield row[0], costs
