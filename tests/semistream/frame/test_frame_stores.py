"""enrich from stores that keep no old versions, in foreachBatch, and beside watermarks."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import Ledger, bag, drop_file, file_stream, page_store, rows_of
from tests.semistream.master.debian_servers import MariaDb, Redis
from tests.semistream.master.server import Server

from dovetail import MasterStore, enrich
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.plan.tables import Described, described_store
from dovetail.joins.semistream.versions import VersionLog, log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(frame: DataFrame, place: Path, sink: str = "parquet") -> Any:
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(place / "checkpoint"))
    query = writer.option("path", str(place / "out")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def numbers(first: int, rows: int = 30) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows)), "k": [n % 35 for n in range(rows)]})


def sqlite_at(place: Path, word: str) -> MasterStore:
    with sqlite3.connect(place / "m.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS m (k INTEGER PRIMARY KEY, word TEXT)")
        connection.executemany("INSERT OR REPLACE INTO m VALUES (?, ?)", [(k, word) for k in range(40)])
    connection.close()
    return MasterStore.sqlite(place / "m.db", "m", "k")


def parquet_at(place: Path, word: str) -> MasterStore:
    table = pa.table({"k": list(range(40)), "word": [word] * 40})
    (place / "m").mkdir(exist_ok=True)
    parquet.write_table(table, place / "staged", row_group_size=10)
    (place / "staged").replace(place / "m" / "0.parquet")
    return MasterStore.parquet(place / "m", "k")


@pytest.mark.parametrize("store_at", [sqlite_at, parquet_at])
def test_streams_follow_stores_without_history(spark: SparkSession, tmp_path: Path, store_at: Any) -> None:
    """Also where the log names a version that is gone: the batch takes what there is, and the log says so."""
    query = None
    for number, word in enumerate(["first", "second", "third"]):
        store = store_at(tmp_path, word)
        drop_file(tmp_path / "in", numbers(100 * number), number)
        out = enrich(
            file_stream(spark, tmp_path / "in"), store, on="k", algorithm="hybridjoin", memory="1MB", tune="off",
            versions=str(tmp_path / "versions"),
        )  # fmt: skip
        if query is not None and number == 2:
            log = Path(log_of(store, str(tmp_path / "versions")).path)
            (log / str(query.id) / "2.0.json").write_text('{"version": "gone", "taken_at": 1.0}')
        query = run(out, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).select("word").toArrow()["word"].to_pylist()
    assert Counter(found) == {"first": 30, "second": 30, "third": 30}
    assert query is not None
    logged = log_of(store, str(tmp_path / "versions")).batches(str(query.id))
    assert len(set(logged.values())) == 3
    assert logged[2] == store.version()


@pytest.mark.parametrize("store_at", [sqlite_at, parquet_at])
def test_a_repeated_batch_without_history_answers_the_same_rows(
    spark: SparkSession, tmp_path: Path, store_at: Any
) -> None:
    """From the version that is there then: all rows of the micro-batch, as in the first run, with its own words."""
    store = store_at(tmp_path, "first")
    drop_file(tmp_path / "in", numbers(0), 0)
    sink, runs = Ledger(fails_after=0), []

    def keep(frame: DataFrame, number: int) -> None:
        runs.append(rows_of(frame.select("id", "word").toArrow()))
        sink(frame, number)

    for word in ("first", "second"):
        store_at(tmp_path, word)
        out = enrich(
            file_stream(spark, tmp_path / "in"), store, on="k", how="left", algorithm="hybridjoin", memory="1MB",
            tune="off", versions=str(tmp_path / "versions"),
        )  # fmt: skip
        sink.run(out, tmp_path, keep)
    assert sink.runs[0] == 2
    assert runs == [{(number, word): 1 for number in range(30)} for word in ("first", "second")]


def test_a_server_that_stops_fails_the_batch_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    with Server() as server:
        server.execute(
            "CREATE TABLE m (k bigint PRIMARY KEY, word text)",
            "INSERT INTO m SELECT n, 'w' FROM generate_series(0, 39) n",
        )
        store = MasterStore.postgres(server.url, "m", "k")
        drop_file(tmp_path / "in", numbers(0), 0)
        with pytest.raises(UnsupportedError, match=r"PostgreSQL .* only the newest.*mode='per_batch'"):
            enrich(file_stream(spark, tmp_path / "in"), store, on="k", mode="carry")

        def enriched() -> DataFrame:
            return enrich(
                file_stream(spark, tmp_path / "in"), store, on="k", how="left", algorithm="cachejoin", memory="1MB",
                tune="off", versions=str(tmp_path / "versions"),
            )  # fmt: skip

        run(enriched(), tmp_path)
        drop_file(tmp_path / "in", numbers(100), 1)
        planned = enriched()
        server.stop()
        try:
            with pytest.raises(StreamingQueryException, match="check that the server runs"):
                run(planned, tmp_path)
        finally:
            server.start()
        server.execute("UPDATE m SET word = 'new'")
        run(enriched(), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).select("word").toArrow()["word"].to_pylist()
    assert Counter(found) == {"w": 30, "new": 30}


def test_batches_read_stores_without_history(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(numbers(0)).repartition(3)
    out = enrich(rows, sqlite_at(tmp_path, "old"), on="k", memory="1MB")
    assert set(out.select("word").toArrow()["word"].to_pylist()) == {"old"}
    sqlite_at(tmp_path, "new")
    assert set(out.select("word").toArrow()["word"].to_pylist()) == {"new"}


def test_foreach_batch_logs_versions_too(spark: SparkSession, tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": list(range(40)), "word": ["w"] * 40}))
    drop_file(tmp_path / "in", numbers(0), 0)
    seen: list[Any] = []

    def each(batch: DataFrame, number: int) -> None:
        seen.append(bag(enrich(batch, store, on="k", algorithm="hybridjoin", memory="1MB", tune="off").select("word")))

    writer = file_stream(spark, tmp_path / "in").writeStream.foreachBatch(each)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert seen == [{("w",): 30}]
    assert VersionLog(str(tmp_path / "m.pages" / ".versions")).batches(str(query.id)) == {0: store.version()}


def test_watermarks_pass_through(spark: SparkSession, tmp_path: Path) -> None:
    """Windows over enriched rows close as they would over plain ones."""
    store = page_store(tmp_path / "m.pages", pa.table({"k": list(range(40)), "word": ["w"] * 40}))
    for number in range(3):
        table = numbers(100 * number)
        at = pa.array([number * 3_600_000_000] * 30, pa.timestamp("us", "UTC"))
        drop_file(tmp_path / "in", table.append_column("at", at), number)
    stream = file_stream(spark, tmp_path / "in").withWatermark("at", "1 minute")
    out = enrich(stream, store, on="k", algorithm="hybridjoin", memory="1MB", tune="off")
    counts = out.groupBy(F.window("at", "10 minutes"), "word").count().select("count")
    run(counts, tmp_path)
    assert bag(spark.read.parquet(str(tmp_path / "out"))) == {(30,): 2}


def delta_at(place: Path, word: str) -> MasterStore:
    table = pa.table({"k": list(range(40)), "word": [word] * 40})
    if (place / "d").exists():
        columns = {"k": "s.k", "word": "s.word"}
        merge = DeltaTable(place / "d").merge(table, "t.k = s.k", source_alias="s", target_alias="t")
        merge.when_matched_update(columns).when_not_matched_insert(columns).execute()
    else:
        properties = WriterProperties(max_row_group_size=10)
        write_deltalake(place / "d", table, writer_properties=properties)
    return MasterStore.delta(place / "d", "k")


def iceberg_at(place: Path, word: str) -> MasterStore:
    table = pa.table({"k": list(range(40)), "word": [word] * 40})
    catalog = load_catalog("house", type="sql", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}/house")
    catalog.create_namespace_if_not_exists("db")
    made = catalog.create_table_if_not_exists("db.t", table.schema)
    (made.overwrite if made.current_snapshot() else made.append)(table)
    return MasterStore.iceberg(catalog, "db.t", "k")


@pytest.mark.parametrize("store_at", [delta_at, iceberg_at])
def test_tables_of_a_lake_repeat_the_version_of_a_micro_batch(
    spark: SparkSession, tmp_path: Path, store_at: Any
) -> None:
    """Each micro-batch takes the version of its time, and one that runs again that of its first run."""
    kept, runs = dict[int, pa.Table](), Counter[int]()

    def keep(frame: DataFrame, number: int) -> None:
        kept[number] = frame.toArrow()
        runs[number] += 1

    for number, word in enumerate(["first", "second", "third"]):
        store = store_at(tmp_path, word)
        drop_file(tmp_path / "in", numbers(100 * number), number)
        stream = file_stream(spark, tmp_path / "in")
        out = enrich(stream, store, on="k", memory="1MB", versions=str(tmp_path / "versions"))
        if number == 2:  # the second micro-batch was not committed: it runs again, from its own version
            for name in ("1", ".1.crc"):
                (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert runs == {0: 1, 1: 2, 2: 1}
    assert {n: set(table["word"].to_pylist()) for n, table in kept.items()} == {
        0: {"first"}, 1: {"second"}, 2: {"third"},
    }  # fmt: skip
    assert [table.num_rows for table in kept.values()] == [30, 30, 30]


@pytest.mark.parametrize("store_at", [delta_at, iceberg_at])
def test_rows_wait_for_tables_of_a_lake(spark: SparkSession, tmp_path: Path, store_at: Any) -> None:
    """In mode "carry", which needs versions that can be opened again; the table changes between two runs."""
    for number, word in enumerate(["first", "second"]):
        store = store_at(tmp_path, word)
        drop_file(tmp_path / "in", numbers(100 * number), number)
        stream = file_stream(spark, tmp_path / "in")
        out = enrich(
            stream, store, on="k", mode="carry", memory="1MB", tune="off", max_wait="1 day",
            versions=str(tmp_path / "versions"),
        )  # fmt: skip
        run(out, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    assert sorted(row["id"] for row in found) == [*range(30), *range(100, 130)]
    assert {(row["id"] // 100, row["word"]) for row in found} == {(0, "first"), (1, "second")}


def test_a_table_that_loses_its_index_is_read_on(spark: SparkSession, tmp_path: Path) -> None:
    """Another algorithm is chosen, unless one is named that needs the index."""
    write_deltalake(tmp_path / "d", pa.table({"k": list(range(40)), "word": ["first"] * 40}))
    store, found = MasterStore.delta(tmp_path / "d", "k"), Counter[tuple[Any, ...]]()

    def keep(frame: DataFrame, number: int) -> None:
        found.update(rows_of(frame.select("id", "word").toArrow()))
        if number == 0:  # while the query runs
            for part in range(8):
                table = pa.table({"k": [(7 * n + part) % 40 for n in range(5)], "word": [f"more {part}"] * 5})
                write_deltalake(tmp_path / "d", table, mode="overwrite" if part == 0 else "append")
            for part in range(8, 16):
                write_deltalake(tmp_path / "d", pa.table({"k": [0, 39], "word": [f"x {part}"] * 2}), mode="append")

    for number in range(2):
        drop_file(tmp_path / "in", numbers(100 * number), number)

    def start(**more: Any) -> None:
        stream = file_stream(spark, tmp_path / "in")
        out = enrich(stream, store, on="k", how="left", memory="1MB", versions=str(tmp_path / "versions"), **more)
        place = str(tmp_path / f"checkpoint {len(more)}")
        writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", place)
        writer.trigger(availableNow=True).start().awaitTermination()

    start()
    assert not store.at().indexed
    rows = {row["k"]: row["word"] for row in pa.table(store.at().read(0, len(store.at().starts) - 1)).to_pylist()}
    assert {i for i, _ in found} == {*range(30), *range(100, 130)}
    assert {word for i, word in found if i < 100} == {"first"}
    assert {word is not None for i, word in found if i >= 100} >= {True}
    assert all((word is not None) == ((i - 100) % 35 in rows) for i, word in found if i >= 100)
    with pytest.raises(PlanError, match="looks keys up, but the store has no index"):
        start(algorithm="cachejoin")


@pytest.mark.parametrize("store_at", [delta_at, iceberg_at])
def test_tables_of_a_lake_answer_as_spark_joins(spark: SparkSession, tmp_path: Path, store_at: Any) -> None:
    store_at(tmp_path, "first")
    store = store_at(tmp_path, "second")
    stream = spark.createDataFrame(numbers(0, 300).to_pylist(), "id long, k long")
    for algorithm in ("auto", "inlj", "meshjoin", "hybridjoin", "cachejoin"):
        found = enrich(stream, store, on="k", how="left", algorithm=algorithm, memory="1MB")
        assert bag(found.select("id", "word")) == Counter((n, "second") for n in range(300)), algorithm


@pytest.fixture
def postgres() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def mariadb() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def test_a_busy_server_does_not_break_a_stream(spark: SparkSession, tmp_path: Path, postgres: Server) -> None:
    """Its version changes all the time: what is logged is what is open."""
    postgres.execute("DROP TABLE IF EXISTS busy", "CREATE TABLE busy (k int8 PRIMARY KEY, stamp int8)")
    postgres.execute("INSERT INTO busy SELECT i, 0 FROM generate_series(0, 39) i")
    store, done = MasterStore.postgres(postgres.url, "busy", "k"), threading.Event()

    def write(key: int) -> None:
        with dbapi.connect(postgres.url, autocommit=True) as connection, connection.cursor() as cursor:
            stamp = 0
            while not done.is_set():
                stamp += 1
                cursor.execute(f"UPDATE busy SET stamp = {stamp} WHERE k = {key}")

    writers = [threading.Thread(target=write, args=(key,)) for key in range(2)]
    for writer in writers:
        writer.start()
    try:
        for number in range(3):
            drop_file(tmp_path / "in", numbers(100 * number), number)
            frame = file_stream(spark, tmp_path / "in").repartition(4)
            out = enrich(frame, store, on="k", memory="1MB", versions=str(tmp_path / "versions"))
            query = run(out, tmp_path)
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 90
    log = log_of(store, str(tmp_path / "versions"))
    assert len(set(log.batches(str(query.id)).values())) == 3


def test_spark_tables_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(k, k % 3, f"w{k}") for k in range(30)], "k long, part int, word string")
    rows.orderBy("k").coalesce(1).write.option("path", str(tmp_path / "p")).saveAsTable("by_name", format="parquet")
    stream = spark.createDataFrame([(1, 7), (2, 99)], "id long, k long")
    try:
        store = MasterStore.table("by_name", key="k", spark=spark)
        assert bag(enrich(stream, store, on="k", memory="1MB")) == Counter([(1, 7, 1, "w7")])
        pq = tmp_path / "p" / "more.parquet"
        parquet.write_table(rows.toArrow(), pq)
        with pytest.raises(UnsupportedError, match=r"1 files in the catalog and 2 at|column"):
            MasterStore.table("by_name", key="k")
        rows.write.option("path", str(tmp_path / "c")).saveAsTable("as_text", format="csv")
        with pytest.raises(UnsupportedError, match=r"provider 'csv'; delta, iceberg and parquet tables"):
            MasterStore.table("as_text", key="k")
        with pytest.raises(ConfigError, match=r"does not describe the table shop\.nothing"):
            MasterStore.table("shop.nothing", key="k")
    finally:
        spark.sql("DROP TABLE IF EXISTS by_name")
        spark.sql("DROP TABLE IF EXISTS as_text")


def test_tables_of_other_providers_as_their_catalogs_describe_them(spark: SparkSession, tmp_path: Path) -> None:
    delta_at(tmp_path, "first")
    iceberg_at(tmp_path, "first")
    details = [("k", "bigint"), ("", ""), ("# Detailed Table Information", ""), ("Type", "MANAGED")]
    found = Described.of("db.d", [*details, ("Provider", "delta"), ("Location", f"file:{tmp_path}/d")])
    assert "Delta table" in described_store(found, "k", spark).explain()
    house = f"{tmp_path}/house/db/t"
    found = Described.of("db.t", [*details, ("Provider", "iceberg"), ("Location", house)])
    with pytest.raises(UnsupportedError, match=r"name that catalog as pyiceberg does: MasterStore.iceberg"):
        described_store(found, "k", spark)
    newest = max(Path(house, "metadata").glob("*.metadata.json"), key=lambda file: file.name)
    Path(house, "metadata", "version-hint.text").write_text(newest.name)
    assert "Iceberg table" in described_store(found, "k", spark).explain()
    with pytest.raises(UnsupportedError, match="is a view"):
        Described.of("v", [("Type", "VIEW")])


def test_redis_and_mysql_answer_streams_and_refuse_carry(
    spark: SparkSession, tmp_path: Path, mariadb: MariaDb, redis_server: Redis
) -> None:
    """A restart finds other rows; each micro-batch takes what is there."""
    mariadb.execute("DROP TABLE IF EXISTS words", "CREATE TABLE words (k bigint PRIMARY KEY, word varchar(20))")
    schema = pa.schema([("k", pa.int64()), ("word", pa.string())])
    for number, word in enumerate(["first", "second"]):
        mariadb.execute(f"REPLACE INTO words SELECT seq, '{word}' FROM seq_0_to_39")
        with redis_server.connect() as client:
            for k in range(40):
                client.hset(f"word:{k}", "word", word)
        stores = [
            MasterStore.mysql(mariadb.url, "words", "k"),
            MasterStore.redis(redis_server.url, "word:", "k", schema=schema),
        ]
        drop_file(tmp_path / "in", numbers(100 * number), number)
        for at, store in enumerate(stores):
            stream = file_stream(spark, tmp_path / "in")
            out = enrich(stream, store, on="k", memory="1MB", versions=str(tmp_path / "versions"))
            (tmp_path / str(at)).mkdir(exist_ok=True)
            run(out, tmp_path / str(at))
            with pytest.raises(UnsupportedError, match=r"mode='carry' needs master data that keeps old versions"):
                enrich(stream, store, on="k", memory="1MB", mode="carry")
    for at in range(2):
        found = spark.read.parquet(str(tmp_path / str(at) / "out")).toArrow().to_pylist()
        assert Counter((row["id"] // 100, row["word"]) for row in found) == {(0, "first"): 30, (1, "second"): 30}
