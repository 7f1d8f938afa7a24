"""Mode "carry": rows that wait cross micro-batches in the checkpoint, are answered once, and are never forgotten."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from tests.semistream.frame.cases import (
    Ledger,
    bag,
    drop_file,
    file_stream,
    master_table,
    page_store,
    rows_of,
    stream_table,
)

from dovetail import MasterStore, dead_letter, enrich, park, plan_enrich
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.cost.reads import IoCosts
from dovetail.joins.semistream.cost.setting import ReadCosts
from dovetail.joins.semistream.decision import Decision
from dovetail.joins.semistream.sizes import Sizes
from dovetail.joins.semistream.state import Carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITIONS = "spark.sql.shuffle.partitions"
CARRY: dict[str, Any] = {"on": "k", "mode": "carry", "memory": "1MB", "tune": "off", "max_wait": "1 day"}


@pytest.fixture
def unfinished(spark: SparkSession) -> Iterator[None]:
    """Streams end without the batch in which waiting rows would be answered."""
    spark.conf.set(NO_DATA, False)
    yield
    spark.conf.unset(NO_DATA)


@pytest.fixture
def one_bucket(spark: SparkSession) -> Iterator[None]:
    """One bucket for all pages: half the work where two would show nothing more."""
    spark.conf.set(PARTITIONS, 1)
    yield
    spark.conf.set(PARTITIONS, 2)


def started(frame: DataFrame, place: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    return writer.option("path", str(place / "out")).trigger(availableNow=True).start()


def run(frame: DataFrame, place: Path) -> None:
    started(frame, place).awaitTermination()


def words(word: str, keys: int = 300) -> pa.Table:
    return pa.table({"k": list(range(keys)), "word": [word] * keys})


def numbers(first: int, rows: int = 200, keys: int = 280) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows)), "k": [n * 7 % keys for n in range(rows)]})


def timed(table: pa.Table) -> pa.Table:
    return table.append_column("at", pa.array([3_600_000_000] * table.num_rows, pa.timestamp("us", "UTC")))


def test_rows_cross_batches_and_equal_sparks_join(spark: SparkSession, tmp_path: Path) -> None:
    master = master_table(200).select(["k", "text"])
    store = page_store(tmp_path / "m.pages", master)
    for number in range(2):
        drop_file(tmp_path / "in", stream_table(500, 250, seed=number, first=500 * number), number)
    stream = file_stream(spark, tmp_path / "in")
    plans = {a: plan_enrich(stream, store, how="left", algorithm=a, **CARRY) for a in ("cachejoin", "meshjoin")}
    queries = [started(plan.frame(), tmp_path / name) for name, plan in plans.items()]  # at the same time
    inputs = spark.read.parquet(str(tmp_path / "in"))
    expected = bag(inputs.join(spark.createDataFrame(master), "k", "left").select(*inputs.columns, "text"))
    for query, (name, plan) in zip(queries, plans.items(), strict=True):
        query.awaitTermination()
        assert bag(spark.read.parquet(str(tmp_path / name / "out"))) == expected
        assert plan.sink.batches()[2].value("emits") > 0


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "more memory": {"memory": "1MB"},
    "less memory": {"memory": "48KB"},
    "another cut of the input": {ARROW_ROWS: 13},
    "another algorithm": {"algorithm": "meshjoin", "memory": "1MB"},
}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("one_bucket")
@pytest.mark.parametrize("change", CHANGES)
def test_a_repeated_batch_answers_the_same_rows(spark: SparkSession, tmp_path: Path, change: str) -> None:
    """A sink may have the batch, and skip it: were other rows answered, some would be lost and some come twice."""
    store, changed = page_store(tmp_path / "m.pages", words("only", keys=3000)), CHANGES[change]
    for number in range(4):
        drop_file(tmp_path / "in", numbers(1000 * number, rows=700, keys=2900), number)
    sink, asked = Ledger(fails_after=2), CARRY | {"memory": "64KB", "algorithm": "cachejoin"}
    sink.run(enrich(file_stream(spark, tmp_path / "in"), store, **asked), tmp_path)
    assert set(sink.kept[2]["id"].to_pylist()) not in (set(), set(range(2000, 2700)))  # some waited
    page_store(tmp_path / "m.pages", words("newer", keys=3000))
    spark.conf.set(ARROW_ROWS, changed.get(ARROW_ROWS, 10_000))
    try:
        again = asked | {name: value for name, value in changed.items() if name != ARROW_ROWS}
        sink.run(enrich(file_stream(spark, tmp_path / "in"), store, **again), tmp_path)
    finally:
        spark.conf.unset(ARROW_ROWS)
    assert sink.runs[2] == 2
    assert rows_of(pa.table({"id": [row[0] for row in sink.rows().elements()]})) == {
        (1000 * number + at,): 1 for number in range(4) for at in range(700)
    }


@pytest.mark.usefixtures("one_bucket")
def test_a_log_that_is_elsewhere_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It tells what the first attempt at a batch answered; moved along with its files it is the same log."""
    store = page_store(tmp_path / "m.pages", words("only", keys=3000))
    for number in range(3):
        drop_file(tmp_path / "in", numbers(1000 * number, rows=700, keys=2900), number)
    sink, asked = Ledger(fails_after=2), CARRY | {"memory": "64KB", "algorithm": "cachejoin"}

    def run_with(log: str) -> None:
        out = enrich(file_stream(spark, tmp_path / "in"), store, versions=str(tmp_path / log), **asked)
        sink.run(out, tmp_path)

    run_with("log")
    with pytest.raises(StreamingQueryException, match=r"answered is not in .*/other/.*use a new checkpoint"):
        run_with("other")
    shutil.copytree(tmp_path / "log", tmp_path / "moved")
    run_with("moved")
    assert Counter(id_ for table in sink.kept.values() for id_ in table["id"].to_pylist()) == Counter(
        1000 * number + at for number in range(3) for at in range(700)
    )


