"""Sinks that are tables of PostgreSQL: the rows of a micro-batch and its number are one transaction.

The rows of a micro-batch go through one task and one connection: into a temporary table by COPY, from there into the
table. A micro-batch that is repeated finds its number there and writes nothing.
"""
# ruff: noqa: S608  (every name in a statement is quoted, every value is bound)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.pipeline.declared import Step
from dovetail.semistream.master.postgres_connection import censored, check_url, without_password
from dovetail.spark.arrow import Batches, arrow_type, map_in_arrow

BATCHES = "dovetail_batches"
_REPORT = T.StructType().add("rows", T.LongType()).add("skipped", T.BooleanType())
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "boolean"), (pa.types.is_int8, "smallint"), (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"), (pa.types.is_int64, "bigint"), (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"), (pa.types.is_string, "text"), (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"), (pa.types.is_date32, "date"),
)  # fmt: skip


def column_type(kind: pa.DataType) -> str | None:
    """The type of PostgreSQL for a column of ours; None if there is none."""
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    return next((name for test, name in _TYPES if test(kind)), None)


def quoted(name: str) -> str:
    """A name as SQL takes it literally."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Target:
    """A table and how rows get into it; the password is in the value, but never shown."""

    url: str
    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    newest: str | None
    mode: str
    owner: str

    @classmethod
    def of(cls, step: Step, rows: DataFrame, owner: str, usual: str) -> Target:
        """The table that a sink names, for rows like these; PlanError for columns that it cannot have."""
        values = step.values
        key = values.get("key", ())
        names = (key,) if isinstance(key, str) else tuple(key)
        schema = pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in rows.schema])
        for what, wanted in (("key", names), ("newest", [values["newest"]] if "newest" in values else [])):
            absent = [name for name in wanted if name not in schema.names]
            if absent:
                raise PlanError(f"{what}: the rows have no column {absent[0]!r}; they have {schema.names}.")
        strange = [field for field in schema if column_type(field.type) is None]
        if strange:
            raise PlanError(
                f"from: column {strange[0].name!r} is {strange[0].type}, which a table cannot have; take it apart, or "
                f"make text of it with to_json in a sql step."
            )
        return cls(
            check_url(values["uri"]), values["table"], schema, names, values.get("newest"), values.get("mode", usual),
            owner,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The table's name, quoted; "sales.orders" is table orders of schema sales."""
        return ".".join(quoted(part) for part in self.table.split("."))

    @property
    def batches(self) -> str:
        """The table of numbers, beside the rows."""
        place, _, _ = self.table.rpartition(".")
        return ".".join(quoted(part) for part in (*place.split("."), BATCHES) if part)

    def __str__(self) -> str:
        return f"table {self.table!r} at {without_password(self.url)}"


def prepare(target: Target, create: bool) -> None:
    """Make the tables if they are not there, and see that the rows fit."""
    with _transaction(target) as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {target.batches} (owner text PRIMARY KEY, batch bigint NOT NULL, "
            "rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
        )
        if create and not existing_columns(cursor, target):
            columns = [f"{quoted(field.name)} {column_type(field.type)}" for field in target.schema]
            key = f", PRIMARY KEY ({_names(target.key)})" if target.key else ""
            cursor.execute(f"CREATE TABLE {target.name} ({', '.join(columns)}{key})")
    inspect(target, create)


def inspect(target: Target, create: bool) -> None:
    """ConfigError if the server cannot be reached, PlanError if its table cannot take the rows."""
    with _transaction(target) as cursor:
        known = existing_columns(cursor, target)
        if not known and not create:
            raise PlanError(f"table: {target} does not exist; create it, or leave create = false out.")
        absent = [name for name in target.schema.names if known and name not in known]
        if absent:
            raise PlanError(f"table: {target} has no column {absent[0]!r}; it has {known}. Select other columns.")
        if known and target.key and not _has_unique(cursor, target):
            raise PlanError(
                f"key: {target} has no unique index on {list(target.key)}, which an upsert needs; add one: "
                f"CREATE UNIQUE INDEX ON {target.table} ({', '.join(target.key)})."
            )


def existing_columns(cursor: Any, target: Target) -> list[str]:
    """The columns of the table; none if there is no such table."""
    cursor.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum",
        (target.name,),
    )
    return [row[0] for row in cursor.fetchall()]


def _has_unique(cursor: Any, target: Target) -> bool:
    cursor.execute(
        "SELECT array_to_string(ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = "
        "ANY(i.indkey)), chr(0x1f)) FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique "
        "AND i.indpred IS NULL",
        (target.name,),
    )
    return any(set(row[0].split("\x1f")) == set(target.key) for row in cursor.fetchall())


