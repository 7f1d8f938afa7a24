"""SQLite's columns and values as Arrow's: SQLite stores whatever it is given, here a column has one type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.master.ranges import quoted

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ISO_DAY = "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'"


def arrow_type(declared: str) -> pa.DataType:
    """The type of a column by what it was declared as: SQLite's rules of affinity, and the usual names beyond them."""
    name = declared.upper().strip()
    if found := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(found[1]), int(found[2] or 0))
    if name in ("DATE", "BOOL", "BOOLEAN"):
        return pa.date32() if name == "DATE" else pa.bool_()
    if name in ("TIMESTAMP", "DATETIME"):
        return pa.timestamp("us")
    if "INT" in name:
        return pa.int64()
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return pa.string()
    if "BLOB" in name or not name:
        return pa.binary()
    return pa.float64()


def arrow_column(values: Sequence[Any], kind: pa.DataType, name: str) -> pa.Array:
    """Values of a column as Arrow; a value of another type is a `DataError`, with the value."""
    try:
        if pa.types.is_boolean(kind):
            return pa.array(values, pa.int64()).cast(kind)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(kind)
        if pa.types.is_decimal(kind):
            return pa.array([None if value is None else Decimal(str(value)) for value in values], kind)
        return pa.array(values, kind)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
        raise DataError(f"column {name!r} has a value that is not of type {kind}: {error}; name its type.") from error


def key_condition(name: str, kind: pa.DataType) -> str:
    """What SQLite's values of a key column must all fulfil for its order to be the order of the type."""
    column = quoted(name)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return f"typeof({column}) = 'integer'"
    if pa.types.is_floating(kind):
        return f"typeof({column}) IN ('integer', 'real')"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"typeof({column}) = 'text'"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"typeof({column}) = 'blob'"
    if pa.types.is_date(kind):
        return f"{column} GLOB {_ISO_DAY}"
    raise PlanError(
        f"key column {name!r} is of type {kind}; in SQLite keys are whole numbers, floats, text, blobs, booleans or "
        f"days (as YYYY-MM-DD). Name another type with schema=, or build a page file.",
        argument="key",
    )
