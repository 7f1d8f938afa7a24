"""PostgreSQL sinks against a real server: rows and the number of their micro-batch are one transaction."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from tests.semistream.master.server import PASSWORD, Server

from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of
from dovetail.pipeline.sinks import postgres as sink_postgres
from dovetail.pipeline.sinks.postgres import Target


def rows_of(server: Server, query: str) -> list[tuple[Any, ...]]:
    with dbapi.connect(server.url) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return [tuple(row) for row in cursor.fetchall()]


def target(server: Server, rows: DataFrame, table: str, **values: Any) -> Target:
    given = {"uri": server.url, "table": table, "mode": "append", **values}
    made = Target.of(Step("sink", "s", "postgres", given, given, ()), rows, "shop.s", f"owner of {table}")
    sink_postgres.prepare(made, create=True)
    return made


def test_types_and_names(spark: SparkSession, postgres: Server) -> None:
    rows = spark.sql(
        "select 1Y as b, 2S as s, 3 as i, 4L as l, 1.5F as f, 2.5D as d, 'x\"y' as `odd \"name`, true as t, "
        "date'2026-01-02' as day, timestamp'2026-01-02 03:04:05' as at, cast(1.25 as decimal(10, 2)) as n, "
        "cast('ab' as binary) as raw, cast(null as string) as nothing"
    )
    made = target(postgres, rows, 'odd "table')
    assert sink_postgres.write_batch(rows, made, 0) == (1, False)
    found = rows_of(postgres, 'SELECT b, s, i, l, f, d, "odd ""name", t, day::text, n::text, raw FROM "odd ""table"')
    assert found == [(1, 2, 3, 4, 1.5, 2.5, 'x"y', True, "2026-01-02", "1.25", b"ab")]
    nested = rows.selectExpr("array(1) as list")
    with pytest.raises(PlanError, match=r"'list' is list.*to_json"):
        target(postgres, nested, "nested")


def test_a_batch_that_is_repeated_writes_nothing(spark: SparkSession, postgres: Server) -> None:
    rows = spark.range(100).repartition(3)
    made = target(postgres, rows, "appended")
    assert sink_postgres.write_batch(rows, made, 0) == (100, False)
    assert sink_postgres.write_batch(rows, made, 0) == (0, True)
    assert sink_postgres.write_batch(rows, made, 1) == (100, False)
    assert sink_postgres.write_batch(rows, made, 0) == (0, True)
    assert rows_of(postgres, "SELECT count(*), count(DISTINCT id) FROM appended") == [(200, 100)]
    noted = "SELECT sink, target, batch, rows FROM dovetail_sinks WHERE owner = 'owner of appended'"
    assert rows_of(postgres, noted) == [("shop.s", "public.appended", 1, 200)]


def test_rows_that_fail_take_their_number_with_them(spark: SparkSession, postgres: Server) -> None:
    rows = spark.sql("select 1L as k, 'a' as v union all select null, 'b'")
    made = target(postgres, rows, "strict", key="k")
    with pytest.raises(Exception, match=r"table 'strict' at .* does not take the rows") as error:
        sink_postgres.write_batch(rows, made, 0)
    assert PASSWORD not in str(error.value)
    assert rows_of(postgres, "SELECT * FROM strict") == []
    good = rows.where("k is not null")
    assert sink_postgres.write_batch(good, made, 0) == (1, False)


def test_upsert_by_a_composite_key(spark: SparkSession, postgres: Server) -> None:
    first = spark.sql("select * from values (1, 'a', 10L, 'x'), (1, 'b', 10L, 'y'), (1, 'a', 12L, 'z') t(k, l, n, v)")
    made = target(postgres, first, "kept", key=["k", "l"], newest="n")
    sink_postgres.write_batch(first, made, 0)
    second = spark.sql(
        "select * from values (1, 'a', 11L, 'old'), (1, 'b', 11L, 'new'), (2, 'a', 1L, 'w') t(k, l, n, v)"
    )
    sink_postgres.write_batch(second, made, 1)
    found = rows_of(postgres, "SELECT k, l, n, v FROM kept ORDER BY k, l")
    assert found == [(1, "a", 12, "z"), (1, "b", 11, "new"), (2, "a", 1, "w")]
    keys = spark.sql("select 1 as k, 'a' as l")
    only = target(postgres, keys, "only_keys", key=["k", "l"])
    for number in range(2):
        sink_postgres.write_batch(keys, only, number)
    assert rows_of(postgres, "SELECT * FROM only_keys") == [(1, "a")]


def test_complete_answers_replace_the_table(spark: SparkSession, postgres: Server) -> None:
    rows = spark.range(5)
    made = target(postgres, rows, "whole", mode="complete")
    sink_postgres.write_batch(rows, made, 0)
    sink_postgres.write_batch(rows.where("id > 2"), made, 1)
    assert rows_of(postgres, "SELECT id FROM whole ORDER BY id") == [(3,), (4,)]
    nothing = rows.repartition(2).groupBy("id").count().where("count > 1").select("id")
    assert sink_postgres.write_batch(nothing, made, 2) == (0, False)
    assert rows_of(postgres, "SELECT id FROM whole") == []
    assert sink_postgres.write_batch(nothing, made, 2) == (0, True)


def test_a_table_that_does_not_fit_is_told_before_anything_runs(spark: SparkSession, postgres: Server) -> None:
    postgres.execute("CREATE TABLE narrow (id bigint)", "CREATE TABLE loose (id bigint, v text)")
    rows = spark.sql("select 1L as id, 'x' as v")
    with pytest.raises(PlanError, match="has no column 'v'"):
        target(postgres, rows, "narrow")
    with pytest.raises(PlanError, match=r"no unique index on .'id'."):
        target(postgres, rows, "loose", key="id")
    given = {"uri": postgres.url.replace("tester", "stranger"), "table": "x"}
    with pytest.raises(ConfigError, match="cannot write to table 'x'") as error:
        sink_postgres.inspect(Target.of(Step("sink", "s", "postgres", given, given, ()), rows, "", ""), True)
    assert PASSWORD not in str(error.value)


PIPELINE = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"

[source.orders]
type = "workload"
workload = "orders"
stream = true
options = { rows = 400, products = 20, rows_per_batch = 200, partitions = 1 }

[master.products]
type = "postgres"
uri = "${SHOP_URI}"
table = "products"
key = "product_id"

[join.enriched]
type = "enrich"
stream = "orders"
master = "products"
on = "product_id"

[sink.newest]
type = "postgres"
from = "enriched"
uri = "${SHOP_URI}"
table = "shop.newest"
key = "product_id"
newest = "order_id"
"""