def write_batch(rows: DataFrame, target: Target, number: int) -> tuple[int, bool]:
    """Put the rows in, once, whatever happens to the task that does it; how many, and if they were there already."""
    one = rows.repartition(1)
    report = map_in_arrow(one, partial(_written, target, number), _REPORT).collect()
    return (report[0]["rows"], report[0]["skipped"]) if report else (0, False)


def forget(target: Target) -> None:
    """Remove the number of an owner that writes no more."""
    with _transaction(target) as cursor:
        cursor.execute(f"DELETE FROM {target.batches} WHERE owner = $1", (target.owner,))


def _written(target: Target, number: int, batches: Batches) -> Batches:
    """What the one task does: the number and the rows, together or not at all."""
    with _transaction(target) as cursor:
        n_rows, skipped = 0, not _claimed(cursor, target, number)
        if not skipped:
            stage = "dovetail_stage"
            reader = pa.RecordBatchReader.from_batches(_staged(target), (_cast(target, one) for one in batches))
            cursor.adbc_ingest(stage, reader, mode="create", temporary=True)
            if target.mode in ("complete", "overwrite"):
                cursor.execute(f"DELETE FROM {target.name}")
            cursor.execute(_insert(target, stage))
            cursor.execute(f"SELECT count(*) FROM {quoted(stage)}")
            n_rows = cursor.fetchone()[0]
            cursor.execute(f"UPDATE {target.batches} SET rows = rows + $1 WHERE owner = $2", (n_rows, target.owner))
            cursor.execute(f"DROP TABLE {quoted(stage)}")
    yield pa.RecordBatch.from_pydict({"rows": pa.array([n_rows], pa.int64()), "skipped": pa.array([skipped])})


def _claimed(cursor: Any, target: Target, number: int) -> bool:
    """Whether this micro-batch is new; a rival that writes it at this moment is waited for."""
    cursor.execute(
        f"INSERT INTO {target.batches} AS known (owner, batch, rows) VALUES ($1, $2, 0) ON CONFLICT (owner) DO UPDATE "
        "SET batch = EXCLUDED.batch, at = now() WHERE known.batch < EXCLUDED.batch RETURNING batch",
        (target.owner, number),
    )
    return bool(cursor.fetchall())


def _staged(target: Target) -> pa.Schema:
    """The columns on their way: PostgreSQL has no whole number of one byte."""
    return pa.schema([pa.field(f.name, pa.int16() if pa.types.is_int8(f.type) else f.type) for f in target.schema])


def _cast(target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = _staged(target)
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
    )


def _insert(target: Target, stage: str) -> str:
    columns = _names(target.schema.names)
    if not target.key:
        return f"INSERT INTO {target.name} ({columns}) SELECT {columns} FROM {quoted(stage)}"
    others = [name for name in target.schema.names if name not in target.key]
    newest = [f"{quoted(target.newest)} DESC NULLS LAST"] if target.newest else []
    # Of rows of one key the largest wins where nothing says which is newest: the same one in every attempt.
    order = [*map(quoted, target.key), *newest, *(f"{quoted(name)} DESC NULLS LAST" for name in others)]
    chosen = f"SELECT DISTINCT ON ({_names(target.key)}) {columns} FROM {quoted(stage)} ORDER BY {', '.join(order)}"
    return (
        f"INSERT INTO {target.name} AS known ({columns}) {chosen} ON CONFLICT ({_names(target.key)}) {_update(target)}"
    )


def _update(target: Target) -> str:
    others = [name for name in target.schema.names if name not in target.key]
    if not others:
        return "DO NOTHING"
    change = f"DO UPDATE SET {', '.join(f'{quoted(name)} = EXCLUDED.{quoted(name)}' for name in others)}"
    if target.newest is None:
        return change
    column = quoted(target.newest)
    return f"{change} WHERE known.{column} IS NULL OR EXCLUDED.{column} >= known.{column}"


def _names(names: Any) -> str:
    return ", ".join(map(quoted, names))


@contextmanager
def _transaction(target: Target) -> Iterator[Any]:
    """A cursor whose work is kept if the block ends well; errors are ours and show no password."""
    try:
        import adbc_driver_manager
        from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information
    except ImportError as error:
        raise ConfigError("PostgreSQL needs adbc-driver-postgresql: pip install 'dovetail[postgres]'.") from error
    try:
        with dbapi.connect(target.url) as connection, connection.cursor() as cursor:
            yield cursor
            connection.commit()
    except adbc_driver_manager.Error as error:
        text = " ".join(str(error).split("Query was:")[0].split(". SQLSTATE")[0].split())
        reason = censored(text, target.url)
        at_fault = isinstance(error, (adbc_driver_manager.IntegrityError, adbc_driver_manager.DataError))
        if at_fault:
            raise DataError(f"{target} does not take the rows: {reason}; mend the rows or the table.") from None
        raise ConfigError(
            f"cannot write to {target}: {reason}; check that the server runs and that the user may write."
        ) from None
