"""`online_join` by a relation of intervals on Spark: equal to Spark's own joins, of batches and of streams."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.test_online_outer_stream import OUTER, bag, collected
from tests.oracle import online_join as join_by_definition
from tests.semistream.frame.cases import drop_file

from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.relation import Relation
from dovetail.joins.online.api import online_join, plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def sides(spark: SparkSession, n: int = 200) -> tuple[DataFrame, DataFrame]:
    """Intervals of up to seven, some of them null, empty or inverted, with keys of which some are null."""
    left = spark.range(n).selectExpr(
        "if(id % 17 = 0, null, id % 9) as k",
        "id as a",
        "xxhash64(id) % 300 as ls",
        "xxhash64(id) % 300 + id % 8 - 1 as le",
    )
    right = spark.range(n).selectExpr(
        "if(id % 13 = 0, null, id % 7) as l",
        "id as b",
        "xxhash64(-id) % 300 as rs",
        "xxhash64(-id) % 300 + id % 9 - 1 as re",
    )
    return left.withColumn("ls", F.when(F.col("a") % 19 > 0, F.col("ls"))), right


BOUNDS: dict[str, Any] = {"left_interval": ("ls", "le"), "right_interval": ("rs", "re")}


def own(left: DataFrame, right: DataFrame, relation: str, how: str, keyed: bool, closed: str = "left") -> DataFrame:
    usable = "ls <= le and rs <= re" if closed == "both" else "ls < le and rs < re"
    condition = Relation.parse(relation, closed=closed).sql("ls", "le", "rs", "re")
    return left.join(right, F.expr(f"{usable} and ({condition}){' and k = l' if keyed else ''}"), how)


def test_batches_equal_sparks_own_join_for_every_how(spark: SparkSession) -> None:
    left, right = sides(spark)
    for number, how in enumerate(("inner", *OUTER)):
        relation, closed = ("overlapping", "during", "meets")[number % 3], ("left", "both")[number % 2]
        given = {**BOUNDS, "relation": relation, "closed": closed, "how": how, "memory": "1MB"}
        keyed = online_join(left, right, on=[("k", "l")], partitions=3, **given)
        assert bag(keyed) == bag(own(left, right, relation, how, keyed=True, closed=closed)), (how, "keyed")
        alone = online_join(left, right, partitions=1 if how == "full" else 3, **given)
        assert bag(alone) == bag(own(left, right, relation, how, keyed=False, closed=closed)), (how, "alone")


def test_points_structs_columns_and_hot_keys(spark: SparkSession) -> None:
    left, right = sides(spark, 120)
    clicks = right.selectExpr("l", "b", "rs as at")
    wanted = left.join(clicks, F.expr("k = l and ls <= at and at < le")).select("a", "b")
    point = {"relation": "overlapping", "left_interval": ("ls", "le"), "right_interval": "at"}
    assert bag(online_join(left, clicks, on=[("k", "l")], columns=["a", "b"], **point)) == bag(wanted)  # type: ignore[call-overload]
    nested = left.selectExpr("k", "a", "struct(ls, le) as span")
    found = online_join(
        nested, clicks, on=[("k", "l")], relation="covers", left_interval="span", right_interval="at", hot=[3, 5],
        partitions=4, memory="1MB",
    )  # fmt: skip
    assert found.columns == ["k", "a", "span", "l", "b", "at"]
    covering = left.join(clicks, F.expr("k = l and ls < le and ls <= at and at <= le"))
    assert bag(found.select("a", "b")) == bag(covering.select("a", "b"))
    for wrong, message in (({"left_interval": "s3"}, "struct of 3 fields"), ({"left_interval": ("ls", "x")}, "x")):
        with pytest.raises(PlanError, match=message):
            online_join(left.selectExpr("*", "struct(a, a, a) as s3"), clicks, **(point | wrong))  # type: ignore[call-overload]


def test_null_keys_equal_each_other_in_every_how(spark: SparkSession) -> None:
    left, right = sides(spark, 90)
    for how in ("inner", *OUTER):
        band = {"within": ("a", "b", -40, 40)} if how != "full" else {}
        near = "k <=> l and b - a between -40 and 40" if band else "k <=> l"
        found = online_join(left, right, on=[("k", "l")], null_safe=True, how=how, partitions=3, memory="1MB", **band)  # type: ignore[call-overload]
        assert bag(found) == bag(left.join(right, F.expr(near), how)), how


def test_the_plan_says_how_rows_are_spread_and_what_is_refused(spark: SparkSession) -> None:
    left, right = sides(spark, 40)
    given = {**BOUNDS, "relation": "overlapping"}
    lines = plan_online_join(left, right, partitions=4, **given).explain().splitlines()
    assert lines[1] == "no equal columns: left rows are dealt out to all partitions, right ones go to each"
    assert lines[2].startswith("Diner: on [ls, le) overlapping [rs, re), ")
    lines = plan_online_join(left, right, partitions=4, on=[("k", "l")], closed="both", **given).explain().splitlines()
    assert lines[2].startswith("Diner: on k = l and [ls, le] overlapping [rs, re], ")
    with pytest.raises(UnsupportedError, match=r"how='full' with a relation alone.*partitions=1.*left_anti"):
        online_join(left, right, partitions=4, how="full", **given)
    with pytest.raises(UnsupportedError, match="SymmetricHashJoin hashes its keys"):
        online_join(left, right, algorithm="shj", **given)
    with pytest.raises(PlanError, match=r"bounds of intervals: .* do not compare; cast one of them first"):
        online_join(left, right.withColumn("re", F.col("re").cast("string")), **given)
    with pytest.raises(PlanError, match="smallest for this join"):
        online_join(left, right, memory="1KB", **given)


class Sessions:
    """Files of intervals of up to 20 seconds whose starts move on, and at last are far ahead."""

    def __init__(self, place: Path) -> None:
        self.place, rng = place, np.random.default_rng(8)
        place.mkdir()
        self.rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        for number in range(6):
            for side, name in enumerate("ab"):
                starts = (10_000 if number == 5 else 10 * number) + rng.integers(0, 15, 40)
                ends = starts + rng.choice([0, 1, 3, 20], 40, p=[0.1, 0.4, 0.4, 0.1])
                rows = [
                    {
                        "k": int(rng.integers(0, 12)),
                        "start": NEW_YEAR + timedelta(seconds=int(start)),
                        "end": NEW_YEAR + timedelta(seconds=int(end)),
                        name: 100 * number + n,
                    }
                    for n, (start, end) in enumerate(zip(starts, ends, strict=True))
                ]  # fmt: skip
                self.rows[side].extend(rows)
                times = [("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]
                schema = pa.schema([("k", pa.int64()), *times, (name, pa.int64())])
                drop_file(place / name, pa.Table.from_pylist(rows, schema), number)

    def streams(self, spark: SparkSession, on: str = "start") -> list[DataFrame]:
        found = []
        for name in "ab":
            schema = f"k long, start timestamp, end timestamp, {name} long"
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            frame = reader.parquet(str(self.place / name))
            found.append(frame.withWatermark(on, "10 seconds") if on else frame)
        return found


def test_streams_with_watermarks_equal_sparks_stream_stream_join(spark: SparkSession, tmp_path: Path) -> None:
    """Spark needs the lengths of intervals to find when rows leave; the rows of its answer are the same.

    Of the last micro-batch, rows come alone here whose own end the watermark has passed, and in Spark none yet.
    """
    feed = Sessions(tmp_path / "in")
    old = [[row for row in rows if row["start"] < NEW_YEAR + timedelta(hours=2)] for rows in feed.rows]
    for how, relation, keyed in (
        ("inner", "overlapping", False), ("left", "overlapping", True), ("full", "covers", True),
        ("right", "overlapping", False), ("left_semi", "during", True), ("left_anti", "overlapping", True),
    ):  # fmt: skip
        left, right = feed.streams(spark)
        on = "k" if keyed else None
        renamed = right.withColumnsRenamed({"k": "k2"}) if not keyed else right
        ours = online_join(left, renamed, on=on, relation=relation, how=how, memory="256KB", partitions=2, owed="batch")  # type: ignore[call-overload]
        names = [c for c in ("k", "a", "b") if c in ours.columns]
        found = collected(ours.select(*names), tmp_path / f"ours_{how}")
        if how != "left_anti":
            other = right.withColumnsRenamed({"k": "l", "start": "rs", "end": "re"})
            condition = Relation.parse(relation).sql("start", "end", "rs", "re")
            near = "rs between start - interval 21 seconds and start + interval 21 seconds"
            equal = "k = l and " if keyed else "k * 0 = l * 0 and "  # it refuses streams without equal columns
            usable = "start < end and rs < re"
            theirs = left.join(other, F.expr(f"{equal}{near} and {usable} and ({condition})"), how)
            if how in ("right", "full") and keyed:
                theirs = theirs.withColumn("k", F.coalesce("k", "l"))
            wanted = collected(theirs.select(*names), tmp_path / f"own_{how}")
            assert not wanted - found, (how, wanted - found)
            assert all(None in row[1:] and max(n or 0 for n in row[1:]) >= 500 for row in found - wanted), how
        given: dict[str, Any] = {"how": how, "closed": "left", "relation": relation}
        pairs = join_by_definition(old[0], old[1], [("k", "k")] if keyed else (), **given)
        kept = Counter(tuple(answer(a, b, keyed)[name] for name in names) for a, b in pairs)
        assert not kept - found, (how, kept - found)
        pairs = join_by_definition(*feed.rows, [("k", "k")] if keyed else (), **given)
        every = Counter(tuple(answer(a, b, keyed)[name] for name in names) for a, b in pairs)
        assert not found - every, (how, found - every)
        last = [row for row in found.elements() if max(n or 0 for n in row[1:]) >= 500]
        assert found.total() - len(last) == kept.total(), how


def answer(a: Any, b: Any, keyed: bool) -> dict[str, Any]:
    """A pair as a row: the key is left's, where both have one either's."""
    key = (a or b)["k"] if keyed else (a or {}).get("k")
    return {"a": (a or {}).get("a"), "b": (b or {}).get("b"), "k": key}


def test_a_stream_goes_on_with_another_budget_and_algorithm_but_not_with_another_relation(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, out, found = Sessions(tmp_path / "in"), tmp_path / "q", Counter[Any]()
    late = tmp_path / "late"
    for name in "ab":
        (late / name).mkdir(parents=True)
        for file in sorted((feed.place / name).iterdir())[3:]:
            file.rename(late / name / file.name)
    runs: list[dict[str, Any]] = [{"memory": "64KB"}, {"memory": "1MB", "algorithm": "pmj"}]
    for run, options in enumerate(runs):
        left, right = (frame.withColumnRenamed("k", "k" + "lr"[side]) for side, frame in enumerate(feed.streams(spark)))
        joined = online_join(left, right, relation="overlapping", partitions=2, owed="batch", **options)
        found = collected(joined.selectExpr("0 as k", "a", "b"), out)
        if run == 0:
            for name in "ab":
                for file in (late / name).iterdir():
                    file.rename(feed.place / name / file.name)
    pairs = join_by_definition(*feed.rows, relation="overlapping", closed="left")
    assert found == Counter((0, a["a"], b["b"]) for a, b in pairs if a and b)
    for change, message in (({"relation": "covers"}, "relation"), ({"partitions": 3}, "give partitions=2")):
        left, right = (frame.withColumnRenamed("k", "k" + "lr"[side]) for side, frame in enumerate(feed.streams(spark)))
        drop_more(feed.place)
        again = online_join(left, right, **{"relation": "overlapping", "partitions": 2, "owed": "batch", **change})
        with pytest.raises(StreamingQueryException, match=message):
            collected(again.selectExpr("0 as k", "a", "b"), out)


def drop_more(place: Path) -> None:
    """A file more for each side, so that there is something to join."""
    for name in "ab":
        files = sorted((place / name).iterdir())
        shutil.copy(files[-1], files[-1].with_name(f"more-{len(files)}.parquet"))


def test_watermarks_that_bound_nothing_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Sessions(tmp_path / "in")
    for relation, on in (("overlapping", "end"), ("before", "start"), ("overlapping", "")):
        left, right = feed.streams(spark, on)
        with pytest.raises(PlanError, match=r"two streams without an end.*retain=.*start of each for most relations"):
            online_join(left, right, on="k", relation=relation)  # type: ignore[call-overload]
        assert online_join(left, right, on="k", relation=relation, retain="1 hour").isStreaming  # type: ignore[call-overload]
    left, right = feed.streams(spark, "end")
    assert plan_online_join(left, right, on="k", relation="equals").task.lateness is not None
