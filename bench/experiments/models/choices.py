"""Whether the algorithm that was chosen is the best one, or nearly: over many settings, with a table of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.experiment import Cell, Chart, Findings, Grid, Opinion
from dovetail.errors import DataError

NEAR: Final = 1.10
"""A choice is good if it costs at most so many times what the best candidate costs."""
WANTED: Final = 0.90
"""The share of settings in which the choice must be good."""
HALF: Final = 0.75
"""The share from which the claim still holds in part."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One setting: the algorithm that was chosen, and what each candidate cost (seconds, or seconds a row)."""

    setting: str
    chosen: str
    costs: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.chosen not in self.costs:
            raise DataError(f"{self.chosen} was chosen for {self.setting}, but only {list(self.costs)} were run.")

    @property
    def best(self) -> str:
        """The candidate that cost the least."""
        return min(self.costs, key=lambda name: self.costs[name])

    @property
    def ratio(self) -> float:
        """What the choice cost over what the best one did."""
        return self.costs[self.chosen] / self.costs[self.best]

    @property
    def good(self) -> bool:
        """Whether the choice is the best one or within a tenth of it."""
        return self.ratio <= NEAR


def judged(found: Sequence[Chosen], what: str, rows: int, further: Sequence[Grid] = ()) -> Findings:
    """The verdict on the choices, with the settings in which they were not good; `what` names the cost."""
    good = sum(one.good for one in found)
    exact = sum(one.chosen == one.best for one in found)
    share, worst = good / len(found), max(found, key=lambda one: one.ratio)
    verdict: Opinion = "holds" if share >= WANTED else "holds in part" if share >= HALF else "does not hold"
    lost = sum(one.ratio - 1 for one in found) / len(found)
    why = (
        f"Of {len(found)} settings the choice was the best one or within 10 % of it by {what} in {good} ({share:.1%}; "
        f"wanted {WANTED:.0%}), in {exact} exactly the best. On average it cost {lost:.1%} more than the best, "
        f"at worst {worst.ratio:.2f} times as much ({worst.chosen} in place of {worst.best}: {worst.setting})."
    )
    return Findings(verdict, why, [_ratios(found)], [_rest(found, what), _who(found), *further], rows)


def _ratios(found: Sequence[Chosen]) -> Chart:
    ratios = sorted(one.ratio for one in found)
    points = [(round(100 * (n + 1) / len(ratios), 2), round(ratio, 4)) for n, ratio in enumerate(ratios)]
    title, edge = "Cost of the choice over the cost of the best candidate", [(0.0, NEAR), (100.0, NEAR)]
    return Chart(title, "settings, %", "choice / best", {"choice": points, "10 % more than the best": edge})


def _rest(found: Sequence[Chosen], what: str) -> Grid:
    rest = sorted((one for one in found if not one.good), key=lambda one: -one.ratio)
    rows: list[list[Cell]] = [[one.setting, one.chosen, one.best, round(one.ratio, 3)] for one in rest]
    heads = ("setting", "chosen", "best", f"{what}, choice / best")
    return Grid("Settings in which another one was better by more than 10 %", heads, rows)


def _who(found: Sequence[Chosen]) -> Grid:
    chosen, best = Counter(one.chosen for one in found), Counter(one.best for one in found)
    near = Counter(name for one in found for name in one.costs if one.costs[name] <= NEAR * one.costs[one.best])
    ran = Counter(name for one in found for name in one.costs)
    rows: list[list[Cell]] = [[name, ran[name], chosen[name], best[name], near[name]] for name in sorted(ran)]
    return Grid("How often", ("algorithm", "could run", "was chosen", "was the best", "was within 10 % of it"), rows)


def settings_table(found: Sequence[Chosen], title: str, scale: float, unit: str) -> Grid:
    """Every setting with its choice and the costs of all candidates, times `scale`."""
    names = sorted({name for one in found for name in one.costs})
    rows: list[list[Cell]] = [
        [one.setting, one.chosen, *(_cell(one.costs.get(name), scale) for name in names), round(one.ratio, 3)]
        for one in found
    ]
    return Grid(title, ("setting", "chosen", *(f"{name}, {unit}" for name in names), "choice / best"), rows)


def _cell(cost: float | None, scale: float) -> float | None:
    return None if cost is None else float(f"{cost * scale:.4g}")
