"""Opens the Spark session of a command, with the pipeline's settings; a running session is used as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console

from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.pipeline.file.declared import Pipeline
from dovetail.pipeline.file.problems import PipelineError, Problem, nearest_line
from dovetail.spark.frames import require_classic
from dovetail.spark.launch import Output
from dovetail.spark.session import configure, open_session, wants_connect

_QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
}
_WHAT = "a pipeline, which writes its checkpoint and sinks from the driver,"
_INSTEAD = "give spark.master in place of spark.remote, and unset SPARK_REMOTE, or call the joins in a program."


@contextmanager
def started_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session for the block; a session that is started here is stopped at the end.

    Spark's output goes to a log. The path of the log is printed if the log has errors, or if the block fails for
    another reason than the pipeline's text; otherwise the log is removed.
    """
    # PySpark logs every error of analysis to the terminal, as JSON with its stack, beside raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    running = SparkSession.getActiveSession()
    if running is not None:
        require_classic(running, _WHAT, _INSTEAD)
        configure(running)
        yield running
        return
    output = Output()
    is_kept = True
    try:
        spark = _session(pipeline, output)
        try:
            yield spark
        finally:
            spark.stop()
        is_kept = output.errors > 0
    except PlanError:
        is_kept = False
        raise
    finally:
        if is_kept and output.path.stat().st_size:
            Console(stderr=True).print(f"what Spark printed: {output.path}", highlight=False, soft_wrap=True)
        else:
            output.remove()


def _session(pipeline: Pipeline, output: Output) -> SparkSession:
    """A new session; an error in a setting of the file is raised with its line."""
    given = pipeline.settings.get("spark", {})
    asked = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    if wants_connect(asked):
        raise UnsupportedError(f"{_WHAT} does not work over Spark Connect; {_INSTEAD}")
    try:
        return open_session(f"dovetail {pipeline.name}", {**_QUIET, **asked}, output)
    except ConfigError as error:
        message = pipeline.secrets.masked(str(error))
        key = next((key for key in asked if message.startswith(f"{key}: ")), None)
        if key is None:
            raise ConfigError(message) from None
        line = nearest_line(pipeline.lines, ("pipeline", "spark", key))
        raise PipelineError(str(pipeline.path), [Problem(line, message)]) from None