def test_a_pipeline_from_and_to_postgres(spark: SparkSession, postgres: Server, tmp_path: Path) -> None:
    postgres.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE products AS SELECT i::bigint AS product_id, 'p' || i AS name FROM generate_series(1, 20) i",
        "CREATE UNIQUE INDEX ON products (product_id)",
    )
    file = tmp_path / "p.toml"
    file.write_text(PIPELINE)
    pipeline = read_pipeline(file, environment=os.environ | {"SHOP_URI": postgres.url})
    assert check_pipeline(spark, pipeline) == []
    for _ in range(2):
        Run(spark, pipeline, watch_of(pipeline), once=True, console=Console(quiet=True)).go()
    found = rows_of(postgres, "SELECT product_id, order_id, name FROM shop.newest")
    orders = spark.read.format("dovetail.orders").option("rows", 400).option("products", 20).load()
    expected = orders.groupBy("product_id").agg({"order_id": "max"}).collect()
    assert sorted(found) == sorted((p, n, f"p{p}") for p, n in expected)
    assert PASSWORD not in (tmp_path / "checkpoint" / "pipeline.json").read_text()


def test_a_sink_in_the_database_of_the_master_does_not_end_the_stream(
    spark: SparkSession, postgres: Server, tmp_path: Path
) -> None:
    """Every micro-batch that is written makes a new version of the master, inside the time that one may be read for."""
    postgres.execute(
        "CREATE SCHEMA busy",
        "CREATE TABLE busy.products AS SELECT i::bigint AS product_id, 'p' || i AS name FROM generate_series(1, 20) i",
        "CREATE UNIQUE INDEX ON busy.products (product_id)",
    )
    file = tmp_path / "p.toml"
    file.write_text(PIPELINE.replace('"products"', '"busy.products"', 1).replace("shop.newest", "busy.newest"))
    given = ['join.enriched.freshness={ ttl = "10 min" }', "source.orders.options.rows_per_batch=100"]
    pipeline = read_pipeline(file, given, os.environ | {"SHOP_URI": postgres.url})
    Run(spark, pipeline, watch_of(pipeline), once=True, console=Console(quiet=True)).go()
    assert rows_of(postgres, "SELECT sum(rows)::bigint FROM busy.dovetail_sinks") == [(400,)]
    assert rows_of(postgres, "SELECT count(*) FROM busy.newest WHERE name = 'p' || product_id") == [(20,)]


