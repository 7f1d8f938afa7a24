"""Sources: the DataFrame that each reads, and an empty one of the same columns for checking."""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.file.wiring import streams
from dovetail.pipeline.steps.file_schema import inferred_schema
from dovetail.request.amounts import parse_ms
from dovetail.workloads.source import register

FILES = ("csv", "json", "parquet")
_KNOWING: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_KAFKA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


def load_source(spark: SparkSession, step: Step) -> DataFrame:
    """The rows of a source, lazily; a watermark that it declares is set."""
    return watermarked(_loaded(spark, step), step)


def empty_source(spark: SparkSession, step: Step) -> DataFrame:
    """A frame with the columns of a source and none of its rows, found without a job; a stream if the source is."""
    if step.type in FILES or (step.type == "format" and "schema" in step.values):
        frame = empty(spark, file_schema(step), streams(step))
    elif step.type == "kafka":
        known_format(spark, "kafka")
        frame = empty(spark, parsed_schema(_KAFKA), streams(step))
    else:
        frame = _loaded(spark, step)
    return watermarked(frame, step)


def watermarked(frame: DataFrame, step: Step) -> DataFrame:
    """The frame with the watermark that the step declares, if it declares one."""
    mark = step.values.get("watermark")
    if mark is None:
        return frame
    if mark["column"] not in frame.columns:
        raise PlanError(
            f"watermark: {step.name} has no column {mark['column']!r}; it has {frame.columns}.", argument="watermark"
        )
    return frame.withWatermark(mark["column"], f"{parse_ms('delay', mark['delay'])} milliseconds")


def file_schema(step: Step) -> T.StructType:
    """The columns that are declared, or those that the first file has."""
    if "schema" in step.values:
        return parsed_schema(step.values["schema"])
    return inferred_schema(step.type, step.values["path"], step.values.get("options", {}))


def parsed_schema(text: str) -> T.StructType:
    """Columns from DDL such as "id long, at timestamp"."""
    try:
        found = T.StructType.fromDDL(text)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise PlanError(
            f'schema={text!r} is not understood ({reason}); write "id long, name string, ..."', argument="schema"
        ) from error
    if not isinstance(found, T.StructType):
        raise PlanError(f'schema={text!r} names no columns; write "id long, name string, ..."', argument="schema")
    return found


def empty(spark: SparkSession, schema: T.StructType, stream: bool) -> DataFrame:
    """A frame without rows."""
    base = spark.readStream.format("rate").load() if stream else spark.range(0)
    return base.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields))


def known_format(spark: SparkSession, name: str) -> None:
    """A ConfigError unless Spark finds the format on its class path."""
    session: Any = spark
    lookup = session._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    try:
        lookup(name, session._jsparkSession.sessionState().conf())
    except Exception as error:  # py4j wraps whatever class Spark throws
        package = "org.apache.spark:spark-sql-kafka-0-10_2.13" if name == "kafka" else "the package that has it"
        raise ConfigError(
            f"Spark has no format {name!r}; add {package} to spark.jars.packages in [pipeline.spark]"
        ) from error


def _loaded(spark: SparkSession, step: Step) -> DataFrame:
    values = step.values
    reader: Any = spark.readStream if streams(step) else spark.read
    name = {"workload": f"dovetail.{values.get('workload')}", "format": values.get("format")}.get(step.type, step.type)
    if step.type == "workload" and spark not in _KNOWING:  # Spark warns about doing it again
        register(spark)
        _KNOWING.add(spark)
    reader = reader.format(name)
    if step.type == "csv":
        reader = reader.option("header", True)
    if step.type == "rate" and "rows_per_second" in values:
        reader = reader.option("rowsPerSecond", values["rows_per_second"])
    for key, value in values.get("options", {}).items():
        reader = reader.option(key, value)
    if step.type in FILES or "schema" in values:
        reader = reader.schema(file_schema(step))
    loaded: DataFrame = reader.load(values["path"]) if "path" in values else reader.load()
    return loaded
