"""enrich with an ON condition: what Spark's own join gives with the same one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import bag, drop_file, file_stream, master_table, page_store, stream_table

from dovetail import MasterStore, dead_letter, enrich, park, plan_enrich
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.plan.condition import Groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIKE: dict[str, Any] = {"on": "k", "memory": "1MB", "tune": "off"}
CONDITION = "id % 3 = length(text) % 3 OR half > 100"
HOWS = ("left", "inner", "left_semi", "left_anti")


def small(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if name in ("id", "k", "half", "text")])


def master() -> pa.Table:
    """Many rows of some keys, and no `half`, which the stream has."""
    table = master_table()
    return pa.concat_tables([table.select(["k", "text"]), table.slice(0, 200).select(["k", "text"])] * 2)


def expected(rows: DataFrame, how: str) -> DataFrame:
    other = rows.sparkSession.createDataFrame(master()).withColumnRenamed("k", "other")
    joined = rows.join(other, (rows.k == other.other) & F.expr(CONDITION), how)
    return joined.drop("other")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("condition")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(small(stream_table(1500))).repartition(2).cache()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_condition_equals_sparks(rows: DataFrame, place: Path, algorithm: str, how: str) -> None:
    order = "frequency" if algorithm.endswith("x_hybridjoin") else "key"
    path = place / f"{order}.pages"
    store = MasterStore.open(path) if path.exists() else page_store(path, master(), order=order)
    out = enrich(rows, store, how=how, algorithm=algorithm, condition=CONDITION, **LIKE)
    wanted = expected(rows, how)
    assert bag(out.select(wanted.columns)) == bag(wanted)


def test_conditions_read_what_the_result_leaves_out(rows: DataFrame, place: Path) -> None:
    store = page_store(place / "some.pages", master())
    plan = plan_enrich(rows, store, how="left", columns=["text", "id"], condition=F.expr(CONDITION), **LIKE)
    assert plan.frame().columns == ["text", "id"]
    assert bag(plan.frame()) == bag(expected(rows, "left").select("text", "id"))
    assert plan.explain().splitlines()[0].startswith("Enrich: how=left,")
    assert "condition=" in plan.explain().splitlines()[0]


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_dead_letters_have_rows_that_fail_the_condition(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    for number in range(2):
        drop_file(tmp_path / "in", small(stream_table(700, seed=number, first=700 * number)), number)
    store, letters = page_store(tmp_path / "m.pages", master()), tmp_path / "letters"
    plan = plan_enrich(
        file_stream(spark, tmp_path / "in"), store, mode=mode, condition=CONDITION, algorithm="cachejoin",
        on_miss=dead_letter(letters), **LIKE,
    )  # fmt: skip
    writer = plan.frame().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    given = spark.read.parquet(str(tmp_path / "in"))
    wanted = expected(given, "inner")
    assert bag(spark.read.parquet(str(tmp_path / "out")).select(wanted.columns)) == bag(wanted)
    assert bag(spark.read.parquet(str(letters))) == bag(expected(given, "left_anti").select(given.columns))
    assert plan.metrics().value("dead_letters") == spark.read.parquet(str(letters)).count()


def test_what_a_condition_cannot_be(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", master())
    with pytest.raises(PlanError, match=r"condition='wrong > 1' does not fit the columns of a pair, \['id', 'k'"):
        enrich(rows, store, condition="wrong > 1", **LIKE)
    with pytest.raises(PlanError, match="condition='id' is of type bigint; it must be true or false"):
        enrich(rows, store, condition="id", **LIKE)
    with pytest.raises(PlanError, match="rows are parked by their key alone"):
        enrich(rows, store, condition="id > 1", on_miss=park(), mode="carry", **LIKE)
    parquet.write_table(master(), tmp_path / "m.parquet", row_group_size=100, write_statistics=False)
    scattered = MasterStore.parquet(tmp_path / "m.parquet", "k")
    with pytest.raises(UnsupportedError, match=r"has no index.*build a page file with this key, or use how='inner'"):
        enrich(rows, scattered, condition="id > 1", how="left", **LIKE)
    wanted = expected(rows, "inner")
    out = enrich(rows, scattered, condition=CONDITION, **LIKE)
    assert bag(out.select(wanted.columns)) == bag(wanted)


def test_conditions_that_would_move_pairs(spark: SparkSession, rows: DataFrame, place: Path) -> None:
    """Spark answers a subquery with a join; pairs that it shuffles would lose some rows and double others."""
    store = page_store(place / "moved.pages", master())
    spark.createDataFrame([(n,) for n in range(0, 1500, 3)], "p long").createOrReplaceTempView("thirds")
    for text in ("id in (select p from thirds)", "exists (select 1 from thirds where p = id)"):
        for how in ("left", "left_semi", "left_anti"):
            with pytest.raises(UnsupportedError, match=r"condition=.*with how='left.*join with that table first"):
                enrich(rows, store, condition=text, how=how, **LIKE)
        assert enrich(rows, store, condition=text, **LIKE).where("id % 3 > 0").count() == 0
    for text in ("row_number() over (partition by id order by text) = 1", "sum(id) > 3", "explode(array(true))"):
        for how in HOWS:
            with pytest.raises(PlanError, match=r"without aggregates and window functions\. Spark says: \["):
                enrich(rows, store, condition=text, how=how, **LIKE)
    for given in (3, True, ["id > 1"]):
        with pytest.raises(PlanError, match="is neither a Column nor SQL text"):
            enrich(rows, store, condition=given, **LIKE)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_that_waited_have_no_watermark(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """A step after the join would drop them as late."""
    at = pa.array([3_600_000_000] * 50, pa.timestamp("us", "UTC"))
    drop_file(tmp_path / "in", small(stream_table(50)).append_column("at", at), 0)
    store = page_store(tmp_path / "m.pages", master())
    stream = file_stream(spark, tmp_path / "in").withWatermark("at", "1 minute")
    out = enrich(stream, store, mode="carry", how=how, condition="id >= 0", **LIKE)
    assert not out.schema["at"].metadata
    assert enrich(stream, store, how=how, condition="id >= 0", **LIKE).schema["at"].metadata


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_groups_go_on_from_batch_to_batch(size: int) -> None:
    """Rows of three, two, one and no pairs that hold, in batches of any size."""
    groups = [[True, True, True], [False, True, True, False], [False, False, True], [False], [False, False, False]] * 3
    holds = [flag for group in groups for flag in group]
    first = [at == 0 for group in groups for at in range(len(group))]
    number = [n for n, group in enumerate(groups) for _ in group]
    whole = pa.RecordBatch.from_pydict(
        {"n": number, "dovetail_key_holds": holds, "dovetail_key_first": first}
    )  # fmt: skip
    state, some, firsts, ended = Groups(), [], [], []
    for start in range(0, len(number), size):
        batch = whole.slice(start, size)
        held, one, over = state.take(batch)
        some += [number[start + at] for at in held]
        firsts += [number[start + at] for at in one]
        ended += [n for rows in over for n in rows.column(0).to_pylist()]
    ended += [n for rows in state.end() for n in rows.column(0).to_pylist()]
    assert some == [n for n, group in enumerate(groups) for flag in group if flag]
    assert firsts == [n for n, group in enumerate(groups) if any(group)]
    assert ended == [n for n, group in enumerate(groups) if not any(group)]
