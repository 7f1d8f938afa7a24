"""Whether the chooser behind `algorithm="auto"` picks the fastest interval operator, by processor time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.models.choices import Chosen, judged, settings_table
from bench.experiments.models.interval_inputs import Mix, Pair, row_bytes
from dovetail.engine.host import Schedule, run_local
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import warm
from dovetail.errors import DataError
from dovetail.joins.interval.bins import Sample
from dovetail.joins.interval.cost import Choice, Price
from dovetail.joins.interval.operators import OPERATORS
from dovetail.joins.interval.plan.choose import price_operators
from dovetail.joins.interval.plan.statistics import SideStatistics
from dovetail.joins.interval.request import JoinOptions, Request

_ARROW_ROWS: Final = 10_000  # of both sides together, as Spark hands them over by default
_CODES: Final = 16  # bytes
_CLOSE: Final = 2.0  # candidates within so many times the best of the first round are timed again
_ROUNDS: Final = 6


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
class Setting:
    """Two inputs, the eight-byte columns of their rows beside bounds and number, and a budget."""

    pair: Pair
    payload: int
    memory: str

    def __str__(self) -> str:
        return f"{self.pair}, rows of {row_bytes(self.payload)} bytes, {self.memory}"

    def request(self) -> Request:
        """The request as a user makes it."""
        return JoinOptions(memory=self.memory).request()

    def pieces(self) -> int:
        """Pieces in which a task of Spark gives its rows to the operator: of a batch, or of a part of its memory."""
        whole = row_bytes(self.payload) + _CODES
        rows = sum(mix.rate for mix in (self.pair.left, self.pair.right)) * self.pair.span
        return max(1, round(rows / min(_ARROW_ROWS, self.request().memory // 2 // 32 // whole)))

    def choice(self) -> Choice:
        """What the planner of `interval_join` decides for one range, from statistics as it gathers them."""
        left, right = (_statistics(start, end, row_bytes(self.payload)) for start, end in self.pair.bounds())
        choice = price_operators(self.request(), (left, right), 1)
        if choice is None:
            raise DataError(f"the planner has no price for {self}.")
        return choice


def _statistics(start: I64, end: I64, width: int) -> SideStatistics:
    lengths, few = end - start, slice(0, 64)
    sample = Sample(start[few].astype(float), end[few].astype(float), start[few], len(start))
    bounds = float(start.min()), float(start.max()), float(end.max())
    return SideStatistics(
        len(start), len(start), 0, *bounds, float(lengths.mean()), float(lengths.max()), float(width), sample
    )


def grid(small: bool) -> Iterator[Setting]:
    """Sparse to dense, short to long, alike and not, single and mixed durations; three budgets, two widths of rows.

    Inputs grow with the budget, as ranges of the planner do.
    """
    times = 1 if small else 4
    for pair, payload, (memory, part) in product(_PAIRS, (0, 4), _MEMORY.items()):
        yield Setting(replace(pair, span=int(pair.span * part * times)), payload, memory)


class _Timed:
    """The candidates of one setting, each run over the same batches; pairs are checked in every run."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.choice = setting, setting.choice()
        self._request = setting.request()
        self._batches = setting.pair.batches(setting.pieces(), setting.payload)
        self.pairs = setting.pair.pairs()

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
        if given != self.pairs:
            raise DataError(f"{price.label} gave {given:,} pairs of {self.setting}, not {self.pairs:,}.")
        return seconds

    def chosen(self) -> Chosen:
        """The best time of every candidate, those near the best in more rounds, one after the other in each."""
        prices = self.choice.prices
        best = {price.label: self.seconds(price) for price in prices}
        edge = _CLOSE * min(best.values())
        close = [price for price in prices if best[price.label] <= edge or price is self.choice.best]
        for _ in range(_ROUNDS):
            for price in close:
                best[price.label] = min(best[price.label], self.seconds(price))
        return Chosen(str(self.setting), self.choice.best.label, best)


def judge(settings: Iterable[Setting]) -> Findings:
    """The verdict over settings; everything is compiled before the first is timed."""
    warm()
    found, rows = [], 0
    for setting in settings:
        timed = _Timed(setting)
        found.append(timed.chosen())
        rows += timed.pairs
    table = settings_table(found, "Least processor times of all candidates", 1e3, "ms")
    return judged(found, "processor time", rows, [table])


def _run(bench: BenchContext) -> Findings:
    return judge(grid(bench.scale == "small"))


EXPERIMENTS = (
    Experiment(
        name="models-interval-choice",
        family="models",
        source="our own",
        places=("choice of interval operators",),
        claim=(
            'The operator that algorithm="auto" takes from its models is the fastest of the five, in both '
            "orientations, or within 10 % of it, in nine settings of ten."
        ),
        run=_run,
        measures=("engine", "joins/interval", "bench/experiments/models"),
        ground="measured",
    ),
)
