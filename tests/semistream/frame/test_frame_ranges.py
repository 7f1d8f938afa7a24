"""enrich by ranges: what Spark's own join gives with the same condition, and DuckDB."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import Ledger, bag, drop_file, file_stream, page_store, rows_of
from tests.semistream.frame.test_frame_at import clean, expected, orders
from tests.semistream.range_files import write_range_pages

from dovetail import MasterStore, dead_letter, enrich, plan_enrich
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.master.page_file.generation import load_version
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.plan import build_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIKE: dict[str, Any] = {"on": ("ip", ("first_ip", "last_ip")), "memory": "1MB", "tune": "off"}
HOWS = ("left", "inner", "left_semi", "left_anti")


def networks(rows: int = 900, seed: int = 1) -> pa.Table:
    """Nested, touching and overlapping ranges of addresses with gaps between; some are open or inverted."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 50_000, rows)
    last = first + np.where(rng.random(rows) < 0.02, 20_000, rng.integers(-1, 60, rows))
    lost = rng.random((2, rows)) < 0.004
    return pa.table(
        {
            "first_ip": pa.array(first, mask=lost[0]),
            "last_ip": pa.array(last, mask=lost[1]),
            "country": pa.array(np.array(["at", "be", "ch"])[rng.integers(0, 3, rows)]),
            "place": pa.array([f"place {n}" for n in range(rows)]),
        }
    )


def clicks(rows: int = 1500, seed: int = 2, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    ip = pa.array(rng.integers(-5, 55_000, rows), mask=rng.random(rows) < 0.03)
    country = np.array(["at", "be", "ch", "xx"])[rng.integers(0, 4, rows)]
    return pa.table({"id": pa.array(np.arange(first, first + rows)), "ip": ip, "country": pa.array(country)})


def wanted_of(rows: DataFrame, master: pa.Table, how: str, keyed: bool = False, closed: str = "both") -> DataFrame:
    other = rows.sparkSession.createDataFrame(master).withColumnRenamed("country", "theirs")
    last = "<" if closed == "left" else "<="
    matches = f"ip IS NOT NULL AND (first_ip IS NULL OR ip >= first_ip) AND (last_ip IS NULL OR ip {last} last_ip)" + (
        " AND country = theirs" if keyed else ""
    )
    return rows.join(other, F.expr(matches), how)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranges")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(clicks()).repartition(2).cache()


@pytest.fixture(scope="module")
def stores(spark: SparkSession, place: Path) -> dict[bool, MasterStore]:
    """With and without an equal key, each built by Spark in several parts."""
    made, frame = {}, spark.createDataFrame(networks())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_ranges, "_PART_ROWS", 250)
        for keyed in (False, True):
            key = ["country"] if keyed else []
            made[keyed] = MasterStore.build(
                frame, place / f"{keyed}.pages", key, bounds=("first_ip", "last_ip"), page="2KB"
            )
    assert made[True].key == ("country",)
    assert "in 4 parts" in made[False].explain()
    return made


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("algorithm", ["auto", *(name for name in ALGORITHMS if not name.endswith("x_hybridjoin"))])
def test_ranges_equal_sparks(rows: DataFrame, stores: dict[bool, MasterStore], algorithm: str, how: str) -> None:
    keyed, closed = len(how) % 2 == 0, "left" if len(algorithm) % 2 else "both"
    on = ["country", LIKE["on"]] if keyed else LIKE["on"]
    named = rows if keyed else rows.drop("country")
    out = enrich(
        named, stores[keyed], how=how, algorithm=algorithm, overlap="all", closed=closed, **(LIKE | {"on": on})
    )
    wanted = wanted_of(rows, networks(), how, keyed, closed)
    names = ["id", "ip"] + (["first_ip", "last_ip", "place"] if how in ("left", "inner") else [])
    assert out.columns == (["id", "ip", "country"] if keyed else ["id", "ip"]) + [
        name for name in ("first_ip", "last_ip", "country", "place")
        if how in ("left", "inner") and not (keyed and name == "country")
    ]  # fmt: skip
    assert bag(out.select(names)) == bag(wanted.select(names))


