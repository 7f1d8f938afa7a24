"""Writes PostgreSQL tables: the rows of a micro-batch and its number are one transaction.

The rows of a micro-batch go through one task and one connection: by COPY into a temporary table, from there into the
table. A micro-batch that is repeated finds its number in the table of notes and writes nothing.

The table of notes, beside the target, says which sink wrote to it, with which checkpoint, and whether it replaces all
rows. A sink reads the notes before it writes, and each transaction confirms them: no sink repeats or deletes rows in
silence.
"""
# ruff: noqa: S608  (every name in a statement is quoted, every value is bound)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.storage.secrets import censored, shown
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.master.postgres.connection import check_url
from dovetail.pipeline.file.declared import Step
from dovetail.spark.frames import Batches, arrow_type
from dovetail.spark.hosts.batch import mapped_frame, one_partition

NOTES = "dovetail_sinks"
REPLACING = ("complete", "overwrite")
_REPORT = T.StructType().add("rows", T.LongType()).add("skipped", T.BooleanType())
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "boolean"), (pa.types.is_int8, "smallint"), (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"), (pa.types.is_int64, "bigint"), (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"), (pa.types.is_string, "text"), (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"), (pa.types.is_date32, "date"),
)  # fmt: skip


def column_type(kind: pa.DataType) -> str | None:
    """The PostgreSQL type for an Arrow type; None if there is none."""
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    return next((name for test, name in _TYPES if test(kind)), None)


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Target:
    """A table and how rows are written to it; the password is in the value, but never shown."""

    url: str = field(repr=False)
    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    newest: str | None
    mode: str
    mode_is_given: bool
    streams: bool
    sink: str
    owner: str

    @classmethod
    def of(cls, step: Step, rows: DataFrame, sink: str, owner: str) -> Target:
        """The table of a step, for rows like these; PlanError for columns that a table cannot have.

        `sink` is the name of pipeline and sink together; `owner` is the sink's id in the checkpoint.
        """
        values = step.values
        key = values.get("key", ())
        names = (key,) if isinstance(key, str) else tuple(key)
        schema = pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in rows.schema])
        for what, wanted in (("key", names), ("newest", [values["newest"]] if "newest" in values else [])):
            absent = [name for name in wanted if name not in schema.names]
            if absent:
                raise PlanError(
                    f"{what}: the rows have no column {absent[0]!r}; they have {schema.names}.", argument=what
                )
        strange = [field for field in schema if column_type(field.type) is None]
        if strange:
            raise PlanError(
                f"from: column {strange[0].name!r} is {strange[0].type}, which a table cannot have; take it apart, or "
                f"make text of it with to_json in a sql step.",
                argument="from",
            )
        return cls(
            check_url(values["uri"]), values["table"], schema, names, values.get("newest"),
            values.get("mode", "append" if rows.isStreaming else "overwrite"), "mode" in values, rows.isStreaming, sink,
            owner,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The table's name, quoted; "sales.orders" is table orders of schema sales."""
        return ".".join(quoted(part) for part in self.table.split("."))

    @property
    def notes(self) -> str:
        """The table of notes, in the schema of the target."""
        place, _, _ = self.table.rpartition(".")
        return ".".join(quoted(part) for part in (*place.split("."), NOTES) if part)

    @property
    def replaces(self) -> bool:
        """Whether existing rows are deleted before new ones are written."""
        return self.mode in REPLACING

    def __str__(self) -> str:
        return f"table {self.table!r} at {shown(self.url)}"


def prepare(target: Target, create: bool) -> None:
    """Create the tables if they are missing, check that the rows fit, and note this sink and checkpoint.

    ConfigError or DataError, without any change, if existing rows would be repeated or deleted.
    """
    with _transaction(target) as cursor:
        if create and not existing_columns(cursor, target):
            columns = [f"{quoted(field.name)} {column_type(field.type)}" for field in target.schema]
            key = f", PRIMARY KEY ({_names(target.key)})" if target.key else ""
            cursor.execute(f"CREATE TABLE {target.name} ({', '.join(columns)}{key})")
        _check_fits(cursor, target, create)
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {target.notes} (sink text, target text, owner text NOT NULL, replaces boolean "
            "NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), "
            "PRIMARY KEY (sink, target))"
        )
        cursor.execute(f"LOCK TABLE {target.notes} IN SHARE ROW EXCLUSIVE MODE")
        _check_claim(cursor, target)
        _claim(cursor, target)


def inspect(target: Target, create: bool) -> None:
    """Raise the errors of `prepare`, without a change.

    ConfigError if the server cannot be reached, PlanError if its table cannot take the rows.
    """
    with _transaction(target) as cursor:
        _check_fits(cursor, target, create)
        _check_claim(cursor, target)


def _check_fits(cursor: Any, target: Target, create: bool) -> None:
    known = existing_columns(cursor, target)
    if not known and not create:
        raise PlanError(f"table: {target} does not exist; create it, or leave create = false out.", argument="table")
    absent = [name for name in target.schema.names if known and name not in known]
    if absent:
        raise PlanError(
            f"table: {target} has no column {absent[0]!r}; it has {known}. Select other columns.", argument="table"
        )
    if known and target.key and not _has_unique(cursor, target):
        raise PlanError(
            f"key: {target} has no unique index on {list(target.key)}, which an upsert needs; add one: "
            f"CREATE UNIQUE INDEX ON {target.table} ({', '.join(target.key)}).",
            argument="key",
        )


@dataclass(frozen=True, slots=True)
class _Note:
    """The note of a sink that wrote to the table."""

    sink: str
    owner: str
    replaces: bool
    rows: int


# The name of a table with its schema, whatever the search path is: "orders" and "public.orders" are one table.
_TARGET = (
    "(SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = to_regclass($1))"
)


def _noted(cursor: Any, target: Target) -> list[_Note]:
    cursor.execute("SELECT to_regclass($1) IS NOT NULL", (target.notes,))
    if not cursor.fetchone()[0]:
        return []
    cursor.execute(f"SELECT sink, owner, replaces, rows FROM {target.notes} WHERE target = {_TARGET}", (target.name,))
    return [_Note(*row) for row in cursor.fetchall()]


def _check_claim(cursor: Any, target: Target) -> None:
    """Raise an error if writing would repeat or delete existing rows; an empty table raises none."""
    notes = _noted(cursor, target)
    mine = next((note for note in notes if note.sink == target.sink), None)
    if mine is None:  # the pipeline may have another name than in the last run
        mine = next((note for note in notes if note.owner == target.owner), None)
    others = [note for note in notes if note is not mine]
    told = _objection(target, mine, others)
    if told is not None and _has_rows(cursor, target):
        kind = ConfigError if target.streams else DataError
        raise kind(f"table: {target} {told}", argument="table")


def _objection(target: Target, mine: _Note | None, others: list[_Note]) -> str | None:
    """Why this sink may not write to the table if it has rows; None if it may."""
    if target.mode == "error":
        return "has rows, and mode is 'error'; delete them, or use 'overwrite' or 'append'."
    if target.mode == "overwrite" and target.mode_is_given:
        return None
    if target.replaces and others:
        return f"has rows of the sink {others[0].sink!r}, which this sink would delete; give another table."
    if target.replaces and mine is None:
        remedy = ', or mode = "overwrite" to replace them, or mode = "append"' if target.mode == "overwrite" else ""
        return f"has rows that this sink did not write and would delete; give another table, or empty it{remedy}."
    rival = next((note for note in others if note.replaces), None)
    if not target.replaces and rival is not None:
        return f"is rewritten by the sink {rival.sink!r}, which would delete the rows of this one; give another table."
    if target.streams and not target.replaces and mine is not None and mine.owner != target.owner and mine.rows > 0:
        return (
            "has rows that this sink wrote with another checkpoint; they would be there twice. Give the former "
            "checkpoint, or another table, or empty this one."
        )
    return None


def _has_rows(cursor: Any, target: Target) -> bool:
    if not existing_columns(cursor, target):
        return False
    cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {target.name})")
    return bool(cursor.fetchone()[0])