def test_a_batch_replaces_or_adds(spark: SparkSession, postgres: Server, tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text(
        '[pipeline]\nname = "b"\n[source.n]\ntype = "workload"\nworkload = "products"\noptions = { products = 5 }\n'
        '[sink.t]\ntype = "postgres"\nfrom = "n"\nuri = "${SHOP_URI}"\ntable = "five"\n'
    )
    for overrides, expected in (((), 5), ((), 5), (["sink.t.mode=append"], 10)):
        pipeline = read_pipeline(file, overrides, os.environ | {"SHOP_URI": postgres.url})
        Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True)).go()
        assert rows_of(postgres, "SELECT count(*) FROM five") == [(expected,)]
    pipeline = read_pipeline(file, ["sink.t.table=one.two.three.four"], os.environ | {"SHOP_URI": postgres.url})
    with pytest.raises((ConfigError, DataError)) as error:
        Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True)).go()
    assert PASSWORD not in str(error.value)


STREAM = """
[pipeline]
name = "{name}"
checkpoint = "{checkpoint}"

[source.orders]
type = "workload"
workload = "orders"
stream = true
options = {{ rows = 200, products = 20, rows_per_batch = {per}, partitions = 1 }}

[join.rows]
type = "sql"
query = "{query}"

[sink.{sink}]
type = "postgres"
from = "rows"
uri = "${{SHOP_URI}}"
table = "{table}"
mode = "{mode}"
"""


TOTALS = "select product_id, count(*) as n from orders group by product_id"


class Shop:
    """A pipeline over 200 orders whose parts can change between runs."""

    def __init__(self, spark: SparkSession, server: Server, place: Path) -> None:
        self._spark, self._server, self._place = spark, server, place

    def _read(self, **parts: str) -> Pipeline:
        given = {"name": "shop", "checkpoint": "checkpoint", "mode": "append", "sink": "out", "per": "100", **parts}
        query = TOTALS if given["mode"] == "complete" else "select product_id, 1L as n from orders"
        file = self._place / "shop.toml"
        file.write_text(STREAM.format(query=query, **given))
        return read_pipeline(file, environment=os.environ | {"SHOP_URI": self._server.url})

    def run(self, **parts: str) -> None:
        pipeline = self._read(**parts)
        assert check_pipeline(self._spark, pipeline) == []
        Run(self._spark, pipeline, watch_of(pipeline), once=True, console=Console(quiet=True)).go()

    def refused(self, **parts: str) -> str:
        """What is said at the check and by the run, which are the same."""
        pipeline = self._read(**parts)
        with pytest.raises(ConfigError) as error:
            Run(self._spark, pipeline, watch_of(pipeline), once=True, console=Console(quiet=True)).go()
        told = str(error.value)
        assert PASSWORD not in told
        (problem,) = check_pipeline(self._spark, pipeline)
        assert problem.text == told
        assert "table = " in self._place.joinpath("shop.toml").read_text().splitlines()[problem.line - 1]
        return told

    def count(self, table: str) -> int:
        return int(rows_of(self._server, f"SELECT count(*) FROM {table}")[0][0])


@pytest.fixture
def shop(spark: SparkSession, postgres: Server, tmp_path: Path) -> Shop:
    return Shop(spark, postgres, tmp_path)


def test_a_lost_checkpoint_is_an_error_and_doubles_nothing(shop: Shop, postgres: Server, tmp_path: Path) -> None:
    table = "lost_checkpoint"
    shop.run(table=table)
    shop.run(table=table)
    assert shop.count(table) == 200
    shutil.move(tmp_path / "checkpoint", tmp_path / "kept")
    for name in (table, f"public.{table}"):
        assert "wrote with another checkpoint" in shop.refused(table=name)
    assert shop.count(table) == 200
    shop.run(table=table, checkpoint="kept")
    assert shop.count(table) == 200
    postgres.execute(f"TRUNCATE {table}")
    shop.run(table=table, checkpoint="fresh")
    assert shop.count(table) == 200
    assert "wrote with another checkpoint" in shop.refused(table=table, checkpoint="kept")
    postgres.execute(f"DROP TABLE {table}")
    shop.run(table=table, checkpoint="again")
    assert shop.count(table) == 200


def test_rows_that_are_read_again_are_neither_lost_nor_doubled(shop: Shop, postgres: Server, tmp_path: Path) -> None:
    """The sink's files in the checkpoint are gone: micro-batches begin at 0 again, of another size."""
    shop.run(table="reread", per="50")
    shutil.rmtree(tmp_path / "checkpoint" / "out")
    assert "wrote with another checkpoint" in shop.refused(table="reread")
    postgres.execute("TRUNCATE reread")
    shop.run(table="reread")
    assert shop.count("reread") == 200
    with pytest.raises(PipelineError, match="sink 'named' writes what sink 'out' of this checkpoint wrote"):
        shop.run(table="reread", sink="named")
    assert shop.count("reread") == 200


