"""An experiment: a claim of a source, a run that tests it, and what was found: statements, charts and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dovetail.errors import PlanError

if TYPE_CHECKING:
    from bench.context import BenchContext

Verdict = Literal["holds", "does not hold", "not tested here"]
"""The verdict on a statement, and on a claim that is made of some."""
FAULTS = {"source": "the source's claim", "ours": "our code", "scale": "the scale here", "": "unexplained"}
"""Whose fault it can be that a statement does not hold."""
Ground = Literal["counted", "measured"]
"""Counted: operations, alone or times a table of costs; the same figures on every machine. Measured: by a clock."""
Kind = Literal["line", "bar", "heat"]
Cell: TypeAlias = "str | int | float | None"
Part: TypeAlias = tuple[str, "bool | None"]
"""A statement with the figures that were found for it, and whether it holds; None if that could not be tested."""


@dataclass(frozen=True, slots=True)
class Family:
    """Experiments of one kind: the title of their section, and the usual source.

    `on` is where they run unless they say it: semi-stream joins on a simulated disk.
    """

    title: str
    source: str
    on: tuple[str, ...] = ()


_JUDGING = ("bench/experiment.py", "bench/judge.py", "bench/expression.py")
FAMILIES = {
    "semistream": Family("Semi-stream joins", "Naeem 2012", on=("simulated",)),
    "online": Family("Online joins", "Bornea 2010"),
    "interval": Family("Interval joins", "Carman 2020"),
    "xquery": Family("XQuery", "Carman 2020"),
    "models": Family("Cost models judged", "our own"),
    "scale": Family("Scale", "our own"),
    "rivals": Family("Rivals when memory is short", "our own"),
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: lines through (x, y), bars side by side, or a map of values over x and y.

    `lines` has one sequence of points a name. A heat map has one line whose points are (x, y, value). Points of bars
    may go on with the low and the high end of their range.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[Sequence[float | str]]]
    kind: Kind = "line"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: a title, the heads of the columns, and rows of cells, whose fractions are rounded to four digits."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise PlanError(f"table {self.title!r} has {len(self.heads)} columns, but a row of {len(row)}: {row}.")
        object.__setattr__(self, "rows", tuple(tuple(map(_rounded, row)) for row in self.rows))

    def chart(self, y: str, columns: Mapping[str, int] | None = None, title: str = "", **how: Any) -> Chart:
        """Columns over the first one, by the name of each line; all the others if none are named."""
        named = columns or {head: at for at, head in enumerate(self.heads) if at}
        lines = {name: [(row[0] or 0, row[at] or 0) for row in self.rows] for name, at in named.items()}
        fields: dict[str, Any] = {"title": title or self.title, "x": self.heads[0], "y": y, "lines": lines}
        return Chart(**fields | how)


def _rounded(cell: Cell) -> Cell:
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


def by_column(title: str, axis: str, xs: Iterable[Cell], columns: Mapping[str, Iterable[Cell]]) -> Grid:
    """A table of named columns over an axis."""
    return Grid(title, (axis, *columns), list(zip(xs, *columns.values(), strict=True)))


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a claim, what became of it, and if it does not hold or was not tested, the reason.

    `fault` is one of FAULTS, of a statement that does not hold.
    """

    says: str
    verdict: Verdict
    reason: str = ""
    fault: str = ""

    @classmethod
    def of(cls, part: Part, reason: str = "") -> Statement:
        """The statement with its verdict; a reason begins with whose fault it is ("scale: two cores")."""
        says, holds = part
        if holds is None or bool(holds):
            return cls(says, "not tested here" if holds is None else "holds")
        fault, colon, why = reason.partition(": ")
        if colon and fault in FAULTS:
            return cls(says, "does not hold", why, fault)
        if reason:
            raise PlanError(f"reason {reason!r} must begin with one of {[*filter(None, FAULTS)]} and a colon.")
        return cls(says, "does not hold")

    def explain(self) -> str:
        """The statement behind its verdict, with fault and reason."""
        whose = f" ({FAULTS[self.fault]})" if self.verdict == "does not hold" else ""
        reason = f" {self.reason[0].upper()}{self.reason[1:].rstrip('.')}." if self.reason else ""
        return f"{whose}: {self.says}.{reason}"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """That of a claim: it does not hold if one of its statements does not, and holds if one was tested."""
    found = set(verdicts)
    order: tuple[Verdict, ...] = ("does not hold", "holds", "not tested here")
    return next((verdict for verdict in order if verdict in found), "not tested here")


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of an experiment: its statements, a note, pictures and tables.

    `rows` is the number of result rows that were compared with a definition or another engine and found equal.
    """

    statements: Sequence[Statement] = ()
    note: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Grid] = ()
    rows: int = 0

    @property
    def verdict(self) -> Verdict:
        """The worst of its statements."""
        return worst(one.verdict for one in self.statements)

    def to_json(self) -> dict[str, Any]:
        """Everything found, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One claim and the run that tests it.

    `places` are the figures and tables of the source that it repeats, as the source numbers them. `claim` is what the
    source says, in our words. The first word of the name is the family. `measures` is the code that decides figures,
    by default the `module` of the experiment with all that it imports: once it changes, or the `table` that describes
    the experiment (file.toml#name), kept figures are stale. A wrong answer is an exception, never a finding.
    """

    name: str
    places: tuple[str, ...]
    claim: str
    run: Callable[[BenchContext], Findings]
    ground: Ground = "counted"
    source: str = ""
    requires: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    table: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise PlanError(
                f"experiment {self.name!r} must be named after its family: one of {tuple(FAMILIES)}, and -."
            )
        own = FAMILIES[self.family]
        object.__setattr__(self, "source", self.source or own.source)
        imports = f"{self.module}:{self.ground}" if self.module else ""
        code = self.measures or (imports, *_JUDGING)
        object.__setattr__(self, "measures", tuple(filter(None, (*code, self.table))))

    @property
    def family(self) -> str:
        """The kind of experiment."""
        return self.name.partition("-")[0]


@dataclass(slots=True)
class ExperimentResult:
    """The findings of an experiment at one scale, or why there are none, which is a failure."""

    experiment: Experiment
    scale: Literal["small", "full"]
    code: str = ""
    measured_at: str = ""
    seconds: float = 0.0
    findings: Findings | None = None
    reason: str | None = None

    @property
    def failures(self) -> list[str]:
        """The line that says what broke, if something did."""
        return [] if self.findings is not None else [f"{self.experiment.name}: {self.reason}"]

    def to_json(self) -> dict[str, Any]:
        """Everything found, ready for JSON."""
        found = {name: getattr(self, name) for name in ("scale", "code", "measured_at", "seconds", "reason")}
        return {
            "name": self.experiment.name,
            **found,
            "findings": None if self.findings is None else self.findings.to_json(),
        }


def close(name: str, found: float, due: float, within: float) -> Part:
    """Whether a figure is within a share of what is printed."""
    off = found / due - 1
    says = f"{name} is {figure(found)}, printed {figure(due)} ({100 * off:+.2f} %, {100 * within:g} % was allowed)"
    return says, abs(off) <= within


def figure(value: float) -> str:
    """A number as text: whole from a thousand on, four digits that count below."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def listed(values: Iterable[float] | Mapping[Any, float], form: str = ".2f") -> str:
    """Figures as text, by their names if they have any."""
    if isinstance(values, Mapping):
        return ", ".join(f"{name} {value:{form}}" for name, value in values.items())
    return ", ".join(f"{value:{form}}" for value in values)


def extent(values: Iterable[float], form: str = ".2f") -> str:
    """The smallest and the largest figure as text."""
    every = list(values)
    low, high = f"{min(every):{form}}", f"{max(every):{form}}"
    return low if low == high else f"{low} to {high}"


def mean(values: Iterable[float] | Mapping[Any, float]) -> float:
    """Their mean, whatever their names."""
    every: list[float] = list(values.values() if isinstance(values, Mapping) else values)
    return sum(every) / len(every)


def percent(value: float, digits: int = 2) -> str:
    """A share as the sources print it."""
    return f"{100 * value:.{digits}f} %"


def off(counted: float, predicted: float) -> float:
    """The error of a model as a share of what was counted."""
    return abs(counted - predicted) / counted if counted else float(predicted != 0)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The power of x that y follows: the slope on logarithmic axes."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def split(says: str, figures: Mapping[str, float], most: float = math.inf, least: float = -math.inf) -> list[Part]:
    """One statement of the figures between two bounds, and one of the others, each if there are any."""
    parts: list[Part] = []
    for wanted in (True, False):
        some = {name: value for name, value in figures.items() if (least <= value <= most) is wanted}
        parts += [(f"{says} ({listed(some)})", wanted)] * bool(some)
    return parts


def wave(values: Sequence[float], tolerance: float = 0.005) -> bool:
    """Whether values rise to one maximum inside and fall behind it, but for steps below the tolerance."""
    top = max(range(len(values)), key=values.__getitem__)
    if top in (0, len(values) - 1):
        return False
    rising = all(b > a * (1 - tolerance) for a, b in itertools.pairwise(values[: top + 1]))
    falling = all(b < a * (1 + tolerance) for a, b in itertools.pairwise(values[top:]))
    return rising and falling
