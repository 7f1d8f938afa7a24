"""The Spark session of a command: a quiet one of its own, with the pipeline's settings, or the one that runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.file.declared import Pipeline
from dovetail.pipeline.file.locate import nearest_line
from dovetail.pipeline.file.problems import PipelineError, Problem
from dovetail.spark.output import Output
from dovetail.spark.session import configure, open_session

_QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
}


@contextmanager
def started_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session for the block; one that was started here is stopped at its end.

    What Spark prints goes to a log. Its path is told if the block fails, unless the pipeline's text is why, or if
    there are errors in it; otherwise the log is removed.
    """
    # PySpark logs every error of analysis to the terminal, as JSON with its stack, beside raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    running = SparkSession.getActiveSession()
    if running is not None:
        configure(running)
        yield running
        return
    output = Output()
    is_told = True
    try:
        spark = _session(pipeline, output)
        try:
            yield spark
        finally:
            spark.stop()
        is_told = output.errors > 0
    except PlanError:
        is_told = False
        raise
    finally:
        if is_told and output.path.stat().st_size:
            Console(stderr=True).print(f"what Spark printed: {output.path}", highlight=False, soft_wrap=True)
        else:
            output.remove()


def _session(pipeline: Pipeline, output: Output) -> SparkSession:
    """A new session; what its settings in the file have wrong is told with the line."""
    given = pipeline.settings.get("spark", {})
    asked = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    try:
        return open_session(f"dovetail {pipeline.name}", {**_QUIET, **asked}, output)
    except ConfigError as error:
        message = pipeline.secrets.masked(str(error))
        key = next((key for key in asked if message.startswith(f"{key}: ")), None)
        if key is None:
            raise ConfigError(message) from None
        line = nearest_line(pipeline.lines, ("pipeline", "spark", key))
        raise PipelineError(str(pipeline.path), [Problem(line, message)]) from None