def test_auto_says_why_and_equals_duckdb(rows: DataFrame, stores: dict[bool, MasterStore]) -> None:
    plan = plan_enrich(rows, stores[False], on=LIKE["on"], memory="4MB", overlap="all", columns=["id", "place"])
    stream, master = rows.toArrow(), networks()  # noqa: F841  (DuckDB finds them by name)
    pairs = duckdb.sql(
        "SELECT id, place FROM stream JOIN master ON ip >= coalesce(first_ip, -100) "
        "AND ip <= coalesce(last_ip, 1000000)"
    ).arrow()
    pairs = pairs.read_all() if isinstance(pairs, pa.RecordBatchReader) else pairs
    assert bag(plan.frame()) == rows_of(pairs)
    told = plan.explain()
    assert ": on first_ip <= ip <= last_ip, inner" in told.splitlines()[1]
    assert "ranges first_ip to last_ip, in " in told
    assert "predicted service rate of a task" in told
    assert "prices:" in told
    assert plan.metrics().value("memory_peak") <= 4 << 20


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_a_stream_goes_on_after_a_restart_with_other_settings_and_ranges(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """The sink fails after a micro-batch that it has. Budget, algorithm and parts of the file change before it is run
    again, from its own version."""
    for number in range(3):
        drop_file(tmp_path / "in", clicks(400, seed=number, first=400 * number).drop_columns(["country"]), number)
    letters, ledger = tmp_path / "letters", Ledger(1)
    for parts, algorithm, memory in [(1, "cachejoin", "1MB"), (3, "hybridjoin", "2MB")]:
        write_range_pages(tmp_path / "m.pages", networks(), (), ("first_ip", "last_ip"), page="2KB", parts=parts)
        options = LIKE | {"algorithm": algorithm, "memory": memory, "max_wait": "1 day", "mode": mode, "overlap": "all"}
        stream = file_stream(spark, tmp_path / "in")
        out = enrich(stream, MasterStore.open(tmp_path / "m.pages"), on_miss=dead_letter(letters), **options)
        ledger.run(out, tmp_path)
    assert ledger.runs[1] == 2
    given = spark.read.parquet(str(tmp_path / "in"))
    wanted = wanted_of(given, networks(), "inner").select("id", "ip", "place")
    assert rows_of(pa.concat_tables(ledger.kept.values()).select(["id", "ip", "place"])) == bag(wanted)
    assert bag(spark.read.parquet(str(letters))) == bag(wanted_of(given, networks(), "left_anti"))


def test_validity_that_the_store_is_ordered_by(spark: SparkSession, tmp_path: Path) -> None:
    """The same call as for a store with this key alone, and the same rows."""
    prices, given = spark.createDataFrame(clean()), spark.createDataFrame(orders())
    store = MasterStore.build(prices, tmp_path / "m.pages", "sku", bounds=("valid_from", "valid_to"), unique=True)
    plan = plan_enrich(given, store, on="sku", at="ordered_at", how="left", memory="1MB", tune="off", exchange="master")
    wanted = expected(given, clean(), "left")
    assert bag(plan.frame().select(wanted.columns)) == bag(wanted)
    assert ": on sku and valid_from <= ordered_at < valid_to, left" in plan.explain()
    twice = prices.union(prices.limit(1))
    with pytest.raises(DataError, match="ranges overlap"):
        MasterStore.build(twice, tmp_path / "m.pages", "sku", bounds=("valid_from", "valid_to"), unique=True)


def test_bands_of_dates_text_and_validity_beside_a_range(spark: SparkSession, tmp_path: Path) -> None:
    bands = [
        ("a", "c", 1, dt.date(2026, 1, 1)),
        ("a", "c", 2, dt.date(2027, 1, 1)),
        ("x", None, 3, dt.date(2026, 1, 1)),
    ]
    frame = spark.createDataFrame(bands, "lo string, hi string, band int, since date")
    until = frame.withColumn("until", F.date_add("since", 365))
    store = MasterStore.build(until, tmp_path / "m.pages", bounds=("lo", "hi"))
    given = [
        (1, "b", dt.date(2026, 5, 1)),
        (2, "b", dt.date(2027, 5, 1)),
        (3, "zz", dt.date(2026, 2, 1)),
        (4, "cc", None),
    ]
    rows = spark.createDataFrame(given, "id int, name string, day date")
    options: dict[str, Any] = {"at": "day", "valid": ("since", "until"), "how": "left", "columns": ["id", "band"]}
    out = enrich(rows, store, on=("name", ("lo", "hi")), **options)
    assert bag(out) == {(1, 1): 1, (2, 2): 1, (3, 3): 1, (4, None): 1}


def test_values_of_another_width_and_a_store_that_was_built_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    bands = spark.createDataFrame([(0, 9, "low"), (10, None, "high")], "lo int, hi int, band string")
    store = MasterStore.build(bands, tmp_path / "m.pages", bounds=("lo", "hi"), unique=True)
    rows = spark.createDataFrame([(1, 5), (2, 1 << 40), (3, -1)], "id int, v bigint")
    out = enrich(rows, store, on=("v", ("lo", "hi")), how="left", columns=["id", "band"], memory="1MB")
    assert bag(out) == {(1, "low"): 1, (2, "high"): 1, (3, None): 1}
    MasterStore.build(bands, tmp_path / "m.pages", bounds=("hi", "lo"))
    with pytest.raises(ConfigError, match=r"bounds \['hi', 'lo'\]; this query was planned for .*bounds \['lo', 'hi'\]"):
        store.at()
    with pytest.raises(PlanError, match=r"key: there is no column \['no'\]; there are \['lo', 'hi', 'band'\]"):
        MasterStore.build(bands, tmp_path / "x.pages", "no", bounds=("lo", "hi"))
    with pytest.raises(PlanError, match="is for ranges"):
        MasterStore.build(bands, tmp_path / "x.pages", "lo", closed="left")


@pytest.mark.parametrize(
    ("bounds", "value"), [("decimal(6,2)", "decimal(12,2)"), ("decimal(12,2)", "decimal(6,2)"), ("float", "double")]
)
def test_values_of_another_precision(spark: SparkSession, tmp_path: Path, bounds: str, value: str) -> None:
    bands = spark.range(40).selectExpr(f"cast(id as {bounds}) as lo", f"cast(id + 0.5 as {bounds}) as hi", "id as band")
    store = MasterStore.build(bands, tmp_path / "m.pages", bounds=("lo", "hi"))
    rows = spark.range(-8, 170).selectExpr("id", f"cast(id / 4 + if(id % 9 = 0, 9000, 0) as {value}) as v")
    out = enrich(rows, store, on=("v", ("lo", "hi")), how="left", columns=["id", "band"], memory="1MB")
    assert bag(out) == bag(rows.join(bands, F.expr("v between lo and hi"), "left").select("id", "band"))


def test_open_ranges_are_not_copied_to_every_part(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ranges, "_PART_ROWS", 100)
    rows = spark.range(2000).selectExpr("id lo", "cast(null as bigint) hi", "id r")
    store = MasterStore.build(rows, tmp_path / "m.pages", bounds=("lo", "hi"))
    found = load_version(tmp_path / "m.pages")
    assert len(found.parts) > 2
    assert found.rows < 4 * 2000
    given = spark.createDataFrame([(0,), (99,), (1234,)], "v bigint")
    assert enrich(given, store, on=("v", ("lo", "hi")), overlap="all", memory="4MB").count() == 1 + 100 + 1235


def test_an_empty_store_and_rows_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(None, 1, 5)], "c string, lo int, hi int")
    store = MasterStore.build(frame, tmp_path / "m.pages", "c", bounds=("lo", "hi"))
    assert "0 rows in 0 pages" in store.explain()
    assert "1 rows without a key left out" in store.explain()
    rows = spark.createDataFrame([("a", 3)], "c string, v int")
    out = enrich(rows, store, on=["c", ("v", ("lo", "hi"))], how="left", memory="1MB")
    assert bag(out) == {("a", 3, None, None): 1}