@pytest.mark.usefixtures("unfinished", "one_bucket")
@pytest.mark.parametrize(
    ("columns", "on"),
    [(["other", "id", "k"], "k"), (["id as number", "other", "k"], "k"), (["id", "other", "k"], [("id", "k")])],
)
def test_rows_that_wait_are_not_taken_up_under_other_names(
    spark: SparkSession, tmp_path: Path, columns: list[str], on: Any
) -> None:
    """Types alone do not tell that columns were exchanged: rows would have the values of others."""
    store = page_store(tmp_path / "m.pages", words("only", keys=3000))
    for number in range(3):
        rows = numbers(1000 * number, rows=700, keys=2900)
        drop_file(tmp_path / "in", rows.append_column("other", pc.add(rows["id"], 5_000_000)), number)
    (tmp_path / "in" / "00002.parquet").rename(tmp_path / "later")
    sink, asked = Ledger(fails_after=-1), CARRY | {"memory": "64KB", "algorithm": "cachejoin"}
    stream = file_stream(spark, tmp_path / "in").select("id", "other", "k")
    sink.run(enrich(stream, store, **asked), tmp_path)
    assert 0 < sum(table.num_rows for table in sink.kept.values()) < 1400
    (tmp_path / "later").rename(tmp_path / "in" / "00002.parquet")
    with pytest.raises(
        StreamingQueryException, match=r"rows that wait .* columns \['id', 'other', 'k'\] on k = k, .* put"
    ):
        sink.run(enrich(stream.selectExpr(*columns), store, **asked | {"on": on}), tmp_path)
    spark.conf.unset(NO_DATA)
    sink.run(enrich(stream, store, **asked), tmp_path)
    found = pa.concat_tables(sink.kept.values())
    assert sorted(found["id"].to_pylist()) == [1000 * number + at for number in range(3) for at in range(700)]
    assert pc.subtract(found["other"], found["id"]).unique().to_pylist() == [5_000_000]


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("unfinished", "one_bucket")
@pytest.mark.parametrize("as_of", ["answered", "admitted"])
def test_rows_that_wait_are_answered_as_of_the_version_asked_for(
    spark: SparkSession, tmp_path: Path, as_of: str
) -> None:
    """That of their answer, though the one before is gone; or that of their coming, which is an error if it is gone.

    Pruning leaves alone what rows wait for, and only that.
    """
    store = page_store(tmp_path / "m.pages", words("old"))
    drop_file(tmp_path / "in", numbers(-1000, rows=1), 0)  # the first micro-batch leaves nothing waiting
    drop_file(tmp_path / "in", numbers(0), 1)

    def enriched() -> DataFrame:
        stream = file_stream(spark, tmp_path / "in")
        return enrich(stream, store, algorithm="hybridjoin", **CARRY, as_of=as_of).where("id >= 0")

    run(enriched(), tmp_path)
    page_store(tmp_path / "m.pages", words("new"))
    assert len(store.prune(1)) == (as_of == "answered")
    drop_file(tmp_path / "in", numbers(1000), 2)
    spark.conf.set(NO_DATA, True)
    if as_of == "admitted":
        (tmp_path / "m.pages" / "generation-1").rename(tmp_path / "away")
        with pytest.raises(StreamingQueryException, match=r"200 rows wait to be answered from version 1-.*Restore it"):
            run(enriched(), tmp_path)
        (tmp_path / "away").rename(tmp_path / "m.pages" / "generation-1")
    run(enriched(), tmp_path)
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()
    found = {(at < 1000, word) for at, word in zip(got["id"].to_pylist(), got["word"].to_pylist(), strict=True)}
    assert got.num_rows == 400
    assert found == {(True, "old" if as_of == "admitted" else "new"), (False, "new")}
    assert len(store.prune(1)) == (as_of == "admitted")


