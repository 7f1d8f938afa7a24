"""Finds formats of Spark, and names the line of a pipeline that brings a missing one."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from dovetail.errors import ConfigError

PACKAGES = {"kafka": "spark-sql-kafka-0-10_2.13", "avro": "spark-avro_2.13"}
"""Connectors that Spark publishes beside itself, under its own version."""


def known_format(spark: SparkSession, name: str, argument: str | None = None) -> None:
    """A ConfigError unless Spark finds the format on its class path; `argument` is the key that asked for it."""
    session: Any = spark
    lookup = session._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    try:
        lookup(name, session._jsparkSession.sessionState().conf())
    except Exception as error:  # py4j wraps whatever class Spark throws
        raise ConfigError(f"Spark has no format {name!r}; {_remedy(spark, name)}", argument=argument) from error


def with_remedy(spark: SparkSession, said: str) -> str:
    """Spark's message about a query, with the line that brings Avro if Spark lacks it."""
    return f"{said}; {_remedy(spark, 'avro')}" if "AVRO_NOT_LOADED" in said else said


def _remedy(spark: SparkSession, name: str) -> str:
    """The line of [pipeline] that brings a format, beside the packages that the session has."""
    if name not in PACKAGES:
        return "add the package that has it to spark.jars.packages in [pipeline.spark]"
    present = spark.sparkContext.getConf().get("spark.jars.packages")
    packages = ",".join(filter(None, (present, f"org.apache.spark:{PACKAGES[name]}:{spark.version}")))
    line = f'this line in [pipeline] brings it: spark = {{ "spark.jars.packages" = "{packages}" }}'
    return f"{line}, or, where Maven Central lacks this version, those of docs/pipelines.md#kafka"
