"""Statements that figures bear out or not, and the verdict that follows from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from bench.experiment import Cell, Chart, Findings, Grid
from bench.experiments.parts import Part, verdict_of


def judged(
    checks: Sequence[Part],
    note: str = "",
    charts: Iterable[Chart] = (),
    tables: Iterable[Grid] = (),
    rows: int = 0,
) -> Findings:
    """Findings whose verdict is that of the checks: all hold, some do, none does."""
    kept, broken = ([c.says for c in checks if bool(c.holds) is state] for state in (True, False))
    verdict = verdict_of([bool(check.holds) for check in checks])
    parts = [f"Found: {'; '.join(kept)}." if kept else "", f"Not so: {'; '.join(broken)}." if broken else "", note]
    return Findings(verdict, " ".join(part for part in parts if part), tuple(charts), tuple(tables), rows)


def close(name: str, found: float, due: float, within: float) -> Part:
    """Whether a figure is within a share of what it is due to be."""
    off = found / due - 1
    says = f"{name} is {figure(found)}, printed {figure(due)} ({100 * off:+.2f} %, {100 * within:g} % was allowed)"
    return Part(says, abs(off) <= within)


def figure(value: float) -> str:
    """A number as text: whole from a thousand on, four digits that count below."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def wave(values: Sequence[float], tolerance: float = 0.005) -> bool:
    """Whether values rise to one maximum inside and fall behind it, but for steps below the tolerance."""
    top = max(range(len(values)), key=values.__getitem__)
    if top in (0, len(values) - 1):
        return False
    rising = all(b > a * (1 - tolerance) for a, b in itertools.pairwise(values[: top + 1]))
    falling = all(b < a * (1 + tolerance) for a, b in itertools.pairwise(values[top:]))
    return rising and falling


def ratios(values: Sequence[float]) -> str:
    """Ratios as text."""
    return ", ".join(f"{value:.2f}" for value in values)


def rounded(value: float, digits: int = 4) -> float:
    """A figure for a table: so many digits that count."""
    return float(f"{value:.{digits}g}")


def grid(title: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Grid:
    """A table with its fractions rounded."""
    shown = [[rounded(cell) if isinstance(cell, float) else cell for cell in row] for row in rows]
    return Grid(title, tuple(heads), tuple(tuple(row) for row in shown))
