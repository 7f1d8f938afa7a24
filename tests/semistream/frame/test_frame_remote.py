"""enrich with everything in an object store: page file, version log, states and dead letters, through restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from bench.rivals.object_store import KEY, SECRET, ObjectStore
from pyarrow import parquet
from tests.semistream.frame.cases import Ledger, bag, drop_file, file_stream, rows_of

from dovetail import MasterStore, dead_letter, enrich, plan_enrich
from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.steps.sources import inferred_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def server(spark: SparkSession) -> Iterator[ObjectStore]:
    """A store that the session is configured for."""
    with ObjectStore() as found:
        settings = {name.removeprefix("spark.hadoop."): value for name, value in found.settings.items()}
        settings["fs.s3a.attempts.maximum"] = "4"
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield found
        for name in settings:
            spark.conf.unset(name)


def master(spark: SparkSession, word: str, order: Any = "key", keys: int = 300) -> MasterStore:
    rows = spark.createDataFrame([(k, f"{word} {k}") for k in range(keys)], "k long, word string")
    return MasterStore.build(rows.repartition(3), f"s3a://data/{order}.pages", "k", order=order, page="1KB")


def numbers(first: int, rows: int = 60) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows)), "k": [(first + 7 * n) % 350 for n in range(rows)]})


def answers(table: pa.Table, word: str) -> Counter[tuple[Any, ...]]:
    return Counter((i, k, f"{word} {k}") for i, k in rows_of(table) if k < 300)


def test_a_batch_is_answered_from_every_order_and_letters_are_kept(spark: SparkSession, server: ObjectStore) -> None:
    table = numbers(0, 500)
    stream = spark.createDataFrame(table.to_pylist(), "id long, k long")
    for order in ("key", "none"):
        store = master(spark, "first", order)
        misses = dead_letter(f"s3a://data/letters-{order}")
        plan = plan_enrich(stream, store, on="k", memory="1MB", on_miss=misses)
        shown = f"{plan!r} {plan.explain()} {plan.frame()._jdf.queryExecution().toString()}"  # type: ignore[operator]
        assert SECRET not in shown
        assert KEY not in shown
        assert bag(plan.frame().select("id", "k", "word")) == answers(table, "first")
        letters = [found.data for key, found in server.objects.items() if key.startswith(f"letters-{order}/")]
        kept = [parquet.read_table(BytesIO(data)) for data in letters if data]
        assert rows_of(pa.concat_tables(kept)) == Counter(
            {row: n for row, n in rows_of(table).items() if row[1] >= 300}
        )


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_a_stream_goes_on_through_new_versions_a_failure_and_other_settings(
    spark: SparkSession, server: ObjectStore, tmp_path: Path, mode: Any
) -> None:
    """Each micro-batch is answered from the version that was logged for it, in its repetition too."""
    sink, runs, expected = Ledger(fails_after=1), list[tuple[int, Any]](), Counter[tuple[Any, ...]]()
    options: dict[str, Any] = {"mode": mode, "as_of": "admitted"} if mode == "carry" else {}

    def keep(frame: DataFrame, number: int) -> None:
        runs.append((number, rows_of(frame.toArrow())))
        sink(frame, number)

    for number, (word, memory, partitions) in enumerate(
        [("first", "1MB", 2), ("second", "1MB", 2), ("third", "2MB", 3)]
    ):
        store = master(spark, word)
        if number < 2:
            drop_file(tmp_path / "in", numbers(1000 * number), number)
            expected += answers(numbers(1000 * number), word)
        spark.conf.set("spark.sql.shuffle.partitions", partitions if mode == "per_batch" else 2)
        stream = file_stream(spark, tmp_path / "in")
        out = enrich(stream, store, on="k", memory=memory, algorithm="hybridjoin", tune="off", **options)
        sink.run(out.select("id", "k", "word"), tmp_path, keep)
    assert sink.runs[1] == 2
    repeated = [rows for number, rows in runs if number == 1]
    assert repeated[0] == repeated[1]
    assert sink.rows() == expected
    assert not list(Path.cwd().glob("s3a*"))


def test_a_store_that_refuses_is_named_and_the_stream_continues_later(
    spark: SparkSession, server: ObjectStore, tmp_path: Path
) -> None:
    store = master(spark, "first")
    stream = spark.createDataFrame(numbers(0).to_pylist(), "id long, k long")
    out = enrich(stream, store, on="k", memory="1MB", algorithm="hybridjoin", tune="off").select("id", "k", "word")
    server.down = True
    with pytest.raises(Exception, match=r"s3a://data/key\.pages") as error:
        out.collect()
    assert SECRET not in str(error.value)
    server.down = False
    assert bag(out) == answers(numbers(0), "first")


def test_addresses_that_cannot_be_used_are_refused(spark: SparkSession, server: ObjectStore, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "a")], "k long, word string")
    with pytest.raises(PlanError, match="no bucket"):
        MasterStore.build(rows, Path("s3a://data/x"), "k")
    with pytest.raises(PlanError, match="file system"):
        MasterStore.build(rows, "abfss://data@x/y", "k")
    with pytest.raises(ConfigError, match="s3a://elsewhere/x"):
        MasterStore.build(rows, "s3a://elsewhere/x", "k")
    assert MasterStore.build(rows, f"file://{tmp_path}/m.pages", "k").source.path == f"{tmp_path}/m.pages"  # type: ignore[attr-defined]
    spark.conf.set("fs.defaultFS", "s3a://data")
    try:
        assert MasterStore.build(rows, "/somewhere/m.pages", "k").source.path == "s3a://data/somewhere/m.pages"  # type: ignore[attr-defined]
    finally:
        spark.conf.unset("fs.defaultFS")


def test_a_source_of_a_pipeline_learns_its_columns_from_the_store(spark: SparkSession, server: ObjectStore) -> None:
    written = BytesIO()
    parquet.write_table(numbers(0), written)
    server.put("in/1.parquet", written.getvalue())
    found = inferred_schema(spark, "parquet", "s3a://data/in", {})
    assert found.simpleString() == "struct<id:bigint,k:bigint>"
