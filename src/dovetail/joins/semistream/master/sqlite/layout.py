"""A table of SQLite laid out in pages: its types as Arrow's, its key, and where pages begin."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.master.ranges import Bound, Ranges, fence_table, make_ranges, page_rows, quoted

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


_SAMPLE = 1000  # rows whose size stands for all


def declared_columns(connection: sqlite3.Connection, table: str, path: str) -> dict[str, str]:
    """The table's columns and the types they were declared with."""
    found = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    if not found:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        raise ConfigError(f"{path} has no table {table!r}; it has {tables}.")
    return {row[1]: row[2] for row in found}


def check_key_values(connection: sqlite3.Connection, table: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """A `DataError` if a key column has values that SQLite orders otherwise than its type says."""
    for name in key:
        condition = key_condition(name, schema.field(name).type)
        sql = (
            f"SELECT {quoted(name)} FROM {quoted(table)} WHERE {quoted(name)} IS NOT NULL AND NOT ({condition}) LIMIT 3"  # noqa: S608  (names are quoted)
        )
        wrong = [value for (value,) in connection.execute(sql)]
        if wrong:
            raise DataError(f"key column {name!r} of {table!r} is of type {schema.field(name).type} but has {wrong}.")


def lay_out(
    connection: sqlite3.Connection, table: str, schema: pa.Schema, key: tuple[str, ...], page_bytes: int
) -> Ranges:
    """Where pages begin, and what the table holds, by passes over the key inside SQLite."""
    names = ", ".join(quoted(name) for name in schema.names)
    sample = connection.execute(f"SELECT {names} FROM {quoted(table)} LIMIT {_SAMPLE}").fetchall()  # noqa: S608  (quoted)
    columns = list(zip(*sample, strict=True)) or [() for _ in schema]
    held = [arrow_column(values, field.type, field.name) for values, field in zip(columns, schema, strict=True)]
    row_bytes = sum(column.nbytes for column in held) / max(len(sample), 1)
    whole = range_condition(schema, key, None, None)[0]
    total, keyed = connection.execute(
        f"SELECT COUNT(*), COUNT(CASE WHEN {whole} THEN 1 END) FROM {quoted(table)}"  # noqa: S608  (quoted)
    ).fetchone()
    fences = fences_from(connection, table, schema, key, None, page_rows(page_bytes, row_bytes))
    return make_ranges(schema, key, fences, keyed, row_bytes, total - keyed)


def count_from(
    connection: sqlite3.Connection, table: str, schema: pa.Schema, key: Sequence[str], low: Bound, limit: int
) -> int:
    """How many rows have a key from `low` on; no more than `limit` are counted."""
    where, values = range_condition(schema, key, low, None)
    sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM {quoted(table)} WHERE {where} LIMIT {limit})"  # noqa: S608  (quoted)
    return int(connection.execute(sql, values).fetchone()[0])


def fences_from(
    connection: sqlite3.Connection, table: str, schema: pa.Schema, key: Sequence[str], low: Bound, rows: int
) -> pa.Table:
    """Where pages of so many rows begin, from a key on; never inside a key."""
    keys = ", ".join(f"{term} AS k{at}" for at, term in enumerate(key_terms(schema, key)))
    names = ", ".join(f"k{at}" for at in range(len(key)))
    where, bound = range_condition(schema, key, low, None)
    sql = f"""
        WITH keyed AS (SELECT {keys} FROM {quoted(table)} WHERE {where}),
        grouped AS (SELECT {names}, COUNT(*) AS n FROM keyed GROUP BY {names}),
        placed AS (SELECT {names}, SUM(n) OVER (ORDER BY {names}) - n AS start FROM grouped),
        paged AS (SELECT *, LAG(start / {rows}) OVER (ORDER BY {names}) AS before FROM placed)
        SELECT {names}, start FROM paged WHERE before IS NULL OR start / {rows} <> before ORDER BY {names}
    """  # noqa: S608  (names are quoted, rows is an int)
    found = list(zip(*connection.execute(sql, bound), strict=True)) or [() for _ in range(len(key) + 1)]
    columns = [arrow_column(values, schema.field(name).type, name) for values, name in zip(found, key, strict=False)]
    return fence_table(columns, [pa.array(values) for values in found[:-1]], pa.array(found[-1], pa.int64()))


def key_terms(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The key columns as they are compared and ordered: text by its bytes, whatever it was declared with."""
    text = {name for name in key if pa.types.is_string(schema.field(name).type)}
    return [quoted(name) + (" COLLATE BINARY" if name in text else "") for name in key]


def key_in(schema: pa.Schema, key: Sequence[str], n: int) -> str:
    """The condition for one of `n` keys."""
    terms = key_terms(schema, key)
    if len(terms) == 1:
        return f"{terms[0]} IN ({', '.join('?' * n)})"
    row = f"({', '.join('?' for _ in key)})"
    return f"({', '.join(terms)}) IN (VALUES {', '.join([row] * n)})"


def range_condition(schema: pa.Schema, key: Sequence[str], low: Bound, high: Bound) -> tuple[str, tuple[object, ...]]:
    """The condition for keys of a range, nulls left out, and its values."""
    columns = ", ".join(key_terms(schema, key))
    places = ", ".join("?" for _ in key)
    conditions = [f"{quoted(name)} IS NOT NULL" for name in key]
    if low is not None:
        conditions.append(f"({columns}) >= ({places})")
    if high is not None:
        conditions.append(f"({columns}) < ({places})")
    return " AND ".join(conditions), (*(low or ()), *(high or ()))
