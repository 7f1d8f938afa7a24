"""A table of an SQLite file as master data: its types, key and ranges, its versions, and the reader of one of them."""

from __future__ import annotations

import os
import re
import sqlite3
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from dovetail.engine.memory import parse_bytes
from dovetail.engine.storage.device import Device
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.keys import key_form
from dovetail.joins.semistream.master.pages import NoHistory
from dovetail.joins.semistream.master.ranges import (
    Bound,
    RangePages,
    Ranges,
    Table,
    extended,
    fence_table,
    lay_out,
    quoted,
)

ATTEMPTS = 50

_SETTLED_NS = 20_000_000  # file times move in ticks of some milliseconds: a marker younger than this may miss a change


def settled_marker(path: str, connection: sqlite3.Connection) -> str:
    """The state of the files, old enough that a later commit would change it."""
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # finishes what a killed writer left
    for _ in range(ATTEMPTS):
        before = file_marker(path)
        newest = max(int(part.split("@")[1]) for part in before.split("/"))
        if time.time_ns() - newest > _SETTLED_NS:
            return before
        time.sleep(_SETTLED_NS / 1e9)
    raise ConfigError(f"{path} is being written without pause; its version cannot be determined. Try again.")


def file_marker(path: str) -> str:
    """Inode, size and time of the file and, if it has anything in it, of the log beside it.

    Only by name: opening a file that SQLite has open and closing it again would give up SQLite's locks on it.
    """
    marks = []
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)  # noqa: PTH116  (a name, not a path: asked twice for every read)
        except FileNotFoundError:
            continue
        if name == path or found.st_size:
            marks.append(f"{found.st_ino}.{found.st_size}@{found.st_mtime_ns}")
    if not marks:
        raise ConfigError(f"{path} does not exist; correct the path, or restore the file.")
    return "/".join(marks)


def connect(path: str) -> sqlite3.Connection:
    """A connection that cannot write and leaves transactions to us."""
    if not Path(path).exists():
        raise ConfigError(f"{path} does not exist; correct the path, or restore the file.")
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)


