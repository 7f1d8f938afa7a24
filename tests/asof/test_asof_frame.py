"""As-of joins on Spark, beside the oracle, DuckDB's ASOF JOIN and pandas' merge_asof."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pandas as pd
import pytest
from tests import oracle

import dovetail
from dovetail.errors import PlanError, UnsupportedError
from dovetail.spark.hosts import cells as cells_module
from dovetail.spark.hosts.cells import Cells, choose_cells
from dovetail.spark.hosts.sample import Sample

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

LEFT, RIGHT = ["k", "t", "l"], ["k", "t", "r"]


def rows_of(seed: int, n: int, keys: int, times: int) -> list[tuple[Any, ...]]:
    rng = Random(seed)  # noqa: S311  (repeatable, no secrets)
    some = [None, *(f"k{number}" for number in range(keys))]
    return [
        (rng.choice(some), rng.choice([None, rng.randrange(times)]) if n % 7 == 0 else rng.randrange(times), i)
        for i in range(n)
    ]


def frames(spark: SparkSession, left: list[Any], right: list[Any], kind: str = "int") -> tuple[DataFrame, DataFrame]:
    return (
        spark.createDataFrame(left, f"k string, t {kind}, l int"),
        spark.createDataFrame(right, f"k string, t {kind}, r int"),
    )


def bag(frame: DataFrame) -> Any:
    return oracle.bag(map(tuple, frame.collect()))


def wanted(left: list[Any], right: list[Any], by: bool = True, **how: Any) -> Any:
    one, other = (
        [dict(zip(names, row, strict=True)) for row in rows] for names, rows in ((LEFT, left), (RIGHT, right))
    )
    pairs = oracle.asof_join(one, other, on=("t", "t"), by=[("k", "k")] if by else [], prefer=lambda b: b["r"], **how)
    return oracle.bag(oracle.flat(pairs, LEFT, ["t", "r"] if by else RIGHT))


@pytest.mark.parametrize("algorithm", ["index", "window"])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize(("how", "exact", "tolerance"), [("inner", True, None), ("left", False, 3), ("left", True, 0)])
@pytest.mark.parametrize("by", [True, False])
def test_rows_equal_the_definition(
    spark: SparkSession, algorithm: str, direction: str, how: str, exact: bool, tolerance: Any, by: bool
) -> None:
    left, right = rows_of(1, 70, 4, 40), rows_of(2, 63, 4, 40)
    found = dovetail.asof_join(
        *frames(spark, left, right),
        on="t",
        by="k" if by else None,
        direction=direction,  # type: ignore[arg-type]  # checked words
        how=how,  # type: ignore[arg-type]
        allow_exact=exact,
        tolerance=tolerance,
        ties=("last", "r"),
        algorithm=algorithm,  # type: ignore[arg-type]
    )
    given = {"direction": direction, "how": how, "allow_exact": exact, "tolerance": tolerance}
    assert bag(found) == wanted(left, right, by, **given)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("keys", [0, 1, 300])
def test_many_cells_and_a_hot_key_give_the_same_rows(
    spark: SparkSession, direction: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "SMALL_BYTES", -1)  # so that these few rows are sampled and cut
    left, right = rows_of(3, 701, max(1, keys), 5000), rows_of(4, 701, max(1, keys), 5000)
    if keys == 300:  # half of all rows have one key
        left, right = ([(("k7" if i % 2 else k), t, i) for k, t, i in rows] for rows in (left, right))
    plan = dovetail.plan_asof_join(
        *frames(spark, left, right),
        on="t",
        by="k" if keys else None,
        direction=direction,  # type: ignore[arg-type]  # checked words
        how="left",
        ties=("last", "r"),
        partitions=7,
    )
    assert ("hot key" in plan.explain()) == bool(keys)
    assert "cut by time" in plan.explain()
    found = plan.frame()
    assert found.rdd.getNumPartitions() == 7
    assert bag(found) == wanted(left, right, bool(keys), direction=direction, how="left")
    assert plan.metrics().value("placed", "left") == len(left)


@pytest.mark.parametrize("algorithm", ["auto", "index"])
def test_all_ties_and_the_first_of_them(spark: SparkSession, algorithm: Literal["auto", "index"]) -> None:
    left, right = [("a", 5, 0), ("b", 1, 1)], [("a", 3, 7), ("a", 3, 8), ("a", 3, 9), ("a", 2, 1)]
    both = frames(spark, left, right)
    asked: dict[str, Any] = {"on": "t", "by": "k", "algorithm": algorithm}
    every = dovetail.asof_join(*both, **asked, ties="all", how="left").collect()
    assert sorted((row.l, row.t_right, row.r) for row in every if row.k == "a") == [(0, 3, 7), (0, 3, 8), (0, 3, 9)]
    assert [tuple(row) for row in every if row.k == "b"] == [("b", 1, 1, None, None)]
    [first] = dovetail.asof_join(*both, **asked, ties=("first", ["r"]), columns=["r", "l"]).collect()
    assert first.asDict() == {"r": 7, "l": 0}
    for column, expected in (("r", 7), ("l", 0)):
        [only] = dovetail.asof_join(*both, **asked, ties=("first", "r"), columns=[column]).collect()
        assert only.asDict() == {column: expected}


TIMES = {
    "timestamp": [dt.datetime(2024, 1, 1, 0, 0, n) for n in range(8)],
    "timestamp_ntz": [dt.datetime(2024, 1, 1, 0, 0, n) for n in range(8)],
    "date": [dt.date(2024, 1, 1 + n) for n in range(8)],
    "double": [n / 4 for n in range(8)],
    "float": [float(n) for n in range(8)],
    "bigint": [2**62 + n for n in range(8)],
    "decimal(9,2)": [Decimal(n) / 4 for n in range(8)],
    "decimal(30,2)": [Decimal(n) / 4 for n in range(8)],
    "interval day to second": [dt.timedelta(seconds=n) for n in range(8)],
    "time(6)": [dt.time(23, 59, n) for n in range(8)],
}
NEAR = {"date": dt.timedelta(days=2), "double": 0.5, "decimal(9,2)": Decimal("0.5"), "decimal(30,2)": 0.5}


@pytest.mark.usefixtures("times_of_day")
@pytest.mark.parametrize("kind", TIMES)
def test_every_type_of_time(spark: SparkSession, kind: str) -> None:
    times = TIMES[kind]
    left = [("a", time, n) for n, time in enumerate(times)]
    right = [("a", times[1], 1), ("a", times[2], 2), ("a", times[6], 6)]
    timely = kind.startswith(("time", "interval"))
    near = NEAR.get(kind, dt.timedelta(seconds=2) if timely else 2)
    for algorithm in ("auto", "window", *(["index"] if kind != "decimal(30,2)" else [])):
        found = dovetail.asof_join(
            *frames(spark, left, right, kind),
            on="t",
            by="k",
            how="left",
            tolerance=near,
            algorithm=algorithm,  # type: ignore[arg-type]
        )
        assert {row.l: row.r for row in found.collect()} == {0: None, 1: 1, 2: 2, 3: 2, 4: 2, 5: None, 6: 6, 7: 6}


def test_duckdb_and_pandas_agree(spark: SparkSession) -> None:
    left = [(k or "k0", t if t is not None else 1, i) for k, t, i in rows_of(5, 200, 6, 300)]
    right = list({(k or "k0", t or 0): (k or "k0", t or 0, i) for k, t, i in rows_of(6, 150, 6, 300)}.values())
    mine, theirs = (pd.DataFrame(rows, columns=names) for rows, names in ((left, LEFT), (right, RIGHT)))
    ours = bag(dovetail.asof_join(*frames(spark, left, right), on="t", by="k", how="left"))
    query = "select a.k, a.t, a.l, b.t, b.r from mine a asof left join theirs b on a.k = b.k and a.t >= b.t"
    assert ours == oracle.bag(duckdb.query(query).fetchall())
    for direction in ("backward", "forward", "nearest"):
        for exact in (True, False):
            merged = pd.merge_asof(
                mine.sort_values("t"),
                theirs.sort_values("t").assign(t_right=lambda rows: rows["t"]),
                on="t",
                by="k",
                direction=direction,  # type: ignore[arg-type]  # checked words
                allow_exact_matches=exact,
                tolerance=20,
            )
            expected = oracle.bag(
                tuple(None if v != v else v for v in row)
                for row in merged[["k", "t", "l", "t_right", "r"]].itertuples(index=False)
            )
            found = dovetail.asof_join(
                *frames(spark, left, right),
                on="t",
                by="k",
                how="left",
                direction=direction,
                allow_exact=exact,
                tolerance=20,  # type: ignore[arg-type]
            )
            assert bag(found) == expected, (direction, exact)


def test_names_pairs_types_and_collations(spark: SparkSession) -> None:
    left = spark.createDataFrame([("A", 5, "x")], "`a.k` string, at int, v string")
    right = spark.createDataFrame([("a", 4, "y"), ("b", 5, "z")], "key string, since bigint, V string")
    plain = dovetail.asof_join(left, right, on=("at", "since"), by=[("a.k", "key")], how="left", suffixes=("", "_2"))
    assert plain.columns == ["a.k", "at", "v", "key", "since", "V_2"]
    assert [tuple(row) for row in plain.collect()] == [("A", 5, "x", None, None, None)]
    one, other = (
        left.selectExpr("collate(`a.k`, 'UTF8_LCASE') as k", "at"),
        right.selectExpr("collate(key, 'UTF8_LCASE') as k", "since"),
    )
    [row] = dovetail.asof_join(one, other, on=("at", "since"), by="k").collect()
    assert (row.k, row.at, row.since) == ("A", 5, 4)


def test_keys_that_only_spark_compares_run_by_window_functions(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(("a", 1), 5), (("b", 2), 6)], "k struct<x: string, y: int>, t int")
    plan = dovetail.plan_asof_join(rows, rows, on="t", by="k")
    assert "algorithm: window (keys of type struct<x:string,y:int> have no codes)" in plan.explain()
    assert plan.frame().count() == 2
    with pytest.raises(PlanError, match="use 'window'"):
        dovetail.asof_join(rows, rows, on="t", by="k", algorithm="index")


def test_structs_with_one_name_twice_run_by_window_functions(spark: SparkSession) -> None:
    """Arrow has no such structs."""
    rows = spark.sql("select 1 as t, array(named_struct('a', 1, 'a', 2)) as p")
    plan = dovetail.plan_asof_join(rows, rows, on="t", partitions=3)
    assert "with one name twice, do not reach tasks" in plan.explain()
    assert plan.frame().count() == 1
    with pytest.raises(PlanError, match="with one name twice"):
        dovetail.interval_nearest(rows, rows, left_interval=("t", "t"), right_interval=("t", "t"), closed="both")


def test_rows_that_tie_are_copied_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "SMALL_BYTES", -1)
    left = spark.range(700).selectExpr("id as t", "id as l")
    right = spark.range(0, 5000, 1, 1).selectExpr("0L as t", "id as r")
    plan = dovetail.plan_asof_join(left, right, on="t", ties=("last", "r"), partitions=20, algorithm="index")
    assert {row.r for row in plan.frame().collect()} == {4999}
    assert plan.metrics().value("placed", "right") < 5000 + 200


def test_small_inputs_are_planned_without_a_job(spark: SparkSession) -> None:
    group = "asof planning"
    spark.sparkContext.setJobGroup(group, group)
    rows = spark.range(1000).selectExpr("id as t", "id % 3 as k")
    small = dovetail.plan_asof_join(rows, rows, on="t", by="k", algorithm="index")
    smallest = dovetail.plan_asof_join(rows, rows, on="t", by="k")
    assert small.frame().columns == smallest.frame().columns
    assert "small inputs, not sampled" in small.explain()
    assert "window (for inputs of" in smallest.explain()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # removes it


def test_small_inputs_at_rest_are_joined_without_an_exchange(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1000).selectExpr("id * 7 % 500 as t", "id % 3 as k", "id as r")
    rows.write.parquet(str(tmp_path / "rows"))
    stored = spark.read.parquet(str(tmp_path / "rows")).where("r > 3")
    plan = dovetail.plan_asof_join(stored, stored, on="t", by="k", ties=("last", "r"))
    computed = dovetail.plan_asof_join(rows.where("r > 3"), stored, on="t", by="k", ties=("last", "r"))
    assert "one task" in plan.explain()
    assert "one task" not in computed.explain()
    executed = str(plan.frame()._jdf.queryExecution().executedPlan())
    assert "Exchange" not in executed
    assert sorted(plan.frame().collect()) == sorted(computed.frame().collect())


@pytest.mark.parametrize(
    ("argument", "given", "said"),
    [
        ("on", {"on": "tt"}, "left input has no column 'tt'; it has .* Did you mean 't'?"),
        ("on", {"on": ("t", "k")}, "int and string do not compare; cast one of them first"),
        ("direction", {"on": "k", "direction": "nearest"}, "texts have an order but no distances"),
        ("on", {"on": ["t", "t", "t"]}, "name of the time column"),
        ("by", {"by": "l"}, "right input has no column 'l'"),
        ("by", {"by": [3]}, "each key is a column name"),
        ("direction", {"direction": "back"}, "did you mean 'backward'"),
        ("tolerance", {"tolerance": -1}, "below zero"),
        ("tolerance", {"tolerance": "3 parsecs"}, "not a length of time"),
        ("tolerance", {"tolerance": dt.timedelta(1)}, "give a number"),
        ("ties", {"ties": "last"}, r"ties=\('last', 'column'\)"),
        ("ties", {"ties": ("last", "x")}, "right input has no column 'x'"),
        ("ties", {"ties": "every"}, "is not known"),
        ("how", {"how": "full"}, "use one of inner, left"),
        ("columns", {"columns": ["x"]}, "the result has no column 'x'"),
        ("partitions", {"partitions": 1001}, "from 1 to 1,000"),
        ("memory", {"memory": "1KB"}, "needs at least"),
    ],
)
def test_errors_name_the_argument(spark: SparkSession, argument: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said) as caught:
        dovetail.asof_join(*frames(spark, [], []), **({"on": "t"} | given))
    assert caught.value.argument == argument


def test_times_without_an_order_are_refused(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match="use a number, decimal, date"):
        dovetail.asof_join(*frames(spark, [], [], "boolean"), on="t")


def test_a_stream_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UnsupportedError, match="foreachBatch"):
        dovetail.asof_join(stream, stream, on="timestamp")


def test_cells_cut_hot_keys_by_time_and_others_between_keys() -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    hashes = np.where(rng.random(4000) < 0.5, 77, rng.integers(-(2**63), 2**63 - 1, 4000))
    cells = choose_cells((Sample(hashes, rng.random(4000), 10**6), Sample(hashes[:0], rng.random(0), 0)), 8, True)
    assert cells.hot == (77,)
    assert cells.count == 8
    inside = [p for h, p in zip(cells.hashes, cells.positions, strict=True) if h == 77]
    assert len(inside) == 4
    assert inside == sorted(inside)
    assert choose_cells((Sample(hashes[:0], rng.random(0), 0),) * 2, 8, True) == Cells()


@pytest.mark.parametrize("algorithm", ["index", "window"])
def test_a_tolerance_beyond_64_bits_of_floats(spark: SparkSession, algorithm: Any) -> None:
    left, right = (spark.createDataFrame([(x,)], "t double") for x in (1e20, 0.0))
    assert dovetail.asof_join(left, right, on="t", tolerance=1e21, algorithm=algorithm).count() == 1
    assert dovetail.asof_join(left, right, on="t", tolerance=9e19, algorithm=algorithm).count() == 0


@pytest.mark.parametrize(("kind", "far"), [("decimal(22,4)", 3 * 10**16), ("decimal(37,10)", 3 * 10**26)])
def test_a_tolerance_beyond_64_bits_of_decimals(spark: SparkSession, kind: str, far: int) -> None:
    left, right = (spark.sql(f"select cast('{x}' as {kind}) as t") for x in (far, -far))
    found = [dovetail.asof_join(left, right, on="t", tolerance=n).count() for n in (2 * far - 1, 2 * far, 10**60)]
    assert found == [0, 1, 1]
