"""Files on other systems than the local one, listed through Hadoop."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from dovetail.errors import PlanError
from dovetail.spark.connect import require_classic
from dovetail.xml.execute.files import ENDINGS


def hadoop_paths(spark: SparkSession, pattern: str) -> list[tuple[str, int]]:
    """URI and size of the XML files of a directory or glob on a file system that Hadoop knows, sorted by name."""
    require_classic(spark, f"listing {pattern!r}", "give a local path, or use a classic session")
    gateway: Any = spark
    path = gateway._jvm.org.apache.hadoop.fs.Path(pattern)
    try:
        system = path.getFileSystem(gateway._jsc.hadoopConfiguration())
        found = system.globStatus(path) or []
        listed = [file for status in found for file in _files(system, status)]
    except Exception as error:
        raise PlanError(
            f"{pattern!r} cannot be listed: {str(error).splitlines()[0]}", argument="collections"
        ) from error
    return sorted((str(file.getPath().toString()), int(file.getLen())) for file in listed)


def _files(system: Any, status: Any) -> list[Any]:
    if not status.isDirectory():
        return [status]
    below, found = system.listFiles(status.getPath(), True), []
    while below.hasNext():
        file = below.next()
        if file.getPath().getName().endswith(ENDINGS):
            found.append(file)
    return found
