"""Single keys asked of PostgreSQL: many of them in one query, as arrays that are bound to it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.joins.semistream.master.postgres_layout import PgColumn
from dovetail.joins.semistream.master.ranges import quoted

_AS_THEY_ARE = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "text": pa.string(), "varchar": pa.string()}
# Types whose every value has a text that the server takes. Any text may come where a uuid is the key, and fail there.
_AS_TEXT = ("bool", "float4", "float8", "numeric", "bpchar", "name", "date", "timestamp", "timestamptz")
_TEXTS = ("text", "varchar", "bpchar", "name")
_TIMES = ("date", "timestamp", "timestamptz")


def can_send(key: Sequence[PgColumn]) -> bool:
    """Whether keys of these columns can be asked for."""
    return all(column.pg_type in _AS_THEY_ARE or column.pg_type in _AS_TEXT for column in key)


def key_condition(key: Sequence[PgColumn]) -> str:
    """The condition for one of the keys in the arrays $1, $2, ...; rows are found once, however often a key is sent."""
    arrays = [_array(column, at + 1) for at, column in enumerate(key)]
    if len(key) == 1:
        return f"r.{quoted(key[0].name)} = ANY({arrays[0]})"
    terms = ", ".join(f"r.{quoted(column.name)}" for column in key)
    return f"({terms}) IN (SELECT * FROM unnest({', '.join(arrays)}))"  # noqa: S608  (names are quoted)


def _array(column: PgColumn, number: int) -> str:
    if column.pg_type in _AS_THEY_ARE:
        return f"${number}::{column.pg_type}[]"
    return f"${number}::text[]::{column.pg_type}[]"


def sent_keys(key: Sequence[PgColumn], columns: Sequence[pa.Array]) -> pa.RecordBatch | None:
    """The keys as one row of arrays; None if one is a time that has no text on the server.

    Keys with a zero character, which no text of the server has, are left out.
    """
    keys = pa.table(list(columns), [column.name for column in key])
    for column in key:
        if column.pg_type in _TIMES and not _plain_years(keys[column.name]):
            return None
        if column.pg_type in _TEXTS:
            keys = keys.filter(pc.invert(pc.match_substring(keys[column.name], "\0")))
    arrays = [_listed(keys[column.name].cast(_AS_THEY_ARE.get(column.pg_type, pa.string()))) for column in key]
    return pa.RecordBatch.from_arrays(arrays, names=[f"k{at}" for at in range(len(arrays))])


def _plain_years(column: pa.ChunkedArray) -> bool:
    """Whether all years have four digits, as in the texts that Arrow and the server share."""
    years = pc.min_max(pc.year(column))
    return len(column) == 0 or (years["min"].as_py() >= 1 and years["max"].as_py() <= 9999)


def _listed(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
