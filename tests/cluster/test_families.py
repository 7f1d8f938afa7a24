"""Every family on separate hosts, as a batch and as a stream, equal to its definition."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests import oracle
from tests.cluster.store import write_table

import dovetail
from dovetail.engine import files
from dovetail.engine.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
SEED = 21


def intervals(seed: int, n: int = 120) -> Rows:
    """Intervals with few keys, null keys, and duplicates."""
    chance = random.Random(seed)
    starts = [chance.randrange(400) for _ in range(n)]
    return [
        {"id": at, "k": chance.choice((None, 1, 2, 3)), "start": start, "end": start + chance.randrange(1, 40)}
        for at, start in enumerate(starts)
    ]


def named(rows: Rows, prefix: str) -> Rows:
    return [{f"{prefix}{name}": value for name, value in row.items()} for row in rows]


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    names = ", ".join(f"{name} long" for name in rows[0])
    return spark.createDataFrame([tuple(row.values()) for row in rows], names).repartition(6)


def write_files(place: Remote, rows: Rows, parts: int) -> None:
    """The rows as so many Parquet files in the object store."""
    schema = pa.schema([(name, pa.int64()) for name in rows[0]])
    for at in range(parts):
        write_table(pa.Table.from_pylist(rows[at::parts], schema=schema), place / f"{at}.parquet")


def stream(spark: SparkSession, place: Remote, rows: Rows, parts: int = 2) -> DataFrame:
    """A stream of files in the object store, one a micro-batch."""
    write_files(place, rows, parts)
    names = ", ".join(f"{name} long" for name in rows[0])
    return spark.readStream.schema(names).option("maxFilesPerTrigger", 1).parquet(str(place))


def drain(answers: DataFrame, place: Remote) -> DataFrame:
    """What a stream has written when all its input is read."""
    writer = answers.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer.option("path", str(place / "out")).trigger(availableNow=True).start().awaitTermination()
    return answers.sparkSession.read.schema(answers.schema).parquet(str(place / "out"))


def bag(answers: DataFrame) -> Any:
    return oracle.bag(map(tuple, answers.collect()))


LEFT, RIGHT = named(intervals(SEED), "l_"), named(intervals(SEED + 1), "r_")
BOUNDS: dict[str, Any] = {"left_interval": ("l_start", "l_end"), "right_interval": ("r_start", "r_end")}
ON = [("l_k", "r_k")]
PAIRS = oracle.interval_join(LEFT, RIGHT, on=ON, **BOUNDS)


def expected(pairs: list[oracle.Pair]) -> Any:
    return oracle.bag(oracle.flat(pairs, list(LEFT[0]), list(RIGHT[0])))


@pytest.mark.parametrize(
    "how", [{"route": "native"}, {"route": "in_memory"}, {"algorithm": "dip"}, {"route": "streaming"}]
)
def test_interval_join(spark: SparkSession, how: dict[str, Any]) -> None:
    left, right = frame(spark, LEFT), frame(spark, RIGHT)
    assert bag(dovetail.interval_join(left, right, on=ON, memory="4MB", **BOUNDS, **how)) == expected(PAIRS)


def test_interval_counts(spark: SparkSession) -> None:
    left, right = frame(spark, LEFT), frame(spark, RIGHT)
    assert dovetail.interval_count(left, right, on=ON, **BOUNDS) == len(PAIRS)
    counted = oracle.count_overlaps(LEFT, RIGHT, on=ON, **BOUNDS)
    assert bag(dovetail.count_overlaps(left, right, on=ON, **BOUNDS)) == oracle.bag(
        (*a.values(), n) for a, n in counted
    )


def test_interval_join_of_micro_batches(spark: SparkSession, shared: Remote) -> None:
    right, out = frame(spark, RIGHT), str(shared / "out")

    def join(rows: DataFrame, _: int) -> None:
        dovetail.interval_join(rows, right, on=ON, **BOUNDS).write.mode("append").parquet(out)

    writer = stream(spark, shared / "in", LEFT).writeStream.foreachBatch(join)
    writer = writer.option("checkpointLocation", str(shared / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert bag(spark.read.parquet(out)) == expected(PAIRS)


@pytest.mark.parametrize("direction", ["backward", "nearest"])
def test_asof_join(spark: SparkSession, direction: str) -> None:
    asked: dict[str, Any] = {"on": ("l_start", "r_start"), "by": ON, "direction": direction, "how": "left"}
    right = [{**row, "r_start": 401 * at + row["r_start"]} for at, row in enumerate(RIGHT)]  # no ties
    right = [{**row, "r_start": row["r_start"] % 397 * 1000 + at} for at, row in enumerate(right)]
    left = [{**row, "l_start": row["l_start"] * 1000 + 500} for row in LEFT]
    found = dovetail.asof_join(frame(spark, left), frame(spark, right), **asked)
    assert bag(found) == expected(oracle.asof_join(left, right, **asked))


MASTER = [{"k": at, "word": at * 7} for at in range(0, 60, 2)]
ORDERS = [
    {"order": at, "k": chance} for at, chance in enumerate(random.Random(SEED).choices([None, *range(60)], k=300))
]
ENRICHED = oracle.bag(oracle.flat(oracle.enrich(ORDERS, MASTER, [("k", "k")], "left"), ["order", "k"], ["word"]))


def test_enrich(spark: SparkSession, shared: Remote) -> None:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(shared / "m.pages"), key="k")
    for exchange in ("none", "master"):
        answers = dovetail.enrich(frame(spark, ORDERS), store, on="k", how="left", memory="4MB", exchange=exchange)
        assert bag(answers) == ENRICHED


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_enrich_of_a_stream(spark: SparkSession, shared: Remote, mode: str) -> None:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(shared / "m.pages"), key="k")
    rows = stream(spark, shared / "in", ORDERS)
    answers = dovetail.enrich(rows, store, on="k", how="left", memory="4MB", mode=mode)
    assert bag(drain(answers, shared)) == ENRICHED


ONLINE = oracle.bag(oracle.flat(oracle.online_join(LEFT, RIGHT, ON), list(LEFT[0]), list(RIGHT[0])))


def test_online_join(spark: SparkSession) -> None:
    answers = dovetail.online_join(frame(spark, LEFT), frame(spark, RIGHT), on=ON, memory="4MB")
    assert bag(answers) == ONLINE


def test_online_join_of_streams(spark: SparkSession, shared: Remote) -> None:
    left, right = stream(spark, shared / "left", LEFT), stream(spark, shared / "right", RIGHT)
    answers = dovetail.online_join(left, right, on=ON, memory="4MB", retain="1 hour", owed="batch")
    assert bag(drain(answers, shared)) == ONLINE


def test_xquery(spark: SparkSession, shared: Remote) -> None:
    for at in range(12):
        rows = "".join(f"<row id='{row['l_id']}'>{row['l_start']}</row>" for row in LEFT[at::12])
        files.write(shared / f"{at}.xml", f"<rows>{rows}</rows>".encode())
    query = 'for $r in collection("/rows")/rows/row where xs:integer($r) ge 200 return data($r/@id)'
    found = dovetail.xquery(spark, query, {"/rows": str(shared)}, partitions=6).collect()
    assert sorted(int(row.item) for row in found) == sorted(row["l_id"] for row in LEFT if row["l_start"] >= 200)
