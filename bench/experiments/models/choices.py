"""Tests whether `algorithm="auto"` picks the best join: over many settings, with a table of the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.models.interval import Mix, Pair, row_bytes
from bench.experiments.models.semistream import LOADS, Scene, counted, decided, scenes, typical_costs
from bench.judge import Figures
from dovetail.engine.host import Schedule, run_local
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import warm
from dovetail.errors import DataError
from dovetail.joins.interval.cost import Choice, Price
from dovetail.joins.interval.operators import OPERATORS
from dovetail.joins.interval.plan.choose import price_operators
from dovetail.joins.interval.plan.statistics import Sample, SideStatistics
from dovetail.joins.interval.relation import RelationName
from dovetail.joins.interval.request import JoinOptions, Request
from dovetail.spark.hosts.sample import SAMPLE_ROWS

NEAR: Final = 1.10
"""A choice is good if it costs at most this many times what the best candidate costs."""


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
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def ratio(self) -> float:
        """The cost of the choice over that of the best one."""
        return self.costs[self.chosen] / self.costs[self.best]

    @property
    def good(self) -> bool:
        """Whether the choice is the best one or within a tenth of it."""
        return self.ratio <= NEAR


def figures(found: Sequence[Chosen], what: str, rows: int, every: Grid) -> Figures:
    """The choices, and what they cost beyond the best; `what` names the cost, `every` has all settings."""
    named = {
        "n": len(found),
        "what": what,
        "good": sum(one.good for one in found),
        "exact": sum(one.chosen == one.best for one in found),
        "lost": sum(one.ratio - 1 for one in found) / len(found),
        "worst": max(found, key=lambda one: one.ratio),
    }
    return Figures(named, [_ratios(found), _rest(found, what), _who(found), every], rows)


def _ratios(found: Sequence[Chosen]) -> Chart:
    ratios = sorted(one.ratio for one in found)
    points = [(100 * (n + 1) / len(ratios), ratio) for n, ratio in enumerate(ratios)]
    title, edge = "Cost of the choice over the cost of the best candidate", [(0.0, NEAR), (100.0, NEAR)]
    return Chart(title, "settings, %", "choice / best", {"choice": points, "10 % more than the best": edge})


def _rest(found: Sequence[Chosen], what: str) -> Grid:
    rest = sorted((one for one in found if not one.good), key=lambda one: -one.ratio)
    rows = [(one.setting, one.chosen, one.best, one.ratio) for one in rest]
    heads = ("setting", "chosen", "best", f"{what}, choice / best")
    return Grid("Settings in which another one was better by more than 10 %", heads, rows)


def _who(found: Sequence[Chosen]) -> Grid:
    chosen, best = Counter(one.chosen for one in found), Counter(one.best for one in found)
    near = Counter(name for one in found for name in one.costs if one.costs[name] <= NEAR * one.costs[one.best])
    ran = Counter(name for one in found for name in one.costs)
    rows = [(name, ran[name], chosen[name], best[name], near[name]) for name in sorted(ran)]
    return Grid("How often", ("algorithm", "could run", "was chosen", "was the best", "was within 10 % of it"), rows)


def settings_table(found: Sequence[Chosen], title: str, scale: float, unit: str) -> Grid:
    """Every setting with its choice and the costs of all candidates, times `scale`."""
    names = sorted({name for one in found for name in one.costs})
    rows: list[list[Cell]] = [
        [one.setting, one.chosen, *(scale * one.costs[n] if n in one.costs else None for n in names), one.ratio]
        for one in found
    ]
    return Grid(title, ("setting", "chosen", *(f"{name}, {unit}" for name in names), "choice / best"), rows)


_ARROW_ROWS: Final = 10_000  # of both sides together, as Spark hands them over by default
_CODES: Final = 16  # bytes
_CLOSE: Final = 2.0  # times the best of the first round: candidates within that are timed again
_ROUNDS: Final = 6
_EXAM_ROUNDS: Final = 3
_EXAM_SECONDS: Final = 900.0
"""Processor time after which the exam takes no more settings, but for the fewest that it must have."""
_FEWEST: Final = 100
_TAIL, _LONG = ((0.9, 5), (0.1, 200)), ((0.98, 20), (0.02, 2_000))
_PAIRS: Final = (
    Pair(Mix.even(0.1, 10), Mix.even(0.1, 10), 200_000),
    Pair(Mix.even(1.0, 8), Mix.even(1.0, 8), 15_000),
    Pair(Mix.even(8.0, 2), Mix.even(8.0, 2), 1_200),
    Pair(Mix.even(1.0, 30), Mix.even(1.0, 30), 4_000),
    Pair(Mix.even(1.0, 5), Mix.even(0.02, 400), 20_000),
    Pair(Mix.even(0.02, 400), Mix.even(1.0, 5), 20_000),
    Pair(Mix.even(1.0, 4_000), Mix.even(0.002, 10), 20_000),
    Pair(Mix.even(0.002, 10), Mix.even(1.0, 4_000), 20_000),
    Pair(Mix(1.0, _TAIL), Mix(1.0, _TAIL), 5_000),
    Pair(Mix(0.5, _LONG), Mix.even(0.5, 20), 15_000),
)
_MEMORY: Final = {"1MB": 0.3, "4MB": 0.7, "64MB": 1.5}
"""Budgets, and how many times the span of the pairs above they get."""


@dataclass(frozen=True, slots=True)
class ChoiceSetting:
    """Two inputs, the eight-byte columns of their rows beside bounds and number, and a budget."""

    pair: Pair
    payload: int
    memory: str
    relation: RelationName = "overlapping"

    def __str__(self) -> str:
        asked = "" if self.relation == "overlapping" else f"{self.relation}: "
        return f"{asked}{self.pair}, rows of {row_bytes(self.payload)} bytes, {self.memory}"

    def request(self) -> Request:
        """The request as a user makes it."""
        return JoinOptions(memory=self.memory, relation=self.relation).request()

    def pieces(self) -> int:
        """Pieces in which a task of Spark gives its rows to the operator: of a batch, or of a part of its memory."""
        whole = row_bytes(self.payload) + _CODES
        rows = sum(mix.rate for mix in (self.pair.left, self.pair.right)) * self.pair.span
        return max(1, round(rows / min(_ARROW_ROWS, self.request().memory // 2 // 32 // whole)))

    def choice(self) -> Choice:
        """The decision of the planner of `interval_join` for one range, from statistics as it gathers them."""
        left, right = (_statistics(start, end, row_bytes(self.payload)) for start, end in self.pair.bounds())
        choice = price_operators(self.request(), (left, right), 1)
        if choice is None:
            raise DataError(f"the planner has no price for {self}.")
        return choice


def _statistics(start: I64, end: I64, width: int) -> SideStatistics:
    lengths = end - start
    few = np.random.default_rng(3).permutation(len(start))[:SAMPLE_ROWS]
    sample = Sample(start[few].astype(float), end[few].astype(float), start[few], len(start))
    bounds = float(start.min()), float(start.max()), float(end.max())
    return SideStatistics(
        len(start), len(start), 0, *bounds, float(lengths.mean()), float(lengths.max()), float(width), sample
    )


def choice_grid(small: bool) -> Iterator[ChoiceSetting]:
    """Sparse to dense, short to long, alike and not, single and mixed durations; three budgets, two widths of rows.

    Inputs grow with the budget, as ranges of the planner do.
    """
    times = 1 if small else 4
    for pair, payload, (memory, part) in product(_PAIRS, (0, 4), _MEMORY.items()):
        yield ChoiceSetting(replace(pair, span=int(pair.span * part * times)), payload, memory)


class _Timed:
    """The candidates of one setting, each run over the same batches; pairs are checked in every run."""

    def __init__(self, setting: ChoiceSetting) -> None:
        self.setting, self.choice = setting, setting.choice()
        self._request = setting.request()
        self._batches = setting.pair.batches(setting.pieces(), setting.payload)
        self.pairs = setting.pair.pairs() if setting.relation == "overlapping" else None

    def seconds(self, price: Price) -> float:
        """One run of a candidate: all answers as rows, as the tasks of Spark give them.

        The processor's time, which other programs disturb less than a clock; reads and writes of spills are in it as
        far as the system does them at once.
        """
        spec = OPERATORS[price.algorithm](relation=self._request.relation, swapped=price.swapped)
        began = time.process_time()
        run = run_local(spec, self._batches, self._request.memory, Schedule("round_robin"))
        given = sum(batch.num_rows for batch in run)
        seconds = time.process_time() - began
        if self.pairs is None:
            self.pairs = given  # of other relations the candidates are compared with each other
        if given != self.pairs:
            raise DataError(f"{price.label} gave {given:,} pairs of {self.setting}, not {self.pairs:,}.")
        return seconds

    def chosen(self, rounds: int = _ROUNDS) -> Chosen:
        """The best time of every candidate, those near the best in more rounds, one after the other in each."""
        prices = self.choice.prices
        best = {price.label: self.seconds(price) for price in prices}
        edge = _CLOSE * min(best.values())
        close = [price for price in prices if best[price.label] <= edge or price is self.choice.best]
        for _ in range(rounds):
            for price in close:
                best[price.label] = min(best[price.label], self.seconds(price))
        return Chosen(str(self.setting), self.choice.best.label, best)


def chosen_operators(settings: Iterable[ChoiceSetting]) -> Figures:
    """The choices in some settings; everything is compiled before the first is timed."""
    warm()
    found, rows = [], 0
    for setting in settings:
        timed = _Timed(setting)
        found.append(timed.chosen())
        rows += timed.pairs or 0
    table = settings_table(found, "Least processor times of all candidates", 1e3, "ms")
    return figures(found, "processor time", rows, table)


def operator_of(label: str) -> str:
    """The operator of a candidate, whichever input is its outer one."""
    return label.partition(" ")[0]


def margins(found: Sequence[Chosen]) -> dict[str, list[float]]:
    """By operator, in each setting: what the best other operator costs over what it costs itself."""
    every: dict[str, list[float]] = {name: [] for name in sorted({operator_of(c) for one in found for c in one.costs})}
    for one in found:
        least = dict[str, float]()
        for candidate, cost in one.costs.items():
            least[operator_of(candidate)] = min(cost, least.get(operator_of(candidate), cost))
        for name, own in least.items():
            every[name].append(min((cost for other, cost in least.items() if other != name), default=own) / own)
    return every


def constants(found: Sequence[Chosen]) -> dict[str, int]:
    """In how many settings the same answer every time, in its better orientation, is within a tenth of the best."""
    best = [min(one.costs.values()) for one in found]
    names = sorted({operator_of(c) for one in found for c in one.costs})
    return {
        name: sum(
            min((cost for c, cost in one.costs.items() if operator_of(c) == name), default=np.inf) <= NEAR * least
            for one, least in zip(found, best, strict=True)
        )
        for name in names
    }


def exam(bench: BenchContext) -> Figures:
    """Settings of the exam and settings drawn at random: the choices, and what a constant answer would give.

    It ends after a fixed processor time and a hundred settings, or when all settings are done.
    """
    from bench.experiments.models.exam import in_turn

    warm()
    began, found, held_out = time.process_time(), list[Chosen](), list[Chosen]()
    for is_drawn, setting in in_turn():
        if len(found) >= _FEWEST and time.process_time() - began > _EXAM_SECONDS:
            break
        found.append(_Timed(setting).chosen(_EXAM_ROUNDS))
        held_out += found[-1:] * is_drawn
    table = settings_table(found, "Least processor times of all candidates", 1e3, "ms")
    named = {
        "constants": constants(found),
        "margins": {name: max(values) for name, values in margins(found).items()},
        "wins": {name: sum(value > 1.5 for value in values) for name, values in margins(found).items()},
        "held_out": len(held_out),
        "held_out_good": sum(one.good for one in held_out),
    }
    told = figures(found, "processor time", 0, table)
    return replace(told, named={**told.named, **named})


def interval(bench: BenchContext) -> Figures:
    """Operators of the interval join, by their processor time."""
    return chosen_operators(choice_grid(bench.scale == "small"))


def chosen(scene: Scene, loads: int) -> tuple[Chosen, int]:
    """The choice for a scene, the seconds a row of every join that can run there, and the rows answered."""
    setting, pick = scene.setting(), scene.decision().algorithm
    costs, rows = {}, 0
    for algorithm, decision in decided(scene, setting).items():
        did = counted(scene, decision, setting, loads)
        costs[algorithm] = 1 / did.rate
        rows += did.rows
    return Chosen(str(scene), pick, costs), rows


def chosen_joins(some: Sequence[Scene], loads: int) -> Figures:
    """The choices in some scenes."""
    found = [chosen(scene, loads) for scene in some]
    choices = [one for one, _ in found]
    table = settings_table(choices, "Counted cost of all candidates", 1e6, "us a row")
    return figures(choices, "counted time a row", sum(rows for _, rows in found), table)


def semistream(bench: BenchContext) -> Figures:
    """Semi-stream joins, by their counted time a row."""
    with typical_costs(bench.scratch):
        return chosen_joins(scenes(), LOADS[bench.scale])