def _claim(cursor: Any, target: Target) -> None:
    """Note this sink and checkpoint; notes of sinks that cannot write beside it are removed."""
    cursor.execute(
        f"UPDATE {target.notes} SET sink = $2 WHERE target = {_TARGET} AND owner = $3 AND NOT EXISTS (SELECT 1 FROM "
        f"{target.notes} other WHERE other.sink = $2 AND other.target = {_TARGET})",
        (target.name, target.sink, target.owner),
    )
    stale = "TRUE" if target.replaces else "replaces"
    cursor.execute(
        f"DELETE FROM {target.notes} WHERE target = {_TARGET} AND sink <> $2 AND {stale}", (target.name, target.sink)
    )
    cursor.execute(
        f"INSERT INTO {target.notes} AS known (sink, target, owner, replaces, batch, rows) "
        f"VALUES ($2, {_TARGET}, $3, $4, -1, 0) ON CONFLICT (sink, target) DO UPDATE SET owner = EXCLUDED.owner, "
        "replaces = EXCLUDED.replaces, batch = -1, rows = 0, at = now() WHERE known.owner <> EXCLUDED.owner",
        (target.name, target.sink, target.owner, target.replaces),
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
    """Write the rows once, however often the task is repeated; their number, and whether they were written before."""
    gathered = one_partition(rows, shuffled=True)
    report = mapped_frame(gathered, partial(_written, target, number), _REPORT).collect()
    if report:
        return report[0]["rows"], report[0]["skipped"]
    # Adaptive execution runs no task without rows, but an empty result may have to replace a former one.
    (empty,) = _written(target, number, iter(()))
    return 0, bool(empty.to_pylist()[0]["skipped"])


def take_batch(rows: DataFrame, target: Target, number: int) -> None:
    """Write the rows of a micro-batch of a stream; ConfigError if the table is ahead of the checkpoint.

    Spark repeats the newest micro-batch only. An earlier one comes from an older copy of the checkpoint. Its rows may
    differ from those that the table has under this number, so skipping it could lose rows.
    """
    _, skipped = write_batch(rows, target, number)
    newest = _newest(target) if skipped else number
    if newest > number:
        raise ConfigError(
            f"{target} has micro-batches of this checkpoint up to {newest}, and the checkpoint is at {number}: it was "
            f"replaced by an older copy. Put the newest back, or empty the table and give another checkpoint."
        )


def _newest(target: Target) -> int:
    with _transaction(target) as cursor:
        mine = f"SELECT max(batch) FROM {target.notes} WHERE owner = $1 AND sink = $2"
        cursor.execute(mine, (target.owner, target.sink))
        return int(cursor.fetchone()[0])


def _written(target: Target, number: int, batches: Batches) -> Batches:
    """The work of the one task: the number and the rows in one transaction."""
    with _transaction(target) as cursor:
        n_rows, skipped = 0, not _is_new(cursor, target, number)
        if not skipped:
            stage = "dovetail_stage"
            reader = pa.RecordBatchReader.from_batches(_staged(target), (_cast(target, one) for one in batches))
            cursor.adbc_ingest(stage, reader, mode="create", temporary=True)
            if target.replaces:
                cursor.execute(f"DELETE FROM {target.name}")
            cursor.execute(_insert(target, stage))
            cursor.execute(f"SELECT count(*) FROM {quoted(stage)}")
            n_rows = cursor.fetchone()[0]
            cursor.execute(
                f"UPDATE {target.notes} SET rows = rows + $4 WHERE {_MINE}",
                (target.name, target.sink, target.owner, n_rows),
            )
            cursor.execute(f"DROP TABLE {quoted(stage)}")
    yield pa.RecordBatch.from_pydict({"rows": pa.array([n_rows], pa.int64()), "skipped": pa.array([skipped])})


_MINE = f"target = {_TARGET} AND sink = $2 AND owner = $3"


def _is_new(cursor: Any, target: Target, number: int) -> bool:
    """Whether this micro-batch is not in the table yet; waits for a concurrent transaction that writes it.

    A number that the same checkpoint wrote to another table counts as well. ConfigError if another run, with another
    checkpoint, has noted the table since.
    """
    mine = (target.name, target.sink, target.owner)
    cursor.execute(
        f"UPDATE {target.notes} SET batch = $4, at = now() WHERE {_MINE} AND batch < $4 AND NOT EXISTS (SELECT 1 FROM "
        f"{target.notes} other WHERE other.sink = $2 AND other.owner = $3 AND other.batch >= $4) RETURNING batch",
        (*mine, number),
    )
    if cursor.fetchall():
        return True
    cursor.execute(f"SELECT 1 FROM {target.notes} WHERE {_MINE}", mine)
    if not cursor.fetchall():
        raise ConfigError(f"another run has claimed {target} since this one began; give one of them another table.")
    return False


def _staged(target: Target) -> pa.Schema:
    """The columns of the temporary table: PostgreSQL has no integer of one byte."""
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
    # Without `newest` the largest row of a key wins, so that every attempt writes the same one.
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
    """A cursor whose work is committed if the block succeeds; errors become ours and show no password."""
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
        reason = censored(text, [target.url])
        at_fault = isinstance(error, (adbc_driver_manager.IntegrityError, adbc_driver_manager.DataError))
        if at_fault:
            raise DataError(f"{target} does not take the rows: {reason}; correct the rows or the table.") from None
        raise ConfigError(
            f"cannot write to {target}: {reason}; check that the server runs and that the user may write."
        ) from None