def test_a_pipeline_of_another_name_repeats_no_micro_batch(shop: Shop, tmp_path: Path) -> None:
    """The checkpoint is the same, and so is the sink: a micro-batch that the table has is not written again."""
    shop.run(table="renamed")
    for number in ("1", ".1.crc"):  # the last micro-batch is in the table, and Spark does not know it
        (tmp_path / "checkpoint" / "out" / "commits" / number).unlink(missing_ok=True)
    shop.run(table="renamed", name="market")
    assert shop.count("renamed") == 200
    shutil.rmtree(tmp_path / "checkpoint")
    assert "wrote with another checkpoint" in shop.refused(table="renamed", name="market")


def test_an_older_copy_of_the_checkpoint_is_an_error(shop: Shop, tmp_path: Path) -> None:
    """Its next micro-batch has the number of one that the table has, and may have other rows."""
    shop.run(table="older", per="50")
    for log in ("offsets", "commits"):
        for number in ("1", "2", "3"):
            (tmp_path / "checkpoint" / "out" / log / number).unlink()
            (tmp_path / "checkpoint" / "out" / log / f".{number}.crc").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"up to 3, and the checkpoint is at 1: it was replaced by an older copy"):
        shop.run(table="older", per="150")
    assert shop.count("older") == 200


def test_rows_of_others_are_kept_by_a_sink_that_appends(shop: Shop, postgres: Server) -> None:
    postgres.execute(
        "CREATE TABLE shared (product_id bigint, n bigint)",
        "INSERT INTO shared SELECT -i, 1 FROM generate_series(1, 7) i",
    )
    shop.run(table="shared")
    shop.run(table="shared", name="second", checkpoint="second")
    assert shop.count("shared") == 407
    assert "would delete" in shop.refused(table="shared", name="third", checkpoint="3", mode="complete")
    assert shop.count("shared") == 407


def test_a_complete_answer_replaces_its_own_rows_only(shop: Shop, postgres: Server) -> None:
    whole = {"table": "totals", "mode": "complete"}
    postgres.execute("CREATE TABLE totals (product_id bigint, n bigint)", "INSERT INTO totals VALUES (-1, -1)")
    assert "rows that this sink did not write" in shop.refused(**whole)
    assert rows_of(postgres, "SELECT * FROM totals") == [(-1, -1)]
    postgres.execute("DELETE FROM totals")
    for checkpoint in ("checkpoint", "lost"):
        shop.run(**whole, checkpoint=checkpoint)
        assert rows_of(postgres, "SELECT sum(n)::bigint FROM totals") == [(200,)]
    told = shop.refused(table="totals", name="other", checkpoint="other")
    assert "is rewritten by the sink 'shop.out'" in told


def test_a_run_whose_table_another_one_took_writes_nothing(spark: SparkSession, postgres: Server) -> None:
    rows = spark.range(10)
    first = target(postgres, rows, "taken")
    sink_postgres.prepare(replace(first, owner="another"), create=True)
    with pytest.raises(Exception, match=r"another run has claimed table 'taken'"):
        sink_postgres.write_batch(rows, first, 0)
    assert rows_of(postgres, "SELECT count(*) FROM taken") == [(0,)]


def test_a_batch_does_not_delete_what_it_did_not_write(spark: SparkSession, postgres: Server, tmp_path: Path) -> None:
    postgres.execute("CREATE TABLE mine (product_id bigint)", "INSERT INTO mine VALUES (-1)")
    file = tmp_path / "b.toml"
    file.write_text(
        '[pipeline]\nname = "b"\n[source.n]\ntype = "workload"\nworkload = "products"\noptions = { products = 5 }\n'
        '[join.ids]\ntype = "sql"\nquery = "select product_id from n"\n'
        '[sink.t]\ntype = "postgres"\nfrom = "ids"\nuri = "${SHOP_URI}"\ntable = "mine"\n'
    )
    modes = [(None, 1, "did not write"), ("error", 1, "mode is 'error'"), ("append", 6, None), ("overwrite", 5, None)]
    for mode, expected, said in [*modes, (None, 5, None), ("error", 5, "mode is 'error'")]:
        overrides = [f"sink.t.mode={mode}"] if mode else []
        pipeline = read_pipeline(file, overrides, os.environ | {"SHOP_URI": postgres.url})
        one = Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True))
        if said is None:
            assert check_pipeline(spark, pipeline) == []
            one.go()
        else:
            assert said in check_pipeline(spark, pipeline)[0].text
            with pytest.raises(DataError, match=said):
                one.go()
        assert rows_of(postgres, "SELECT count(*) FROM mine") == [(expected,)]
