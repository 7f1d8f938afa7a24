"""`online_join` with every `how` on Spark: equal to Spark's own joins, of batches and of streams."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Feed, answers
from tests.oracle import bag as frozen
from tests.oracle import online_join as join_by_definition
from tests.semistream.frame.cases import drop_file

import dovetail
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.api import online_join, plan_online_join
from dovetail.joins.online.request import OnlineJoinOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
OUTER = ("left", "right", "full", "left_semi", "left_anti")
BAND = timedelta(seconds=5)


def sides(spark: SparkSession, n: int = 300) -> tuple[DataFrame, DataFrame]:
    """Rows with equal keys, null keys, and keys of one side only."""
    left = spark.range(n).selectExpr("if(id % 17 = 0, null, id % 90) as k", "id as a", "cast(id as double) as x")
    right = spark.range(n).selectExpr("if(id % 13 = 0, null, id % 70 + 40) as k", "id as b", "id * 2.0d as y")
    return left, right.withColumn("y", F.when(F.col("b") % 11 == 0, F.lit(float("nan"))).otherwise(F.col("y")))


def bag(frame: DataFrame) -> Counter[Any]:
    return frozen(tuple(row) for row in frame.collect())


def test_batches_equal_sparks_own_join_for_every_how(spark: SparkSession) -> None:
    left, right = sides(spark)
    band = F.expr("y - x >= -3 and y - x < 40 and not isnan(y)")
    for how in ("inner", *OUTER):
        own = left.join(right, "k", how)
        assert bag(online_join(left, right, on="k", how=how, memory="64KB", partitions=3)) == bag(own), how
        if how not in ("full", "left_anti"):
            continue
        banded = left.join(right.withColumnRenamed("k", "l"), [F.col("k") == F.col("l"), band], how)
        ours = online_join(
            left,
            right.withColumnRenamed("k", "l"),
            on=[("k", "l")],
            within=("x", "y", -3.0, 40.0),
            closed="left",
            how=how,
            memory="1MB",
        )
        assert bag(ours) == bag(banded), how


def test_rows_that_are_copied_to_several_partitions_come_alone_once_or_are_refused(spark: SparkSession) -> None:
    left, right = sides(spark, 120)
    for how in OUTER:
        hot = {"on": "k", "hot": [3, 41, 45]}
        alone = {"within": ("x", "y", -3.0, 10.0)}
        band = F.expr("y - x between -3 and 10 and not isnan(y)")
        named = right.withColumnRenamed("k", "l")
        if how == "full":
            for options, message in ((hot, r"hot=\[3, 41, 45\]"), (alone, "a band alone")):
                with pytest.raises(UnsupportedError, match=rf"how='full' with {message}.*partitions=1.*left_anti"):
                    online_join(left, named if "within" in options else right, how=how, partitions=4, **options)  # type: ignore[call-overload]
            ours = online_join(left, named, how=how, partitions=1, memory="1MB", **alone)  # type: ignore[call-overload]
            assert bag(ours) == bag(left.join(named, [band], how))
            continue
        assert bag(online_join(left, right, how=how, partitions=4, memory="1MB", **hot)) == bag(
            left.join(right, "k", how)
        ), how  # type: ignore[call-overload]
        ours = online_join(left, named, how=how, partitions=4, memory="1MB", **alone)  # type: ignore[call-overload]
        assert bag(ours) == bag(left.join(named, [band], how)), how


@pytest.mark.parametrize("how", ["inner", *OUTER])
def test_only_inner_joins_may_owe_pairs_after_a_micro_batch(how: Any) -> None:
    """Attempts of a micro-batch in runs with other options must let the same rows come alone."""
    terms = OnlineJoinOptions(on="k", how=how, owed="idle").request().terms
    assert (terms.owed, terms.reacts) == (("idle", True) if how == "inner" else ("batch", False))


def test_names_columns_phases_and_explanation(spark: SparkSession) -> None:
    left, right = sides(spark, 40)
    plan = plan_online_join(left, right, on="k", how="LeftOuter", columns=["b", "a"], with_phase=True, partitions=2)
    assert plan.explain().startswith("OnlineJoin left: 2 partitions")
    assert plan.frame().columns == ["b", "a", "_phase"]
    phases = {row["_phase"] for row in plan.frame().filter("b is null").collect()}
    assert phases == {"unmatched"}
    assert plan.metrics().value("unmatched", "left") > 0
    assert online_join(left, right, on="k", how="anti", columns=["a"]).columns == ["a"]
    with pytest.raises(PlanError, match="b"):
        online_join(left, right, on="k", how="semi", columns=["b"])
    with pytest.raises(PlanError, match="how='cross'"):
        online_join(left, right, on="k", how="cross")  # type: ignore[call-overload]
    with pytest.raises((PlanError, TypeError), match="how"):
        dovetail.online_multijoin({"l": left, "r": right}, on=[("l.k", "r.k")], how="left")  # type: ignore[call-overload]


class TimedFeed:
    """Two directories of files with event times that move on, and at last are far ahead."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        rng = np.random.default_rng(8)
        self.rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        for number in range(6):
            for side, name in enumerate("ab"):
                start = 10_000 if number == 5 else 10 * number
                rows = [
                    {
                        "k": None if rng.random() < 0.05 and number < 5 else int(rng.integers(0, 12)),
                        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start + float(rng.integers(0, 15))),
                        name: 100 * number + n,
                    }
                    for n in range(40)
                ]
                self.rows[side].extend(rows)
                schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), (name, pa.int64())])
                drop_file(place / name, pa.Table.from_pylist(rows, schema), number)

    def streams(self, spark: SparkSession) -> list[DataFrame]:
        found = []
        for name in "ab":
            reader = spark.readStream.schema(f"k long, at timestamp, {name} long").option("maxFilesPerTrigger", 1)
            found.append(reader.parquet(str(self.place / name)).withWatermark("at", "10 seconds"))
        return found