@contextmanager
def connected(path: str) -> Iterator[sqlite3.Connection]:
    """A connection for a moment."""
    connection = connect(path)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def as_config_errors(path: str) -> Iterator[None]:
    """Errors of the file and of SQLite become `ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check permissions.") from error
    except sqlite3.Error as error:
        raise ConfigError(
            f"SQLite cannot read {path}: {error}; check that the file is whole and may be read."
        ) from error


_MOST_VALUES = 16_000  # of a statement; SQLite takes twice as many unless it was built otherwise


@dataclass(frozen=True, slots=True)
class SqliteSource(NoHistory):
    """A table in an SQLite file that driver and workers share."""

    path: str
    table_name: str
    ranges: Ranges
    page_bytes: int

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> SqliteSource:
        """The same table in ranges of part of its key."""
        return sqlite_source(self.path, self.table_name, key, self.page_bytes, schema)

    def version(self) -> str:
        """A value that changes with every commit to the file: times and sizes of it and of its log."""
        with as_config_errors(self.path), connected(self.path) as connection:
            return settled_marker(self.path, connection)

    def open(self, version: str | None = None, device: Device | None = None) -> RangePages:
        """The table as it is now; a `ConfigError` if that is not the requested version: SQLite keeps no old ones."""
        with as_config_errors(self.path):
            reader = SqliteReader(self, connect(self.path))
            if version not in (None, reader.version):
                reader.close()
                raise ConfigError(
                    f"{self} has changed: version {version} is gone, now it is {reader.version}. SQLite keeps no old "
                    f"versions; build a page file where a query must be able to read one again."
                )
            return RangePages(reader.ranges(), reader.version, reader, device)

    def explain(self) -> str:
        """The table in some lines."""
        return f"{self}\n{self.ranges.explain(self.page_bytes)}"

    def __str__(self) -> str:
        return f"SQLite table {self.table_name!r} in {self.path}"


class SqliteReader:
    """One connection that sees one version: of a file in WAL mode by a transaction held open, while others write; of
    another file by checking, in every read, that the file was not written since.
    """

    def __init__(self, source: SqliteSource, connection: sqlite3.Connection) -> None:
        self._source, self._connection = source, connection
        self._close = weakref.finalize(self, connection.close)
        self._held = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        self.table = SqliteTable(connection, source.table_name, source.ranges.schema, source.ranges.key)
        for _ in range(ATTEMPTS):
            self.version = settled_marker(source.path, connection)
            connection.execute("BEGIN")
            self._changes = connection.execute("PRAGMA data_version").fetchone()[0]
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            self._check_columns()
            if file_marker(source.path) == self.version:
                break
            connection.execute("ROLLBACK")
        else:
            raise ConfigError(f"{source} is being written without pause; no moment was found to read it. Try again.")
        if not self._held:
            connection.execute("COMMIT")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> pa.RecordBatch:
        """The rows of a query that selects all columns."""
        return self._batch(self._rows(sql, values))

    @property
    def finds_keys(self) -> bool:
        """Whether the key has only whole numbers and text."""
        ranges = self._source.ranges
        kinds = [ranges.schema.field(name).type for name in ranges.key]
        return all(pa.types.is_signed_integer(kind) or pa.types.is_string(kind) for kind in kinds)

    def find(self, key: Sequence[pa.Array], most: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order, in as few statements as the limit of values allows.

        None with more than `most` rows.
        """
        wanted = list(zip(*(column.to_pylist() for column in key), strict=True))
        each, rows = _MOST_VALUES // len(self.table.key), list[Any]()
        for start in range(0, len(wanted), each):
            some = wanted[start : start + each]
            values = [value for one in some for value in one]
            condition = f"{self.table.key_in(len(some))} LIMIT {most + 1 - len(rows)}"
            rows += self._rows(f"{self.table.select} WHERE {condition}", values)
            if len(rows) > most:
                return None
        return self._batch(rows)

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self.table.arrays(rows), schema=self.table.schema)

    def ranges(self) -> Ranges:
        """The source's ranges, with more of them if rows were added at the end."""
        return extended(self._source.ranges, self._source.page_bytes, self.table)

    def rest(self) -> None:
        """Nothing to release: readers of a file block no writer."""

    def wake(self) -> bool:
        """Whether the file is as it was, or a transaction still sees it so."""
        with as_config_errors(self._source.path):
            return self._held or bool(self._connection.execute("PRAGMA data_version").fetchone()[0] == self._changes)

    def close(self) -> None:
        """Close the connection; twice is fine."""
        self._close()

    def _rows(self, sql: str, values: Sequence[object]) -> list[Any]:
        with as_config_errors(self._source.path):
            if self._held:
                return self._connection.execute(sql, values).fetchall()
            self._connection.execute("BEGIN")
            try:
                rows = self._connection.execute(sql, values).fetchall()
                changes = self._connection.execute("PRAGMA data_version").fetchone()[0]
            finally:
                self._connection.execute("ROLLBACK")
        if changes != self._changes:
            raise ConfigError(
                f"{self._source} was written while version {self.version} was read; start the batch again. "
                f"A file in WAL mode (PRAGMA journal_mode=wal) can be read and written at once."
            )
        return rows

    def _check_columns(self) -> None:
        declared = declared_columns(self._connection, self._source.table_name, self._source.path)
        missing = [name for name in self._source.ranges.schema.names if name not in declared]
        if missing:
            raise ConfigError(f"{self._source} has no column {missing} any more; it has {list(declared)}.")


