"""Every family on separate hosts, as a batch and as a stream, equal to its definition."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests import oracle
from tests.cluster.store import write_table

import dovetail
from dovetail.engine.storage import files
from dovetail.engine.storage.remote import Remote
from dovetail.spark.frames import map_in_arrow

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


def table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.int64()) for name in rows[0]]))


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """From Arrow: Spark would make one of tuples by workers of another kind, of which each executor starts two then."""
    return spark.createDataFrame(table(rows)).repartition(6)


def write_files(place: Remote, rows: Rows, parts: int) -> None:
    """Write the rows as `parts` Parquet files."""
    for at in range(parts):
        write_table(table(rows[at::parts]), place / f"{at}.parquet")


def stream(spark: SparkSession, place: Remote, rows: Rows, parts: int = 2) -> DataFrame:
    """A stream of files, one a micro-batch."""
    write_files(place, rows, parts)
    names = ", ".join(f"{name} long" for name in rows[0])
    return spark.readStream.schema(names).option("maxFilesPerTrigger", 1).parquet(str(place))


def drain(answers: DataFrame, place: Remote) -> DataFrame:
    """What a stream has written when all its input is read.

    Spark gives a Python process of the driver 10 seconds to start, which on a busy machine may be too few: the stream
    then goes on from its checkpoint.
    """
    writer = answers.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer = writer.option("path", str(place / "out")).trigger(availableNow=True)
    for attempts_left in reversed(range(4)):
        try:
            writer.start().awaitTermination()
            break
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error) or not attempts_left:
                raise
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


def test_interval_join_written_by_tasks(spark: SparkSession, shared: Remote) -> None:
    plan = dovetail.plan_interval_join(frame(spark, LEFT), frame(spark, RIGHT), on=ON, **BOUNDS)
    plan.write_parquet(str(shared / "out"))
    assert bag(spark.read.parquet(str(shared / "out"))) == expected(PAIRS)


def test_interval_counts(spark: SparkSession) -> None:
    left, right = frame(spark, LEFT), frame(spark, RIGHT)
    assert dovetail.interval_count(left, right, on=ON, **BOUNDS) == len(PAIRS)
    counted = oracle.count_overlaps(LEFT, RIGHT, on=ON, **BOUNDS)
    assert bag(dovetail.count_overlaps(left, right, on=ON, **BOUNDS)) == oracle.bag(
        (*a.values(), n) for a, n in counted
    )


def test_interval_join_of_micro_batches(spark: SparkSession, shared: Remote) -> None:
    out = str(shared / "out")

    def join(rows: DataFrame, _: int) -> None:
        right = frame(rows.sparkSession, RIGHT)
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
    found = dovetail.asof_join(frame(spark, left), frame(spark, right), algorithm="index", **asked)
    assert bag(found) == expected(oracle.asof_join(left, right, **asked))


def test_interval_nearest(spark: SparkSession) -> None:
    asked: dict[str, Any] = {"k": 2, "direction": "upstream", "max_distance": 30}
    near = oracle.interval_nearest(LEFT, RIGHT, bounds=tuple(BOUNDS.values()), by=ON, **asked)
    wanted = [(*a.values(), *b.values(), gap) for a, found in near for gap, b in found]
    found = dovetail.interval_nearest(frame(spark, LEFT), frame(spark, RIGHT), on=ON, ties="all", **asked, **BOUNDS)
    assert bag(found) == oracle.bag(wanted)


SPANS, OTHERS = intervals(SEED), intervals(SEED + 1)


def test_sets_of_one_input(spark: SparkSession) -> None:
    """By sweeps of ranges of time, on several executors."""
    rows, asked = frame(spark, SPANS), {"on": "k", "partitions": 4}
    groups = oracle.by_key(SPANS, ["k"])
    merged = [
        (group[0]["k"], min(row["start"] for row in group), max(row["end"] for row in group), len(group))
        for group in oracle.clusters(SPANS, on=["k"])
    ]
    assert bag(dovetail.interval_merge(rows, **asked)) == oracle.bag(merged)
    numbered = dovetail.interval_cluster(rows, **asked).where("k is not null").select("k", "cluster").distinct()
    assert numbered.count() == len(merged)
    depth = [(*key, *piece) for key, group in groups.items() for piece in oracle.interval_depth(group)]
    assert bag(dovetail.interval_depth(rows, **asked)) == oracle.bag(depth)
    cut = [
        (row["id"], *piece)
        for group in groups.values()
        for piece in oracle.pieces(group)
        for row in group
        if row["start"] <= piece[0] and row["end"] >= piece[1]
    ]
    found = dovetail.make_disjoint(rows, **asked).where("k is not null").select("id", "start", "end")
    assert bag(found) == oracle.bag(cut)


@pytest.mark.parametrize("partitions", [None, 4])
def test_sets_of_two_inputs(spark: SparkSession, partitions: int | None) -> None:
    """By an index that all tasks get, and by ranges of time."""
    frames, asked = (frame(spark, SPANS), frame(spark, OTHERS)), {"on": "k", "partitions": partitions}
    groups, counted = oracle.by_key(OTHERS, ["k"]), oracle.count_overlaps(SPANS, OTHERS, on=[("k", "k")])
    of = {row["id"]: groups.get((row["k"],), []) for row in SPANS}
    covered = [(row["id"], n, oracle.covered(of[row["id"]], row["start"], row["end"])) for row, n in counted]
    found = dovetail.interval_coverage(*frames, **asked).select("id", "n_overlaps", "covered")
    assert bag(found) == oracle.bag(covered)
    rest = [(row["id"], *piece) for row in SPANS for piece in oracle.uncovered(of[row["id"]], row["start"], row["end"])]
    assert bag(dovetail.interval_subtract(*frames, **asked).select("id", "start", "end")) == oracle.bag(rest)
    apart = [row["id"] for row, n in counted if n == 0]
    assert sorted(row.id for row in dovetail.interval_setdiff(*frames, **asked).collect()) == apart


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


def test_dead_letters(spark: SparkSession, shared: Remote) -> None:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(shared / "m.pages"), key="k")
    misses = dovetail.dead_letter(str(shared / "letters"))
    found = drain(dovetail.enrich(stream(spark, shared / "in", ORDERS), store, on="k", on_miss=misses), shared)
    letters = [row.order for row in spark.read.parquet(str(shared / "letters")).collect()]
    assert sorted(letters) == sorted({row["order"] for row in ORDERS} - {row.order for row in found.collect()})


def test_dead_letters_of_a_task_that_runs_twice(spark: SparkSession, shared: Remote) -> None:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(shared / "m.pages"), key="k")
    misses = dovetail.dead_letter(str(shared / "letters"))
    answers = dovetail.enrich(stream(spark, shared / "in", ORDERS, 1), store, on="k", on_miss=misses)

    def twice(rows: DataFrame, _: int) -> None:
        assert rows.count() == rows.count()

    writer = answers.writeStream.foreachBatch(twice).option("checkpointLocation", str(shared / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    letters = spark.read.parquet(str(shared / "letters")).count()
    known = {row["k"] for row in MASTER}
    assert letters == sum(row["k"] not in known for row in ORDERS)


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_enrich_of_a_stream(spark: SparkSession, shared: Remote, mode: str) -> None:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(shared / "m.pages"), key="k")
    rows = stream(spark, shared / "in", ORDERS)
    answers = dovetail.enrich(rows, store, on="k", how="left", memory="4MB", mode=mode)
    assert bag(drain(answers, shared)) == ENRICHED


ONLINE = oracle.bag(oracle.flat(oracle.online_join(LEFT, RIGHT, ON), list(LEFT[0]), list(RIGHT[0])))


def test_executors_on_other_hosts_bound_batches_by_the_sizes_of_rows(spark: SparkSession) -> None:
    rows = frame(spark, intervals(9))
    sent = map_in_arrow(rows, lambda batches: batches, rows.schema)
    if "connect" not in type(sent).__module__:  # there a client sees no plan
        assert "SizedMapInArrow" in sent._jdf.queryExecution().sparkPlan().getClass().getName()
    assert sorted(map(repr, sent.collect())) == sorted(map(repr, rows.collect()))


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
