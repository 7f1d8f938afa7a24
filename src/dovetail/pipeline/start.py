"""The Spark session of a command: a quiet one of its own, with the pipeline's settings, or the one that runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from dovetail.pipeline.declared import Pipeline
from dovetail.spark.session import configure, session

_QUIET: Mapping[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": 200,
}


@contextmanager
def started_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session for the block; one that was started here is stopped at its end."""
    # PySpark logs every error of analysis to the terminal, as JSON with its stack, beside raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    running = SparkSession.getActiveSession()
    if running is not None:
        configure(running)
        yield running
        return
    spark = session(f"dovetail {pipeline.name}", conf={**_QUIET, **pipeline.settings.get("spark", {})})
    try:
        yield spark
    finally:
        spark.stop()
