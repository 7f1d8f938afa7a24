"""Every type of bound, widening, struct columns, keys of many types, output names."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.interval.frame.answers import answered, random_rows

import oracle
from dovetail.errors import PlanError
from dovetail.joins.interval.api import interval_count, interval_join

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

EPOCH = dt.datetime(2024, 3, 31, 0, 30)
TYPES: dict[str, Callable[[int], Any]] = {
    "tinyint": int,
    "smallint": int,
    "int": int,
    "float": lambda n: n / 2,
    "double": lambda n: n / 4,
    "decimal(9,2)": lambda n: Decimal(n) / 4,
    "decimal(38,4)": lambda n: Decimal(10) ** 30 + Decimal(n) / 4,
    "date": lambda n: EPOCH.date() + dt.timedelta(days=n),
    "timestamp": lambda n: EPOCH + dt.timedelta(minutes=7 * n),
    "timestamp_ntz": lambda n: EPOCH + dt.timedelta(minutes=7 * n),
    "interval day to second": lambda n: dt.timedelta(seconds=n),
}


CODED = ("double", "decimal(9,2)", "timestamp")  # what operators see apart


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("algorithm", "kind"), [*(("auto", kind) for kind in TYPES), *(("time_sweep", kind) for kind in CODED)]
)
def test_bounds_of_every_type(spark: SparkSession, kind: str, algorithm: str) -> None:
    rows = [random_rows(seed, 30, span=30) for seed in (5, 6)]
    for row in (*rows[0], *rows[1]):
        for bound in ("start", "end"):
            row[bound] = None if row[bound] is None else TYPES[kind](row[bound])
    schema = f"id long, k long, j string, start {kind}, end {kind}"
    left, right = (spark.createDataFrame(side, schema) for side in rows)
    columns = ["id", "start", "end", "id_right"]
    answer = interval_join(left, right, how="left", closed="both", algorithm=algorithm, columns=columns, partitions=3)
    pairs = oracle.interval_join(*rows, how="left", closed="both")
    wanted = oracle.bag((a["id"], a["start"], a["end"], b["id"] if b else None) for a, b in pairs if a)
    assert answered(answer) == wanted
    if algorithm == "auto":
        assert interval_count(left, right, closed="both") == oracle.interval_count(*rows, closed="both")


def test_long_extremes_and_infinities(spark: SparkSession) -> None:
    big = 2**63 - 1
    left = spark.createDataFrame([(0, -(2**63), big), (1, 5, big), (2, 5, 5)], "id long, start long, end long")
    right = spark.createDataFrame([(0, big, big), (1, 5, 6)], "id long, start long, end long")
    for algorithm in ("auto", "nested_loop"):
        answer = interval_join(left, right, closed="both", columns=["id", "id_right"], algorithm=algorithm)
        assert answered(answer) == oracle.bag([(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)])
    assert interval_count(left, right, closed="both") == 5
    inf = float("inf")
    floats = spark.createDataFrame([(0, -inf, inf), (1, 1.0, 2.0)], "id long, start double, end double")
    assert answered(interval_join(floats, floats, columns=["id", "id_right"])) == oracle.bag(
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    )


def test_types_widen_as_in_spark_and_structs_are_intervals(spark: SparkSession) -> None:
    left = spark.sql("select 1 as id, named_struct('from', 1, 'till', 5) as period")
    right = spark.sql("select 7 as id, 4L as start, 9L as end")
    answer = interval_join(left, right, left_interval="period", columns=["id", "id_right"])
    assert answered(answer) == oracle.bag([(1, 7)])
    dates = spark.sql("select date'2024-01-01' as start, date'2024-01-02' as end")
    times = spark.sql("select timestamp'2024-01-01 12:00:00' as start, timestamp'2024-01-01 13:00:00' as end")
    assert interval_join(dates, times).count() == 1


def test_keys_of_many_types(spark: SparkSession) -> None:
    rows = spark.sql(
        "select * from values ('a', 1.5D, date'2024-01-01', 1, 3), ('b', double('NaN'), date'2024-01-01', 2, 4),"
        " ('é', -0.0D, null, 1, 2), ('é', 0.0D, date'2024-01-02', 1, 9) as t(s, f, d, start, end)"
    )
    for on in ("s", ["f"], ["s", "f"], [("d", "d")], ["s", "f", "d"]):
        native = interval_join(rows, rows, on=on, algorithm="nested_loop")
        for algorithm in ("native", "forward_scan"):
            assert answered(interval_join(rows, rows, on=on, algorithm=algorithm)) == answered(native)
        assert interval_count(rows, rows, on=on) == native.count()


def test_columns_of_the_result(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, 1, 0, 5, "x")], "k int, a int, start int, end int, `odd na``me` string")
    right = spark.createDataFrame([(1, 2, 3, 9), (2, 8, 0, 1)], "k int, a int, start int, end int")
    answer = interval_join(left, right, on="k", how="full")
    assert answer.columns == ["k", "a", "start", "end", "odd na`me", "a_right", "start_right", "end_right"]
    assert answered(answer) == oracle.bag([(1, 1, 0, 5, "x", 2, 3, 9), (2, None, None, None, None, 8, 0, 1)])
    pairs = interval_join(left, right, on=[("k", "k")], suffixes=("_l", "_r"))
    assert pairs.columns == ["k_l", "a_l", "start_l", "end_l", "odd na`me", "k_r", "a_r", "start_r", "end_r"]
    assert interval_join(left, right, on="k", how="left_semi").columns == left.columns
    assert interval_join(left, right, columns=["A_Right"]).columns == ["a_right"]
    with pytest.raises(PlanError, match="has a name twice"):
        interval_join(left, right, columns=["a_right", "A_Right"])
    with pytest.raises(PlanError, match="would appear twice"):
        interval_join(left, right, suffixes=("", ""))
    with pytest.raises(PlanError, match=r"no column 'a_rigth'.*Did you mean 'a_right'"):
        interval_join(left, right, columns=["a_rigth"])
