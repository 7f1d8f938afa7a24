"""Columns of a stream and of master data: keys brought to one type, and the columns of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_type

from dovetail.errors import PlanError
from dovetail.joins.semistream.keys import comparable, order_kind
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.request import DeadLetter, Park, Request, key_pairs
from dovetail.joins.semistream.within import PairCheck, Within
from dovetail.request import Key, known_column, output_names, wanted_columns
from dovetail.spark.frames import WATERMARK, arrow_type, check_names, column_of, same_column
from dovetail.spark.inputs import refuse_collated

KEY = "dovetail_key_"
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the result and their origin.

    `frame` has the stream columns that are needed, then key columns of ours where types had to be brought together, and
    last the time when a row came if it may be parked.
    `on` are the positions of the keys in it, `master` the master columns that answers need. Each output column has its
    position among those of frame and master together.
    """

    frame: DataFrame
    stream: tuple[T.StructField, ...]
    on: tuple[int, ...]
    master: tuple[str, ...]
    output: T.StructType
    picked: tuple[int, ...]

    @property
    def n_stream(self) -> int:
        """Columns that tasks get."""
        return len(self.frame.columns)


def without_watermarks(output: T.StructType) -> T.StructType:
    """Rows that waited may be older than any watermark; what follows must set its own."""
    fields = [(f, {k: v for k, v in (f.metadata or {}).items() if k != WATERMARK}) for f in output]
    return T.StructType([T.StructField(f.name, f.dataType, f.nullable, metadata) for f, metadata in fields])


def plan_columns(frame: DataFrame, store: MasterStore, request: Request) -> Columns:
    """The columns of this request, or a `PlanError` for names and types that do not fit."""
    check_names("the stream", frame, "stream")
    request = named_request(frame, store, request)
    pairs = key_pairs(request, store, frame.columns)
    casts = [_aligned(frame.schema[pair.left], store.schema.field(pair.right), pair) for pair in pairs]
    if request.null_safe and any(cast is not None for cast in casts):
        raise PlanError(
            f"null_safe=True with keys of types that differ: {[(p.left, p.right) for p in pairs]}; cast the "
            f"stream's to those of the store, {[str(store.schema.field(p.right).type) for p in pairs]}, first.",
            argument="null_safe",
        )
    named = _result(frame, store, request, pairs)
    wanted = _selected(named, request)
    keeps_all = isinstance(request.on_miss, DeadLetter)
    used = {name for side, name in wanted.values() if side == "stream"}
    used |= {pair.left for pair, cast in zip(pairs, casts, strict=True) if cast is None}
    for within in request.withins:
        _check_order(frame, store, within, "on" if within is request.ranged else "at")
        used.add(within.value)
    stream = [field for field in frame.schema if keeps_all or field.name in used]
    helpers = [cast.alias(f"{KEY}{at}") for at, cast in enumerate(casts) if cast is not None]
    if isinstance(request.on_miss, Park):
        helpers.append(F.lit(0).cast("long").alias(f"{KEY}came"))
    names = [field.name for field in stream]
    added = iter(range(len(names), len(names) + len(helpers)))
    on = [next(added) if cast is not None else names.index(p.left) for p, cast in zip(pairs, casts, strict=True)]
    on += [] if request.ranged is None else [names.index(request.ranged.value)]
    master = tuple(name for side, name in wanted.values() if side == "master")
    return Columns(
        frame.select(*(column_of(name) for name in names), *helpers),
        tuple(stream),
        tuple(on),
        master,
        T.StructType([_output_field(out, side, name, frame, store) for out, (side, name) in wanted.items()]),
        tuple(
            names.index(name) if side == "stream" else len(names) + len(helpers) + master.index(name)
            for side, name in wanted.values()
        ),
    )


def named_request(frame: DataFrame, store: MasterStore, request: Request) -> Request:
    """The request with columns by the names that they have; another case is the same name, unless it counts."""

    def named(within: Within | None) -> Within | None:
        if within is None:
            return None
        start, end = (same_column(frame, name, store.columns) for name in within.bounds)
        return replace(within, value=same_column(frame, within.value), start=start, end=end)

    on = tuple(
        replace(key, left=same_column(frame, key.left), right=same_column(frame, key.right, store.key))
        for key in request.on
    )
    return replace(request, on=on, ranged=named(request.ranged), validity=named(request.validity))


def ranged_request(request: Request, store: MasterStore) -> Request:
    """The request with the range that the store's rows are found by; a `PlanError` if these do not fit together.

    Validity becomes the range of a store whose ranges it is.
    """
    asked, given = request.ranged, store.bounds
    if asked is None and request.validity is not None and request.validity.bounds == given:
        request = replace(request, ranged=request.validity, validity=None)
    elif asked is None and given is not None:
        value = f"(column, {given})" if not store.key else f"[{', '.join(map(repr, store.key))}, (column, {given})]"
        raise PlanError(
            f"{store.source} has ranges, found by a value in them; give on={value}, with the stream's column.",
            argument="on",
        )
    elif asked is not None and asked.bounds != given:
        found = "no ranges" if given is None else f"ranges {list(given)}"
        raise PlanError(
            f"on: {list(asked.bounds)} is a range, and {store.source} has {found}; build a page file of them: "
            f"MasterStore.build(rows, path, key=..., bounds={asked.bounds}).",
            argument="on",
        )
    if request.ranged is None:
        return request
    if request.null_safe or {key.right for key in request.on} != set(store.key):
        raise PlanError(
            f"on: beside the range give the store's whole key {list(store.key)}, without null_safe; on has "
            f"{[key.right for key in request.on]}.",
            argument="null_safe" if request.null_safe else "on",
        )
    return request


