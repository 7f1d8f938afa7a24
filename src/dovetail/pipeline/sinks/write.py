"""Writes streams and batches to sinks of every type."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.keys import AT_ONCE
from dovetail.pipeline.sinks import postgres as sink_postgres
from dovetail.pipeline.sinks.files import FileSink, check_format_place, mark_format_place
from dovetail.pipeline.sinks.hadoop import Files
from dovetail.pipeline.steps.build import Lineage
from dovetail.pipeline.steps.formats import known_format
from dovetail.pipeline.steps.messages import encoded
from dovetail.request import parse_ms
from dovetail.spark.places import require_shared_directory

KEPT = ("parquet", "csv", "postgres", "kafka", "format")
"""Types of sinks whose rows are kept after the run, so that their streams need a checkpoint."""


def batch_modes(sink: Step) -> tuple[str, ...]:
    """The modes in which a sink takes a batch, the default first; a topic cannot be replaced."""
    return ("append",) if sink.type == "kafka" else ("overwrite", "append", "error")


Writer = Callable[[DataFrame, int], object]


def label_of(pipeline: Pipeline, sink: Step) -> str:
    """The name of pipeline and sink together, as a file name; a point is between the two."""
    names = ("".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in n) for n in (pipeline.name, sink.name))
    return ".".join(names)


def check_place(spark: SparkSession, pipeline: Pipeline, sink: Step, rows: DataFrame, owner: str) -> None:
    """Raise an error if a sink's target cannot take these rows, or has rows that would be repeated or lost.

    The target is not changed. `owner` is the id of the sink's output in its checkpoint, if it has one.
    """
    label = label_of(pipeline, sink)
    if sink.type in ("parquet", "csv"):
        FileSink.of(spark, sink, label, owner, rows.isStreaming).check()
    elif sink.type == "postgres":
        target = sink_postgres.Target.of(sink, rows, label, owner)
        sink_postgres.inspect(target, sink.values.get("create", True))
    elif sink.type == "kafka":
        _messages(spark, rows, sink)
    elif sink.type == "format" and not rows.isStreaming:
        check_format_place(spark, sink, label)


def _messages(spark: SparkSession, rows: DataFrame, sink: Step) -> DataFrame:
    known_format(spark, "kafka", "options")
    return encoded(spark, rows, sink)


def _require_shared(spark: SparkSession, sink: Step) -> None:
    """ConfigError if a sink's directory is another one on each host of a cluster: rows would be lost."""
    if "path" in sink.values:
        place = sink.values["path"]
        require_shared_directory(spark, Files(spark, place).address(place), "path")


def start_stream(
    spark: SparkSession, pipeline: Pipeline, lineage: Lineage, checkpoint: str, owner: str, once: bool
) -> StreamingQuery:
    """The running query of a sink that writes a stream."""
    sink, rows = lineage.sink, lineage.frame
    _require_shared(spark, sink)
    if sink.type == "kafka":
        rows = _messages(spark, rows, sink)
    writer: Any = rows.writeStream.outputMode(sink.values.get("mode", "append"))
    writer = writer.queryName(f"{pipeline.name}.{sink.name}" if sink.type != "memory" else sink.name)
    writer = writer.trigger(**trigger_of(pipeline, sink, once))
    if sink.type == "memory":
        writer = writer.format("memory")
    elif sink.type in ("kafka", "format"):
        writer = _optioned(writer.format(sink.values.get("format", sink.type)), sink)
        writer = writer.option("checkpointLocation", checkpoint)
    else:
        writer = writer.foreachBatch(_batch_writer(spark, pipeline, lineage, owner)).option(
            "checkpointLocation", checkpoint
        )
    started: StreamingQuery = writer.start()
    return started


def write_once(spark: SparkSession, pipeline: Pipeline, lineage: Lineage, console: Console) -> None:
    """Write a batch as a whole."""
    sink, rows = lineage.sink, lineage.frame
    mode, label, owner = sink.values.get("mode", batch_modes(sink)[0]), label_of(pipeline, sink), uuid.uuid4().hex
    _require_shared(spark, sink)
    if sink.type in ("parquet", "csv"):
        FileSink.of(spark, sink, label, owner, False).write_batch(rows)
    elif sink.type == "postgres":
        target = sink_postgres.Target.of(sink, rows, label, owner)
        sink_postgres.prepare(target, sink.values.get("create", True))
        sink_postgres.write_batch(rows, target, 0)
    elif sink.type == "kafka":
        _optioned(_messages(spark, rows, sink).write.format("kafka").mode(mode), sink).save()
    elif sink.type == "console":
        print_rows(console, sink, rows, None)
    elif sink.type == "memory":
        rows.cache().createOrReplaceTempView(sink.name)
        rows.count()
    else:
        check_format_place(spark, sink, label)
        writer = _optioned(rows.write.format(sink.values["format"]).mode(mode), sink)
        writer.save()
        mark_format_place(spark, sink, label)


def _optioned(writer: Any, sink: Step) -> Any:
    for key, value in sink.values.get("options", {}).items():
        writer = writer.option(key, value)
    if "path" in sink.values:
        writer = writer.option("path", sink.values["path"])
    by = sink.values.get("partition_by")
    return writer if by is None else writer.partitionBy(*([by] if isinstance(by, str) else by))


def trigger_of(pipeline: Pipeline, sink: Step, once: bool) -> dict[str, Any]:
    """The trigger of a sink, as arguments of Spark's `trigger`."""
    given = sink.values.get("trigger", pipeline.settings.get("trigger", "1 second"))
    if once or given == "availableNow":
        return {"availableNow": True}
    if given == AT_ONCE:
        return {"processingTime": AT_ONCE}
    return {"processingTime": f"{parse_ms('trigger', given)} milliseconds"}


def _batch_writer(spark: SparkSession, pipeline: Pipeline, lineage: Lineage, owner: str) -> Writer:
    """The function that writes each micro-batch of a sink."""
    sink = lineage.sink
    if sink.type in ("parquet", "csv"):
        file_sink = FileSink.of(spark, sink, label_of(pipeline, sink), owner, True)
        file_sink.claim()
        return file_sink.write
    if sink.type == "postgres":
        target = sink_postgres.Target.of(sink, lineage.frame, label_of(pipeline, sink), owner)
        sink_postgres.prepare(target, sink.values.get("create", True))
        return lambda rows, number: sink_postgres.take_batch(rows, target, number)
    console = Console()
    return lambda rows, number: print_rows(console, sink, rows, number)


def print_rows(console: Console, sink: Step, rows: DataFrame, number: int | None) -> None:
    """Print the first rows as a table on the terminal."""
    most = int(sink.values.get("options", {}).get("numRows", 20))
    title = sink.name if number is None else f"{sink.name}, micro-batch {number}"
    table = Table(*map(escape, rows.columns), title=title, title_justify="left")
    # All partitions must run, so that a stream updates all its state: a limit alone would run some of them.
    kept = rows.persist()
    try:
        kept.count()
        found = kept.limit(most + 1).collect()
    finally:
        kept.unpersist()
    for row in found[:most]:
        table.add_row(*(Text(str(value)) for value in row))
    if len(found) > most:
        table.caption = f"the first {most} rows"
    console.print(table)
