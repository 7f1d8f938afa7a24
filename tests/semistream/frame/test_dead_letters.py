"""Dead letters: each row without a match is in the directory once, whatever shares it and whatever is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.semistream.frame.cases import drop_file, file_stream, page_store

from dovetail import dead_letter, enrich
from dovetail.joins.semistream.dead_letters import DeadLetters, LetterFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.joins.semistream.master.store import MasterStore

LIKE: dict[str, Any] = {"algorithm": "cachejoin", "memory": "1MB", "tune": "off"}
FILE_BYTES = "spark.sql.files.maxPartitionBytes"


@pytest.fixture
def few_bytes(spark: SparkSession) -> Iterator[None]:
    """Every file is a partition of its own."""
    spark.conf.set(FILE_BYTES, "64KB")
    yield
    spark.conf.unset(FILE_BYTES)


def words(path: Path, keys: int, key: str = "k") -> MasterStore:
    return page_store(path, pa.table({key: list(range(keys)), f"word_{key}": ["w"] * keys}), key)


def numbers(rows: int = 100, first: int = 0) -> pa.Table:
    """Rows with the keys k and j, both from 0."""
    return pa.table({"id": list(range(first, first + rows)), "k": list(range(rows)), "j": list(range(rows))})


def letters(spark: SparkSession, place: Path) -> list[int]:
    """The ids that a reader finds."""
    return sorted(row.id for row in spark.read.parquet(str(place)).select("id").collect())


def run(frame: DataFrame, place: Path, checkpoint: str = "checkpoint") -> StreamingQuery:
    """Everything that is there, to a sink that runs a repeated micro-batch again."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(place / checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def undo_commit(place: Path, number: int = 0) -> None:
    """The query died before this micro-batch was committed."""
    (place / "checkpoint" / "commits" / str(number)).unlink()
    (place / "checkpoint" / "commits" / f".{number}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("streams", [True, False])
def test_two_steps_share_a_directory(spark: SparkSession, tmp_path: Path, streams: bool) -> None:
    """30 rows miss the first step and 40 the second; a third that misses none takes nothing away."""
    drop_file(tmp_path / "in", numbers(), 0)
    rows = file_stream(spark, tmp_path / "in") if streams else spark.read.parquet(str(tmp_path / "in"))
    misses = dead_letter(tmp_path / "letters")
    first = enrich(rows, words(tmp_path / "k.pages", 70), on="k", on_miss=misses, **LIKE)
    second = enrich(first, words(tmp_path / "j.pages", 30, "j"), on="j", on_miss=misses, **LIKE)
    third = enrich(second, words(tmp_path / "all.pages", 100, "id"), on="id", on_miss=misses, **LIKE)
    if streams:
        run(third, tmp_path)
    else:
        assert third.count() == 30
    assert letters(spark, tmp_path / "letters") == list(range(30, 100))


@pytest.mark.usefixtures("few_bytes")
def test_actions_on_one_frame_keep_each_letter_once(spark: SparkSession, tmp_path: Path) -> None:
    """Also where Spark puts the partitions of the join together in one task."""
    for number in range(4):
        drop_file(tmp_path / "in", numbers(10, 10 * number), number)
    rows, store = spark.read.parquet(str(tmp_path / "in")), words(tmp_path / "m.pages", 4)
    assert rows.rdd.getNumPartitions() == 4
    out = enrich(rows, store, on="k", on_miss=dead_letter(tmp_path / "letters"), **LIKE)
    expected = [n for n in range(40) if n % 10 >= 4]
    assert out.coalesce(1).count() == 16
    assert letters(spark, tmp_path / "letters") == expected
    assert out.count() == 16
    out.show(1)
    assert letters(spark, tmp_path / "letters") == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("condition", [None, "k >= 0"])
def test_actions_with_other_partitions_keep_each_letter_once(
    spark: SparkSession, tmp_path: Path, condition: str | None
) -> None:
    """Neither settings, nor `cache`, nor an action that reads a part of the rows adds a letter or takes one away."""
    store, place = words(tmp_path / "m.pages", 80), tmp_path / "letters"
    rows = spark.range(100).selectExpr("id * 7 % 100 as id").groupBy("id").agg({"id": "max"}).toDF("id", "k")
    out = enrich(rows, store, on="k", on_miss=dead_letter(place), condition=condition, **LIKE)

    def acted(partitions: int, adaptive: bool, act: Callable[[], object]) -> list[int]:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        act()
        return letters(spark, place)

    expected = list(range(80, 100))
    try:
        assert set(acted(8, False, lambda: out.head(1))) < set(expected), "the first partitions only"
        for partitions, adaptive, act in [
            (8, False, out.count), (3, False, out.count), (8, False, lambda: out.head(1)),
            (6, True, lambda: out.cache().count()), (6, True, lambda: out.unpersist().count()),
            (4, False, lambda: out.union(out).coalesce(1).count()), (2, False, out.rdd.count),
        ]:  # fmt: skip
            assert acted(partitions, adaptive, act) == expected
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.usefixtures("few_bytes")
def test_two_sinks_of_one_micro_batch_keep_each_letter_once(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        drop_file(tmp_path / "in", numbers(10, 10 * number), number)
    stream, store = file_stream(spark, tmp_path / "in"), words(tmp_path / "m.pages", 4)
    out = enrich(stream, store, on="k", on_miss=dead_letter(tmp_path / "letters"), **LIKE)
    found: list[int] = []

    def both(rows: DataFrame, number: int) -> None:
        found.extend([rows.count(), rows.coalesce(1).count()])

    out.writeStream.foreachBatch(both).trigger(availableNow=True).start().awaitTermination()
    assert found == [4] * 6
    assert letters(spark, tmp_path / "letters") == [n for n in range(30) if n % 10 >= 4]


def test_one_join_does_not_write_the_letters_of_two_queries(spark: SparkSession, tmp_path: Path) -> None:
    drop_file(tmp_path / "in", numbers(), 0)
    stream, store = file_stream(spark, tmp_path / "in"), words(tmp_path / "m.pages", 70)
    out = enrich(stream, store, on="k", on_miss=dead_letter(tmp_path / "letters"), **LIKE)
    query = run(out, tmp_path)
    with pytest.raises(StreamingQueryException, match=rf"by query {query.id}.*call enrich once for each query"):
        run(out, tmp_path, "other")
    assert letters(spark, tmp_path / "letters") == list(range(70, 100))
    own = enrich(stream, store, on="k", on_miss=dead_letter(tmp_path / "more"), **LIKE)
    run(own, tmp_path, "other")
    assert letters(spark, tmp_path / "more") == list(range(70, 100))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_a_repeated_micro_batch_with_fewer_partitions_leaves_nothing_stale(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """The second of two micro-batches is run again; letters of the first, and of others, stay as they are."""
    store, misses = words(tmp_path / "m.pages", 4), dead_letter(tmp_path / "letters")
    (tmp_path / "in").mkdir()
    (tmp_path / "letters").mkdir()
    pa.parquet.write_table(pa.table({"id": [-1]}), tmp_path / "letters" / "others.parquet")

    def enriched() -> DataFrame:
        schema = "id long, k long, j long"
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(str(tmp_path / "in"))
        return enrich(stream, store, on="k", on_miss=misses, mode=mode, **LIKE)

    spark.conf.set(FILE_BYTES, "64KB")
    try:
        for number in range(8):
            drop_file(tmp_path / "in", numbers(10, 10 * number), number)
        run(enriched(), tmp_path)
    finally:
        spark.conf.unset(FILE_BYTES)
    newest = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdigit())
    before = {file.name for file in (tmp_path / "letters").glob("*.parquet")}
    undo_commit(tmp_path, newest)
    run(enriched(), tmp_path)
    after = {file.name for file in (tmp_path / "letters").glob("*.parquet")}
    assert letters(spark, tmp_path / "letters") == [-1, *(n for n in range(80) if n % 10 >= 4)]
    assert "others.parquet" in after
    if mode == "per_batch":
        assert len(before) == 9
        assert len(after) < 9
        assert len(before & after) == 5


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]}, schema)
    file = LetterFile("plan", "3")
    with DeadLetters(str(tmp_path), file, schema) as kept:
        kept.add(rows)
        assert [name.name[0] for name in tmp_path.iterdir()] == ["_"]
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        with DeadLetters(str(tmp_path), file, schema) as kept:
            kept.add(rows)
            kept.commit()
    assert [name.name for name in tmp_path.iterdir()] == ["plan-3.parquet"]
    with DeadLetters(str(tmp_path), file, schema) as kept:
        kept.commit()
    assert not list(tmp_path.iterdir())


