"""Pipelines that run: streams and batches, every kind of step, restarts, changes, stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from typer.testing import CliRunner

from dovetail.cli.main import app
from dovetail.errors import ConfigError, DataError
from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.checkpoint import Checkpoint
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.record.watch import Watch
from dovetail.pipeline.run import Run, plain_error, watch_of
from dovetail.pipeline.sinks.files import FileSink, held_place
from dovetail.pipeline.sinks.write import label_of
from dovetail.pipeline.terminal import line_of, live_table, summary

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "orders.toml"
STREAM = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"

[source.orders]
type = "workload"
workload = "orders"
stream = true
options = { rows = 600, products = 50, rows_per_batch = 300, partitions = 1 }

[source.products]
type = "workload"
workload = "products"
options = { products = 50 }

[master.catalogue]
type = "pages"
path = "catalogue.pages"
key = "product_id"
build = { from = "products", order = "key" }

[join.enriched]
type = "enrich"
stream = "orders"
master = "catalogue"
on = "product_id"
memory = "2MB"
algorithm = "cachejoin"

[join.cheap]
type = "sql"
query = "select order_id, name, amount_cents from enriched where amount_cents < 50000"

[sink.warehouse]
type = "parquet"
from = "enriched"
path = "warehouse"
partition_by = "category"

[sink.list]
type = "csv"
from = "cheap"
path = "list"
"""


def run(spark: SparkSession, file: Path, overrides: Sequence[str] = (), **options: Any) -> Watch:
    pipeline = read_pipeline(file, overrides)
    watch = watch_of(pipeline)
    Run(spark, pipeline, watch, console=Console(quiet=True), **options).go()
    return watch


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "p.toml"
    file.write_text(text)
    return file


