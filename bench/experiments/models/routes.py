"""Tests whether the planner takes the best route of an interval join on Spark: its own plan, ranges, or an index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import psutil  # type: ignore[import-untyped]  # ships no type information

from bench.context import BenchContext
from bench.experiments.models.choices import Chosen, constants, figures, margins, settings_table
from bench.judge import Figures
from dovetail.errors import DataError
from dovetail.joins.interval.api import IntervalPlan, plan_interval_join
from dovetail.joins.interval.plan.choose import Decision, index_route
from dovetail.joins.interval.plan.index import IndexRoute
from dovetail.joins.interval.plan.native import NativeRoute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Asked: TypeAlias = Literal["inner", "left", "left_semi", "left_anti"]
_ROUNDS: Final = 3
_SPAN: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RouteSetting:
    """Two inputs of random intervals: rows of each, their lengths and keys (0 for none), and what is asked of them."""

    rows: tuple[int, int]
    lengths: tuple[int, int]
    keys: int
    how: Asked

    def __str__(self) -> str:
        (left, right), (long, other) = self.rows, self.lengths
        keyed = f", {self.keys:,} keys" if self.keys else ""
        return f"{self.how}: {left:,} rows of {long:,} with {right:,} of {other:,}, in {_SPAN:,} instants{keyed}"

    @property
    def on(self) -> str | None:
        """The key column."""
        return "key" if self.keys else None

    def inputs(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Both inputs, kept in memory, so that making them is no part of a time."""
        return self._side(spark, 0), self._side(spark, 1)

    def _side(self, spark: SparkSession, number: int) -> DataFrame:
        start = f"abs(hash(id, {number})) % {_SPAN}"
        rows = spark.range(self.rows[number], numPartitions=2)
        key = [f"abs(hash(id, {number}, 'key')) % {self.keys} as key"] if self.keys else []
        made = rows.selectExpr("id", *key, f"{start} as start", f"{start} + {self.lengths[number]} as end").cache()
        made.count()
        return made


def route_grid(small: bool) -> Iterator[RouteSetting]:
    """Few and many pairs, alike and not, of few and many keys, for joins and for questions about left rows."""
    times = 1 if small else 4
    shapes = (
        ((50_000, 50_000), (20, 20), 0),
        ((50_000, 50_000), (1_000, 1_000), 0),
        ((200_000, 2_000), (5, 20_000), 0),
        ((100_000, 20_000), (50, 5_000), 24),
        ((100_000, 100_000), (20_000, 20_000), 20_000),
    )
    asked: tuple[Asked, ...] = ("inner", "left", "left_semi", "left_anti")
    for (rows, lengths, keys), how in product(shapes, asked):
        yield RouteSetting((times * rows[0], times * rows[1]), lengths, keys, how)
    for rows, keys, how in product(((200, 200), (2_000, 2_000)), (0, 24), asked[:2]):
        yield RouteSetting(rows, (100, 100), keys, how)


def route_of(plan: IntervalPlan) -> str:
    """The route of a plan by one name."""
    if isinstance(plan.route, NativeRoute):
        return "native"
    return "index" if isinstance(plan.route, IndexRoute) else "ranges"


def candidates(plan: IntervalPlan, left: DataFrame, right: DataFrame, setting: RouteSetting) -> dict[str, IntervalPlan]:
    """The plans by all routes that can run; the chosen one as it is planned."""
    found = {route_of(plan): plan}
    for route in ("native", "in_memory"):
        other = plan_interval_join(left, right, on=setting.on, how=setting.how, route=route)
        found.setdefault(route_of(other), other)
    index = index_route(plan.inputs)
    if index is not None:
        found.setdefault("index", replace(plan, decision=Decision(index)))
    return found


def processor_s() -> float:
    """Processor seconds of this process and of its descendants, Java and workers, so far."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(float(t.user + t.system + t.children_user + t.children_system) for t in times)


def timed(plan: IntervalPlan, rows: int | None) -> tuple[float, int]:
    """Processor seconds of one run whose rows are counted, and how many there were; DataError for another number."""
    began = processor_s()
    found = int(plan.frame().selectExpr("count(id) as n" if plan.request.left_only else "count(*) as n").collect()[0].n)
    if rows is not None and found != rows:
        raise DataError(f"{plan.route.name} gave {found:,} rows, not {rows:,}.")
    return processor_s() - began, found


def chosen(setting: RouteSetting, spark: SparkSession) -> tuple[Chosen, int]:
    """The choice for a setting, and the least time of every route, one after the other in each round."""
    left, right = setting.inputs(spark)
    plan = plan_interval_join(left, right, on=setting.on, how=setting.how)
    plans, rows, best = candidates(plan, left, right, setting), None, dict[str, float]()
    for number in range(_ROUNDS + 1):
        for name, one in plans.items():
            seconds, rows = timed(one, rows)
            if number:  # the first round compiles
                best[name] = min(seconds, best.get(name, seconds))
    left.unpersist()
    right.unpersist()
    return Chosen(str(setting), route_of(plan), best), rows or 0


def exam(bench: BenchContext) -> Figures:
    """The choices among routes, and by how much each of them is the best somewhere."""
    found, rows = [], 0
    for setting in route_grid(bench.scale == "small"):
        one, given = chosen(setting, bench.spark)
        found.append(one)
        rows += given
    return told(found, rows)


def told(found: list[Chosen], rows: int) -> Figures:
    """The figures of all settings, in which `rows` rows were counted."""
    every = figures(
        found, "processor time", rows, settings_table(found, "Least processor times of all routes", 1e3, "ms")
    )
    named = {
        "constants": constants(found),
        "margins": {name: max(values) for name, values in margins(found).items()},
        "wins": {name: sum(value > 1.5 for value in values) for name, values in margins(found).items()},
    }
    return replace(every, named={**every.named, **named})
