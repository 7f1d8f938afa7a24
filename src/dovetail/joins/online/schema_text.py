"""Columns as text: names, types and nullability, written by us, so that no other library decides when they differ."""

from __future__ import annotations

import pyarrow as pa

from dovetail.errors import UnsupportedError

_PLAIN = {
    pa.null(): "null", pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32",
    pa.int64(): "int64", pa.float32(): "float32", pa.float64(): "float64", pa.string(): "string",
    pa.large_string(): "large string", pa.binary(): "binary", pa.large_binary(): "large binary", pa.date32(): "date",
    pa.month_day_nano_interval(): "month day nano interval",
}  # fmt: skip


def schema_text(schema: pa.Schema) -> str:
    """The columns as one line: two lines are equal if rows of one schema can be read as those of the other.

    >>> schema_text(pa.schema([("k", pa.int64()), pa.field("at", pa.timestamp("us", "UTC"), nullable=False)]))
    '"k" int64, "at" timestamp(us, UTC) not null'
    """
    return ", ".join(_field(field) for field in schema)


def _field(field: pa.Field) -> str:
    quoted = '"' + field.name.replace('"', '""') + '"'
    return f"{quoted} {_kind(field.type)}" + ("" if field.nullable else " not null")


def _kind(kind: pa.DataType) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind):
        return f"decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return f"timestamp({kind.unit}, {kind.tz})" if kind.tz else f"timestamp({kind.unit})"
    if pa.types.is_duration(kind):
        return f"duration({kind.unit})"
    if pa.types.is_time(kind):
        return f"time{kind.bit_width}({kind.unit})"
    if pa.types.is_map(kind):
        return f"map<{_field(kind.key_field)}, {_field(kind.item_field)}>"
    if pa.types.is_list(kind):
        return f"list<{_field(kind.value_field)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_field(kind.field(at)) for at in range(kind.num_fields))}>"
    raise UnsupportedError(f"columns of type {kind} cannot be kept in the state of an online join; cast them.")
