"""CACHEJOIN at any memory: its cache starts at a threshold that follows the rows that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import JOINS, Point
from bench.experiments.semistream.sweeps import swept
from bench.judge import Figures
from bench.simulation import Experiment
from dovetail.joins.semistream.request import CachePolicy

START: Final = 5
"""The start threshold at 50 MB, as in our reference counts; the source gives no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suited(Point):
    """A point whose cache starts at a threshold in proportion to the rows that wait.

    With five times the rows in the queue a load finds five times the rows of a key, so that one threshold for all lets
    ever rarer keys in; they fill the cache, and the threshold rises before frequent ones come.
    """

    def experiment(self) -> Experiment:
        """The sizes as the simulation takes them."""
        own, usual = Point.experiment(self), replace(self, memory_mb=JOINS["HYBRIDJOIN"].memory_mb)
        waiting, then = (one.sizes("cachejoin").waiting or 1 for one in (own, Point.experiment(usual)))
        return replace(own, cache=CachePolicy("random", max(2, round(START * waiting / then))))


class SuitedRunner(Runner):
    """Runs points with suited thresholds on the simulated disk."""

    def point(self, name: str, **changed: float) -> Point:
        """One of the compared joins at this scale, with some fields changed."""
        plain = Runner.point(self, name, **changed)
        return Suited(**{field.name: getattr(plain, field.name) for field in fields(plain)})


def suited(runner: Runner, joins: Sequence[str], over: Mapping[str, str]) -> list[Figures]:
    """Rates of some joins over one or more axes, each with the title of its chart."""
    return swept(SuitedRunner(runner.bench), joins, over)
