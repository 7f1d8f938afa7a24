"""A large self-join in a small budget: the tracked peak, the spills, and the right answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.case import Bound, Case, Params, Rival
from bench.cases.interval_overlap import Answer, Inputs, overlap_counts, to_sink
from bench.context import BenchContext
from dovetail.engine.memory import parse_bytes
from dovetail.errors import DataError
from dovetail.joins.interval.api import plan_interval_join
from dovetail.joins.interval.plan.plan import IntervalPlan
from dovetail.workloads import Exponential, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

SUMS = """
select count(*), sum(l.id + l.key + l.start + l."end"), sum(r.id + r.key + r.start + r."end")
from l join r on l.start < r."end" and r.start < l."end"
"""


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    both = RandomIntervals(params["rows"], 100 * params["rows"], Exponential(200), 1_000, seed=seed)
    return both, both


DATA = Inputs(_sides)


def _expected(bench: BenchContext, params: Params) -> int:
    return int(overlap_counts(*DATA.tables(bench, params)).sum())


def _dovetail(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    plans: list[IntervalPlan] = []

    def make() -> DataFrame:
        named = {"memory": params["memory"], "algorithm": params["algorithm"]}
        plans.append(plan_interval_join(left, right, route="streaming", **named))
        return plans[0].frame()

    outcome = to_sink(make)
    return replace(outcome, figures=_figures(plans[0], params["memory"]))


def _figures(plan: IntervalPlan, memory: str) -> dict[str, float]:
    """What the tasks reported: the largest peak of any of them over the budget, and what they spilled."""
    metrics = plan.metrics()
    peak = metrics.value("memory")
    if not peak:
        raise DataError(f"no task reported its memory; the metrics are:\n{metrics}")
    return {
        "budget_share": peak / parse_bytes(memory),
        "peak_bytes": peak,
        "tasks": metrics.tasks,
        "spills": metrics.value("spills"),
        "inner_batches": metrics.value("inner_batches"),
        "spilled_bytes": metrics.value("bytes_written"),
    }


def _duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    """DuckDB has no sink that keeps nothing; sums over every column make it form the whole rows."""
    row = connection.execute(SUMS).fetchone()
    return int(row[0]) if row else 0


def _points(rows: int, memory: str, spilling_rows: int) -> list[Params]:
    """What is chosen here needs little memory; one that keeps a whole input somewhere shows what spilling costs.

    That one reads its inner input again for every frame of the outer one: its time grows with the square of the rows.
    """
    sizes = {"auto": rows, "dip": spilling_rows}
    return [{"rows": size, "memory": memory, "algorithm": algorithm} for algorithm, size in sizes.items()]


CASE = Case(
    name="interval-budget",
    question="Does a self-join of millions of rows stay inside a few megabytes a task, and what does that cost?",
    varies=("rows", "memory", "algorithm"),
    points={"small": _points(50_000, "2MB", 50_000), "full": _points(5_000_000, "16MB", 1_000_000)},
    rivals=(
        Rival("dovetail", DATA.spark(_dovetail)),
        Rival("duckdb", DATA.duckdb(_duckdb), requires=("duckdb",)),
        Rival(
            "duckdb in 400MB",
            DATA.duckdb(_duckdb, "set memory_limit = '400MB'"),
            requires=("duckdb",),
            may_fail="its tables and its join share the limit",
        ),
    ),
    expected=_expected,
    baseline="dovetail",
    bounds=(Bound("inside the budget in every task", "dovetail", 1.0, figure="budget_share"),),
    answer="pairs",
    measures=("engine", "joins/interval", "spark"),
    rounds=3,
)
