"""A page file kept up to date by a stream of changes, while other streams are enriched from it."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.oracle import Events, add_events, after_changes, periods
from tests.semistream.frame.cases import Ledger, bag, drop_file, file_stream

from dovetail import MasterStore, enrich
from dovetail.errors import ConfigError, DataError, DovetailError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.page_file.generation import load_version
from dovetail.joins.semistream.plan.changes import Changes
from dovetail.joins.semistream.versions import default_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
FEED = pa.schema([("k", pa.int64()), ("name", pa.string()), ("op", pa.string()), ("lsn", pa.int64())])
ONCE = {"availableNow": True}


@pytest.fixture
def partitions(spark: SparkSession) -> Iterator[Any]:
    """Sets the number of shuffle partitions for one test."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    yield lambda number: spark.conf.set(name, str(number))
    spark.conf.set(name, before or "2")


def feed(rng: Random, batch: int, n: int = 60, keys: int = 300) -> list[Row]:
    places = rng.sample(range(1000 * batch, 1000 * batch + 900), n)
    return [
        {"k": rng.randrange(keys), "name": rng.choice([None, f"{place}"]), "op": rng.choice("cuurd"), "lsn": place}
        for place in places
    ]


def built(spark: SparkSession, path: Path, keys: int = 200) -> tuple[MasterStore, list[Row]]:
    rows = [{"k": number, "name": f"first {number}"} for number in range(keys)]
    frame = spark.createDataFrame([(row["k"], row["name"]) for row in rows], "k long, name string")
    return MasterStore.build(frame, path, key="k", page=256, unique=True), rows


def stored(spark: SparkSession, store: MasterStore, keys: int = 300) -> list[Row]:
    found = enrich(spark.range(keys).toDF("k"), store, on="k", memory="1MB", tune="off").toArrow().to_pylist()
    return sorted(found, key=lambda row: row["k"])


def only(rows: list[Any]) -> list[Row]:
    return sorted(({"k": row["k"], "name": row["name"]} for row in rows), key=lambda row: row["k"])


def test_a_stream_is_enriched_from_a_page_file_that_another_stream_changes(
    spark: SparkSession, tmp_path: Path, partitions: Any
) -> None:
    rng = Random(1)  # noqa: S311  (cases, not secrets)
    store, rows = built(spark, tmp_path / "m.pages")
    by_version, kept = {store.version(): rows}, {"per_batch": Ledger(3), "carry": Ledger(3)}
    for batch in range(5):
        partitions(1 + batch % 3)
        changes = feed(rng, batch)
        rows = after_changes(rows, changes, ["k"], ["lsn"])
        drop_file(tmp_path / "feed", pa.Table.from_pylist(changes, FEED), batch)
        drop_file(
            tmp_path / "in",
            pa.table({"id": range(batch * 90, batch * 90 + 90), "k": [n * 7 % 320 for n in range(90)]}),
            batch,
        )
        stream = file_stream(spark, tmp_path / "feed")
        store.apply_changes(stream, sequence="lsn", checkpoint=tmp_path / "applied", trigger=ONCE).awaitTermination()
        by_version[store.version()] = rows
        for mode, ledger in kept.items():
            answers = enrich(
                file_stream(spark, tmp_path / "in"), store, on="k", how="left", mode=mode,
                memory=("1MB", "300KB")[batch % 2], algorithm="cachejoin", tune="off",
            )  # fmt: skip
            ledger.run(answers, tmp_path / mode)  # the answers of the fourth micro-batch fail once, and come again
    assert len(by_version) == 6
    for mode, ledger in kept.items():
        query = next(name for name in (tmp_path / mode / "checkpoint").glob("metadata")).read_text().split('"')[3]
        logged = default_log(store).batches(query)
        assert len(set(logged.values())) > 3, mode
        for number, answers in ledger.kept.items():
            for row in answers.to_pylist():
                known = {each["k"]: each["name"] for each in by_version[logged[number]]}
                assert row["name"] == known.get(row["k"]), (mode, number, row)
        assert sorted(row["id"] for table in ledger.kept.values() for row in table.to_pylist()) == list(range(450))


