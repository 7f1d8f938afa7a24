"""Judges what an experiment found by what its table says: derived figures, statements, a note, charts and tables.

    let = {gains = "rate(X) / rate(HYBRID)"}                               # further figures
    states = [["X-HYBRIDJOIN has {listed(gains)} times its rate", "min(gains) > 1"]]
    note = "Exponent 1. {note}"
    shows = [{table = "Rates", chart = "By memory", y = "rows/s", columns = {"memory, MB" = "values", X = "rate(X)"}}]

Expressions are Python over the figures by name, columns being NumPy arrays; texts are filled in as f-strings are. A
statement is its text and the condition under which it holds, for every value of a third part if it has one ("for rival
in RIVALS"); or an expression that gives such pairs, or one of them (`close`). What `shows` is a table, a chart of its
columns over the first one (`lines` names some of them), or both; or an expression that gives one of these. The source
of all of these is this repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy as np

from bench.experiment import (
    Chart,
    Findings,
    Grid,
    Part,
    close,
    extent,
    figure,
    judged,
    listed,
    off,
    over,
    percent,
    slope,
    wave,
)

_WORDS: Mapping[str, Any] = {
    each.__name__: each for each in (close, extent, figure, listed, off, over, pairwise, percent, replace, slope, wave)
} | {"np": np}
"""What expressions may say beside the names of figures and what Python has anyway."""
_AXES = {"x": {"log_x": True}, "y": {"log_y": True}, "xy": {"log_x": True, "log_y": True}, "": {}}


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found, by name; charts and tables that are made with it, and how many result rows were checked."""

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
    """What is said of the figures of an experiment."""

    let: Mapping[str, str] = field(default_factory=dict)
    states: Sequence[str | Sequence[str]] = ()
    note: str = ""
    shows: Sequence[str | Mapping[str, Any]] = ()

    def findings(self, *found: Figures) -> Findings:
        """The verdict over one or more sets of figures, of each of which the same is said."""
        parts, shown, names = list[Part](), list[Chart | Grid](), dict[str, Any]()
        for one in found:
            names = self.names(one)
            parts += self.parts(names)
            shown += [*one.shown, *(piece for show in self.shows for piece in _shown(show, names))]
        return judged(parts, text_of(self.note, names).strip(), *shown, rows=sum(one.rows for one in found))

    def names(self, found: Figures) -> dict[str, Any]:
        """All that statements may name: figures, and what is derived from them."""
        names = {**_WORDS, **found.named}
        for name, text in self.let.items():
            names[name] = value_of(text, names)
        return names

    def parts(self, names: dict[str, Any]) -> list[Part]:
        """The statements, each with whether it holds."""
        return [part for state in self.states for part in _parts(state, names)]


def _column(cells: Sequence[Any]) -> Any:
    """An array of numbers; anything else stays as it is."""
    numbers = all(isinstance(cell, int | float | np.number) for cell in cells)
    return np.array(cells) if numbers else list(cells)


@cache
def _code(text: str) -> CodeType:
    return compile(text, "<experiment>", "eval")


def value_of(text: str, names: dict[str, Any]) -> Any:
    """What an expression is."""
    return eval(_code(text.strip()), names)  # noqa: S307  (text of this repository)


def _filled(text: str) -> str:
    return f'f"""{text} """[:-1]'


def text_of(text: str, names: dict[str, Any]) -> str:
    """A text with its figures filled in."""
    return str(value_of(_filled(text), names))


def _parts(state: str | Sequence[str], names: dict[str, Any]) -> Iterable[Part]:
    if isinstance(state, str):
        given = value_of(state, names)
        return [given] if isinstance(given, tuple) else given
    text, holds, every = (*state, "for _ in (0,)")[:3]
    pairs: list[Part] = value_of(f"[({_filled(text)}, bool({holds})) {every}]", names)
    return pairs


def _shown(show: str | Mapping[str, Any], names: dict[str, Any]) -> Iterable[Chart | Grid]:
    return [value_of(show, names)] if isinstance(show, str) else _drawn(names=names, **show)


def _drawn(
    columns: Mapping[str, str],
    names: dict[str, Any],
    table: str | None = None,
    chart: str | None = None,
    y: str = "",
    lines: Mapping[str, str] | None = None,
    log: str = "",
    kind: str = "line",
) -> Iterable[Chart | Grid]:
    """Columns as a table, drawn, or both; those whose head is `*` are many, by their names."""
    filled: dict[str, Sequence[Any]] = {}
    for head, text in columns.items():
        filled |= value_of(text, names) if head == "*" else {text_of(head, names): value_of(text, names)}
    cells = [np.asarray(column).tolist() if isinstance(column, np.ndarray) else column for column in filled.values()]
    grid = Grid(text_of(table or chart or "", names), tuple(filled), list(zip(*cells, strict=True)))
    if chart is not None:
        drawn = {line: grid.heads.index(head) for line, head in (lines or {}).items()} or None
        yield grid.chart(text_of(y, names), drawn, title=text_of(chart, names), kind=kind, **_AXES[log])
    if table is not None:
        yield grid
