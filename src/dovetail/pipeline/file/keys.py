"""Defines the format of pipeline files: every table and key, and the kind of value that each key takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from functools import cache
from typing import Any

from dovetail.engine.memory import parse_bytes
from dovetail.errors import PlanError
from dovetail.functions import FINITE, STREAMED, XQUERY
from dovetail.request import parse_seconds


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: its description, and a function that says why a value does not fit (None if it fits)."""

    said: str
    fault: Callable[[Any], str | None]


def _is(*types: type) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        return None if right else f"it is {_what(value)}"

    return fault


def _what(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}")


def _nonempty(value: Any) -> str | None:
    return _is(str)(value) or (None if value.strip() else "it is empty")


def _parsed(parse: Callable[[Any], Any]) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        try:
            parse(value)
        except PlanError:
            return f"it is {value!r}"
        return None

    return fault


def _size(value: Any) -> str | None:
    return _is(int, str)(value) or _parsed(parse_bytes)(value)


def _duration(value: Any) -> str | None:
    return _is(int, float, str)(value) or _parsed(lambda v: parse_seconds("it", v))(value)


AT_ONCE = "0 seconds"
"""Spark's default trigger: a micro-batch begins when the one before it has ended."""


def _trigger(value: Any) -> str | None:
    return _is(str)(value) or (None if value in ("availableNow", AT_ONCE) else _duration(value))


def _positive(value: Any) -> str | None:
    return _is(int)(value) or (None if value > 0 else f"it is {value}")


def _texts(value: Any) -> str | None:
    fits = isinstance(value, list) and value and all(isinstance(one, str) and one for one in value)
    return None if fits else f"it is {_what(value) if not isinstance(value, list) else value!r}"