def test_a_micro_batch_that_runs_again_makes_no_second_version(
    spark: SparkSession, tmp_path: Path, partitions: Any
) -> None:
    rng = Random(2)  # noqa: S311  (cases, not secrets)
    store, rows = built(spark, tmp_path / "m.pages")
    for batch in range(3):
        changes = feed(rng, batch)
        rows = after_changes(rows, changes, ["k"], ["lsn"])
        drop_file(tmp_path / "feed", pa.Table.from_pylist(changes, FEED), batch)

    def run(**more: Any) -> None:
        stream = file_stream(spark, tmp_path / "feed")
        query = store.apply_changes(stream, sequence="lsn", checkpoint=tmp_path / "applied", trigger=ONCE, **more)
        query.awaitTermination()

    run()
    version = store.version()
    assert only(stored(spark, store)) == only(rows)
    commits = tmp_path / "applied" / "commits"
    for file in [commits / "2", commits / ".2.crc"]:
        file.unlink(missing_ok=True)
    partitions(3)
    run()
    assert (commits / "2").exists()
    assert store.version() == version
    rebuilt, _ = built(spark, tmp_path / "m.pages")  # a new build knows it, too
    (commits / "2").unlink()
    run(keep=1)
    assert rebuilt.version() == store.version()
    assert "micro-batch 2 of query" in store.explain()
    for name in ("commits/1", "commits/2", "offsets/2"):  # as of a checkpoint from a copy
        (tmp_path / "applied" / name).unlink()
        (tmp_path / "applied" / name).with_name(f".{name[-1]}.crc").unlink(missing_ok=True)
    with pytest.raises(
        StreamingQueryException, match=r"is older than .* it is at micro-batch 1, and the page file has 2"
    ):
        run()


