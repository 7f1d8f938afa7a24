"""Overlap within 24 keys, few pairs: the shape of genes and chromosomes, customers and periods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Bound, Case, Params, Rival
from bench.cases.interval_overlap import Answer, Inputs, binned, overlap_counts, to_sink
from bench.context import BenchContext
from dovetail.joins.interval.api import interval_join
from dovetail.workloads import Exponential, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

KEYS = 24
WIDTHS = (1_000, 10_000, 100_000)

JOIN = 'select * from l join r on l.key = r.key and l.start < r."end" and r.start < l."end"'


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, others = params["rows"], params["others"]
    left = RandomIntervals(rows, 500 * rows, Exponential(270), KEYS, seed=2 * seed + 1)
    return left, RandomIntervals(others, 500 * rows, Exponential(1_200), KEYS, seed=2 * seed + 2)


DATA = Inputs(_sides)


def keyed_expected(bench: BenchContext, params: Params) -> int:
    """How many pairs a point has."""
    return int(overlap_counts(*DATA.tables(bench, params), keyed=True).sum())


def keyed_dovetail(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    """Ours."""
    return to_sink(lambda: interval_join(left, right, on="key"))


def keyed_own_plan(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    """What Spark makes of the join as it is said: an equality join on the key, every pair of a key tested."""
    overlap = F.expr("l.key = r.key and l.start < r.end and r.start < l.end")
    return to_sink(lambda: left.alias("l").join(right.alias("r"), overlap))


def keyed_duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    """DuckDB's pairs as an Arrow table."""
    return int(connection.sql(JOIN).to_arrow_table().num_rows)


def keyed_bins(width: int) -> Rival:
    """Spark's equality join of rows that were put into bins of this width."""

    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
        return to_sink(lambda: binned(left, right, width, on=("key",)))

    return Rival(f"bins of {width:,}", DATA.spark(answer))


def _bound(name: str, at_most: float, against: str) -> Bound:
    return Bound(name, "dovetail", at_most, against=against, scale="full")


CASE = Case(
    name="interval-keyed",
    question="What does an overlap join within 24 keys cost, when few rows have a match?",
    varies=("rows", "others"),
    points={"small": [{"rows": 20_000, "others": 44_000}], "full": [{"rows": 200_000, "others": 440_000}]},
    rivals=(
        Rival("dovetail", DATA.spark(keyed_dovetail)),
        *map(keyed_bins, WIDTHS),
        Rival("spark's own plan", DATA.spark(keyed_own_plan)),
        # By default DuckDB joins on the key and tests all its pairs, as Spark does.
        Rival("duckdb, range join", DATA.duckdb(keyed_duckdb, "set prefer_range_joins = true"), requires=("duckdb",)),
    ),
    expected=keyed_expected,
    baseline="dovetail",
    bounds=(
        *(_bound("no slower than any width", 1.0, f"bins of {width:,}") for width in WIDTHS),
        _bound("twenty times faster than Spark's own plan", 0.05, "spark's own plan"),
    ),
    answer="pairs",
    measures=("engine", "joins/interval", "spark"),
    rounds=15,  # short ones, and Java is still compiling during the first
    patience_s=45.0,  # Spark's own plan runs once cold and once warm, a minute each; nobody else comes near
)