@pytest.mark.slow
@pytest.mark.usefixtures("one_bucket")
def test_memory_is_split_anew_in_a_replay_too(spark: SparkSession, tmp_path: Path) -> None:
    """Even keys in three batches, few that all ask for in the fourth, after which the query dies."""
    store, rng = page_store(tmp_path / "m.pages", words("w", keys=4000)), np.random.default_rng(1)
    keys = [*(rng.integers(0, 4000, 2000) for _ in range(3)), rng.zipf(1.5, 2000) % 4000, np.ones(1)]
    for number, some in enumerate(keys):
        rows = {"id": np.arange(2000 * number, 2000 * number + len(some)), "k": some.astype(np.int64)}
        drop_file(tmp_path / "in", pa.table(rows), number)
    asked = CARRY | {"memory": "256KB", "tune": "model", "algorithm": "cachejoin"}
    sink, plan = Ledger(fails_after=3), plan_enrich(file_stream(spark, tmp_path / "in"), store, **asked)
    sink.run(plan.frame(), tmp_path)
    assert [bool(report.value("resplits")) for report in plan.sink.batches().values()] == [False] * 3 + [True]
    sink.run(enrich(file_stream(spark, tmp_path / "in"), store, **asked), tmp_path)
    assert sink.runs[3] == 2
    assert sorted(row[0] for row in sink.rows().elements()) == list(range(8001))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("before", "after", "watermark"), [(4, 1, True), (4, 1, False), (2, 5, True), (2, 5, False)])
def test_rows_that_wait_and_parked_ones_outlive_other_partitions(
    spark: SparkSession, tmp_path: Path, before: int, after: int, watermark: bool
) -> None:
    """Every bucket is called again: with fewer partitions, other memory, another version of another layout."""
    early = words("early", keys=600)
    page_store(tmp_path / "m.pages", early.filter(pc.not_equal(pc.bit_wise_and(early["k"], 3), 0)))
    for number in range(3):
        drop_file(tmp_path / "in", timed(numbers(1000 * number, rows=300, keys=600)), number)

    def enriched(**asked: Any) -> DataFrame:
        stream = file_stream(spark, tmp_path / "in")
        stream = stream.withWatermark("at", "1 hour") if watermark else stream
        misses, store = park(retry=0.001, deadline="1 day"), MasterStore.open(tmp_path / "m.pages")
        return enrich(stream, store, algorithm="hybridjoin", on_miss=misses, **CARRY | asked).select("id")

    try:
        spark.conf.set(NO_DATA, False)
        spark.conf.set(PARTITIONS, before)
        run(enriched(), tmp_path)
        answered = spark.read.parquet(str(tmp_path / "out")).count()
        assert answered < 900 * 3 / 4 - before  # some of each bucket wait, a quarter of all rows is parked
        page_store(tmp_path / "m.pages", words("late", keys=5000), order="none")
        drop_file(tmp_path / "in", timed(numbers(3000, rows=1)), 3)
        spark.conf.set(NO_DATA, True)
        spark.conf.set(PARTITIONS, after)
        run(enriched(memory="2MB", max_wait=0.001), tmp_path)
    finally:
        spark.conf.unset(NO_DATA)
        spark.conf.set(PARTITIONS, 2)
    expected = [1000 * number + at for number in range(3) for at in range(300)]
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()["id"].to_pylist()
    assert sorted(got) == [*expected, 3000]