def collected(out: DataFrame, place: Path) -> Counter[Any]:
    """The answers of all micro-batches: (k, a, b), as far as there are such columns."""
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.option("path", str(place / "out")).trigger(availableNow=True).start()
    assert query.awaitTermination(250), query.lastProgress
    assert query.exception() is None
    return Counter(tuple(row[c] for c in ("k", "a", "b") if c in row) for row in answers(place))


def test_streams_with_watermarks_equal_sparks_stream_stream_join(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the last micro-batch, which no watermark passes, stay with both.

    They have keys: rows without one come at once here, and behind the watermark in Spark.
    """
    feed = TimedFeed(tmp_path / "in")
    old = [[row for row in rows if row["at"].year == 2026 and row["at"].hour < 2] for rows in feed.rows]
    for how in OUTER:
        left, right = feed.streams(spark)
        owed = "idle" if how == "full" else "batch"
        ours = online_join(left, right, on="k", within=("at", "at", -BAND, BAND), how=how, memory="256KB", owed=owed)  # type: ignore[call-overload]
        found = collected(ours.select(*(c for c in ("k", "a", "b") if c in ours.columns)), tmp_path / f"ours_{how}")
        if how != "left_anti":
            other = right.toDF("l", "bt", "b")
            condition = F.expr("k = l and bt between at - interval 5 seconds and at + interval 5 seconds")
            own = left.join(
                other, condition, {"left": "leftOuter", "right": "rightOuter", "full": "fullOuter"}.get(how, how)
            )
            own = own.withColumn("k", F.coalesce("k", "l")) if how != "left_semi" else own
            wanted = collected(own.select(*(c for c in ("k", "a", "b") if c in own.columns)), tmp_path / f"own_{how}")
            mine = found
            if how == "full":  # Spark's own pairs null keys with each other there
                mine, wanted = (
                    Counter({row: n for row, n in c.items() if row[0] is not None}) for c in (found, wanted)
                )
            assert mine == wanted, (how, mine - wanted, wanted - mine)
        pairs = join_by_definition(old[0], old[1], [("k", "k")], ("at", "at", -BAND, BAND), how)
        alone = Counter(((a or b or {})["k"], (a or {}).get("a"), (b or {}).get("b")) for a, b in pairs)
        if how in ("left_semi", "left_anti"):
            alone = Counter((a["k"], a["a"]) for a, _ in pairs if a is not None)
        assert not alone - found, (how, alone - found)
        last = [row for row in found if max(n or 0 for n in row[1:]) >= 500]
        assert found.total() - len(last) == alone.total()


@pytest.mark.parametrize(
    ("how", "owed"), [("full", "batch"), ("left_anti", "idle"), ("right", "idle"), ("left", "batch")]
)
def test_a_stream_that_ends_equals_the_batch_join_after_a_restart_with_another_budget(
    spark: SparkSession, tmp_path: Path, how: str, owed: str
) -> None:
    feed = Feed(tmp_path, keys=80, rows=60)
    for run, memory in enumerate(("48KB", "1MB")):
        feed.add()
        feed.add(last=run == 1)
        left, right = feed.streams(spark, last=True)
        columns = ["k", "a"] if how == "left_anti" else ["k", "a", "b"]
        out = online_join(  # type: ignore[call-overload]
            left, right, on="k", how=how, owed=owed, memory=memory, end_of_input=F.col("last"), columns=columns
        )
        found = collected(out, tmp_path)
    left, right = (pa.concat_tables(tables).to_pylist() for tables in (feed.left, feed.right))
    pairs = join_by_definition(left, right, [("k", "k")], how=how)
    keyed = [((a or b or {})["k"], (a or {}).get("a"), (b or {}).get("b")) for a, b in pairs]
    assert found == Counter(row[: len(columns)] for row in keyed)


@pytest.mark.parametrize("how", ["left", "full"])
def test_rows_of_one_wide_micro_batch_come_alone_one_by_one_as_in_spark(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    rng, start = np.random.default_rng(5), datetime(2026, 1, 1, tzinfo=UTC)
    for name, keys in (("a", 20), ("b", 12)):
        schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), (name, pa.int64())])
        for number, (n, reach) in enumerate(((150, 3_000), (20, 3_600), (5, 9_000))):
            rows = [
                {"k": int(rng.integers(keys)), "at": start + timedelta(seconds=int(rng.integers(reach))), name: n}
                for n in range(1000 * number, 1000 * number + n)
            ]
            drop_file(tmp_path / name, pa.Table.from_pylist(rows, schema), number)
    found = []
    for way in ("ours", "theirs"):
        sides = []
        for name in "ab":
            reader = spark.readStream.schema(f"k long, at timestamp, {name} long").option("maxFilesPerTrigger", 1)
            sides.append(reader.parquet(str(tmp_path / name)).withWatermark("at", "60 seconds"))
        if way == "ours":
            out = online_join(
                *sides, on="k", within=("at", "at", "0 s", "30 s"), how=how, owed="batch", partitions=2, memory="1MB"
            )  # type: ignore[call-overload]
        else:
            right = sides[1].withColumnsRenamed({"k": "l", "at": "then"})
            near = F.expr("k = l and then >= at and then <= at + interval 30 seconds")
            joined = sides[0].join(right, near, how)
            out = joined.selectExpr("coalesce(k, l) as k", "a", "b")
        (tmp_path / way).mkdir()
        found.append(collected(out, tmp_path / way))
    assert found[0] == found[1]
    alone = sum(n for row, n in found[0].items() if row[2] is None)
    assert 20 < alone < 175
