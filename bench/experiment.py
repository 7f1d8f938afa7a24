"""What an experiment is: a claim of a source, a way to test it, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dovetail.errors import PlanError

if TYPE_CHECKING:
    from bench.context import BenchContext

Opinion = Literal["holds", "holds in part", "does not hold", "reported"]
"""What became of a claim; "reported" is for figures that claim nothing."""

Ground = Literal["counted", "measured"]
"""Counted: operations, alone or times a table of costs; the same figures on every machine. Measured: by a clock."""

Kind = Literal["line", "bar", "heat"]
Cell: TypeAlias = "str | int | float | None"

FAMILIES = ("semistream", "online", "interval", "xquery", "models", "scale", "rivals")


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: lines through (x, y), bars side by side, or a map of values over x and y.

    `lines` has one sequence of points a name. A heat map has one line whose points are (x, y, value).
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
    """A table: a title, the heads of the columns, and rows of cells."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise PlanError(f"table {self.title!r} has {len(self.heads)} columns, but a row of {len(row)}: {row}.")


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment found: the verdict on the claim, the reason in a sentence or two, pictures and tables.

    `rows` is the number of result rows that were compared with a definition or another engine and found equal.
    """

    verdict: Opinion
    why: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Grid] = ()
    rows: int = 0

    def to_json(self) -> dict[str, Any]:
        """Everything found, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One claim and the run that tests it.

    `places` are the figures and tables of the source that it repeats, as the source numbers them. `claim` is what the
    source says, in our words. `measures` are the parts of the library (`joins/online` ...) whose code decides
    the figures: once one of them changes, kept figures are stale. A wrong answer is an exception, never a finding.
    """

    name: str
    family: str
    source: str
    places: tuple[str, ...]
    claim: str
    run: Callable[[BenchContext], Findings]
    measures: tuple[str, ...]
    ground: Ground = "counted"
    requires: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise PlanError(f"experiment {self.name!r} is of the family {self.family!r}; there are {FAMILIES}.")
        if not self.name.startswith(f"{self.family}-"):
            raise PlanError(f"experiment {self.name!r} must be named after its family: {self.family}-...")

    def explain(self) -> str:
        """The experiment in one line."""
        return f"{self.name}: {self.source}, {', '.join(self.places)}. {self.claim}"
