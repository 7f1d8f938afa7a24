"""Counts the settings in which each operator or route of an interval join is best, and by how much.

The settings come from several experiments: from the table of costs that each of them shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.experiment import Grid

EXPERIMENTS = ("models-interval-choice", "models-interval-exam", "models-interval-routes")
_COSTS, _CLEARLY = "Least processor times", 1.5


def best_table(findings: Mapping[str, Mapping[str, Any]]) -> Grid | None:
    """By operator and route: settings in which it ran, was the best, and was so by more than 1.5 times; None without
    settings. `findings` has what each experiment found, by its name."""
    every = [one for name in EXPERIMENTS if name in findings for one in _settings(findings[name])]
    if not every:
        return None
    names = dict.fromkeys(name for _, costs in every for name in costs)
    rows = [_row(name, [(where, costs) for where, costs in every if name in costs]) for name in names]
    heads = ("operator or route", "ran in", "best in", f"best by > {_CLEARLY} x in", "largest margin", "in the setting")
    told = ", ".join(f"{len(list(_settings(findings[name])))} of {name}" for name in EXPERIMENTS if name in findings)
    return Grid(f"Operators and routes of interval joins in {len(every)} settings ({told})", heads, rows)


def _row(name: str, settings: Sequence[tuple[str, Mapping[str, float]]]) -> tuple[str, int, int, int, float, str]:
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
