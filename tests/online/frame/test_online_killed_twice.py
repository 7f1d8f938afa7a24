"""Online joins that are killed in two micro-batches after each other, each start with other options: every pair once.

Spark has the state of a lost attempt in its files when the micro-batch is repeated. The third run must start from the
state that the second one went on with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Bag, Feed, bag
from tests.oracle import equi_join
from tests.semistream.frame.cases import Ledger

from dovetail import online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)
PARTITIONS = "spark.sql.shuffle.partitions"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@pytest.fixture
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which has its settings again afterwards."""
    before = {name: spark.conf.get(name) for name in (PARTITIONS, FORMAT)}
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


class Lossy(Ledger):
    """A sink that fails in the first run of some micro-batches, with their answers or (`without`) lacking them."""

    def __init__(self, fails: set[int], without: set[int]) -> None:
        super().__init__(-1)
        self.fails, self.without = fails, without

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Takes the answers of a micro-batch; the tasks have written their state by then."""
        self.runs[number] += 1
        answers, is_lost = frame.toArrow(), self.runs[number] == 1 and number in self.fails | self.without
        if number == 1:  # the tasks of a micro-batch may run twice, and each time they write state
            assert frame.count() == answers.num_rows
        if not (is_lost and number in self.without):
            self.kept.setdefault(number, answers)
        if is_lost:
            raise RuntimeError("the state is written, and Spark does not know it")

    @property
    def pairs(self) -> Bag:
        """All pairs that the sink has."""
        return bag([row for table in self.kept.values() for row in table.to_pylist()])


def pairs_of(feed: Feed, together: Sequence[range]) -> Bag:
    """The pairs of rows of files that were in the state together."""
    found = Bag()
    for files in together:
        left, right = (pa.concat_tables([side[n] for n in files]).to_pylist() for side in (feed.left, feed.right))
        pairs = equi_join(left, right, [("k", "k")])
        found |= Counter((a["k"], a["a"], b["b"]) for a, b in pairs if a is not None and b is not None)
    return found


ALL = [range(6)]
CASES: dict[str, tuple[list[dict[str, Any]], Sequence[range]]] = {
    "owed, memory": (
        [
            {"algorithm": "pmj", "memory": "32KB", "owed": "idle"},
            {"algorithm": "pmj", "memory": "1MB", "owed": "batch"},
            {"algorithm": "pmj", "memory": "64KB", "owed": "idle"},
        ],
        ALL,
    ),
    "algorithm, wait": (
        [
            {"algorithm": "diner", "memory": "40KB", "wait": "1 ms"},
            {"algorithm": "hmj", "memory": "1MB", "wait": "2 s"},
            {"algorithm": "diner", "memory": "64KB"},
        ],
        ALL,
    ),
    "retain": (
        [
            {"algorithm": "pmj", "memory": "32KB"},
            {"algorithm": "pmj", "memory": "32KB", "retain": "1 ms"},
            {"algorithm": "pmj", "memory": "32KB"},
        ],
        [range(3), range(3, 6)],
    ),
    "retain, nothing owed": (
        [
            {"owed": "batch", "memory": "1MB"},
            {"owed": "batch", "memory": "32KB", "retain": "1 ms"},
            {"owed": "batch", "memory": "1MB"},
        ],
        [range(3), range(3, 6)],
    ),
}


def started(spark: SparkSession, feed: Feed, **options: Any) -> DataFrame:
    left, right = feed.streams(spark, last=True)
    return online_join(left, right, on="k", end_of_input=F.col("last"), **options).select("k", "a", "b")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("places", [({2, 3}, set()), ({3}, {2})], ids=["both kept", "first lost"])
@pytest.mark.sampled(4)
def test_every_pair_comes_once(spark: SparkSession, tmp_path: Path, name: str, places: Any) -> None:
    runs, together = CASES[name]
    feed, sink = Feed(tmp_path, rows=200), Lossy(*places)
    for number in range(6):
        feed.add(last=number == 5)
    for partitions, options in zip((2, 5, 3), runs, strict=True):
        spark.conf.set(PARTITIONS, partitions)
        sink.run(started(spark, feed, **options), tmp_path)
    assert (sink.runs[2], sink.runs[3]) == (2, 2)
    assert sink.pairs == pairs_of(feed, together)


def test_a_checkpoint_of_the_older_format_keeps_its_options(spark: SparkSession, tmp_path: Path) -> None:
    """There the third run may start from another state, so that it is refused; the same options go on."""
    feed, sink = Feed(tmp_path, rows=200), Lossy({2}, set())
    for _ in range(3):
        feed.add()
    options: dict[str, Any] = {"algorithm": "pmj", "memory": "32KB"}
    out = started(spark, feed, **options)
    spark.conf.set(FORMAT, 1)  # as before there was another one
    sink.run(out, tmp_path)
    spark.conf.set(FORMAT, 2)
    feed.add(last=True)
    for changed, what in (({"memory": "64KB"}, "32768.* there, .*65536.* here"), ({"retain": "1 hour"}, "3600000")):
        with pytest.raises(StreamingQueryException, match=f"state format 1.*{what}.*new checkpoint"):
            sink.run(started(spark, feed, **options | changed), tmp_path)
    sink.run(started(spark, feed, **options), tmp_path)
    assert sink.pairs == feed.expected
