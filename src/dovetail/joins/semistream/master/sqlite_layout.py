"""A table of SQLite laid out in pages: its columns, its key, and where pages begin."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pyarrow as pa

from dovetail.errors import ConfigError, DataError
from dovetail.joins.semistream.master.ranges import Bound, Ranges, fence_table, make_ranges, page_rows, quoted
from dovetail.joins.semistream.master.sqlite_types import arrow_column, key_condition

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
