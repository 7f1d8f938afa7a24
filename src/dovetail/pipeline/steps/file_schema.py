"""The columns of files without asking Spark, which would start a job: from a footer, or from the first rows."""

from __future__ import annotations

import io
from collections.abc import Mapping
from json import loads
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import csv, fs, json, parquet
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.errors import ConfigError

_HEAD = 1 << 20


def data_files(place: str, most: int = 1) -> list[str]:
    """Some files of a path or glob, first by name; those that Spark passes over, such as _SUCCESS, are left out."""
    system, path = _system(place)
    base = path if not _is_glob(path) else _before_glob(path)
    info = system.get_file_info(base)
    if info.type == fs.FileType.File:
        return [base]
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"{place} does not exist; give the path of a file or directory that does")
    found = system.get_file_info(fs.FileSelector(base, recursive=True))
    shown = (file.path for file in found if file.type == fs.FileType.File and not _is_hidden(file.path, base))
    matching = (file for file in shown if not _is_glob(path) or PurePosixPath(file).match(path))
    return sorted(matching)[:most]


def inferred_schema(kind: str, place: str, options: Mapping[str, Any]) -> T.StructType:
    """The columns of Parquet, CSV or JSON files, from the first file alone; ConfigError where there is none."""
    files = data_files(place)
    if not files:
        raise ConfigError(f'{place} has no file yet to learn the columns from; declare them: schema = "id long, ..."')
    system, _ = _system(place)
    try:
        if kind == "parquet":
            with system.open_input_file(files[0]) as file:
                return _plain(_parquet_schema(parquet.read_schema(file)))
        with system.open_input_stream(files[0]) as stream:
            head = stream.read(_HEAD)
        return _plain(from_arrow_schema(_head_schema(kind, head, options), prefer_timestamp_ntz=False))
    except (pa.ArrowException, OSError, TypeError) as error:
        raise ConfigError(
            f'{files[0]} does not tell its columns ({error}); declare them: schema = "id long, name string, ..."'
        ) from error


def _parquet_schema(schema: pa.Schema) -> T.StructType:
    """The columns as Spark described them if it wrote the file, collations included; else as Arrow sees them."""
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
    """Every column may be null, and a column that had no value is text."""
    text = T.StringType()
    return T.StructType(
        [T.StructField(f.name, text if isinstance(f.dataType, T.NullType) else f.dataType) for f in schema.fields]
    )


def _system(place: str) -> tuple[fs.FileSystem, str]:
    if "://" in place:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(place)
        return found
    return fs.LocalFileSystem(), place


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[{")


def _before_glob(path: str) -> str:
    parts = path.split("/")
    first = next(at for at, part in enumerate(parts) if _is_glob(part))
    return "/".join(parts[:first]) or "/"


def _is_hidden(path: str, base: str) -> bool:
    inner = path.removeprefix(base).strip("/").split("/")
    return any(part.startswith(("_", ".")) and "=" not in part for part in inner)