@pytest.mark.usefixtures("one_bucket")
@pytest.mark.parametrize("twice", [True, False])
def test_carry_after_a_watermark_that_is_not_seen(spark: SparkSession, tmp_path: Path, twice: bool) -> None:
    """A join in this mode before has one, and so has a stream that dropped its column."""
    store = page_store(tmp_path / "m.pages", words("w"))
    other = page_store(tmp_path / "n.pages", words("v").rename_columns(["k", "other"]))
    for number in range(3):
        drop_file(tmp_path / "in", timed(numbers(1000 * number, rows=20)), number)
    stream, asked = file_stream(spark, tmp_path / "in"), CARRY | {"max_wait": 0.001, "algorithm": "hybridjoin"}
    if twice:
        stream = enrich(stream.select("id", "k"), other, **asked)
    else:
        stream = stream.withWatermark("at", "1 hour").select("id", "k")
    run(enrich(stream, store, **asked).select("id"), tmp_path)
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()["id"].to_pylist()
    assert sorted(got) == [1000 * number + at for number in range(3) for at in range(20)]


@pytest.mark.usefixtures("one_bucket")
def test_rows_outlive_a_clock_that_is_set_back(spark: SparkSession, tmp_path: Path) -> None:
    """Time of micro-batches wakes buckets up; rows that come at an earlier time than rows before are not too late."""
    store = page_store(tmp_path / "m.pages", words("w"))
    for number in range(2):
        drop_file(tmp_path / "in", numbers(1000 * number, rows=20), number)

    def enriched() -> DataFrame:
        return enrich(file_stream(spark, tmp_path / "in"), store, algorithm="hybridjoin", **CARRY).select("id")

    run(enriched(), tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    head, text = (commits / str(last)).read_text().split("\n")
    found = json.loads(text)
    found["nextBatchWatermarkMs"] += 3_600_000  # as it would be, had the clock been an hour fast
    (commits / str(last)).write_text(f"{head}\n{json.dumps(found)}")
    (commits / f".{last}.crc").unlink()
    for number in range(2, 5):
        drop_file(tmp_path / "in", numbers(1000 * number, rows=20), number)
    run(enriched(), tmp_path)
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()["id"].to_pylist()
    assert sorted(got) == [1000 * number + at for number in range(5) for at in range(20)]


def test_stores_without_history_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A repeated micro-batch could not be answered from the version that it began with."""
    drop_file(tmp_path / "in", numbers(0), 0)
    parquet.write_table(words("w"), tmp_path / "m.parquet")
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE m (k INTEGER PRIMARY KEY, word TEXT)")
        connection.execute("INSERT INTO m VALUES (1, 'w')")
    stream = file_stream(spark, tmp_path / "in")
    stores = MasterStore.parquet(tmp_path / "m.parquet", "k"), MasterStore.sqlite(tmp_path / "m.db", "m", "k")
    for store in stores:
        with pytest.raises(
            UnsupportedError, match=r"(Parquet|SQLite) .* only the newest\. Build a page file .*mode='per_batch'"
        ):
            enrich(stream, store, **CARRY)
        with pytest.raises(PlanError, match="as_of='admitted' is for mode='carry'"):
            enrich(stream, store, on="k", as_of="admitted")


@pytest.mark.slow
@pytest.mark.usefixtures("one_bucket")
def test_parked_rows_are_tried_again_until_their_deadline(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("early", keys=100))

    def enriched(deadline: str) -> DataFrame:
        misses = park(retry=0.001, deadline=deadline)
        stream = file_stream(spark, tmp_path / "in")
        return enrich(stream, store, on_miss=misses, algorithm="cachejoin", **CARRY)

    drop_file(tmp_path / "in", numbers(0), 0)
    run(enriched("1 day"), tmp_path)
    early = {row for row in rows_of(numbers(0)) if row[1] < 100}
    assert set(rows_of(spark.read.parquet(str(tmp_path / "out")).select("id", "k").toArrow())) == early
    page_store(tmp_path / "m.pages", words("late", keys=200))
    drop_file(tmp_path / "in", numbers(1000, rows=28), 1)
    without = enrich(file_stream(spark, tmp_path / "in"), store, algorithm="cachejoin", **CARRY)
    with pytest.raises(StreamingQueryException, match=r"are parked in the checkpoint .* put .*on_miss back"):
        run(without, tmp_path)
    run(enriched("2 ms"), tmp_path)
    got = rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow())
    later = {(*row, "late"): 1 for row in rows_of(numbers(0)) if 100 <= row[1] < 200}
    fresh = {(*row, "late"): 1 for row in rows_of(numbers(1000, rows=28))}
    assert got == {(*row, "early"): 1 for row in early} | later | fresh
    page_store(tmp_path / "m.pages", words("too late"))
    drop_file(tmp_path / "in", numbers(3000, rows=1), 2)
    run(enriched("2 ms"), tmp_path)
    all_rows = rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow())
    assert all_rows - got == {(3000, 0, "too late"): 1}


@pytest.mark.usefixtures("one_bucket")
def test_dead_letters_of_rows_that_waited(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("word", keys=150))
    for number in range(2):
        drop_file(tmp_path / "in", numbers(1000 * number), number)
    stream = file_stream(spark, tmp_path / "in")
    run(enrich(stream, store, on_miss=dead_letter(tmp_path / "letters"), algorithm="hybridjoin", **CARRY), tmp_path)
    letters = rows_of(spark.read.parquet(str(tmp_path / "letters")).toArrow())
    answers = rows_of(spark.read.parquet(str(tmp_path / "out")).select("id", "k").toArrow())
    assert letters + answers == rows_of(spark.read.parquet(str(tmp_path / "in")).toArrow())
    assert min(key for _, key in letters) >= 150


def test_state_survives_as_bytes() -> None:
    tables = {"rows": pa.table({"a": [1, None], "b": ["x", "y"]}), "state": pa.table({"json": ["{}"]})}
    costs = IoCosts(ReadCosts.linear(0.004, 1e7), 1e-5, micro_batch=0.002, by_page=True)
    plan = Decision("cachejoin", Sizes(waiting=5), "carried", io=costs, exponent=0.7)
    parked = pa.table({"a": [1], "next_ms": [9]})
    before = Carried("3-ab", plan, 17, tables, parked, micro_batches=4, name="n", log="mark", columns="['a'] on a = k")
    after = Carried.from_bytes(before.to_bytes())
    assert (after.name, after.log, after.columns) == ("n", "mark", "['a'] on a = k")
    assert (after.version, after.decision, after.drained_ms, after.waiting, after.micro_batches) == (
        "3-ab",
        plan,
        17,
        2,
        4,
    )
    assert {name: table.to_pylist() for name, table in after.snapshot.items()} == {
        name: table.to_pylist() for name, table in tables.items()
    }
    assert after.parked is not None
    assert after.parked.to_pylist() == [{"a": 1, "next_ms": 9}]
    assert Carried("v", Decision("inlj", Sizes(), "carried"), 0).waiting == 0


@pytest.mark.usefixtures("one_bucket")
def test_the_smallest_budget_is_enough_for_a_large_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("word"))
    drop_file(tmp_path / "in", numbers(0, rows=3_000, keys=310), 0)
    stream, asked = file_stream(spark, tmp_path / "in"), CARRY | {"algorithm": "hybridjoin"}
    with pytest.raises(
        PlanError, match=r"needs at least [0-9]+ bytes.*a sixteenth of memory.*a fifteenth more"
    ) as refused:
        plan_enrich(stream, store, **asked | {"memory": 2000})
    least = int(re.findall(r"at least ([0-9]+) bytes", str(refused.value))[0])
    memory = -(-least * 16 // 15)
    plan = plan_enrich(stream, store, **asked | {"memory": memory})
    run(plan.frame(), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).count() == sum(n * 7 % 310 < 300 for n in range(3_000))
    assert plan.metrics().value("arrivals_spilled") > memory
    assert plan.metrics().value("memory_peak") <= memory


def test_carry_is_for_streams(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("w"))
    with pytest.raises(PlanError, match="mode='carry' is for streams"):
        enrich(spark.createDataFrame(numbers(0)), store, **CARRY)
