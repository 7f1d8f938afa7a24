"""Runs functions over Arrow batches on Spark, whatever the columns are called; Arrow types of Spark types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.spark.task_errors import translate_task_errors

Batches = Iterator[pa.RecordBatch]
_PLAIN = re.compile(r"\w+", re.ASCII)


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: T.StructType) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, also for column names that PySpark would read as paths or quotes.

    A `DovetailError` of the function is raised by the action as that error.
    """
    translate_task_errors()
    names, out = frame.columns, schema.names
    if all(_PLAIN.fullmatch(name) for name in names):
        return frame.mapInArrow(function, schema)
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(partial(_renamed, function, names), schema).toDF(*out)


def _renamed(function: Callable[[Batches], Batches], names: list[str], batches: Batches) -> Batches:
    return function(batch.rename_columns(names) for batch in batches)


def arrow_type(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a Spark type in tasks; the zone UTC of timestamps changes no value."""
    return to_arrow_type(kind, timezone="UTC")
