"""From single checks to the verdict on a claim, with the figures that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.experiment import Chart, Findings, Grid, Opinion
from bench.experiments.parts import verdict_of


@dataclass(slots=True)
class Checks:
    """Statements that figures were held against: all true, the claim holds; some, in part; none, it does not."""

    kept: list[tuple[bool, str]] = field(default_factory=list)

    def add(self, ok: bool, text: str) -> None:
        """One statement, with the figures that it was decided by."""
        self.kept.append((bool(ok), text))

    @property
    def verdict(self) -> Opinion:
        """What the statements together say."""
        return verdict_of([ok for ok, _ in self.kept]) if self.kept else "reported"

    def findings(
        self, charts: Sequence[Chart] = (), tables: Sequence[Grid] = (), rows: int = 0, note: str = ""
    ) -> Findings:
        """The verdict, and why: the statements that hold, then those that do not."""
        parts = []
        for wanted, label in ((True, "Holds"), (False, "Does not hold")):
            said = [text for ok, text in self.kept if ok is wanted]
            if said:
                parts.append(f"{label}: {'; '.join(said)}.")
        return Findings(self.verdict, " ".join([*parts, note]).strip(), charts, tables, rows)


def percent(value: float, digits: int = 2) -> str:
    """A share as the source prints it."""
    return f"{100 * value:.{digits}f} %"


def off(counted: float, predicted: float) -> float:
    """The error of a model as the source's tables have it: a share of what was counted."""
    return abs(counted - predicted) / counted if counted else float(predicted != 0)
