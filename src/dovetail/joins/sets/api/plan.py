"""The plan of a function of interval sets: the answer, its explanation, and the metrics of its last run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.joins.sets.plan.cuts import Cuts
from dovetail.joins.sets.plan.rows import Rows
from dovetail.joins.sets.request import Request
from dovetail.spark.frames import require_classic
from dovetail.spark.status import add_costs, last_execution


@dataclass(frozen=True, slots=True)
class SetPlan:
    """A function of interval sets that is planned but not run; `frame` gives the lazy DataFrame.

    >>> rows = spark.createDataFrame([(0, 5), (3, 8)], "start int, end int")
    >>> dovetail.plan_interval_merge(rows).frame().collect()
    [Row(start=0, end=8, n_merged=2)]
    """

    steps: tuple[str, ...]
    answer: DataFrame
    measure: Callable[[], Metrics]

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        return self.answer

    def explain(self) -> str:
        """The request, and how it runs."""
        return "\n".join(self.steps)

    def metrics(self) -> Metrics:
        """The metrics of the last run: spilled bytes and task times, as Spark counted them; of joins, their own."""
        return self.measure()


def describe(name: str, request: Request, *more: str, swept: bool = True) -> str:
    """The first line of an explanation. The budget sizes the tasks of a sweep; what does not fit there Spark spills."""
    parts = [f"keys={', '.join(request.keys) or 'none'}", *more, f"closed={request.closed}"]
    if swept:
        parts.append(f"tasks sized for {format_bytes(request.memory)}, spilled by Spark")
    return f"{name}: {', '.join(parts)}"


def swept_plan(first: str, rows: Rows, cuts: Cuts | None, answer: DataFrame) -> SetPlan:
    """The plan of a function that Spark's own operators compute."""
    steps = [first] if cuts is None else [first, cuts.explain()]

    def measure() -> Metrics:
        spark, metrics = rows.frame.sparkSession, Metrics()
        require_classic(spark, "metrics of a run", "run the query in a classic session to see them")
        run = last_execution(spark, rows.mark)
        if run is not None:
            add_costs(spark, run, metrics)
        return metrics

    return SetPlan(tuple(steps), answer, measure)
