"""Checks a pipeline against its inputs and outputs: columns, types, files and servers. No Spark job runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import ConfigError, DataError, DovetailError, PlanError
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.pipeline.checkpoint import owner_of
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.problems import Problem, Problems, listed, meant, nearest_line
from dovetail.pipeline.file.requests import key_of, query_line
from dovetail.pipeline.sinks.write import KEPT, batch_modes, check_place
from dovetail.pipeline.steps.formats import known_format
from dovetail.pipeline.steps.joins import Given, checked_join
from dovetail.pipeline.steps.masters import promised_master
from dovetail.pipeline.steps.sources import empty_source, watermarked
from dovetail.spark.task_errors import spark_says

_PLACE = re.compile(r"line (\d+),? pos \d+")
_STREAM_MODES = {"parquet": ("append", "complete"), "csv": ("append", "complete")}


def check_pipeline(spark: SparkSession, pipeline: Pipeline) -> list[Problem]:
    """Everything that a run would refuse, by line; steps after a wrong step are not checked."""
    return _Check(spark, pipeline).all()


class _Check:
    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark, self._pipeline = spark, pipeline
        self._problems = Problems(pipeline.lines)
        self._frames: dict[str, DataFrame] = {}
        self._stores: dict[str, MasterStore] = {}

    def all(self) -> list[Problem]:
        """The problems of every step, in the order of the file."""
        for step in self._pipeline.ordered():
            if all(name in self._frames or name in self._stores for name in step.sources):
                self._step(step)
        for sink, text in overlapping(self._pipeline, self._frames):
            self._problems.add((*sink.path, "path"), text)
        return self._problems.sorted()

    def _step(self, step: Step) -> None:
        try:
            if step.kind == "source":
                self._frames[step.name] = empty_source(self._spark, step)
            elif step.kind == "master":
                source = step.values.get("build", {}).get("from")
                self._stores[step.name] = promised_master(step, self._frames.get(source))
            elif step.kind == "join":
                given = Given(self._spark, self._pipeline, self._frames, self._stores)
                self._frames[step.name] = watermarked(checked_join(given, step), step)
            else:
                for key, text in sink_problems(self._spark, self._pipeline, step, self._frames[step.values["from"]]):
                    self._problems.add((*step.path, key), text)
        except DovetailError as error:
            self._report(step, str(error), key_of(step, error, _reached(step)))
        except (PySparkException, Py4JJavaError) as error:
            message = f"Spark refuses it: {spark_says(error)}; see what its {step.type} takes"
            self._report(step, message, _reached(step))

    def _report(self, step: Step, message: str, key: str) -> None:
        """Add a problem at the line of a key; in a query, at the line that Spark names."""
        masked = self._pipeline.secrets.masked(message)
        place = _PLACE.search(masked) if key == "query" else None
        if place is None:
            line = nearest_line(self._pipeline.lines, (*step.path, key))
        else:
            line = query_line(self._pipeline, step, int(place[1]))
        self._problems.at(line, f"{step.name}: {masked}", step.name)


def _reached(step: Step) -> str:
    """The key that an error without an argument is about: the path, server or format that the step reads."""
    keys = ("path", "uri", "format", "options") if step.kind in ("source", "master") else ()
    return next((key for key in keys if key in step.values), "type")


def sink_problems(spark: SparkSession, pipeline: Pipeline, sink: Step, rows: DataFrame) -> Iterator[tuple[str, str]]:
    """Problems of a sink with the rows that it takes: key and text."""
    yield from _mode_problems(sink, rows.isStreaming)
    if rows.isStreaming:
        yield from _stream_problems(spark, pipeline, sink, rows)
    by = sink.values.get("partition_by", [])
    for name in [by] if isinstance(by, str) else by:
        if name not in rows.columns:
            text = (
                f"the rows of {sink.name} have no column {name!r}; they have {listed(rows.columns)}; "
                f"{meant(name, rows.columns) or 'name one of these'}"
            )
            yield "partition_by", text
    if sink.type == "format":
        yield from _as_problem(sink, "format", lambda: known_format(spark, sink.values["format"]))
    yield from _place_problems(spark, pipeline, sink, rows)


def overlapping(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> Iterator[tuple[Step, str]]:
    """Sinks whose directory overlaps that of an earlier sink: sink and text.

    Two sinks that append files of one format can share a directory.
    """
    sinks = [sink for sink in pipeline.of("sink") if "path" in sink.values and sink.values["from"] in frames]
    for at, sink in enumerate(sinks):
        for other in sinks[:at]:
            mine, its = (_folder(one.values["path"]) for one in (sink, other))
            if mine == its and _appended(sink, frames) == _appended(other, frames) is not None:
                continue
            if mine.startswith(its) or its.startswith(mine):
                yield (
                    sink,
                    f"path of {sink.name} and path of {other.name} are one directory, or one is inside the other; "
                    "their files would be read as those of one table; give each a directory of its own",
                )


def _folder(place: str) -> str:
    return (place if "://" in place else os.path.normpath(place)).rstrip("/") + "/"


def _appended(sink: Step, frames: Mapping[str, DataFrame]) -> str | None:
    """The format of the files that a sink appends to a directory; None if it also replaces files."""
    usual = "append" if frames[sink.values["from"]].isStreaming else "overwrite"
    is_added = sink.values.get("mode", usual) == "append" and sink.type != "format"
    return sink.type if is_added else None


def _mode_problems(sink: Step, streams: bool) -> Iterator[tuple[str, str]]:
    mode = sink.values.get("mode")
    every = ("append", "update", "complete")
    allowed = _STREAM_MODES.get(sink.type, every) if streams else batch_modes(sink)
    if mode is not None and mode not in allowed:
        kind = "a stream" if streams else "a batch"
        text = (
            f"mode of {sink.name} is {mode!r}, and it takes {kind}; a {sink.type} sink of {kind} has one of "
            f"{listed(allowed)}; choose one, or leave it out for {allowed[0]!r}"
        )
        yield "mode", text


def _stream_problems(spark: SparkSession, pipeline: Pipeline, sink: Step, rows: DataFrame) -> Iterator[tuple[str, str]]:
    if sink.type in KEPT and pipeline.checkpoint is None:
        text = (
            f"sink {sink.name} takes a stream, and the pipeline has no checkpoint; a stream needs one to go on "
            'after a stop; add checkpoint = "directory" to [pipeline]'
        )
        yield "type", text
    session: Any = spark
    checker = session._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes: Mapping[str, str] = {"append": "Append", "update": "Update", "complete": "Complete"}
    mode = modes.get(sink.values.get("mode", "append"), "Append")
    plan: Any = rows
    try:
        checker.checkForStreaming(
            plan._jdf.queryExecution().analyzed(),
            getattr(session._jvm.org.apache.spark.sql.streaming.OutputMode, mode)(),
        )
    except Exception as error:  # py4j or PySpark wraps it, by where it is thrown
        text = (
            f"Spark cannot run {sink.values['from']!r} as a stream in mode {mode.lower()!r}: {spark_says(error)}; "
            "choose another mode, add a watermark, or read the sources with stream = false"
        )
        yield "from", text


def _place_problems(spark: SparkSession, pipeline: Pipeline, sink: Step, rows: DataFrame) -> Iterator[tuple[str, str]]:
    def look() -> None:
        check_place(spark, pipeline, sink, rows, owner_of(spark, pipeline, sink) if rows.isStreaming else "")

    reached = {"postgres": "uri", "kafka": "options"}.get(sink.type, "path")
    for key, text in _as_problem(sink, reached, look):
        yield key, pipeline.secrets.masked(text)


def _as_problem(sink: Step, key: str, look: Any) -> Iterator[tuple[str, str]]:
    """The error that a check raises, as key and text; the key is `key` if the error names none."""
    try:
        look()
    except (ConfigError, DataError, PlanError) as error:
        yield key_of(sink, error, key), str(error)
