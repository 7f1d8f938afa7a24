"""enrich at a time: what Spark's own join and DuckDB give with the same condition."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import Ledger, bag, drop_file, file_stream, page_store, rows_of

from dovetail import MasterStore, dead_letter, enrich, park, plan_enrich
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators import ALGORITHMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIKE: dict[str, Any] = {"on": "sku", "at": "ordered_at", "memory": "1MB", "tune": "off"}
DAY = 86_400_000_000
HOWS = ("left", "inner", "left_semi", "left_anti")
OPERATORS = {"left": (">=", "<"), "right": (">", "<="), "both": (">=", "<="), "neither": (">", "<")}


def times(days: Any, nulls: float, rng: np.random.Generator) -> pa.Array:
    lost = rng.random(len(days)) < nulls
    return pa.array([None if x else int(d) * DAY for d, x in zip(days, lost, strict=True)], pa.timestamp("us", "UTC"))


def history(keys: int = 120, seed: int = 1) -> pa.Table:
    """Some prices of every product: touching, overlapping, with gaps, open on either side, inverted."""
    rng = np.random.default_rng(seed)
    sku = np.repeat(np.arange(keys), rng.integers(1, 6, keys))
    start = rng.integers(0, 40, len(sku))
    end = start + rng.integers(-1, 15, len(sku))
    columns = {"sku": pa.array([f"sku {n}" for n in sku]), "price": pa.array(np.arange(len(sku)))}
    return pa.table(columns | {"valid_from": times(start, 0.1, rng), "valid_to": times(end, 0.2, rng)})


def orders(rows: int = 900, seed: int = 2, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    sku = [None if n % 17 == 0 else f"sku {n}" for n in rng.zipf(1.3, rows) % 140]
    at = times(rng.integers(0, 50, rows), 0.05, rng)
    return pa.table({"id": pa.array(np.arange(first, first + rows)), "sku": pa.array(sku), "ordered_at": at})


def clean(keys: int = 120) -> pa.Table:
    """Prices that follow each other, the last one still valid."""
    start = np.arange(4 * keys) % 4 * 10
    moments = np.random.default_rng(0)
    columns = {"sku": pa.array([f"sku {n // 4}" for n in range(4 * keys)]), "price": pa.array(np.arange(4 * keys))}
    ends = [None if s == 30 else int(s + 10) * DAY for s in start]
    bounds = {"valid_from": times(start, 0, moments), "valid_to": pa.array(ends, pa.timestamp("us", "UTC"))}
    return pa.table(columns | bounds)


def expected(rows: DataFrame, master: pa.Table, how: str, closed: str = "left") -> DataFrame:
    other = rows.sparkSession.createDataFrame(master).withColumnRenamed("sku", "other")
    after, until = OPERATORS[closed]
    valid = (
        f"sku = other AND ordered_at IS NOT NULL AND (valid_from IS NULL OR ordered_at {after} valid_from) "
        f"AND (valid_to IS NULL OR ordered_at {until} valid_to)"
    )
    return rows.join(other, F.expr(valid), how).drop("other")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("at")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(orders()).repartition(2).cache()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_rows_at_a_time_equal_sparks(rows: DataFrame, place: Path, algorithm: str, how: str) -> None:
    order = "frequency" if algorithm.endswith("x_hybridjoin") else "key"
    path = place / f"{order}.pages"
    if order == "frequency":
        table = history().append_column("wanted", pa.array(np.arange(history().num_rows) % 7))
    else:
        table = history()
    store = MasterStore.open(path) if path.exists() else made(rows.sparkSession, path, table, order)
    closed = list(OPERATORS)[len(algorithm) % 4]
    out = enrich(rows, store, how=how, algorithm=algorithm, overlap="all", closed=closed, **LIKE)
    wanted = expected(rows, table, how, closed)
    assert bag(out.select(wanted.columns)) == bag(wanted)


def made(spark: SparkSession, path: Path, table: pa.Table, order: str) -> MasterStore:
    frequency = "wanted" if order == "frequency" else None
    return MasterStore.build(spark.createDataFrame(table), path, "sku", order=order, page="2KB", frequency=frequency)


def test_prices_at_order_time_equal_duckdbs(rows: DataFrame, place: Path) -> None:
    store = page_store(place / "clean.pages", clean(), "sku")
    plan = plan_enrich(rows, store, how="left", columns=["id", "price"], **LIKE)
    assert "overlap=error" in plan.explain().splitlines()[0]
    assert "valid_from <= ordered_at < valid_to" in plan.explain().splitlines()[1]
    stream, prices = rows.toArrow(), clean()  # noqa: F841  (DuckDB finds them by name)
    wanted = duckdb.sql(
        "SELECT id, price FROM stream s LEFT JOIN prices p ON s.sku = p.sku AND s.ordered_at >= p.valid_from "
        "AND s.ordered_at < coalesce(p.valid_to, 'infinity'::timestamptz)"
    ).arrow()
    wanted = wanted.read_all() if isinstance(wanted, pa.RecordBatchReader) else wanted
    assert bag(plan.frame()) == rows_of(wanted)
    assert plan.metrics().value("misses") > 0


def test_files_that_spark_wrote_have_its_times(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """By default Spark writes timestamps as INT96."""
    spark.createDataFrame(history()).coalesce(1).sortWithinPartitions("sku").write.option(
        "spark.sql.parquet.outputTimestampType", "INT96"
    ).parquet(str(tmp_path / "m"))
    store = MasterStore.parquet(tmp_path / "m", "sku")
    out, wanted = enrich(rows, store, how="left", overlap="all", **LIKE), expected(rows, history(), "left")
    assert {out.schema[name].dataType.simpleString() for name in ("valid_from", "valid_to")} == {"timestamp"}
    assert bag(out.select(wanted.columns)) == bag(wanted)


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "condition", "exchange"])
def test_other_stores_and_options(rows: DataFrame, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        parquet.write_table(history().sort_by("sku"), tmp_path / "m.parquet", row_group_size=50)
        store = MasterStore.parquet(tmp_path / "m.parquet", "sku")
    elif kind == "sqlite":
        table = history().append_column("lo", history()["valid_from"].cast(pa.int64()))
        table = table.append_column("hi", history()["valid_to"].cast(pa.int64())).select(["sku", "price", "lo", "hi"])
        store = sqlite_store(tmp_path, table)
        seconds = rows.withColumn("ordered_at", F.unix_micros("ordered_at"))
        out = enrich(seconds, store, how="left", valid=("lo", "hi"), overlap="all", **LIKE)
        wanted = expected(rows, history(), "left").select("id", "price")
        assert bag(out.select("id", "price")) == bag(wanted)
        return
    else:
        store = page_store(tmp_path / "m.pages", history(), "sku")
    more: dict[str, Any] = {"condition": {"condition": "price % 2 = 0"}, "exchange": {"exchange": "master"}}.get(
        kind, {}
    )
    out = enrich(rows, store, how="left", overlap="all", **more, **LIKE)
    wanted = expected(rows, history(), "left")
    if kind == "condition":
        wanted = expected(rows, history().filter(pa.array(np.arange(history().num_rows) % 2 == 0)), "left")
    assert bag(out.select(wanted.columns)) == bag(wanted)


def sqlite_store(place: Path, table: pa.Table) -> MasterStore:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(place / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE prices (sku TEXT, price INTEGER, lo INTEGER, hi INTEGER)")
        connection.executemany("INSERT INTO prices VALUES (?, ?, ?, ?)", [tuple(r.values()) for r in table.to_pylist()])
    return MasterStore.sqlite(place / "m.db", "prices", "sku")


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_a_stream_goes_on_after_a_restart_with_other_settings(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """The sink fails after a micro-batch that it has; budget and algorithm change before it runs again."""
    for number in range(3):
        drop_file(tmp_path / "in", orders(400, seed=number, first=400 * number), number)
    store, letters, ledger = page_store(tmp_path / "m.pages", clean(), "sku"), tmp_path / "letters", Ledger(1)
    settings = [("cachejoin", "1MB"), ("hybridjoin", "2MB")]
    for algorithm, memory in settings:
        options = LIKE | {"algorithm": algorithm, "memory": memory, "max_wait": "1 day", "mode": mode}
        stream = file_stream(spark, tmp_path / "in")
        ledger.run(enrich(stream, store, on_miss=dead_letter(letters), **options), tmp_path)
    assert ledger.runs[1] == 2
    given = spark.read.parquet(str(tmp_path / "in"))
    wanted = expected(given, clean(), "inner")
    assert rows_of(pa.concat_tables(ledger.kept.values()).select(wanted.columns)) == bag(wanted)
    assert bag(spark.read.parquet(str(letters))) == bag(expected(given, clean(), "left_anti"))


def test_parked_rows_wait_for_a_price_that_is_valid(spark: SparkSession, tmp_path: Path) -> None:
    early = clean().filter(pa.compute.less(clean()["valid_from"], pa.scalar(10 * DAY, pa.timestamp("us", "UTC"))))
    page_store(tmp_path / "m.pages", early, "sku")
    at = pa.array([5 * DAY, 25 * DAY, None], pa.timestamp("us", "UTC"))
    drop_file(tmp_path / "in", pa.table({"id": [1, 2, 3], "sku": ["sku 7"] * 3, "ordered_at": at}), 0)
    options = LIKE | {"mode": "carry", "on_miss": park(retry="1ms", deadline="1 hour")}
    kept: list[pa.Table] = []
    for number in range(2):
        plan = plan_enrich(file_stream(spark, tmp_path / "in"), MasterStore.open(tmp_path / "m.pages"), **options)
        writer = plan.frame().writeStream.foreachBatch(lambda frame, _: kept.append(frame.toArrow()))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        if not number:
            assert rows_of(pa.concat_tables(kept).select(["id", "price"])) == {(1, 28): 1}
            page_store(tmp_path / "m.pages", clean(), "sku")
            drop_file(tmp_path / "in", pa.table({"id": [4], "sku": ["sku 8"], "ordered_at": at[:1]}), 1)
    assert rows_of(pa.concat_tables(kept).select(["id", "price"])) == {(1, 28): 1, (4, 32): 1, (2, 30): 1}


def test_overlapping_prices_fail_the_task(rows: DataFrame, place: Path) -> None:
    store = page_store(place / "overlapping.pages", history(), "sku")
    with pytest.raises(
        PySparkException, match=r"several master rows with sku = 'sku \d+' match one stream row: datetime"
    ):
        enrich(rows, store, **LIKE).count()


def test_what_at_cannot_be(spark: SparkSession, rows: DataFrame, place: Path) -> None:
    store = page_store(place / "wrong.pages", clean(), "sku")
    for wrong, message in {
        "at": ({"at": "order_at"}, "at: the stream has no column 'order_at'"),
        "bound": ({"valid": ("valid_from", "until")}, "valid: the master data has no column 'until'"),
        "type": ({"at": "id"}, "stream column 'id' is bigint, and the master data has valid_from timestamp"),
        "pair": ({"valid": "valid_from"}, "the master's two columns"),
        "closed": ({"closed": "open"}, "closed='open'"),
        "overlap": ({"overlap": "first"}, "overlap='first'"),
        "no time": ({"at": None, "overlap": "all"}, "give at= with the stream's column of times"),
    }.values():
        with pytest.raises(PlanError, match=message):
            enrich(rows, store, **(LIKE | wrong))
    days = rows.withColumn("ordered_at", F.to_date("ordered_at"))
    with pytest.raises(PlanError, match=r"is date, and the master data has valid_from timestamp.*cast them"):
        enrich(days, store, **LIKE)


def test_dates_and_an_end_in_the_year_9999(spark: SparkSession, tmp_path: Path) -> None:
    far = dt.date(9999, 12, 31)
    prices = [("a", 1, dt.date(2026, 1, 1), dt.date(2026, 2, 1)), ("a", 2, dt.date(2026, 2, 1), far)]
    frame = spark.createDataFrame(prices, "sku string, price int, first date, until date")
    store = MasterStore.build(frame, tmp_path / "m.pages", "sku")
    given = [(1, "a", dt.date(2026, 1, 31)), (2, "a", dt.date(2026, 2, 1)), (3, "a", dt.date(2025, 1, 1))]
    rows = spark.createDataFrame(given, "id int, sku string, day date")
    out = enrich(rows, store, on="sku", at="day", valid=("first", "until"), columns=["id", "price"], how="left")
    assert bag(out) == {(1, 1): 1, (2, 2): 1, (3, None): 1}


def test_nan_is_above_all_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """As docs/enrich.md says: an end of NaN is none, and NaN lies only where a bound of NaN belongs to the interval."""
    nan, inf = float("nan"), float("inf")
    history = [("a", 1.0, 5.0, 1), ("a", nan, 9.0, 2), ("a", 6.0, nan, 3), ("a", nan, nan, 4)]
    master = spark.createDataFrame(history, "sku string, valid_from double, valid_to double, price int")
    asked = spark.createDataFrame(
        [("a", value) for value in (nan, 1.0, 5.0, 7.0, inf)], "sku string, ordered_at double"
    )
    kept = MasterStore.build(master, tmp_path / "kept.pages", key="sku")
    ranged = MasterStore.build(master, tmp_path / "ranged.pages", key="sku", bounds=("valid_from", "valid_to"))
    for closed, wanted in (
        ("left", [("1.0", 1), ("7.0", 3), ("inf", 3)]),
        ("both", [("1.0", 1), ("5.0", 1), ("7.0", 3), ("inf", 3), ("nan", 3), ("nan", 4)]),
    ):
        by_time = enrich(asked, kept, overlap="all", closed=closed, **LIKE)
        by_range = enrich(
            asked,
            ranged,
            on=["sku", ("ordered_at", ("valid_from", "valid_to"))],
            overlap="all",
            closed=closed,  # type: ignore[arg-type]  # one of its words
            memory="1MB",
        )
        for found in (by_time, by_range):
            assert sorted((str(row.ordered_at), row.price) for row in found.collect()) == wanted, closed