def test_a_stream_runs_once_and_is_not_doubled(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, STREAM)
    watch = run(spark, file, once=True)
    assert watch.state == "ended"
    assert watch.latest("orders")["rows_out"] == watch.latest("enriched")["rows_out"] == 600
    assert watch.latest("warehouse")["rows_in"] == 600
    assert watch.latest("enriched")["memory_peak"] <= watch.latest("enriched")["memory_budget"] == 2 << 20
    assert {"cache_hits", "page_loads", "latency_p95_s", "backlog_rows"} <= set(watch.latest("enriched"))
    parts = {name: held for name, held in watch.latest("enriched").items() if name.startswith("memory.")}
    assert {"memory.disk buffer", "memory.waiting rows"} <= set(parts)
    assert sum(parts.values()) <= 1.001 * watch.latest("enriched")["memory_peak"]
    assert watch.latest("orders")["backlog_rows"] == 0
    assert [row[0] for row in watch.explained("enriched")][:2] == ["algorithm", "service rate of a task"]
    check_tables(tmp_path)
    console = Console(quiet=True, width=200)
    console.print(live_table(watch))
    summary(watch, console)
    assert "warehouse 600 rows" in line_of(watch)
    for sink in ("warehouse", "list"):  # as if the process had died before Spark could note that the batch was done
        commits = tmp_path / "checkpoint" / sink / "commits"
        newest = max(commits.glob("[0-9]*"), key=lambda one: int(one.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    assert run(spark, file, once=True).latest("orders")["rows_out"] == 300
    check_tables(tmp_path)
    with pytest.raises(ConfigError, match="wrote with another checkpoint"):
        run(spark, file, ["pipeline.checkpoint=fresh"], once=True)


LETTERS = """
[pipeline]
name = "letters"
checkpoint = "checkpoint"

[source.orders]
type = "parquet"
stream = true
path = "orders"
schema = "order_id long, product_id long"

[master.catalogue]
type = "parquet"
path = "catalogue.parquet"
key = "product_id"

[join.enriched]
type = "enrich"
stream = "orders"
master = "catalogue"
on = "product_id"
memory = "2MB"
on_miss = { dead_letter = "letters" }
condition = "order_id < 50 or name is null"

[sink.warehouse]
type = "parquet"
from = "enriched"
path = "warehouse"

[sink.list]
type = "csv"
from = "enriched"
path = "list"
"""


def test_a_join_of_two_sinks_keeps_each_dead_letter_once(spark: SparkSession, tmp_path: Path) -> None:
    """By the first sink of the file, and by no other that is put before it later."""
    (tmp_path / "orders").mkdir()
    orders = pa.table({"order_id": list(range(100)), "product_id": list(range(100))})
    parquet.write_table(orders, tmp_path / "orders" / "0.parquet")
    parquet.write_table(pa.table({"product_id": list(range(60)), "name": ["x"] * 60}), tmp_path / "catalogue.parquet")
    run(spark, written(tmp_path, LETTERS), once=True)
    assert dataset.dataset(tmp_path / "warehouse", format="parquet").count_rows() == 50
    assert letter_ids(tmp_path) == list(range(50, 100))
    added = '[sink.early]\ntype = "parquet"\nfrom = "enriched"\npath = "early"\n\n[sink.warehouse]'
    run(spark, written(tmp_path, LETTERS.replace("[sink.warehouse]", added)), once=True)
    assert letter_ids(tmp_path) == list(range(50, 100))
    first, _, last = LETTERS.partition("[sink.warehouse]")
    other = written(tmp_path, first + last[last.index("[sink.list]") :])
    with pytest.raises(PipelineError, match=r"p.toml:23: dead letters of enriched in letters .* sink 'warehouse'"):
        run(spark, other, once=True)
    run(spark, other, ["join.enriched.on_miss.dead_letter=more"], once=True)
    assert letter_ids(tmp_path) == list(range(50, 100))


def letter_ids(place: Path) -> list[int]:
    return sorted(dataset.dataset(place / "letters", format="parquet").to_table()["order_id"].to_pylist())


def check_tables(place: Path) -> None:
    rows = dataset.dataset(place / "warehouse", format="parquet", partitioning="hive").to_table()
    assert sorted(rows["order_id"].to_pylist()) == list(range(1, 601))
    cheap = sum(1 for row in rows.to_pylist() if row["amount_cents"] < 50_000)
    assert sum(len(one.read_text().splitlines()) - 1 for one in (place / "list").glob("*.csv")) == cheap


def test_changes_that_a_checkpoint_cannot_bear(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, STREAM)
    pipeline = read_pipeline(file)
    with Checkpoint(spark, pipeline, str(tmp_path / "checkpoint")) as checkpoint:
        checkpoint.admit(pipeline.of("sink"))
        for sink in pipeline.of("sink"):
            (tmp_path / "checkpoint" / sink.name / "offsets").mkdir(parents=True)
            (tmp_path / "checkpoint" / sink.name / "offsets" / "0").write_text("v1")
        with (
            pytest.raises(ConfigError, match="another run uses the checkpoint"),
            Checkpoint(spark, pipeline, str(tmp_path / "checkpoint")),
        ):
            pass
    harmless = ["join.enriched.memory=3MB", "source.orders.options.rows_per_batch=10", "sink.list.path=other"]
    harmless.append("source.orders.options.pace=constant(1)")
    with Checkpoint(spark, read_pipeline(file, harmless), str(tmp_path / "checkpoint")) as checkpoint:
        checkpoint.admit(read_pipeline(file, harmless).of("sink"))
    changed = read_pipeline(file, ["source.orders.workload=zipf", "sink.list.mode=complete"])
    with (
        Checkpoint(spark, changed, str(tmp_path / "checkpoint")) as checkpoint,
        pytest.raises(PipelineError) as error,
    ):
        checkpoint.admit(changed.of("sink"))
    told = str(error.value)
    assert f"{file}:8: source.orders.workload was 'orders' when the checkpoint began and is 'zipf' now" in told
    assert "sink.list.mode was None when the checkpoint began and is 'complete' now" in told
    (tmp_path / "checkpoint" / "pipeline.json").unlink()
    with (
        Checkpoint(spark, pipeline, str(tmp_path / "checkpoint")) as checkpoint,
        pytest.raises(ConfigError, match="not made by this pipeline"),
    ):
        checkpoint.admit(pipeline.of("sink"))


TWO = """
[pipeline]
name = "two"
checkpoint = "checkpoint"

[source.a]
type = "parquet"
path = "${FIRST}/*"
stream = true

[source.b]
type = "parquet"
path = "b/*"
stream = true

[join.both]
type = "sql"
query = "select x from a union all select x from b"

[sink.out]
type = "parquet"
from = "both"
path = "out"
"""


def test_a_run_that_was_killed_while_it_logged_its_first_micro_batch_begins_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark has written a file and not yet renamed it: it would not begin beside it."""
    file = written(tmp_path, STREAM)
    left = tmp_path / "checkpoint" / "list" / "offsets"
    left.mkdir(parents=True)
    (left / ".0.tmp").write_text("v1")
    run(spark, file, once=True)
    check_tables(tmp_path)


def test_sources_in_another_order_or_elsewhere_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps offsets by the order of sources, and would read all files again."""
    for place, x in (("first_files", 1), ("b", 100), ("other_files", 1)):
        spark.createDataFrame([(x,)], "x int").coalesce(1).write.parquet(str(tmp_path / place))
    monkeypatch.setenv("FIRST", "first_files")
    run(spark, written(tmp_path, TWO), once=True)
    swapped = TWO.replace("from a", "from c").replace("from b", "from a").replace("from c", "from b")
    with pytest.raises(PipelineError, match="read a, b when the checkpoint began and reads b, a now"):
        run(spark, written(tmp_path, swapped), once=True)
    monkeypatch.setenv("FIRST", "other_files")
    with pytest.raises(PipelineError, match=r"source.a.path was another value of the same \$\{NAME\}"):
        run(spark, written(tmp_path, TWO), once=True)
    assert "first_files" not in (tmp_path / "checkpoint" / "pipeline.json").read_text()
    monkeypatch.setenv("FIRST", "first_files")
    run(spark, written(tmp_path, TWO), once=True)
    found = dataset.dataset(tmp_path / "out", format="parquet").to_table()
    assert sorted(found["x"].to_pylist()) == [1, 100]


BATCH = """
[pipeline]
name = "nightly"
memory = "8MB"

[source.shipments]
type = "json"
path = "in"

[source.promotions]
type = "workload"
workload = "promotions"
options = { rows = 40, products = 20 }

[join.promoted]
type = "interval_join"
left = "shipments"
right = "promotions"
left_interval = ["shipped_at", "received_at"]
right_interval = ["starts_at", "ends_at"]
on = "product_id"
columns = ["shipment_id", "promotion_id"]

[join.counted]
type = "count_overlaps"
left = "shipments"
right = "promotions"
left_interval = ["shipped_at", "received_at"]
right_interval = ["starts_at", "ends_at"]
on = "product_id"

[join.prices]
type = "xquery"
query = 'for $p in collection("lists")/list/price return $p'
collections = { lists = "lists" }

[sink.matches]
type = "parquet"
from = "promoted"
path = "matches"

[sink.prices_kept]
type = "format"
format = "json"
from = "prices"
path = "prices"

[sink.counts]
type = "parquet"
from = "counted"
path = "counts"

[sink.shown]
type = "memory"
from = "promoted"
"""


UNPAID = """
[pipeline]
name = "shop"

[source.orders]
type = "csv"
path = "orders.csv"
schema = "order_id long, item string"

[source.payments]
type = "csv"
path = "payments.csv"
schema = "order_id long, paid long"

[join.unpaid]
type = "online_join"
left = "orders"
right = "payments"
on = "order_id"
how = "left_anti"

[sink.kept]
type = "parquet"
from = "unpaid"
path = "unpaid"
"""


def test_an_online_join_of_any_kind_is_a_step(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("order_id,item\n1,lamp\n2,mat\n,box\n")
    (tmp_path / "payments.csv").write_text("order_id,paid\n2,30\n4,10\n")
    assert run(spark, written(tmp_path, UNPAID)).state == "ended"
    found = dataset.dataset(tmp_path / "unpaid").to_table().to_pylist()
    assert {(row["order_id"], row["item"]) for row in found} == {(1, "lamp"), (None, "box")}


def test_an_online_join_by_a_relation_is_a_step(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("order_id,item\n1,2\n2,9\n,3\n7,3\n")
    (tmp_path / "payments.csv").write_text("order_id,paid\n2,3\n4,9\n")
    text = UNPAID.replace("item string", "item long").replace('on = "order_id"', RELATION)
    assert run(spark, written(tmp_path, text)).state == "ended"
    found = dataset.dataset(tmp_path / "unpaid").to_table().to_pylist()
    assert {(row["order_id"], row["item"]) for row in found} == {(2, 9), (None, 3), (7, 3)}


RELATION = """
relation = ["covers", "meets"]
left_interval = ["order_id", "item"]
right_interval = ["order_id", "paid"]
closed = ["left", "both"]
strict = true
"""


def test_a_batch_pipeline_replaces_its_answer(spark: SparkSession, tmp_path: Path) -> None:
    from dovetail.workloads.retail import shipments

    (tmp_path / "in").mkdir()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.xml").write_text("<list><price>1</price><price>2</price></list>")
    rows = [row for batch in shipments(rows=60, products=20).batches() for row in batch.to_pylist()]
    text = "\n".join(json.dumps(row, default=lambda at: at.strftime("%Y-%m-%dT%H:%M:%S")) for row in rows)
    (tmp_path / "in" / "a.json").write_text(text + "\n")
    file = written(tmp_path, BATCH)
    (tmp_path / "matches").mkdir()
    (tmp_path / "matches" / "mine.parquet").write_text("mine")
    with pytest.raises(DataError, match="did not write"):
        run(spark, file)
    assert (tmp_path / "matches" / "mine.parquet").read_text() == "mine"
    for overrides in (["sink.matches.mode=overwrite"], []):
        watch = run(spark, file, overrides)
        assert watch.state == "ended"
        assert dataset.dataset(tmp_path / "matches").count_rows() == watch.latest("matches")["rows_out"] > 0
    assert spark.table("shown").count() == watch.latest("matches")["rows_out"]
    counts = dataset.dataset(tmp_path / "counts").to_table().column("n_overlaps").to_pylist()
    assert (len(counts), sum(counts)) == (60, watch.latest("matches")["rows_out"])
    assert spark.read.json(str(tmp_path / "prices")).count() == 2
    spark.catalog.dropTempView("shown")
    with pytest.raises(DataError, match="mode is 'error'"):
        run(spark, file, ["sink.matches.mode=error"])


COMPLETE = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"

[source.orders]
type = "workload"
workload = "orders"
stream = true
options = { rows = 200, products = 20, rows_per_batch = 100, partitions = 1 }

[join.totals]
type = "sql"
query = "select product_id, count(*) as n from orders group by product_id"

[sink.out]
type = "parquet"
from = "totals"
path = "out"
mode = "complete"
"""


def test_a_complete_answer_removes_its_own_files_only(spark: SparkSession, tmp_path: Path) -> None:
    file, out = written(tmp_path, COMPLETE), tmp_path / "out"
    foreign = [
        out / "archive" / "2020" / "old.parquet",
        out / "notes.parquet",
        out / "00000000-000000001-00000.parquet",
    ]
    for one in foreign:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("mine")
    with pytest.raises(ConfigError, match=r"has files that this sink did not write, such as") as error:
        run(spark, file, once=True)
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert (problem.text, problem.line) == (str(error.value), 19)
    (tmp_path / "aside").mkdir()
    shutil.move(out, tmp_path / "aside" / "out")
    run(spark, file, once=True)
    shutil.copytree(tmp_path / "aside" / "out", out, dirs_exist_ok=True)
    for overrides in (["source.orders.options.rows_per_batch=50"], ["pipeline.checkpoint=lost"]):
        for number in ("1", ".1.crc"):  # the newest micro-batch is repeated
            (tmp_path / "checkpoint" / "out" / "commits" / number).unlink(missing_ok=True)
        run(spark, file, overrides, once=True)
        assert [one.read_text() for one in foreign] == ["mine"] * 3
        mine = [str(one) for one in out.glob("*.parquet") if one not in foreign]
        assert dataset.dataset(mine).to_table()["n"].to_numpy().sum() == 200


def test_rows_that_are_read_anew_are_not_there_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A sink under another name, and one whose files in the checkpoint were removed."""
    orders = COMPLETE.replace('"totals"', '"orders"').replace("complete", "append")
    file = written(tmp_path, orders[: orders.index("[join")] + orders[orders.index("[sink") :])

    def count() -> int:
        return sum(1 for _ in dataset.dataset(tmp_path / "out", exclude_invalid_files=True).to_table()["order_id"])

    run(spark, file, once=True)
    text = file.read_text()
    file.write_text(text.replace("[sink.out]", "[sink.named]"))
    with pytest.raises(PipelineError, match=r":12: sink 'named' writes what sink 'out' of this checkpoint wrote"):
        run(spark, file, once=True)
    file.write_text(text)
    shutil.rmtree(tmp_path / "checkpoint" / "out")
    smaller = ["source.orders.options.rows_per_batch=50"]
    (problem,) = check_pipeline(spark, read_pipeline(file, smaller))
    with pytest.raises(ConfigError, match="this sink wrote with another checkpoint") as error:
        run(spark, file, smaller, once=True)
    assert problem.text == str(error.value)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "out" / "_dovetail")
    with pytest.raises(ConfigError, match="of a sink whose mark in _dovetail is gone, such as '"):
        run(spark, file, once=True)
    assert count() == 200
    shutil.rmtree(tmp_path / "out")
    run(spark, file, smaller, once=True)
    assert count() == 200


@pytest.mark.parametrize("streams", [True, False])
def test_two_runs_do_not_write_to_one_directory_at_a_time(spark: SparkSession, tmp_path: Path, streams: bool) -> None:
    """Not even with checkpoints of their own: the second would remove what the first has written apart."""
    text = COMPLETE if streams else COMPLETE.replace("stream = true\n", "").replace('mode = "complete"\n', "")
    file = written(tmp_path, text)
    pipeline = read_pipeline(file)
    (sink,) = pipeline.of("sink")
    with (
        held_place(spark, sink, label_of(pipeline, sink)),
        pytest.raises(ConfigError, match=r"another run writes to .*/out"),
    ):
        run(spark, file, ["pipeline.checkpoint=other"], once=streams)
    run(spark, file, once=streams)
    assert dataset.dataset(tmp_path / "out").to_table()["n"].to_numpy().sum() == 200


def test_a_run_whose_staged_files_another_removed_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a directory cannot be locked: a micro-batch without its files must not count as written."""
    file = written(
        tmp_path, COMPLETE.replace("complete", "append").replace('path = "out"', f'path = "file:{tmp_path}/out"')
    )
    pipeline = read_pipeline(file)
    (sink,) = pipeline.of("sink")
    with (
        held_place(spark, sink, label_of(pipeline, sink)),
        pytest.raises(ConfigError, match="another run writes to file:"),
        held_place(spark, sink, label_of(pipeline, sink)),
    ):
        pass
    first, second = (FileSink.of(spark, sink, label_of(pipeline, sink), "a" * 32, True) for _ in range(2))
    staged = FileSink._staged

    def interrupted(self: FileSink, rows: DataFrame, prefix: str) -> str:
        place = staged(self, rows, prefix)
        second.claim()
        return place

    first.claim()
    monkeypatch.setattr(FileSink, "_staged", interrupted)
    with pytest.raises(ConfigError, match="another run of this sink began to write"):
        first.write(spark.range(3), 0)


def test_an_older_copy_of_the_checkpoint_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Its next micro-batches have the rows of files that are there, under numbers of their own."""
    orders = COMPLETE.replace('"totals"', '"orders"').replace("complete", "append")
    file = written(tmp_path, orders[: orders.index("[join")] + orders[orders.index("[sink") :])
    run(spark, file, ["source.orders.options.rows_per_batch=50"], once=True)
    for number in ("1", "2", "3"):
        for log in ("offsets", "commits"):
            (tmp_path / "checkpoint" / "out" / log / number).unlink()
            (tmp_path / "checkpoint" / "out" / log / f".{number}.crc").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"up to 3, and the checkpoint is at 1: it was replaced by an older copy"):
        run(spark, file, ["source.orders.options.rows_per_batch=150"], once=True)
    assert dataset.dataset(tmp_path / "out", exclude_invalid_files=True).count_rows() == 200


def test_why_files_cannot_be_moved_is_told(spark: SparkSession, tmp_path: Path) -> None:
    orders = COMPLETE.replace('"totals"', '"orders"').replace("complete", "append")
    file = written(tmp_path, orders[: orders.index("[join")] + orders[orders.index("[sink") :])
    pipeline = read_pipeline(file)
    (sink,) = pipeline.of("sink")
    files = FileSink.of(spark, sink, label_of(pipeline, sink), "a" * 32, True)
    files.write(spark.range(1).coalesce(1), 0)
    (first,) = (tmp_path / "out").glob("*-000000000-*.parquet")
    taken = first.with_name(first.name.replace("-000000000-", "-000000001-"))
    taken.write_text("mine")
    with pytest.raises(OSError, match=rf"cannot move .* to {taken}$") as error:
        files.write(spark.range(1).coalesce(1), 1)
    assert taken.read_text() == "mine"
    assert str(plain_error(error.value, pipeline.secrets)) == f"OSError: {error.value}"


def test_a_batch_replaces_its_own_files_only(spark: SparkSession, tmp_path: Path) -> None:
    text = COMPLETE.replace("stream = true\n", "").replace('mode = "complete"\n', "")
    other = '[sink.text]\ntype = "format"\nformat = "json"\nfrom = "totals"\npath = "text"\n'
    file = written(tmp_path, text + other)
    run(spark, file)
    kept = [tmp_path / "out" / "notes.parquet", tmp_path / "out" / "archive" / "old.parquet"]
    for one in kept:
        one.parent.mkdir(exist_ok=True)
        one.write_text("mine")
    run(spark, file)
    run(spark, file, ["sink.out.mode=append"])
    run(spark, file)
    assert [one.read_text() for one in kept] == ["mine", "mine"]
    mine = [str(one) for one in (tmp_path / "out").glob("*.parquet") if one not in kept]
    assert dataset.dataset(mine).to_table()["n"].to_numpy().sum() == 200
    run(spark, file, ["sink.out.mode=overwrite"])
    assert [one.exists() for one in kept] == [False, True]
    (tmp_path / "text" / "notes.txt").write_text("mine")
    for told in (str(check_pipeline(spark, read_pipeline(file))[0].text), str(raised(spark, file))):
        assert "text has files that this sink did not write, such as 'notes.txt'" in told
    assert (tmp_path / "text" / "notes.txt").read_text() == "mine"


def raised(spark: SparkSession, file: Path) -> Exception:
    with pytest.raises(DataError) as error:
        run(spark, file)
    return error.value


@pytest.mark.parametrize(
    ("path", "mode", "is_refused"),
    [("out", "append", True), ("out/deep", "complete", True), (".", "complete", True), ("out2", "complete", False)],
)
def test_sinks_that_share_a_directory(
    spark: SparkSession, tmp_path: Path, path: str, mode: str, is_refused: bool
) -> None:
    step = "totals" if mode == "complete" else "orders"
    text = f'[sink.second]\ntype = "parquet"\nfrom = "{step}"\npath = "{path}"\nmode = "{mode}"\n'
    found = check_pipeline(spark, read_pipeline(written(tmp_path, COMPLETE + text)))
    assert any("are one directory, or one is inside the other" in problem.text for problem in found) == is_refused
    both = COMPLETE.replace("totals", "orders").replace("complete", "append").replace("[join.orders]", "[join.unused]")
    if path == "out":
        file = written(tmp_path, both[: both.index("[join")] + both[both.index("[sink") :] + text)
        assert check_pipeline(spark, read_pipeline(file)) == []


PAIRS = """
[pipeline]
name = "pairs"
checkpoint = "checkpoint"

[source.orders]
type = "workload"
workload = "orders"
stream = true
options = { rows = 200, products = 20, partitions = 1 }

[source.shipments]
type = "workload"
workload = "shipments"
stream = true
options = { rows = 200, products = 20, partitions = 1 }

[join.sent]
type = "online_multijoin"
inputs = { o = "orders", s = "shipments" }
on = [["o.order_id", "s.order_id"], ["o.at", "s.shipped_at", "0 s", "3 days"]]
columns = ["o_order_id", "warehouse"]
owed = "batch"
retain = "1 hour"
partitions = 1
memory = "16MB"

[sink.pairs]
type = "parquet"
from = "sent"
path = "pairs"
"""


@pytest.mark.slow
def test_streams_meet_streams(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, PAIRS)
    watch = run(spark, file, once=True)
    found = dataset.dataset(tmp_path / "pairs").to_table()
    assert sorted(found["o_order_id"].to_pylist()) == list(range(1, 201))
    assert watch.latest("sent")["rows_in"] == 400
    assert watch.latest("sent")["rows_out"] == 200
    with pytest.raises(PipelineError, match='add owed = "batch"'):
        run(spark, file, ["join.sent.owed=idle"], once=True)


def test_errors_are_told_in_a_few_words_and_recorded(spark: SparkSession, tmp_path: Path) -> None:
    text = STREAM.partition("[join.enriched]")[0].replace("[source.products]", "[source.unused]")
    text = text.partition("[source.unused]")[0] + (
        '[join.bad]\ntype = "sql"\nquery = "select assert_true(order_id < 5) from orders"\n'
        '[sink.out]\ntype = "parquet"\nfrom = "bad"\npath = "out"\n'
    )
    pipeline = read_pipeline(written(tmp_path, text))
    watch = watch_of(pipeline)
    with pytest.raises(DataError) as error:
        Run(spark, pipeline, watch, once=True, console=Console(quiet=True)).go()
    assert "is not true" in str(error.value)
    assert "\n\tat " not in str(error.value)
    assert watch.state == "failed"
    assert watch.errors[0][2] == str(error.value)


@pytest.mark.usefixtures("spark")
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    runner, file = CliRunner(), tmp_path / "orders.toml"
    file.write_text(EXAMPLE.read_text())
    checked = runner.invoke(app, ["check", str(file)])
    assert checked.output == f"{file}: 2 sources, 1 master, 1 join, 1 sink: all right\n"
    assert not (tmp_path / "work").exists()
    wrong = runner.invoke(app, ["check", str(file), "--text", "--set", "join.enriched.memory=1 stone"])
    assert wrong.exit_code == 1
    assert wrong.output.startswith(f"{file}:30: memory of [join.enriched] does not fit: it is '1 stone';")
    shown = runner.invoke(app, ["explain", str(file), "--set", "join.enriched.algorithm=cachejoin"]).output
    for part in ("warehouse [sink parquet]", "CacheJoin: on product_id", "predicted service rate of a task", "memory:"):
        assert part in shown
    both = runner.invoke(app, ["run", str(file), "--once", "--for", "1s"])
    assert both.exit_code == 2

    def interrupt() -> None:
        commits = tmp_path / "work" / "checkpoint" / "warehouse" / "commits" / "1"
        while not commits.exists():
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    rows = ["--set", "source.orders.options.rows=3000"]
    stopped = runner.invoke(app, ["run", str(file), *rows, "--set", "source.orders.options.rows_per_second=300"])
    assert stopped.exit_code == 0, stopped.output
    assert "orders: stopped after" in stopped.output
    assert "service rate of a task" in stopped.output
    record = Watch.load(tmp_path / "work" / "checkpoint" / "watch.json")
    assert record.state == "stopped"
    assert 0 < record.latest("warehouse")["rows_out"] < 3_000
    assert runner.invoke(app, ["run", str(file), *rows, "--once"]).exit_code == 0
    kept = dataset.dataset(tmp_path / "work" / "warehouse", format="parquet").to_table(["order_id"])
    assert sorted(kept["order_id"].to_pylist()) == list(range(1, 3_001))