def sqlite_source(
    path: str | Path, table: str, key: str | Sequence[str], page: int | str, schema: pa.Schema | None
) -> SqliteSource:
    """The table, laid out in pages by one pass over its key."""
    place, page_bytes = str(Path(path).absolute()), parse_bytes(page, "page")
    with as_config_errors(place), connected(place) as connection:
        connection.execute("BEGIN")
        declared = declared_columns(connection, table, place)
        schema = schema or pa.schema([(name, arrow_type(kind)) for name, kind in declared.items()])
        unknown = [name for name in schema.names if name not in declared]
        if unknown:
            raise PlanError(f"table {table!r} has no column {unknown}; it has {list(declared)}.", argument="schema")
        names = key_form(schema, key).names
        check_key_values(connection, table, schema, names)
        ranges = lay_out(SqliteTable(connection, table, schema, names), page_bytes)
        connection.execute("ROLLBACK")
    return SqliteSource(place, table, ranges, page_bytes)


_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")

_ISO_DAY = "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'"


def arrow_type(declared: str) -> pa.DataType:
    """The Arrow type of a declared type: SQLite's rules of affinity, and other common names."""
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
        raise DataError(
            f"column {name!r} has a value that is not of type {kind}: {error}; name its type.", argument="schema"
        ) from error


def key_condition(name: str, kind: pa.DataType) -> str:
    """The condition on all values of a key column under which SQLite's order is the order of the type."""
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
            raise DataError(
                f"key column {name!r} of {table!r} is of type {schema.field(name).type} but has {wrong}.",
                argument="key",
            )


@dataclass(frozen=True, slots=True)
class SqliteColumn:
    """A column of the key."""

    name: str
    is_text: bool

    @property
    def ordered(self) -> str:
        """The SQL expression by which it is compared and ordered: text by its bytes, whatever its declaration."""
        return quoted(self.name) + (" COLLATE BINARY" if self.is_text else "")

    def place(self, number: int) -> str:
        """The placeholder of a value."""
        return "?"


class SqliteTable(Table[SqliteColumn]):
    """A table as one connection sees it."""

    def __init__(self, connection: sqlite3.Connection, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        columns = [SqliteColumn(part, pa.types.is_string(schema.field(part).type)) for part in key]
        super().__init__(quoted(name), schema, columns, map(quoted, schema.names))
        self._connection = connection

    def first_row(self, sql: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the first row of a query."""
        found: Sequence[Any] = self._connection.execute(sql, values).fetchone()
        return found

    def row_bytes(self) -> float:
        """Bytes of an average row in memory, by a sample; 0 if there is none."""
        sample = self._connection.execute(f"{self.select} LIMIT {_SAMPLE}").fetchall()
        return float(sum(column.nbytes for column in self.arrays(sample)) / max(len(sample), 1))

    def arrays(self, rows: Sequence[Any]) -> list[pa.Array]:
        """The columns of these rows."""
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [[] for _ in self.schema]
        return [arrow_column(values, f.type, f.name) for values, f in zip(columns, self.schema, strict=True)]

    def fences(self, low: Bound, rows: int) -> pa.Table:
        """The first keys of pages of `rows` rows, from a key on; a key is never split."""
        names = ", ".join(f"k{at}" for at in range(len(self.key)))
        query = self.fence_query(low, rows, names, "{}")
        found = list(zip(*self._connection.execute(*query), strict=True)) or [() for _ in range(len(self.key) + 1)]
        kinds = [(self.schema.field(column.name).type, column.name) for column in self.key]
        keys = [arrow_column(values, *kind) for values, kind in zip(found, kinds, strict=False)]
        return fence_table(keys, [pa.array(values) for values in found[:-1]], pa.array(found[-1], pa.int64()))

    def key_in(self, n: int) -> str:
        """The condition for one of `n` keys."""
        terms = [column.ordered for column in self.key]
        if len(terms) == 1:
            return f"{terms[0]} IN ({', '.join('?' * n)})"
        row = f"({', '.join('?' for _ in terms)})"
        return f"({', '.join(terms)}) IN (VALUES {', '.join([row] * n)})"