def test_what_ranges_cannot_be(rows: DataFrame, stores: dict[bool, MasterStore], tmp_path: Path) -> None:
    plain = page_store(tmp_path / "m.pages", networks(), "place")
    for store, wrong, message in [
        (plain, {}, r"is a range, and page file .* has no ranges; build a page file of them: MasterStore\.build"),
        (stores[False], {"on": "ip"}, r"has ranges, found by a value in them; give on=\(column, \('first_ip'"),
        (stores[True], {}, r"give the store's whole key \['country'\]"),
        (stores[False], {"on": ("ip", ("first_ip", "place"))}, r"has ranges \['first_ip', 'last_ip'\]"),
        (
            stores[False],
            {"on": ("country", ("first_ip", "last_ip"))},
            "stream column 'country' is string, and the master",
        ),
        (stores[False], {"on": [LIKE["on"], LIKE["on"]]}, "has 2 ranges"),
        (stores[False], {"null_safe": True}, "without null_safe"),
        (stores[False], {"algorithm": "x_hybridjoin"}, "use 'cachejoin'"),
    ]:
        with pytest.raises(PlanError, match=message):
            enrich(rows, store, **(LIKE | wrong))
    with pytest.raises(
        PySparkException, match=r"several master rows match one stream row: \d+ lies in \(first_ip, last_ip\)"
    ):
        enrich(rows, stores[False], **LIKE).count()
    with pytest.raises(PlanError, match="ranges are stored in their own order"):
        MasterStore.build(rows, tmp_path / "x.pages", bounds=("id", "ip"), order="none")
