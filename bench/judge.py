"""Judges what an experiment found by what its table says: derived figures, statements, a note, charts and tables.

    let = {gains = "rate(X) / rate(HYBRID)"}                               # further figures
    states = [["X-HYBRIDJOIN has {listed(gains)} times its rate", "min(gains) > 1"]]
    fault = [["min(gains) > 0.7", "source: {why}"]]                        # of statements that do not hold
    note = "Exponent 1. {note}"
    shows = [{table = "Rates", chart = "By memory", y = "rows/s", columns = {"memory, MB" = "values", X = "rate(X)"}}]

Expressions (`bench/expression.py`) are over the figures by name, columns being NumPy arrays; texts are filled in as
f-strings are. A statement is its text and the condition under which it holds (None: it could not be tested), for every
value of a third part if it has one ("for rival in RIVALS"), with a fault of its own as a fourth; or an expression that
gives such pairs, or one of them (`close`). A fault is said only where the statement does not hold. It is a text, or
pairs of a condition and a text: the first one whose condition holds is said, since a reason explains figures of some
size and not those beyond; if there is none, the statement is unexplained. All may name `full` (the source's sizes) and
`cores`. `untested` says why an experiment tests nothing here. What `shows` is a table, a chart of its columns over the
first one (`lines` names some of them), or both; or an expression that gives one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from bench.experiment import (
    Cell,
    Chart,
    Findings,
    Grid,
    Part,
    Statement,
    close,
    extent,
    listed,
    mean,
    percent,
    slope,
    split,
    wave,
)
from bench.expression import filled, text_of, value_of
from bench.machine import usable_cores

Reasons: TypeAlias = Sequence[Sequence[str]]
"""Conditions, each with the fault that is said where it holds."""
_WORDS: Mapping[str, Any] = {
    each.__name__: each for each in (close, extent, listed, mean, pairwise, percent, replace, slope, split, wave)
}
"""Names that expressions may use beside those of figures."""
_AXES = {"x": {"log_x": True}, "y": {"log_y": True}, "xy": {"log_x": True, "log_y": True}, "": {}}


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by name, charts and tables that are made with them, and how many result rows were checked."""

    named: Mapping[str, Any]
    shown: Sequence[Chart | Grid] = ()
    rows: int = 0

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]], names: str, **more: Any) -> Figures:
        """The columns of some rows by these names, and further figures."""
        columns = dict(zip(names.split(), map(_column, zip(*rows, strict=True)), strict=True))
        return cls(columns | more)


@dataclass(frozen=True, slots=True)
class Judge:
    """A statement about the figures of an experiment."""

    let: Mapping[str, str] = field(default_factory=dict)
    states: Sequence[str | Sequence[str | Reasons]] = ()
    fault: str | Reasons = ""
    untested: str = ""
    note: str = ""
    shows: Sequence[str | Mapping[str, Any]] = ()

    def findings(self, *found: Figures) -> Findings:
        """The statements on one or more sets of figures, of each of which the same is said."""
        statements, shown, names = list[Statement](), list[Chart | Grid](), dict[str, Any]()
        for one in found:
            names = self.names(one)
            statements += self.statements(names)
            shown += [*one.shown, *(piece for show in self.shows for piece in _shown(show, names))]
        if self.untested:
            statements.append(Statement(text_of(self.untested, names), "not tested here"))
        charts = tuple(one for one in shown if isinstance(one, Chart))
        tables = tuple(one for one in shown if isinstance(one, Grid))
        note = text_of(self.note, names).strip()
        return Findings(tuple(statements), note, charts, tables, sum(one.rows for one in found))

    def names(self, found: Figures) -> dict[str, Any]:
        """All that statements may name: figures, and what is derived from them."""
        names = {**_WORDS, "full": False, "cores": usable_cores(), **found.named}
        for name, text in self.let.items():
            names[name] = value_of(text, names)
        return names

    def statements(self, names: dict[str, Any]) -> list[Statement]:
        """The statements, each with what became of it."""
        found = []
        for says, holds, reason in (part for state in self.states for part in _parts(state, names)):
            fails = holds is not None and not holds
            found.append(Statement.of((says, holds), (reason or value_of(_reason(self.fault), names)) if fails else ""))
        return found


def _column(cells: Sequence[Any]) -> Any:
    """An array of numbers; anything else stays as it is."""
    numbers = all(isinstance(cell, int | float | np.number) for cell in cells)
    return np.array(cells) if numbers else list(cells)


def _parts(state: str | Sequence[str | Reasons], names: dict[str, Any]) -> list[tuple[str, bool | None, str]]:
    """Text, whether it holds, and the fault of its own, of each statement."""
    if isinstance(state, str):
        given: Part | Sequence[Part] = value_of(state, names)
        parts: Any = [given] if isinstance(given, tuple) else given
        return [(says, holds, "") for says, holds in parts]
    text, holds, every, fault = list[Any]((*state, "", "")[:4])
    told = f"'' if ({holds}) is None or ({holds}) else ({_reason(fault)})"  # a reason may need that it does not hold
    found: list[tuple[str, bool | None, str]] = value_of(
        f"[({filled(text)}, {holds}, {told}) {every or 'for _ in (0,)'}]", names
    )
    return found


def _reason(fault: str | Reasons) -> str:
    """The expression of a fault: of several the first one whose condition holds."""
    if isinstance(fault, str):
        return filled(fault)
    return "".join(f"({filled(text)}) if ({condition}) else " for condition, text in fault) + "''"


def _shown(show: str | Mapping[str, Any], names: dict[str, Any]) -> Iterable[Chart | Grid]:
    return [value_of(show, names)] if isinstance(show, str) else _drawn(names=names, **show)


def _drawn(
    columns: Mapping[str, str],
    names: dict[str, Any],
    table: str | None = None,
    chart: str | None = None,
    x: str | None = None,
    y: str = "",
    lines: Mapping[str, str] | None = None,
    log: str = "",
    kind: str = "line",
) -> Iterable[Chart | Grid]:
    """Columns as a table, drawn, or both; those whose head is `*` are many, by their names."""
    heads: dict[str, Sequence[Cell]] = {}
    for head, text in columns.items():
        heads |= value_of(text, names) if head == "*" else {text_of(head, names): value_of(text, names)}
    cells = [np.asarray(column).tolist() if isinstance(column, np.ndarray) else column for column in heads.values()]
    grid = Grid(text_of(table or chart or "", names), tuple(heads), list(zip(*cells, strict=True)))
    if chart is not None:
        drawn = {line: grid.heads.index(head) for line, head in (lines or {}).items()} or None
        axis = {} if x is None else {"x": text_of(x, names)}
        yield grid.chart(text_of(y, names), drawn, title=text_of(chart, names), kind=kind, **_AXES[log], **axis)
    if table is not None:
        yield grid
