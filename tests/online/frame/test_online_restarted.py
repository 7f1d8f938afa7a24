"""Online joins that start again from their checkpoint with other partitions and budgets, and one whose host dies."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from tests.online.frame.cases import Feed, answers, bag
from tests.online.frame.multi_cases import SHAPES, MultiFeed, bag_of
from tests.online.frame.revived_host import processes
from tests.online.frame.test_online_stream import run_all, start
from tests.semistream.frame.cases import Ledger

from dovetail import online_join, online_multijoin
from dovetail.joins.online.api import plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)
PARTITIONS = "spark.sql.shuffle.partitions"
RUNS = [(2, "64KB"), (8, "1MB"), (3, "40KB")]
"""Partitions of the session and the budget, run by run."""


@pytest.fixture
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which has its partitions again afterwards."""
    before = spark.conf.get(PARTITIONS)
    yield spark
    spark.conf.set(PARTITIONS, before)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "given",
    [{}, {"partitions": 4, "hot": [1]}, {"on": None, "within": ("k", 1), "partitions": 3}],
    ids=["", "hot", "band"],
)
def test_two_inputs_with_other_partitions_and_budgets(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    feed = Feed(tmp_path)
    for partitions, memory in RUNS:
        spark.conf.set(PARTITIONS, partitions)
        feed.add()
        left, right = feed.streams(spark)
        out = online_join(left, right, **({"on": "k"} | given), memory=memory, owed="batch", retain="1 hour")
        run_all(out, tmp_path)
        found = answers(tmp_path)
        if "within" in given:
            assert Counter((row["a"], row["b"]) for row in found) == near(feed)
        else:
            assert bag(found) == feed.expected


def near(feed: Feed) -> Counter[tuple[int, int]]:
    """The pairs of keys that differ by one at most."""
    left, right = (pa.concat_tables(tables).drop_null().to_pylist() for tables in (feed.left, feed.right))
    return Counter((a["a"], b["b"]) for a in left for b in right if abs(a["k"] - b["k"]) <= 1)


def test_a_micro_batch_that_the_sink_has_is_repeated_with_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """The pairs that come at the end must not depend on the order in which rows come."""
    feed, ledger = Feed(tmp_path, rows=300), Ledger(fails_after=1)
    for last in (False, False, True):
        feed.add(last)
    for parts in (2, 5):
        left, right = (stream.repartition(parts) for stream in feed.streams(spark, last=True))
        out = online_join(
            left, right, on="k", algorithm="pmj", memory="32KB", partitions=2, end_of_input=F.col("last"), hot=[1]
        )
        ledger.run(out.select("k", "a", "b"), tmp_path)
    assert ledger.runs[1] == 2
    assert bag([row for table in ledger.kept.values() for row in table.to_pylist()]) == feed.expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("buckets", [None, 4])
def test_three_inputs_with_other_partitions_and_budgets(
    spark: SparkSession, tmp_path: Path, buckets: int | None
) -> None:
    feed = MultiFeed(tmp_path, "chain3", rows=60)
    for partitions, memory in RUNS:
        spark.conf.set(PARTITIONS, partitions)
        feed.add()
        out = online_multijoin(
            feed.streams(spark), on=SHAPES["chain3"], memory=memory.replace("40", "96").replace("64", "160"),
            partitions=buckets, owed="batch", retain="1 hour",
        )  # fmt: skip
        run_all(out, tmp_path)
        assert bag_of(answers(tmp_path), feed.tables) == feed.expected(spark)


def test_another_number_of_buckets_is_refused_whatever_rows_come(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of one key go to one bucket, which the checkpoint may not have: the query must fail all the same."""
    feed = Feed(tmp_path)

    def out(buckets: int) -> DataFrame:
        feed.add()
        left, right = (stream.where("k = 3") for stream in feed.streams(spark))
        return online_join(left, right, on="k", memory="64KB", partitions=buckets, owed="batch", retain="1 hour")

    run_all(out(2), tmp_path)
    with pytest.raises(StreamingQueryException, match=r"buckets: 2 there, 5 here.* give partitions=2"):
        run_all(out(5), tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_a_join_that_ran_out_of_memory_goes_on_with_more(spark: SparkSession, tmp_path: Path, owed: str) -> None:
    feed = Feed(tmp_path, rows=150)
    feed.add()
    feed.add()

    def out(memory: str) -> DataFrame:
        left, right = feed.streams(spark)
        return online_join(left, right, on="k", algorithm="shj", memory=memory, owed=owed, retain="1 hour")

    with pytest.raises(StreamingQueryException, match="give it more memory"):
        run_all(out("48KB"), tmp_path)
    assert 0 < len(answers(tmp_path)) < feed.expected.total()
    run_all(out("1MB"), tmp_path)
    assert bag(answers(tmp_path)) == feed.expected
    feed.add()
    run_all(out("900KB"), tmp_path)
    assert bag(answers(tmp_path)) == feed.expected


class Older(StatefulProcessor):
    """State as it was when the names of buckets came from the session's partitions: they were ints."""

    def init(self, handle: Any) -> None:
        key = T.StructType([T.StructField("number", T.LongType())])
        self.pieces = handle.getMapState("events", key, T.StructType([T.StructField("data", T.BinaryType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        frame = next(rows)
        self.pieces.updateValue((-1,), (b"{}",))
        yield frame[["k"]]

    def close(self) -> None: ...


def test_a_checkpoint_with_buckets_of_other_names_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.add()
    left, right = feed.streams(spark)
    both = left.selectExpr("k", "cast(0 as int) bucket").union(right.selectExpr("k", "cast(0 as int) bucket"))
    run_all(both.groupBy("bucket").transformWithStateInPandas(Older(), "k long", "append", "none"), tmp_path)
    feed.add()
    with pytest.raises(StreamingQueryException, match="KEY_SCHEMA"):
        run_all(online_join(left, right, on="k", memory="64KB", owed="batch", retain="1 hour"), tmp_path)


def hosts() -> set[int]:
    """The hosts of this session, one for each daemon: started by one, and leaders of sessions of their own."""
    lines = processes()
    mine, before = {os.getpid()}, 0
    while len(mine) > before:
        before = len(mine)
        mine |= {pid for pid, parent, _ in lines if parent in mine}
    leaders = {pid for pid, _, session in lines if pid == session and pid in mine}
    names = (b"dovetail.spark.daemon", b"dovetail.spark.hosts.resident")  # forked; started again
    return {pid for pid in leaders if any(name in Path(f"/proc/{pid}/cmdline").read_bytes() for name in names)}


def wait_until(done: Any, query: Any) -> None:
    end = time.monotonic() + 240
    while not done():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < end, query.lastProgress
        time.sleep(0.1)


def test_a_host_that_was_killed_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.add()
    left, right = feed.streams(spark)
    plan = plan_online_join(left, right, on="k", memory="64KB", partitions=2, owed="batch", retain="1 hour")
    query = start(plan.frame(), tmp_path)
    try:
        wait_until(lambda: bag(answers(tmp_path)) == feed.expected, query)
        before = hosts()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            feed.add()
            wait_until(lambda: bag(answers(tmp_path)) == feed.expected, query)
        assert before
        assert hosts() - before
    finally:
        query.stop()
    assert plan.metrics().value("joins_rebuilt") == 4  # of each of two buckets at the start and after the kill
