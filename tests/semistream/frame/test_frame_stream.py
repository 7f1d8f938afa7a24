"""enrich on streams: every row once, each micro-batch from one version, replays from the same, failures harmless."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.semistream.frame.cases import bag, drop_file, file_stream, master_table, page_store, stream_table

from dovetail import dead_letter, enrich, plan_enrich, ttl
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.plan import predicted_rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run(frame: DataFrame, place: Path, checkpoint: str = "checkpoint") -> StreamingQuery:
    """Everything that is there, to Parquet."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / checkpoint))
    query = writer.option("path", str(place / "out")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def words(word: str, keys: int = 40) -> pa.Table:
    return pa.table({"k": list(range(keys)), "word": [word] * keys})


def numbers(first: int, rows: int = 30) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows)), "k": [n % 35 for n in range(rows)]})


def found(spark: SparkSession, place: Path) -> Counter[Any]:
    return Counter(row.word for row in spark.read.parquet(str(place / "out")).select("word").collect())


@pytest.mark.parametrize(("algorithm", "exchange"), [("auto", "none"), ("cachejoin", "master"), ("meshjoin", "none")])
def test_a_stream_equals_sparks_join(spark: SparkSession, tmp_path: Path, algorithm: str, exchange: str) -> None:
    master = master_table().select(["k", "text"])
    store = page_store(tmp_path / "m.pages", master)
    for number in range(3):
        drop_file(tmp_path / "in", stream_table(1500, seed=number, first=1500 * number), number)
    plan = plan_enrich(
        file_stream(spark, tmp_path / "in"),
        store,
        on="k",
        how="left",
        algorithm=algorithm,
        memory="1MB",
        exchange=exchange,
    )
    run(plan.frame(), tmp_path)
    got = spark.read.parquet(str(tmp_path / "out"))
    expected = spark.read.parquet(str(tmp_path / "in")).join(spark.createDataFrame(master), "k", "left")
    assert bag(got.select("id", "k", "text")) == bag(expected.select("id", "k", "text"))
    metrics = plan.metrics()
    assert metrics.value("rows") == 4500
    assert sorted(plan.sink.batches()) == [0, 1, 2]
    if algorithm == "auto":
        assert 0 < (predicted_rate(metrics) or 0) < 1e8
        assert "predicted by tasks from their first rows" in plan.explain()


def test_each_micro_batch_takes_the_newest_version(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("first"))
    frame = None
    for number, word in enumerate(["first", "second", "third"]):
        page_store(tmp_path / "m.pages", words(word))
        drop_file(tmp_path / "in", numbers(100 * number), number)
        frame = enrich(
            file_stream(spark, tmp_path / "in"), store, on="k", algorithm="cachejoin", memory="1MB", tune="off"
        )
        run(frame, tmp_path)
    assert found(spark, tmp_path) == {"first": 30, "second": 30, "third": 30}


@pytest.mark.parametrize(("freshness", "expected"), [("pinned", {"old": 60}), (ttl("1 hour"), {"old": 60})])
def test_older_versions_if_so_wished(
    spark: SparkSession, tmp_path: Path, freshness: Any, expected: dict[str, int]
) -> None:
    for number, word in enumerate(["old", "new"]):
        store = page_store(tmp_path / "m.pages", words(word))
        drop_file(tmp_path / "in", numbers(100 * number), number)
        stream = file_stream(spark, tmp_path / "in")
        run(
            enrich(stream, store, on="k", freshness=freshness, algorithm="hybridjoin", memory="1MB", tune="off"),
            tmp_path,
        )
    assert found(spark, tmp_path) == expected


def test_a_replayed_batch_reads_its_logged_version(spark: SparkSession, tmp_path: Path) -> None:
    """The last batch is made undone, as if the query had died before it was committed."""
    store = page_store(tmp_path / "m.pages", words("old", keys=10))
    drop_file(tmp_path / "in", numbers(0), 0)
    letters = tmp_path / "letters"

    def enriched() -> DataFrame:
        stream = file_stream(spark, tmp_path / "in")
        return enrich(
            stream, store, on="k", algorithm="cachejoin", memory="1MB", tune="off", on_miss=dead_letter(letters)
        )

    query = run(enriched(), tmp_path)
    files = len(list(letters.iterdir()))
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "out")
    page_store(tmp_path / "m.pages", words("new", keys=25))
    again = run(enriched(), tmp_path)
    assert again.id == query.id
    assert found(spark, tmp_path) == {"old": 10}
    assert spark.read.parquet(str(letters)).count() == 20
    assert len(list(letters.iterdir())) == files


def test_a_pinned_version_that_was_pruned_is_an_error_with_a_way_out(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("old"))
    drop_file(tmp_path / "in", numbers(0), 0)

    def enriched() -> DataFrame:
        return enrich(file_stream(spark, tmp_path / "in"), store, on="k", algorithm="inlj", memory="1MB")

    query = run(enriched(), tmp_path)
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "out")
    page_store(tmp_path / "m.pages", words("new"))
    store.prune(1)
    with pytest.raises(StreamingQueryException, match=r"it was pruned or removed.*pinned to this version.*remove"):
        run(enriched(), tmp_path)
    (tmp_path / "m.pages" / ".versions" / str(query.id) / "0.0.json").unlink()
    run(enriched(), tmp_path)
    assert found(spark, tmp_path) == {"new": 30}


@pytest.mark.parametrize("trouble", ["truncated", "removed"])
def test_a_store_that_fails_fails_the_batch_and_recovers(spark: SparkSession, tmp_path: Path, trouble: str) -> None:
    """Never a miss: after the repair every row is there once, matched."""
    store = page_store(tmp_path / "m.pages", words("good", keys=2000))
    drop_file(tmp_path / "in", numbers(0), 0)
    run(query_of(spark, tmp_path, store), tmp_path)
    page_store(tmp_path / "m.pages", words("good", keys=2000))
    drop_file(tmp_path / "in", numbers(100), 1)
    planned = query_of(spark, tmp_path, store)
    damage(tmp_path / "m.pages", trouble)
    with pytest.raises(StreamingQueryException, match="build the page file again") as failed:
        run(planned, tmp_path)
    assert isinstance(failed.value, ConfigError)
    with pytest.raises(ConfigError, match="build the page file again"):
        query_of(spark, tmp_path, store)
    repair(tmp_path / "m.pages")
    run(query_of(spark, tmp_path, store), tmp_path)
    assert found(spark, tmp_path) == {"good": 60}


def query_of(spark: SparkSession, place: Path, store: MasterStore) -> DataFrame:
    stream = file_stream(spark, place / "in")
    return enrich(stream, store, on="k", how="left", algorithm="hybridjoin", memory="1MB", tune="off")


def damage(pages: Path, trouble: str) -> None:
    """Of the newest generation; what was there is kept beside."""
    newest = max(pages.glob("generation-*"), key=lambda place: int(place.name.split("-")[1]))
    shutil.copytree(newest, pages / ".kept")
    rows = next(newest.glob("*.rows"))
    if trouble == "truncated":
        rows.write_bytes(rows.read_bytes()[: rows.stat().st_size // 8])
    else:
        rows.unlink()


def repair(pages: Path) -> None:
    newest = max(pages.glob("generation-*"), key=lambda place: int(place.name.split("-")[1]))
    shutil.rmtree(newest)
    (pages / ".kept").rename(newest)