def test_a_checkpoint_from_one_micro_batch_before_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its next micro-batch has the number of the last one that was applied, and more rows."""
    rng = Random(3)  # noqa: S311  (cases, not secrets)
    store, _ = built(spark, tmp_path / "m.pages")

    def run(batch: int) -> None:
        drop_file(tmp_path / "feed", pa.Table.from_pylist(feed(rng, batch), FEED), batch)
        stream = file_stream(spark, tmp_path / "feed")
        store.apply_changes(stream, sequence="lsn", checkpoint=tmp_path / "applied", trigger=ONCE).awaitTermination()

    run(0)
    shutil.copytree(tmp_path / "applied", tmp_path / "copy")
    run(1)
    version = store.version()
    shutil.rmtree(tmp_path / "applied")
    (tmp_path / "copy").rename(tmp_path / "applied")
    with pytest.raises(
        StreamingQueryException, match=r"is older than .* it is at micro-batch 1, and the page file has 1"
    ):
        run(2)
    assert store.version() == version


def test_a_second_stream_is_refused_until_it_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    store, rows = built(spark, tmp_path / "m.pages")
    first, second = (
        [{"k": 1, "name": "a", "op": "u", "lsn": 1}],
        [{"k": 1, "name": "b", "op": "u", "lsn": 2}],
    )
    for name, changes in (("one", first), ("two", second)):
        drop_file(tmp_path / name, pa.Table.from_pylist(changes, FEED), 0)

    def run(name: str, **more: Any) -> None:
        stream = file_stream(spark, tmp_path / name)
        query = store.apply_changes(
            stream, sequence="lsn", checkpoint=tmp_path / f"{name}-applied", trigger=ONCE, **more
        )
        query.awaitTermination()

    run("one")
    with pytest.raises(StreamingQueryException, match="is kept up to date by the streaming query"):
        run("two")
    applied = load_version(tmp_path / "m.pages").applied
    assert applied is not None
    run("two", takeover=applied.query)
    assert only(stored(spark, store)) == only(after_changes(rows, [*first, *second], ["k"], ["lsn"]))
    drop_file(tmp_path / "one", pa.Table.from_pylist([{"k": 2, "name": "c", "op": "u", "lsn": 3}], FEED), 1)
    with pytest.raises(StreamingQueryException, match="start it with takeover="):
        run("one")


def test_a_query_that_takes_over_with_a_change_of_nothing_is_known(spark: SparkSession, tmp_path: Path) -> None:
    store, _ = built(spark, tmp_path / "m.pages")
    changes = pa.Table.from_pylist([{"k": 1, "name": "a", "op": "u", "lsn": 1}], FEED)

    def run(name: str, **more: Any) -> str:
        drop_file(tmp_path / name, changes, len(list((tmp_path / name).glob("*"))) if (tmp_path / name).exists() else 0)
        stream = file_stream(spark, tmp_path / name)
        query = store.apply_changes(
            stream, sequence="lsn", checkpoint=tmp_path / f"{name}-applied", trigger=ONCE, **more
        )
        query.awaitTermination()
        applied = load_version(tmp_path / "m.pages").applied
        assert applied is not None
        return applied.query

    first = run("one")
    rows = stored(spark, store)
    second = run("two", takeover=first)
    assert second != first
    assert stored(spark, store) == rows
    version = store.version()
    assert run("two") == second
    assert store.version() == version  # a query that is known makes no version for nothing
    with pytest.raises(StreamingQueryException, match="start it with takeover="):
        run("one")


def test_further_sequence_columns_decide_between_calls(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k string, rate double, lsn int, valid_from int, valid_to int"
    store = MasterStore.build(spark.createDataFrame([], columns), tmp_path / "m.pages", key="k")
    history, kinds = ("valid_from", "valid_to"), "k string, rate double, ts int, lsn int, op string"

    def merge(rate: float, ts: int, lsn: int, op: str = "u") -> None:
        changes = spark.createDataFrame([("USD", rate, ts, lsn, op)], kinds)
        store.merge_changes(changes, sequence=("ts", "lsn"), history=history)

    def rates(*times: int) -> list[float | None]:
        rows = spark.createDataFrame([("USD", at) for at in times], "k string, at int")
        found = enrich(rows, store, on="k", at="at", how="left", columns=["at", "rate"], memory="1MB", tune="off")
        return [row["rate"] for row in found.orderBy("at").collect()]

    merge(0.93, 10, 2)
    merge(0.91, 10, 1)
    assert rates(9, 11) == [None, 0.93]
    merge(0.0, 10, 1, "d")  # older than the stored row, too
    merge(0.9, 5, 9)  # another time
    assert rates(6, 11) == [0.9, 0.93]
    merge(0.95, 10, 3)
    merge(0.97, 20, 1)
    assert rates(6, 11, 21) == [0.9, 0.95, 0.97]
    merge(0.0, 20, 2, "d")
    assert rates(11, 21) == [0.95, None]
    changes = spark.createDataFrame([("USD", 1.0, 10, 1, "u", 7)], f"{kinds}, n int")
    with pytest.raises(PlanError, match=r"the store has no column 'n'.*build the store with these columns") as told:
        store.merge_changes(changes, sequence=("ts", "n"), history=history)
    assert told.value.argument == "sequence"


def test_history_is_the_temporal_join_of_event_time(spark: SparkSession, tmp_path: Path) -> None:
    rng, day = Random(3), dt.datetime(2026, 1, 1)  # noqa: S311  (cases, not secrets; Spark's session zone)
    schema = "sku string, price long, valid_from timestamp_ntz, valid_to timestamp_ntz"
    path, events = tmp_path / "prices.pages", Events()
    store = MasterStore.build(spark.createDataFrame([], schema), path, key="sku", page=256)
    for batch in range(4):
        changes = [
            {"sku": f"s{rng.randrange(12)}", "price": rng.randrange(100), "ts": day + dt.timedelta(hours=hour),
             "_change_type": rng.choice(["insert", "update_postimage", "update_preimage", "delete"])}
            for hour in rng.sample(range(batch * 50, batch * 50 + 60), 40)
        ]  # fmt: skip
        counted = [{**row, "op": row["_change_type"][0]} for row in changes if row["_change_type"] != "update_preimage"]
        add_events(events, counted, ["sku"], "ts")
        drop_file(tmp_path / "feed", pa.Table.from_pylist(changes), batch)
    stream = file_stream(spark, tmp_path / "feed")
    query = store.apply_changes(
        stream, sequence="ts", history=("valid_from", "valid_to"), checkpoint=tmp_path / "applied", trigger=ONCE
    )
    query.awaitTermination()
    orders = [(n, f"s{n % 14}", day + dt.timedelta(minutes=n * 20)) for n in range(700)]
    frame = spark.createDataFrame(orders, "id int, sku string, at timestamp_ntz")
    found = enrich(frame, store, on="sku", at="at", how="left", columns=["id", "price"], memory="1MB", tune="off")
    expected = {}
    for number, sku, at in orders:
        valid = [
            row["price"] for row, first, end in periods(events)
            if row["sku"] == sku and first <= at and (end is None or at < end)
        ]  # fmt: skip
        expected[number] = valid[0] if valid else None
    assert {row["id"]: row["price"] for row in found.collect()} == expected
    assert len(set(expected.values())) > 20


def test_changes_of_a_batch_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(4)  # noqa: S311  (cases, not secrets)
    columns = "region string, k decimal(12,2), v int, seen timestamp"
    rows: list[Any] = []
    store = MasterStore.build(
        spark.createDataFrame([], columns), tmp_path / "m.pages", key=["region", "k"], page=512, unique=True
    )
    for batch in range(4):
        seen = dt.datetime(2026, 1, 1 + batch)
        numbers = rng.sample(range(400), 150)
        changes = [
            {"region": rng.choice(["é", "ea", "b"]), "k": n % 40, "v": n, "seen": seen, "n": n, "part": batch,
             "what": rng.choice(["+", "+", "gone"]), "op": ""}
            for n in numbers
        ]  # fmt: skip
        for row in changes:
            row["op"] = "d" if row["what"] == "gone" else "u"
        rows = after_changes(rows, changes, ["region", "k"], ["part", "n"])
        names = "region string, k int, v int, seen timestamp, part int, n int, what string"
        values = [tuple(row[name.split()[0]] for name in names.split(", ")) for row in changes]
        frame = spark.createDataFrame(values, names)
        before = store.version()
        version = store.merge_changes(
            frame.withColumn("k", frame.k.cast("decimal(12,2)")), sequence=["part", "n"], operation="what",
            operations={"+": "upsert", "gone": "delete"},
        )  # fmt: skip
        assert version == store.version() != before
    keys = spark.sql(
        "SELECT region, CAST(id AS decimal(12,2)) k FROM range(40), VALUES ('é'), ('ea'), ('b') AS t(region)"
    )
    found = enrich(keys, store, on=["region", "k"], memory="1MB", tune="off").select("region", "k", "v").collect()
    assert sorted((r[0], int(r[1]), r[2]) for r in found) == sorted((r["region"], r["k"], r["v"]) for r in rows)
    again, meant = frame.withColumn("k", frame.k.cast("decimal(12,2)")), {"+": "upsert", "gone": "delete"}
    same = [store.merge_changes(again, sequence=["part", "n"], operation="what", operations=meant) for _ in range(2)]
    assert same == [store.version()] * 2


def test_a_file_that_was_built_anew_with_another_shape_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = tmp_path / "m.pages", spark.range(100).selectExpr("id as k", "id as v")
    store = MasterStore.build(rows, path, key="k", unique=True, page=256)
    feed = spark.range(7, 8).selectExpr("id as k", "-1L as v", "'u' as op", "1 as n")
    planned = Changes.of(store, feed, "n", None, None, None)
    for other in (rows.union(rows), rows.withColumn("w", rows.v)):
        MasterStore.build(other, path, key="k", page=256)
        with pytest.raises(ConfigError, match=r"rebuilt .* MasterStore.open"):
            planned.merge(feed)


def test_a_checkpoint_whose_name_has_signs_of_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    store = MasterStore.build(spark.range(9).selectExpr("id as k", "id as v"), tmp_path / "m", key="k", unique=True)
    spark.range(3).selectExpr("id as k", "-id as v", "'u' as op", "id as n").write.parquet(str(tmp_path / "feed"))
    stream = spark.readStream.schema("k long, v long, op string, n long").parquet(str(tmp_path / "feed"))
    store.apply_changes(
        stream, sequence="n", checkpoint=tmp_path / "[c]{k}", trigger={"availableNow": True}
    ).awaitTermination()
    found = enrich(spark.range(9).toDF("k"), store, on="k", memory="1MB", tune="off").select("v").collect()
    assert sorted(row.v for row in found) == [-2, -1, 0, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("own_log", [False, True])
def test_a_version_that_a_stream_may_replay_is_kept(spark: SparkSession, tmp_path: Path, own_log: bool) -> None:
    """Also if its log was given with versions=, and is not beside the page file."""
    store, rows = built(spark, tmp_path / "m.pages")
    spark.range(9).toDF("k").write.parquet(str(tmp_path / "in"))
    answers: list[Any] = []

    def run(fails: bool) -> None:
        def take(frame: DataFrame, _: int) -> None:
            answers[:] = [row.asDict() for row in frame.collect()]
            assert not fails

        given: dict[str, Any] = {"versions": str(tmp_path / "log")} if own_log else {}
        stream = spark.readStream.schema("k long").parquet(str(tmp_path / "in"))
        writer = enrich(stream, store, on="k", memory="1MB", tune="off", **given).writeStream.foreachBatch(take)
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(**ONCE).start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        run(fails=True)
    feed_of = spark.readStream.schema("k long, name string, op string, lsn long").option("maxFilesPerTrigger", 1)
    for number in range(3):
        rng = Random(number)  # noqa: S311  (test data)
        drop_file(tmp_path / "feed", pa.Table.from_pylist(feed(rng, number), FEED), number)
    changes = feed_of.parquet(str(tmp_path / "feed"))
    store.apply_changes(changes, sequence="lsn", checkpoint=tmp_path / "f", keep=1, trigger=ONCE).awaitTermination()
    answers.clear()
    run(fails=False)
    assert only(answers) == rows[:9]


def test_requests_that_cannot_be_right(spark: SparkSession, tmp_path: Path) -> None:
    store, _ = built(spark, tmp_path / "m.pages")
    changes = spark.createDataFrame([(1, "a", "u", 1)], "k long, name string, op string, lsn int")
    several = MasterStore.build(changes.select("k", "name"), tmp_path / "several.pages", key="k")
    ranged = MasterStore.build(
        changes.selectExpr("k first", "k last", "name"), tmp_path / "ranged.pages", bounds=("first", "last")
    )
    cases: list[tuple[MasterStore, DataFrame, dict[str, Any], type[DovetailError], str]] = [
        (several, changes, {}, PlanError, "build it with unique=True"),
        (ranged, changes, {}, UnsupportedError, "was built with bounds="),
        (store, changes.drop("op"), {}, PlanError, "name the one that says what a change does"),
        (store, changes.drop("name"), {}, PlanError, "no column 'name'"),
        (store, changes, {"sequence": "ts"}, PlanError, "no column 'ts'"),
        (store, changes, {"operations": {"x": "replace"}}, PlanError, "operations=.*'replace'.* must be a mapping"),
        (store, changes, {"history": ("a", "b")}, PlanError, "history="),
        (store, changes.selectExpr("cast(k as int) k", "name", "op", "lsn"), {}, PlanError, "'k' is int32.*int64"),
        (store, changes.selectExpr("k", "name", "op", "map(1, 2) lsn"), {}, PlanError, "cannot be a key"),
        (store, changes.selectExpr("k", "name", "'?' op", "lsn"), {}, DataError, "operation '\\?'"),
        (store, changes.selectExpr("cast(null as bigint) k", "name", "op", "lsn"), {}, DataError, "column 'k'"),
    ]
    before = store.version()
    for named, frame, options, error, message in cases:
        with pytest.raises(error, match=message):
            named.merge_changes(frame, **{"sequence": "lsn", **options})
    with pytest.raises(PlanError, match="merge_changes"):
        store.apply_changes(changes, sequence="lsn", checkpoint=tmp_path / "c")
    assert store.version() == before
    assert bag(enrich(changes.select("k"), store, on="k", memory="1MB", tune="off")) == {(1, "first 1"): 1}