def _scalars(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"it is {_what(value)}"
    bad = [key for key, one in value.items() if not isinstance(one, (str, int, float, bool))]
    return f"{bad[0]!r} is {_what(value[bad[0]])}" if bad else None


def _numbers(value: Any) -> str | None:
    fits = isinstance(value, Mapping) and all(
        isinstance(n, (int, float)) and not isinstance(n, bool) for n in value.values()
    )
    return None if fits else "it is " + _what(value)


def _either(*faults: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        found = [one(value) for one in faults]
        return None if None in found else found[0]

    return fault


def _table_of(known: Mapping[str, Kind], required: tuple[str, ...] = ()) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return f"it is {_what(value)}"
        strange = [key for key in value if key not in known]
        lacking = [key for key in required if key not in value]
        if strange or lacking:
            return f"it has {list(value)}"
        wrong = [(key, known[key].fault(one)) for key, one in value.items()]
        return next((f"{key}: {why}" for key, why in wrong if why), None)

    return fault


def _pair(value: Any) -> str | None:
    fits = isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
    return None if fits else f"it is {value!r}"


def _band(value: Any) -> str | None:
    fits = isinstance(value, list) and len(value) in (2, 4) and all(isinstance(v, str) for v in value[: len(value) - 2])
    if not fits or not isinstance(value[0], str):
        return f"it is {value!r}"
    for bound in value[-1:] if len(value) == 2 else value[-2:]:
        if isinstance(bound, str):
            why = _duration(bound.strip().lstrip("-"))
            if why:
                return why
    return None


def _bands(value: Any) -> str | None:
    found = [_band(one) for one in value] if isinstance(value, list) else [f"it is {_what(value)}"]
    return next((why for why in found if why), None)


def _keys(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value else "it is empty"
    fits = isinstance(value, list) and value and all(isinstance(k, str) or not _pair(k) for k in value)
    return None if fits else f"it is {value!r}"


def _keys_or_ranges(value: Any) -> str | None:
    if not isinstance(value, list):
        return _keys(value)
    ranged = [isinstance(k, list) and len(k) == 2 and isinstance(k[0], str) and not _pair(k[1]) for k in value]
    others = [k for k, is_range in zip(value, ranged, strict=True) if not is_range]
    return None if value and not others else _keys(others)


def _predicates(value: Any) -> str | None:
    fits = isinstance(value, list) and value and all(isinstance(p, list) and len(p) in (2, 4) for p in value)
    return None if fits else f"it is {value!r}"


TEXT = Kind("text", _nonempty)
FLAG = Kind("true or false", _is(bool))
COUNT = Kind("a whole number above 0", _positive)
SIZE = Kind('a size such as "50MB" or a number of bytes', _size)
DURATION = Kind('a length of time such as "10 min" or a number of seconds', _duration)
TRIGGER = Kind('a length of time such as "1 second", or "availableNow"', _trigger)
NAMES = Kind("a list of names", _texts)
NAME_OR_NAMES = Kind("a name or a list of names", _either(_nonempty, _texts))
OPTIONS = Kind("a table of texts, numbers, true or false", _scalars)
NUMBERS = Kind("a table of numbers", _numbers)
PAIR = Kind("a list of two texts", _pair)
KEYS_OR_RANGES = Kind('keys, or a column and the two of a range: [["ip", ["first", "last"]]]', _keys_or_ranges)
KEYS = Kind('a column, or a list of columns and pairs such as ["k", ["left", "right"]]', _keys)
PREDICATES = Kind('a list of predicates such as [["orders.id", "items.order_id"]]', _predicates)
BAND = Kind('a band such as ["price", 0.05] or ["at", "at", "-1 hour", "2 hours"]', _band)
BANDS = Kind('a band such as ["at", "at", "-1 hour", "2 hours"], or a list of bands', _either(_band, _bands))
TEXT_OR_NUMBER = Kind("text or a number", _is(str, int, float))
TEXT_NUMBER_OR_TIME = Kind("text, a number, a date or a time", _is(str, int, float, date, time))
TEXT_OR_NAMES = Kind("text or a list of texts", _either(_nonempty, _texts))
TEXT_OR_PAIR = Kind("text or a list of two texts", _either(_nonempty, _pair))
LIST = Kind("a list", _is(list))
TIES = Kind('"any", "all", or a list such as ["last", "column"]', _either(_nonempty, _is(list)))
LIMITS = Kind("a step, or a list of a start and an end", _either(_nonempty, _is(list)))
TABLE = Kind("a table", _is(dict))
NAMES_OR_TABLE = Kind("a list of steps, or a table from names to steps", _either(_texts, _scalars))
TEXTS_BY_NAME = Kind("a table of texts", _scalars)
TEXT_OR_TEXTS = Kind("text, or a table of texts", _either(_nonempty, _scalars))
TUNE = Kind('"model", "measure", "off", or a table of sizes', _either(_nonempty, _numbers))
MISSES = Kind(
    '"drop", {dead_letter = "directory"} or {park = {retry = "5s", deadline = "10 min"}}',
    _either(
        _nonempty,
        _table_of({"dead_letter": TEXT}, ("dead_letter",)),
        _table_of({"park": Kind("", _table_of({"retry": DURATION, "deadline": DURATION}))}, ("park",)),
    ),
)
FRESHNESS = Kind(
    '"per_batch", "pinned" or {ttl = "10 min"}', _either(_nonempty, _table_of({"ttl": DURATION}, ("ttl",)))
)
WATERMARK = Kind(
    '{column = "at", delay = "10 minutes"}', _table_of({"column": TEXT, "delay": DURATION}, ("column", "delay"))
)
BUILD = Kind(
    '{from = "source"} with bounds, order, page, frequency, unique or keep_nulls',
    _table_of(
        {
            "from": TEXT,
            "bounds": PAIR,
            "order": TEXT,
            "page": SIZE,
            "frequency": TEXT,
            "unique": FLAG,
            "keep_nulls": FLAG,
        },
        ("from",),
    ),
)


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
    {"name": TEXT, "memory": SIZE, "checkpoint": TEXT, "trigger": TRIGGER, "spark": OPTIONS},
    ("name",),
    paths=("checkpoint",),
)

_SOURCE = {"type": TEXT, "stream": FLAG, "schema": TEXT, "options": OPTIONS, "watermark": WATERMARK}
_FILES = Shape({**_SOURCE, "path": TEXT}, ("path",), paths=("path",))
SOURCES = {
    "csv": _FILES,
    "json": _FILES,
    "parquet": _FILES,
    "rate": Shape({key: kind for key, kind in _SOURCE.items() if key != "schema"} | {"rows_per_second": COUNT}),
    "kafka": Shape(
        {**_SOURCE, "avro": TEXT, "malformed": TEXT}, ("options",), paths=("avro",),
        words={"malformed": ("fail", "null")},
    ),
    "workload": Shape(
        {key: kind for key, kind in _SOURCE.items() if key != "schema"} | {"workload": TEXT},
        ("workload",),
        words={"workload": WORKLOADS},
    ),
    "format": Shape({**_SOURCE, "format": TEXT, "path": TEXT}, ("format",), paths=("path",)),
}  # fmt: skip

_KEYED = {"type": TEXT, "key": NAME_OR_NAMES}
MASTERS = {
    "pages": Shape({**_KEYED, "path": TEXT, "build": BUILD}, ("path",), paths=("path",)),
    "parquet": Shape({**_KEYED, "path": TEXT}, ("path", "key"), paths=("path",)),
    "delta": Shape({**_KEYED, "path": TEXT}, ("path", "key"), paths=("path",)),
    "iceberg": Shape({**_KEYED, "catalog": TEXT, "properties": OPTIONS, "table": TEXT}, ("table", "key")),
    "table": Shape({**_KEYED, "table": TEXT}, ("table", "key")),
    "sqlite": Shape({**_KEYED, "path": TEXT, "table": TEXT, "page": SIZE}, ("path", "table", "key"), (), ("path",)),
    "postgres": Shape({**_KEYED, "uri": TEXT, "table": TEXT, "page": SIZE, "marker": TEXT}, ("uri", "table", "key")),
    "mysql": Shape({**_KEYED, "uri": TEXT, "table": TEXT, "page": SIZE, "marker": TEXT}, ("uri", "table", "key")),
    "redis": Shape(
        {**_KEYED, "uri": TEXT, "prefix": TEXT, "schema": TEXT, "separator": TEXT, "page": SIZE, "marker": TEXT},
        ("uri", "prefix", "key", "schema"),
    ),
}

_SINK = {"type": TEXT, "from": TEXT, "mode": TEXT, "trigger": TRIGGER}
_MODES = ("append", "update", "complete", "overwrite", "error")
_WORDS = {"mode": _MODES}
_FILE_SINK = Shape(
    {**_SINK, "path": TEXT, "options": OPTIONS, "partition_by": NAME_OR_NAMES},
    ("from", "path"), ("from",), ("path",), _WORDS,
)  # fmt: skip
SINKS = {
    "parquet": _FILE_SINK,
    "csv": _FILE_SINK,
    "postgres": Shape(
        {**_SINK, "uri": TEXT, "table": TEXT, "key": NAME_OR_NAMES, "newest": TEXT, "create": FLAG},
        ("from", "uri", "table"), ("from",), (), _WORDS,
    ),
    "kafka": Shape(
        {**_SINK, "options": OPTIONS, "key": TEXT, "avro": TEXT}, ("from", "options"), ("from",), ("avro",), _WORDS
    ),
    "console": Shape({**_SINK, "options": OPTIONS}, ("from",), ("from",), (), _WORDS),
    "memory": Shape(_SINK, ("from",), ("from",), (), _WORDS),
    "format": Shape(
        {**_SINK, "format": TEXT, "path": TEXT, "options": OPTIONS, "partition_by": NAME_OR_NAMES},
        ("from", "format"), ("from",), ("path",), _WORDS,
    ),
}  # fmt: skip

# The kind of every option, by name; a name means the same in all joins, but many inputs take other `on` and `suffixes`.
_ARGUMENTS: dict[str, Kind] = {
    **dict.fromkeys(
        ("how", "algorithm", "mode", "route", "exchange", "cache", "as_of", "owed", "output", "on_error"), TEXT
    ),
    **dict.fromkeys(("invalid", "keep", "condition", "query", "direction", "at", "overlap"), TEXT),
    **dict.fromkeys(("wait", "retain", "max_wait"), DURATION),
    **dict.fromkeys(
        ("null_safe", "with_phase", "strict", "allow_exact", "reciprocal", "with_overlap", "ignore_overlaps"), FLAG
    ),
    **dict.fromkeys(("partitions", "k"), COUNT),
    **dict.fromkeys(("interval", "left_interval", "right_interval", "relation"), TEXT_OR_NAMES),
    **dict.fromkeys(("on", "by"), KEYS),
    "memory": SIZE,
    **dict.fromkeys(("lookup", "tolerance", "min_overlap", "max_gap", "min_fraction"), TEXT_OR_NUMBER),
    **dict.fromkeys(("gap", "max_distance", "width"), TEXT_OR_NUMBER),
    "origin": TEXT_NUMBER_OR_TIME,
    "aggregates": TEXTS_BY_NAME,
    "ties": TIES,
    "tune": TUNE,
    "on_miss": MISSES,
    "freshness": FRESHNESS,
    **dict.fromkeys(("columns", "documents"), NAMES),
    **dict.fromkeys(("suffixes", "valid"), PAIR),
    **dict.fromkeys(("versions", "context"), TEXT),
    "within": BAND,
    "end_of_input": TEXT_OR_TEXTS,
    "rows": NUMBERS,
    "closed": TEXT_OR_PAIR,
    **dict.fromkeys(("split_points", "hot"), LIST),
    "limits": LIMITS,
    "collections": OPTIONS,
    "variables": TABLE,
}
_STEP = {"type": TEXT, "watermark": WATERMARK}
_FUNCTIONS = STREAMED | FINITE | XQUERY
JOIN_TYPES = (*_FUNCTIONS, "sql")


def options_of(join: str) -> Callable[..., Any]:
    """The class of a join's options; importing it does not import Spark."""
    return _FUNCTIONS[join].options()


@cache
def join_shape(join: str) -> Shape:
    """The keys of a join: the steps that it reads, and the options of its function."""
    if join == "sql":
        return Shape({**_STEP, "query": TEXT, "inputs": NAMES}, ("query",), ("inputs",))
    steps = dict.fromkeys(_FUNCTIONS[join].inputs, NAMES_OR_TABLE if join == "online_multijoin" else TEXT)
    options = inspect.signature(options_of(join)).parameters.values()
    arguments = {option.name: _ARGUMENTS[option.name] for option in options}
    if join == "band_join":
        arguments |= {"within": BANDS, "closed": TEXT}
    if join == "enrich":
        arguments |= {"on": KEYS_OR_RANGES, "closed": TEXT}
    if join == "online_multijoin":
        arguments |= {"on": PREDICATES, "suffixes": TEXTS_BY_NAME}
    needed = tuple(option.name for option in options if option.default is option.empty)
    if join == "xquery":
        arguments, needed = {"query": TEXT, **arguments}, ("query",)
    return Shape({**_STEP, **steps, **arguments}, (*steps, *needed), tuple(steps), _paths(join))


def _paths(join: str) -> tuple[str, ...]:
    return {"enrich": ("versions",), "xquery": ("collections", "context", "documents")}.get(join, ())


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
