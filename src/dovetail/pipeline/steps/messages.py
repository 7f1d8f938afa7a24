"""Reads and writes the values of Kafka messages: JSON or Avro, with a schema that the pipeline declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.avro.functions import from_avro, to_avro

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.file.declared import Step, is_schema_text
from dovetail.pipeline.steps.formats import known_format

COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
"""The columns of a message, without a declared schema."""
_MODES = {"fail": "FAILFAST", "null": "PERMISSIVE"}


def decoded(spark: SparkSession, messages: DataFrame, source: Step) -> DataFrame:
    """The columns that a source declares for its values; the messages as they are if it declares none.

    A value that is not as declared fails the query, or with `malformed = "null"` gives a row of nulls. A message
    without a value gives a row of nulls.
    """
    values = source.values
    mode = {"mode": _MODES[values.get("malformed", "fail")]}
    if "schema" in values:
        value: Column = F.from_json(F.col("value").cast("string"), values["schema"], mode)
    elif "avro" in values:
        value = from_avro("value", avro_schema(spark, values["avro"]), mode)
    else:
        return messages
    return messages.select(value.alias("value")).select("value.*")


def encoded(spark: SparkSession, rows: DataFrame, sink: Step) -> DataFrame:
    """The rows as messages: the value has all columns, nulls included, and the key is a column's text."""
    key, schema = sink.values.get("key"), sink.values.get("avro")
    if key is not None and key not in rows.columns:
        raise PlanError(f"key: the rows have no column {key!r}; they have {rows.columns}.", argument="key")
    every = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    if schema is None:
        value = F.to_json(every, {"ignoreNullFields": "false"})
    else:
        text = avro_schema(spark, schema)
        strange = sorted(set(rows.columns) - {field["name"] for field in json.loads(text).get("fields", ())})
        if strange:
            raise PlanError(f"avro: the schema has no field {strange}; add it, or select it away.", argument="avro")
        value = to_avro(every, text)
    keys = [] if key is None else [F.col(f"`{key}`").cast("string").alias("key")]
    return rows.select(*keys, value.alias("value"))


def avro_schema(spark: SparkSession, given: str) -> str:
    """An Avro schema, given as its text or as the path of a file, once Avro's own parser has taken it."""
    known_format(spark, "avro", "avro")
    session: Any = spark
    try:
        text = given if is_schema_text(given) else Path(given).read_text(encoding="utf-8")
        session._jvm.org.apache.avro.Schema.Parser().parse(text)
    except OSError as error:
        raise ConfigError(
            f"avro: {given} cannot be read: {error.strerror}; check the path.", argument="avro"
        ) from error
    except Exception as error:  # py4j wraps whatever the parser throws
        said = next((line for line in str(error).splitlines() if "Exception: " in line), str(error))
        raise PlanError(
            f"avro is no Avro schema: {said.rpartition('Exception: ')[2].strip()}; correct it.", argument="avro"
        ) from error
    return text
