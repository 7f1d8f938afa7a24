"""Stores that fail under enrich: an error that names the store and the reason, no row wrong or lost, and recovery."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import PythonException, StreamingQueryException
from tests.semistream.frame.cases import drop_file, file_stream, page_store
from tests.semistream.master.server import PASSWORD, Server

from dovetail import MasterStore, enrich
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = pa.table({"k": list(range(40)), "word": ["good"] * 40})
OTHER = pa.table({"k": list(range(40)), "word": list(range(40)), "more": [0] * 40})


def numbers(first: int, rows: int = 30) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows)), "k": [n % 45 for n in range(rows)]})


def words(frame: DataFrame) -> Counter[Any]:
    return Counter(frame.select("word").toArrow()["word"].to_pylist())


def check_batch(
    spark: SparkSession, store: MasterStore, harm: Callable[[], Any], repair: Callable[[], Any], reason: str
) -> None:
    """A planned join, and one planned again, fail while there is harm; the same plan works before and after."""

    def enriched() -> DataFrame:
        rows = spark.createDataFrame(numbers(0, 60)).coalesce(1)
        return enrich(rows, store, on="k", how="left", algorithm="hybridjoin", memory="1MB", tune="off")

    planned = enriched()
    good = {"good": 55, None: 5}
    assert words(planned) == good
    harm()
    with pytest.raises(PythonException, match=reason):
        words(planned)
    with pytest.raises(ConfigError, match=reason):
        enriched()
    repair()
    assert words(planned) == good


def test_parquet_of_another_schema(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "m.parquet"
    parquet.write_table(MASTER, place, row_group_size=10)
    store = MasterStore.parquet(place, "k")
    reason = r"Parquet .*m.parquet now has columns \[k int64, word int64, more int64\].*Restore the columns"
    check_batch(
        spark, store, lambda: parquet.write_table(OTHER, place), lambda: parquet.write_table(MASTER, place), reason
    )


def test_an_sqlite_table_that_lost_a_column(spark: SparkSession, tmp_path: Path) -> None:
    def execute(*statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    execute(
        "CREATE TABLE m (k INTEGER PRIMARY KEY, word TEXT)", *(f"INSERT INTO m VALUES ({k}, 'good')" for k in range(40))
    )
    store = MasterStore.sqlite(tmp_path / "m.db", "m", "k")
    check_batch(
        spark, store,
        lambda: execute("ALTER TABLE m RENAME COLUMN word TO other"),
        lambda: execute("ALTER TABLE m RENAME COLUMN other TO word"),
        r"SQLite table 'm' in .*m.db has no column \['word'\] any more",
    )  # fmt: skip


def test_a_role_that_may_not_read_and_a_table_of_other_columns(spark: SparkSession) -> None:
    with Server() as server:
        server.execute(
            "CREATE TABLE m (k bigint PRIMARY KEY, word text)",
            "INSERT INTO m SELECT n, 'good' FROM generate_series(0, 39) n",
            f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'",
            "GRANT SELECT ON m TO reader",
        )
        url = server.url.replace("tester:", "reader:")
        store = MasterStore.postgres(url, "m", "k")
        check_batch(
            spark, store,
            lambda: server.execute("REVOKE SELECT ON m FROM reader"),
            lambda: server.execute("GRANT SELECT ON m TO reader"),
            r"permission denied for table m",
        )  # fmt: skip
        check_batch(
            spark, store,
            lambda: server.execute("ALTER TABLE m ADD COLUMN more int"),
            lambda: server.execute("ALTER TABLE m DROP COLUMN more"),
            r"PostgreSQL table 'm' at .* now has columns \[k int8, word text, more int4\]",
        )  # fmt: skip


def other_schema(pages: Path) -> None:
    page_store(pages, OTHER)


def not_to_be_opened(pages: Path) -> None:
    """A new generation whose rows cannot be opened; for root, which may open all, a link that leads to itself."""
    page_store(pages, MASTER)
    rows = next((pages / "generation-2").glob("*.rows"))
    if os.geteuid():
        rows.chmod(0)
    else:
        rows.unlink()
        rows.symlink_to(rows)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (other_schema, r"page file .*m.pages now has columns \[k int64, word int64, more int64\]"),
        (not_to_be_opened, r"cannot open .*m.pages/generation-2/.*rows: .*check permissions"),
    ],
)
def test_a_page_file_that_fails_a_stream(
    spark: SparkSession, tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    """The batch fails, the next start too; when the newest generation is good again every row is there once."""
    pages = tmp_path / "m.pages"
    store = page_store(pages, MASTER)
    drop_file(tmp_path / "in", numbers(0), 0)

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()

    def enriched() -> DataFrame:
        stream = file_stream(spark, tmp_path / "in")
        versions = str(tmp_path / "versions")
        return enrich(stream, store, on="k", algorithm="cachejoin", memory="1MB", tune="off", versions=versions)

    planned = enriched()
    harm(pages)
    with pytest.raises(StreamingQueryException, match=reason):
        run(planned)
    with pytest.raises(ConfigError, match=reason):
        enriched()
    shutil.rmtree(tmp_path / "versions")  # the batch was to be answered from the generation that is now removed
    shutil.rmtree(pages / "generation-2")
    page_store(pages, MASTER)
    run(enriched())
    assert words(spark.read.parquet(str(tmp_path / "out"))) == {"good": 30}
