"""Runs all that works over Spark Connect, and all that is refused with a reason: a script.

`python connect_job.py DIRECTORY OPTIONS [ADDRESS]` prints "all is well" when all of it held; without the address of a
server, in a server of its own with these options of Java.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dovetail import (
    MasterStore,
    asof_join,
    band_join,
    dead_letter,
    enrich,
    interval_cluster,
    interval_count,
    interval_coverage,
    interval_depth,
    interval_join,
    interval_nearest,
    interval_pivot,
    interval_subtract,
    online_join,
    plan_enrich,
    plan_interval_join,
    plan_interval_merge,
    session,
    sql,
)
from dovetail.engine.metrics import Metrics
from dovetail.errors import UnsupportedError
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.spark.frames import is_connect, require_classic
from dovetail.spark.places import access_to
from dovetail.spark.session import configure
from dovetail.spark.task import MetricsSink


def refused(attempt: Callable[[], object], words: str) -> None:
    """The attempt is an error that has these words."""
    with pytest.raises(UnsupportedError, match=words):
        attempt()


def foundation(spark: Any) -> None:
    """Our settings are there, Arrow functions run, and metrics say that they do not come back."""
    assert is_connect(spark)
    assert configure(spark) == []
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    with pytest.MonkeyPatch.context() as changed:  # a server does not tell its keys
        changed.setenv("AWS_ACCESS_KEY_ID", "the client's")
        changed.setenv("AWS_SECRET_ACCESS_KEY", "its secret")
        access = access_to(spark, "s3a://bucket/place")
    assert access is not None
    assert (access.key, access.secret) == ("the client's", "its secret")
    sink = MetricsSink(spark)

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink.task(Metrics())
            yield pa.RecordBatch.from_pydict({"id": pc.multiply(batch.column(0), 2)})

    frame = spark.range(100).mapInArrow(doubled, "id long")
    assert is_connect(frame)
    assert is_connect(frame.id)
    assert frame.groupBy().sum("id").first()[0] == 9900
    refused(sink.collect, "do not reach a Spark Connect client")
    refused(
        lambda: require_classic(frame, "a route", "use another"),
        "a route does not work over Spark Connect; use another",
    )


def intervals(spark: Any, place: Path) -> None:
    """Interval joins on every route, to rows and to files."""
    left = spark.sql("select id, id % 3 as k, id * 10 as start, id * 10 + 15 as end from range(30)")
    right = spark.sql("select id as r, id % 3 as k, id * 25 as start, id * 25 + 5 as end from range(12)")
    pairs = spark.sql("""
        select l.id, r.id as r from range(30) l join range(12) r
        on l.id % 3 = r.id % 3 and l.id * 10 < r.id * 25 + 5 and r.id * 25 < l.id * 10 + 15
    """)
    wanted = sorted(map(tuple, pairs.collect()))
    assert len(wanted) > 5
    for algorithm in ("auto", "forward_scan"):
        plan = plan_interval_join(left, right, on="k", algorithm=algorithm, columns=["id", "r"])
        assert sorted(map(tuple, plan.frame().collect())) == wanted, algorithm
        refused(plan.metrics, "Spark Connect")
        files = str(place / algorithm)
        assert plan.write_parquet(files).value("rows written") == len(wanted)
        assert sorted(map(tuple, spark.read.parquet(files).collect())) == wanted
    assert interval_count(left, right, on="k") == len(wanted)
    assert interval_join(left, right, on="k", how="left_semi").count() == len({pair[0] for pair in wanted})


def sets(spark: Any) -> None:
    """Sweeps, which sample an input whose size they do not know; coverage by an index; pieces by a join."""
    rows = spark.sql("select id % 2 as k, id * 10 as start, id * 10 + 15 as end from range(30)")
    plan = plan_interval_merge(rows, aggregates={"most": "max(k)"})
    assert list(map(tuple, plan.frame().collect())) == [(0, 305, 30, 1)]
    refused(plan.metrics, "Spark Connect")
    assert interval_cluster(rows, on="k", partitions=4).select("cluster").distinct().count() == 15
    assert interval_depth(rows, keep="largest", partitions=4).first()["depth"] == 2
    covered = interval_coverage(rows, rows, on="k").select("n_overlaps", "covered").distinct().collect()
    assert list(map(tuple, covered)) == [(1, 15)]
    assert interval_subtract(rows, rows.where("k = 0"), on="k").count() == 15


def nearby(spark: Any) -> None:
    """The nearest rows, with their ties; as-of joins both ways and in SQL; two bands; windows."""
    left = spark.sql("select id % 2 as k, id * 10 as start, id * 10 + 5 as end, id as l from range(20)")
    right = spark.sql("select id % 2 as k, id * 15 as start, id * 15 + 2 as end, id as r from range(10)")
    for ties in ("any", "all"):
        found = interval_nearest(left, right, on="k", ties=ties, ignore_overlaps=True)
        assert found.where("l = 1").select("r", "distance").collect() == [(1, 0)]
    for algorithm in ("index", "window"):
        found = asof_join(left, right, on="start", by="k", algorithm=algorithm, ties=("last", "r"))
        assert found.where("l = 4").select("r").collect() == [(2,)]
    for name, frame in (("mine", left), ("theirs", right)):
        frame.createOrReplaceTempView(name)
    joined = sql(spark, "select l, r from mine asof join theirs on mine.k = theirs.k and mine.start >= theirs.start")
    assert sorted(map(tuple, joined.collect())) == sorted(map(tuple, found.select("l", "r").collect()))
    bands = band_join(left, right, on="k", within=[("start", "start", 0, None), ("end", "end", None, 10)])
    assert (
        bands.count()
        == left.join(right, "k").where(left.start <= right.start).where(right.end <= left.end + 10).count()
    )
    assert interval_pivot(left, on="k", width=100).agg({"overlap": "sum"}).first()[0] == 100


def enrichment(spark: Any, place: Path) -> None:
    """enrich of a table with dead letters, and of a stream whose rows cross micro-batches."""
    write_pages(place / "m.pages", pa.table({"k": list(range(50)), "word": [f"w{n}" for n in range(50)]}), key="k")
    store = MasterStore.open(place / "m.pages")
    rows = spark.range(100).withColumnRenamed("id", "k")
    plan = plan_enrich(rows, store, on="k", memory="1MB", on_miss=dead_letter(place / "letters"))
    assert is_connect(plan.frame())
    found = plan.frame().toArrow()
    words = zip(found["k"].to_pylist(), found["word"].to_pylist(), strict=True)
    assert sorted(words) == [(n, f"w{n}") for n in range(50)]
    assert "prices:" in plan.explain()
    assert spark.read.parquet(str(place / "letters")).count() == 50
    refused(plan.metrics, "Spark Connect")

    rows.write.parquet(str(place / "in"))
    stream = spark.readStream.schema("k long").parquet(str(place / "in"))
    out = enrich(stream, store, on="k", how="left", algorithm="hybridjoin", tune="off", memory="1MB", mode="carry")
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer.option("path", str(place / "carried")).trigger(availableNow=True).start().awaitTermination()
    answers = spark.read.parquet(str(place / "carried")).toArrow()
    assert answers.num_rows == 100
    assert answers["word"].null_count == 50


def online(spark: Any, place: Path) -> None:
    """Owed results of a stream come in pauses, which its query does not end after: that is said."""
    rows = spark.readStream.schema("k long").parquet(str(place / "in"))
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dovetail").addHandler(handler)
    for owed, n in (("batch", 0), ("idle", 1)):
        other = rows.withColumnRenamed("k", "j")
        found = online_join(rows, other, on=[("k", "j")], memory="1MB", retain="1 hour", owed=owed)
        assert found.columns == ["k", "j"]
        assert len(said) == n, said
    assert "does not end by itself: give owed='batch'" in said[0]


def changes(spark: Any, place: Path) -> None:
    """Changes of a page file, of a stream and of a batch."""
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "k long, word string")
    store = MasterStore.build(rows, place / "c.pages", key="k", unique=True)
    feed = spark.createDataFrame([(1, "z", "u", 1), (2, None, "d", 2)], "k long, word string, op string, lsn int")
    feed.write.parquet(str(place / "feed"))
    stream = spark.readStream.schema(feed.schema).parquet(str(place / "feed"))
    for _ in range(2):
        store.apply_changes(
            stream, sequence="lsn", checkpoint=place / "applied", trigger={"availableNow": True}
        ).awaitTermination()
    assert store.version().startswith("2-")
    store.merge_changes(feed.selectExpr("k + 6 k", "'y' word", "'c' op", "lsn"), sequence="lsn")
    found = enrich(spark.range(9).toDF("k"), store, on="k", memory="1MB", tune="off").toArrow().to_pylist()
    assert sorted((row["k"], row["word"]) for row in found) == [(1, "z"), (7, "y"), (8, "y")]


def main(place: Path, java_options: str, address: str = "") -> None:
    own = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 3, "spark.driver.extraJavaOptions": java_options}
    own |= {"spark.hadoop.fs.s3a.access.key": "the server's", "spark.hadoop.fs.s3a.secret.key": "another"}
    spark = session(conf={"spark.remote": address} if address else {"spark.remote": "local[1]", **own})
    foundation(spark)
    intervals(spark, place)
    sets(spark)
    nearby(spark)
    enrichment(spark, place)
    online(spark, place)
    changes(spark, place)
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
