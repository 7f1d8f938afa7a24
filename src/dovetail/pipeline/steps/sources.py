"""Reads sources as DataFrames; a check gets an empty DataFrame of the same columns, without a job."""

from __future__ import annotations

import io
import weakref
from collections.abc import Mapping
from json import loads
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import csv, fs, json, parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.engine.storage.files import system_at
from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.file.wiring import streams
from dovetail.pipeline.steps.formats import PACKAGES, known_format
from dovetail.pipeline.steps.messages import COLUMNS, decoded
from dovetail.request import parse_ms
from dovetail.spark.places import access_to, address_of
from dovetail.workloads.source import register

FILES = ("csv", "json", "parquet")
_KNOWING: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def load_source(spark: SparkSession, step: Step) -> DataFrame:
    """The rows of a source, lazily, with its watermark."""
    return watermarked(_loaded(spark, step), step)


def empty_source(spark: SparkSession, step: Step) -> DataFrame:
    """An empty frame with the columns of a source, found without a job; a stream if the source is one."""
    if step.type in FILES or (step.type == "format" and "schema" in step.values):
        frame = empty(spark, file_schema(spark, step), streams(step))
    elif step.type == "kafka":
        known_format(spark, "kafka")
        frame = _messages(spark, empty(spark, parsed_schema(COLUMNS), streams(step)), step)
    else:
        frame = _loaded(spark, step)
    return watermarked(frame, step)


def watermarked(frame: DataFrame, step: Step) -> DataFrame:
    """The frame with the step's watermark, if it has one."""
    mark = step.values.get("watermark")
    if mark is None:
        return frame
    if mark["column"] not in frame.columns:
        raise PlanError(
            f"watermark: {step.name} has no column {mark['column']!r}; it has {frame.columns}.", argument="watermark"
        )
    return frame.withWatermark(mark["column"], f"{parse_ms('delay', mark['delay'])} milliseconds")


def file_schema(spark: SparkSession, step: Step) -> T.StructType:
    """The declared columns, or those of the first file."""
    if "schema" in step.values:
        return parsed_schema(step.values["schema"])
    return inferred_schema(spark, step.type, step.values["path"], step.values.get("options", {}))


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


def _loaded(spark: SparkSession, step: Step) -> DataFrame:
    values = step.values
    reader: Any = spark.readStream if streams(step) else spark.read
    name = {"workload": f"dovetail.{values.get('workload')}", "format": values.get("format")}.get(step.type, step.type)
    if step.type == "workload" and spark not in _KNOWING:  # Spark warns about doing it again
        register(spark)
        _KNOWING.add(spark)
    if name in PACKAGES:
        known_format(spark, name)
    reader = reader.format(name)
    if step.type == "csv":
        reader = reader.option("header", True)
    if step.type == "rate" and "rows_per_second" in values:
        reader = reader.option("rowsPerSecond", values["rows_per_second"])
    for key, value in values.get("options", {}).items():
        reader = reader.option(key, value)
    if step.type in FILES or (step.type == "format" and "schema" in values):
        reader = reader.schema(file_schema(spark, step))
    loaded: DataFrame = reader.load(values["path"]) if "path" in values else reader.load()
    return _messages(spark, loaded, step) if step.type == "kafka" else loaded


def _messages(spark: SparkSession, loaded: DataFrame, step: Step) -> DataFrame:
    if "schema" in step.values:
        parsed_schema(step.values["schema"])
    return decoded(spark, loaded, step)


_HEAD = 1 << 20


def data_files(spark: SparkSession, place: str) -> list[str]:
    """The first file, by name, of a path or glob; files that Spark skips, such as _SUCCESS, do not count."""
    system, path = _system(spark, place)
    base = path if not _is_glob(path) else _before_glob(path)
    info = system.get_file_info(base)
    if info.type == fs.FileType.File:
        return [base]
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"{place} does not exist; give the path of a file or directory that does")
    found = system.get_file_info(fs.FileSelector(base, recursive=True))
    shown = (file.path for file in found if file.type == fs.FileType.File and not _is_hidden(file.path, base))
    matching = (file for file in shown if not _is_glob(path) or PurePosixPath(file).match(path))
    return sorted(matching)[:1]


def _system(spark: SparkSession, place: str) -> tuple[fs.FileSystem, str]:
    """Arrow's file system of a path, and the path in it."""
    address = address_of(spark, place)
    return system_at(address, access_to(spark, address))


def inferred_schema(spark: SparkSession, kind: str, place: str, options: Mapping[str, Any]) -> T.StructType:
    """The columns of Parquet, CSV or JSON files, from the first file; ConfigError if there is none."""
    files = data_files(spark, place)
    if not files:
        raise ConfigError(f'{place} has no file yet to learn the columns from; declare them: schema = "id long, ..."')
    system, _ = _system(spark, place)
    try:
        if kind == "parquet":
            with system.open_input_file(files[0]) as file:
                return _plain(_parquet_schema(parquet.read_schema(file)))
        with system.open_input_stream(files[0]) as stream:
            head = stream.read(_HEAD)
        return _plain(from_arrow_schema(_head_schema(kind, head, options), prefer_timestamp_ntz=False))
    except (pa.ArrowException, OSError, TypeError) as error:
        raise ConfigError(
            f'{files[0]} does not describe its columns ({error}); declare them: schema = "id long, name string, ..."'
        ) from error


def _parquet_schema(schema: pa.Schema) -> T.StructType:
    """The columns as Spark stored them in the file, collations included; else as Arrow reads them."""
    described = (schema.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")
    return from_arrow_schema(schema) if described is None else T.StructType.fromJson(loads(described))


def _head_schema(kind: str, head: bytes, options: Mapping[str, Any]) -> pa.Schema:
    whole = head if len(head) < _HEAD else head[: head.rindex(b"\n") + 1]
    if kind == "json":
        return json.read_json(io.BytesIO(whole)).schema
    header = str(options.get("header", True)).lower() == "true"
    delimiter = str(options.get("sep", options.get("delimiter", ",")))
    table = csv.read_csv(
        io.BytesIO(whole),
        read_options=csv.ReadOptions(autogenerate_column_names=not header),
        parse_options=csv.ParseOptions(delimiter=delimiter),
    )
    names = table.schema.names if header else [f"_c{at}" for at in range(table.num_columns)]
    return pa.schema([pa.field(name, kind) for name, kind in zip(names, table.schema.types, strict=True)])


def _plain(schema: T.StructType) -> T.StructType:
    """The schema with nullable columns; a column without any value is text."""
    text = T.StringType()
    return T.StructType(
        [T.StructField(f.name, text if isinstance(f.dataType, T.NullType) else f.dataType) for f in schema.fields]
    )


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[{")


def _before_glob(path: str) -> str:
    parts = path.split("/")
    first = next(at for at, part in enumerate(parts) if _is_glob(part))
    return "/".join(parts[:first]) or "/"


def _is_hidden(path: str, base: str) -> bool:
    inner = path.removeprefix(base).strip("/").split("/")
    return any(part.startswith(("_", ".")) and "=" not in part for part in inner)
