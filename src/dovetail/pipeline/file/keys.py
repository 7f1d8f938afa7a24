"""Every table and key of a pipeline file, with the kind of its value: the format as data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dovetail.pipeline.file import values as v
from dovetail.pipeline.file.values import Kind

KINDS = ("source", "master", "join", "sink")
WORKLOADS = ("zipf", "master", "intervals", "lambda_intervals", "relation", "orders", "products", "shipments",
             "promotions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The keys of one type of table. `references` are those that name other steps; `paths` those that name files."""

    keys: Mapping[str, Kind]
    required: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


PIPELINE = Shape(
    {"name": v.TEXT, "memory": v.SIZE, "checkpoint": v.TEXT, "trigger": v.TRIGGER, "spark": v.OPTIONS},
    ("name",),
    paths=("checkpoint",),
)

_SOURCE = {"type": v.TEXT, "stream": v.FLAG, "schema": v.TEXT, "options": v.OPTIONS, "watermark": v.WATERMARK}
_FILES = Shape({**_SOURCE, "path": v.TEXT}, ("path",), paths=("path",))
SOURCES = {
    "csv": _FILES,
    "json": _FILES,
    "parquet": _FILES,
    "rate": Shape({key: kind for key, kind in _SOURCE.items() if key != "schema"} | {"rows_per_second": v.COUNT}),
    "kafka": Shape({key: kind for key, kind in _SOURCE.items() if key != "schema"}, ("options",)),
    "workload": Shape(
        {key: kind for key, kind in _SOURCE.items() if key != "schema"} | {"workload": v.TEXT},
        ("workload",),
        words={"workload": WORKLOADS},
    ),
    "format": Shape({**_SOURCE, "format": v.TEXT, "path": v.TEXT}, ("format",), paths=("path",)),
}

_KEYED = {"type": v.TEXT, "key": v.NAME_OR_NAMES}
MASTERS = {
    "pages": Shape({**_KEYED, "path": v.TEXT, "build": v.BUILD}, ("path",), paths=("path",)),
    "parquet": Shape({**_KEYED, "path": v.TEXT}, ("path", "key"), paths=("path",)),
    "sqlite": Shape(
        {**_KEYED, "path": v.TEXT, "table": v.TEXT, "page": v.SIZE}, ("path", "table", "key"), (), ("path",)
    ),
    "postgres": Shape(
        {**_KEYED, "uri": v.TEXT, "table": v.TEXT, "page": v.SIZE, "marker": v.TEXT}, ("uri", "table", "key")
    ),
}

_SINK = {"type": v.TEXT, "from": v.TEXT, "mode": v.TEXT, "trigger": v.TRIGGER}
_MODES = ("append", "update", "complete", "overwrite", "error")
_WORDS = {"mode": _MODES}
_FILE_SINK = Shape(
    {**_SINK, "path": v.TEXT, "options": v.OPTIONS, "partition_by": v.NAME_OR_NAMES},
    ("from", "path"), ("from",), ("path",), _WORDS,
)  # fmt: skip
SINKS = {
    "parquet": _FILE_SINK,
    "csv": _FILE_SINK,
    "postgres": Shape(
        {**_SINK, "uri": v.TEXT, "table": v.TEXT, "key": v.NAME_OR_NAMES, "newest": v.TEXT, "create": v.FLAG},
        ("from", "uri", "table"), ("from",), (), _WORDS,
    ),
    "console": Shape({**_SINK, "options": v.OPTIONS}, ("from",), ("from",), (), _WORDS),
    "memory": Shape(_SINK, ("from",), ("from",), (), _WORDS),
    "format": Shape(
        {**_SINK, "format": v.TEXT, "path": v.TEXT, "options": v.OPTIONS, "partition_by": v.NAME_OR_NAMES},
        ("from", "format"), ("from",), ("path",), _WORDS,
    ),
}  # fmt: skip