def test_letters_of_an_action_appear_when_it_has_read_as_many_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])

    def commit(action: str, part: str, n_rows: int, ids: list[int]) -> list[str]:
        with DeadLetters(str(tmp_path), LetterFile("plan", part, action=action), schema) as kept:
            kept.add(pa.RecordBatch.from_pydict({"id": ids}, schema))
            kept.commit(n_rows)
        return sorted(file.name for file in tmp_path.glob("*.parquet"))

    assert commit("1", "0", 5, [1]) == ["plan-1-0-5.parquet"]
    assert commit("1", "1", 5, []) == ["plan-1-0-5.parquet"]
    assert commit("1", "2", 3, [2, 3]) == ["plan-1-0-5.parquet", "plan-1-2-3.parquet"]
    assert commit("2", "0", 12, [1, 2]) == ["plan-1-0-5.parquet", "plan-1-2-3.parquet"], "one row is still missing"
    assert commit("2", "1", 1, [3]) == ["plan-2-0-12.parquet", "plan-2-1-1.parquet"]
    assert len(list(tmp_path.iterdir())) == 2, "nothing of the first action is left"
    assert commit("2", "0", 12, [1, 2]) == ["plan-2-0-12.parquet", "plan-2-1-1.parquet"], "a second attempt"
    assert commit("3", "0", 4, [1]) == ["plan-2-0-12.parquet", "plan-2-1-1.parquet"], "an action that reads less"