def pair_check(columns: Columns, names: Sequence[str], request: Request, key: Sequence[str]) -> PairCheck | None:
    """The condition of pairs beside equal keys or cells, over the stream's columns under these names."""
    if not request.withins:
        return None
    place = {field.name: name for field, name in zip(columns.stream, names, strict=False)}
    withins = tuple(replace(within, value=place[within.value]) for within in request.withins)
    equal = () if request.ranged is None else zip((names[at] for at in columns.on[:-1]), key, strict=True)
    return PairCheck(withins, tuple(equal), request.overlap)


def _check_order(frame: DataFrame, store: MasterStore, within: Within, argument: str) -> None:
    """`PlanError` unless both sides have these columns, and values that compare with both bounds."""
    known_column(f"{argument}: the stream", within.value, frame.columns, argument)
    bounds = "on" if argument == "on" else "valid"
    for name in within.bounds:
        known_column(f"{bounds}: the master data", name, store.columns, bounds)
    mine = frame.schema[within.value]
    kinds = [order_kind(_arrow_type(mine)), *(order_kind(store.schema.field(name).type) for name in within.bounds)]
    if None in kinds or len(set(kinds)) > 1:
        theirs = ", ".join(f"{name} {_spark_type(store.schema.field(name)).simpleString()}" for name in within.bounds)
        raise PlanError(
            f"{argument}: stream column {within.value!r} is {mine.dataType.simpleString()}, and the master data has "
            f"{theirs}; cast them so that all three are whole numbers, floating-point numbers, decimals of one scale "
            f"and at most 18 digits, dates, timestamps (with a time zone, or without), text or binary values.",
            argument=argument,
        )


def _aligned(field: T.StructField, key: pa.Field, pair: Key) -> Column | None:
    """None if the stream's key can be compared as it is, else what to compare: null where no master key is equal."""
    theirs, mine = key.type, _arrow_type(field)
    if comparable(mine, theirs) or _same_time(mine, theirs):
        return None
    exact = (pa.types.is_integer, pa.types.is_decimal)
    both = [any(is_kind(kind) for is_kind in exact) for kind in (mine, theirs)]
    if not (all(both) or (pa.types.is_floating(mine) and pa.types.is_floating(theirs))):
        raise PlanError(
            f"on: stream column {pair.left!r} is {field.dataType.simpleString()}, master key {pair.right!r} is "
            f"{_spark_type(key).simpleString()}; cast one of them so that both have one type.",
            argument="on",
        )
    column = column_of(pair.left)
    narrow = column.try_cast(_spark_type(key))
    return F.when(narrow == column, narrow)


def _same_time(mine: pa.DataType, theirs: pa.DataType) -> bool:
    if not (pa.types.is_timestamp(mine) and pa.types.is_timestamp(theirs)):
        return False
    finer = _UNITS.index(theirs.unit) >= _UNITS.index(mine.unit)
    return finer and (mine.tz is None) == (theirs.tz is None)


def _arrow_type(field: T.StructField) -> pa.DataType:
    refuse_collated(field, "on")
    return arrow_type(field.dataType)


def _spark_type(field: pa.Field) -> T.DataType:
    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except (PySparkException, TypeError) as error:
        raise PlanError(
            f"master column {field.name!r} is {field.type}, which Spark has no type for; leave it out with columns=, "
            f"or store it in another type.",
            argument="columns",
        ) from error


def _result(frame: DataFrame, store: MasterStore, request: Request, pairs: Sequence[Key]) -> dict[str, tuple[str, str]]:
    """Every column that the result can have: its name, and the side and name that it comes from."""
    shared = {pair.right for pair in pairs if pair.shared}
    theirs = store.columns if request.gives_master else []
    left, right = output_names(frame.columns, theirs, shared, request.suffixes)
    named = {out: ("stream", name) for name, out in left.items()}
    return named | {out: ("master", name) for name, out in right.items()}


def _selected(named: dict[str, tuple[str, str]], request: Request) -> dict[str, tuple[str, str]]:
    return {name: named[name] for name in wanted_columns(request.columns, list(named))}


def _output_field(out: str, side: str, name: str, frame: DataFrame, store: MasterStore) -> T.StructField:
    if side == "stream":
        field = frame.schema[name]
        return T.StructField(out, field.dataType, field.nullable, field.metadata)
    return T.StructField(out, _spark_type(store.schema.field(name)), True)