# The kind of every option, by name; a name means the same in all joins, but many inputs take other `on` and `suffixes`.
_ARGUMENTS: dict[str, Kind] = {
    **dict.fromkeys(
        ("how", "algorithm", "mode", "route", "exchange", "cache", "as_of", "owed", "output", "on_error"), v.TEXT
    ),
    **dict.fromkeys(("invalid", "keep", "condition", "query", "direction"), v.TEXT),
    **dict.fromkeys(("wait", "retain", "max_wait"), v.DURATION),
    **dict.fromkeys(("null_safe", "with_phase", "strict", "allow_exact"), v.FLAG),
    "partitions": v.COUNT,
    **dict.fromkeys(("left_interval", "right_interval", "relation"), v.TEXT_OR_NAMES),
    **dict.fromkeys(("on", "by"), v.KEYS),
    "memory": v.SIZE,
    **dict.fromkeys(("lookup", "tolerance"), v.TEXT_OR_NUMBER),
    "ties": v.TIES,
    "tune": v.TUNE,
    "on_miss": v.MISSES,
    "freshness": v.FRESHNESS,
    "columns": v.NAMES,
    "suffixes": v.PAIR,
    **dict.fromkeys(("versions", "context"), v.TEXT),
    "within": v.BAND,
    "end_of_input": v.TEXT_OR_TEXTS,
    "rows": v.NUMBERS,
    "closed": v.TEXT_OR_PAIR,
    **dict.fromkeys(("split_points", "hot"), v.LIST),
    "collections": v.OPTIONS,
    "variables": v.TABLE,
}
_STEP = {"type": v.TEXT, "watermark": v.WATERMARK}
JOIN_TYPES = ("enrich", "online_join", "online_multijoin", "interval_join", "asof_join", "xquery", "sql")


def options_of(join: str) -> Callable[..., Any]:
    """The options of the function that a type of join calls; importing them brings no Spark."""
    if join == "enrich":
        from dovetail.joins.semistream.request import EnrichOptions

        return EnrichOptions
    if join == "online_join":
        from dovetail.joins.online.request import OnlineJoinOptions

        return OnlineJoinOptions
    if join == "online_multijoin":
        from dovetail.joins.online.request import MultiJoinOptions

        return MultiJoinOptions
    if join == "interval_join":
        from dovetail.joins.interval.request import JoinOptions

        return JoinOptions
    if join == "asof_join":
        from dovetail.joins.asof.request import AsofOptions

        return AsofOptions
    from dovetail.xml.request import XQueryOptions

    return XQueryOptions


@cache
def join_shape(join: str) -> Shape:
    """The keys of a join: the steps that it reads, and every other argument of its function."""
    if join == "sql":
        return Shape({**_STEP, "query": v.TEXT, "inputs": v.NAMES}, ("query",), ("inputs",))
    steps = {
        "enrich": {"stream": v.TEXT, "master": v.TEXT},
        "online_join": {"left": v.TEXT, "right": v.TEXT},
        "interval_join": {"left": v.TEXT, "right": v.TEXT},
        "asof_join": {"left": v.TEXT, "right": v.TEXT},
        "online_multijoin": {"inputs": v.NAMES_OR_TABLE},
        "xquery": {},
    }[join]
    options = inspect.signature(options_of(join)).parameters.values()
    arguments = {option.name: _ARGUMENTS[option.name] for option in options}
    if join == "online_multijoin":
        arguments |= {"on": v.PREDICATES, "suffixes": v.TEXTS_BY_NAME}
    needed = tuple(option.name for option in options if option.default is option.empty)
    if join == "xquery":
        arguments, needed = {"query": v.TEXT, **arguments}, ("query",)
    return Shape({**_STEP, **steps, **arguments}, (*steps, *needed), tuple(steps), _paths(join))


def _paths(join: str) -> tuple[str, ...]:
    return {"enrich": ("versions",), "xquery": ("collections", "context")}.get(join, ())


def shape_of(kind: str, type_: str) -> Shape | None:
    """The shape of a table of this kind and type; None if there is no such type."""
    if kind == "join":
        return join_shape(type_) if type_ in JOIN_TYPES else None
    tables: dict[str, dict[str, Shape]] = {"source": SOURCES, "master": MASTERS, "sink": SINKS}
    return tables[kind].get(type_)


def types_of(kind: str) -> tuple[str, ...]:
    """The types that tables of this kind may have."""
    if kind == "join":
        return JOIN_TYPES
    return tuple({"source": SOURCES, "master": MASTERS, "sink": SINKS}[kind])
