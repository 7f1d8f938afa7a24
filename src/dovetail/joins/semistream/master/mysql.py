"""A table of a MySQL or MariaDB server as master data: its columns, key and ranges, and its versions; over PyMySQL."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from dovetail.engine.memory import parse_bytes
from dovetail.engine.storage.secrets import censored, check_escaped, shown
from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.ranges import Bound, Ranges, Table, fence_table, lay_out, quoted
from dovetail.joins.semistream.master.snapshots import Connections, ServerTable, SnapshotReader, key_columns, relation

PLACE = "\0"  # of a value in a statement: a character that no name has
_CONNECT_S = 10
_SECONDS = ("connect_timeout", "read_timeout")
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket", *_SECONDS)
# Names are quoted as in standard SQL, text and times have one meaning, and a transaction sees one version.
_SESSION = (
    "SET SESSION sql_mode = 'ANSI_QUOTES'",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


def check_url(url: str) -> str:
    """The URL; a `PlanError` if it is none of MySQL or MariaDB, names no database, or has an unknown option."""
    is_ours = url.partition("://")[0] in ("mysql", "mariadb")
    if is_ours:
        check_escaped(url)
    parts = urlsplit(url) if is_ours else None
    if parts is None or not parts.path.strip("/"):
        raise PlanError(
            "the url is not of the form mysql://user:password@host:port/database; give it so, or with mariadb://.",
            argument="uri",
        )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise PlanError(f"the url has the option {name!r}; known are {', '.join(_OPTIONS)}.", argument="uri")
        if name in _SECONDS and not value.isdecimal():
            raise PlanError(f"the url has {name}={value}; give whole seconds, such as {name}=10.", argument="uri")
    return url


def connect(url: str) -> Any:
    """A new connection that leaves transactions to us."""
    try:
        import pymysql
    except ImportError as error:
        raise ConfigError("MySQL and MariaDB need the package PyMySQL: pip install 'dovetail[mysql]'.") from error
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in _SECONDS:
        if name in options:
            options[name] = int(options[name])
    options.setdefault("connect_timeout", _CONNECT_S)
    with as_config_errors(url, "cannot connect to"):
        made = pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.strip("/")),
            charset="utf8mb4",
            autocommit=True,
            **options,
        )
        for statement in _SESSION:
            query(made, statement)
        return made


def query(connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of one statement, whose values stand at `PLACE` and are sent as literals that the driver escapes."""
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("%", "%%").replace(PLACE, "%s"), tuple(values))
        return list(cursor.fetchall())


class MixedCharactersError(ConfigError):
    """A text that was sent has characters that the column's character set does not have."""


_MIXED = (1267, 1270, 1271)  # codes of the server


@contextmanager
def as_config_errors(url: str, doing: str) -> Iterator[None]:
    """Errors of server and driver become `ConfigError`, with what they say but no password."""
    import pymysql

    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        if error.args and error.args[0] in _MIXED:
            raise MixedCharactersError(
                f"{doing} {shown(url)}: a value does not fit the column's character set."
            ) from None
        hint = "check that the server runs and that the user may read the table"
        reason = censored(" ".join(map(str, error.args)) or type(error).__name__, [url])
        # The driver's own error is not kept as the cause: its text may show what is hidden here.
        raise ConfigError(f"{doing} {shown(url)}: {reason}; {hint}.") from None


def _reset(connection: Any) -> None:
    query(connection, "ROLLBACK")


CONNECTIONS = Connections(connect, as_config_errors, _reset)


_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_COUNTERS = ("Innodb_lsn_current", "Innodb_redo_log_current_lsn")  # of MariaDB, and of MySQL from 8.0.30 on
_SETTLES_S = 0.005  # between the log record of a commit and the moment at which others see it
_SAMPLE = 1000  # rows whose size stands for all
_SENT = 2000  # keys of a statement
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64, "year": 16}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_BY_BYTES = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin")  # the order of UTF-8 bytes, spaces at the end included


@dataclass(frozen=True, slots=True)
class MySqlSource(ServerTable):
    """A table of a MySQL or MariaDB server."""

    server, connections = "MySQL", CONNECTIONS

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> MySqlSource:
        """The same table in ranges of part of its key."""
        return mysql_source(self.url, self.table_name, key, self.page_bytes, self.marker)

    def marker_of(self, connection: Any) -> str:
        """The version now: the user's marker, or the position in the log of the server's storage engine."""
        if self.marker is not None:
            rows = query(connection, self.marker)
            return str(rows[0][0] if rows else None)
        return _position(connection)

    def reader(self, version: str | None) -> MySqlReader:
        """A connection that sees one version."""
        return MySqlReader(self, version)


def _position(connection: Any) -> str:
    names = ", ".join(f"'{name}'" for name in _COUNTERS)
    rows = query(connection, f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
    if not rows:
        raise ConfigError(
            "the server does not say how far its log is (MariaDB does, and MySQL from 8.0.30 on); give marker=, a "
            "query whose single value changes when the table does."
        )
    return str(rows[0][1])


class MySqlReader(SnapshotReader):
    """A connection to MySQL or MariaDB that sees one version."""

    connections, errors = CONNECTIONS, staticmethod(as_config_errors)
    _source: MySqlSource
    table: MySqlTable
    finds_keys = True

    def begin(self, connection: Any) -> tuple[str, tuple[MySqlColumn, ...]]:
        """Begin a transaction that sees one version.

        Without a marker the log position is read before and after. If it moved, the version has a name of its own,
        which no other reader has: the server was written in between.
        """
        query(connection, "ROLLBACK")
        if self._source.marker is not None:
            query(connection, _SNAPSHOT)
            return self._source.marker_of(connection), columns_of(connection, self._source.table_name)
        before = _position(connection)
        time.sleep(_SETTLES_S)
        query(connection, _SNAPSHOT)
        after = _position(connection)
        version = before if before == after else f"{before}-{after}-{uuid.uuid4().hex[:8]}"
        return version, columns_of(connection, self._source.table_name)

    def table_on(self, connection: Any) -> MySqlTable:
        """The table as a connection sees it."""
        return MySqlTable(connection, self._source.table_name, self._source.columns, self._source.ranges.key)

    def query(self, connection: Any, sql: str, values: Any) -> pa.RecordBatch:
        """The rows of a query that selects all columns."""
        return pa.RecordBatch.from_arrays(self.table.arrays(query(connection, sql, values)), schema=self.table.schema)

    def find(self, key: Sequence[pa.Array], most: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order, and perhaps some that a collation takes for equal.

        None if one of the keys cannot be sent, or with more than `most` rows.
        """
        try:
            wanted = list(dict.fromkeys(zip(*(column.to_pylist() for column in key), strict=True)))
        except (OverflowError, ValueError):  # a time that Python does not have
            return None
        found = [pa.RecordBatch.from_pylist([], self.table.schema)]
        for start in range(0, len(wanted), _SENT):
            some = wanted[start : start + _SENT]
            values = [value for one in some for value in one]
            try:
                condition = f"{self.table.key_in(len(some))} LIMIT {most + 1}"
                rows = self.rows(f"{self.table.select} WHERE {condition}", values)
            except MixedCharactersError:  # the pages of such a key say that it is not there
                return None
            if rows.num_rows > most:
                return None
            found.append(rows if len(wanted) <= _SENT else _exactly(rows, some, self.table))
            if sum(batch.num_rows for batch in found) > most:
                return None
        return pa.concat_batches(found)


def _exactly(rows: pa.RecordBatch, wanted: Sequence[tuple[Any, ...]], table: MySqlTable) -> pa.RecordBatch:
    """The rows that have one of the keys by their bytes: another statement gives those that a collation adds here."""
    known = set(wanted)
    keys = zip(*(rows.column(column.name).to_pylist() for column in table.key), strict=True)
    return rows.filter(pa.array([key in known for key in keys], pa.bool_()))


def mysql_source(url: str, table: str, key: str | Sequence[str], page: int | str, marker: str | None) -> MySqlSource:
    """The table, laid out in pages by one pass over its key in one snapshot."""
    page_bytes, url = parse_bytes(page, "page"), check_url(url)

    def laid_out(connection: Any) -> tuple[tuple[MySqlColumn, ...], Ranges, str]:
        query(connection, _SNAPSHOT)
        _check_engine(connection, table)
        if marker is None:
            _position(connection)
        columns = columns_of(connection, table)
        found = MySqlTable(connection, table, columns, key)
        return columns, lay_out(found, page_bytes), found.advice()

    connection, (columns, ranges, advice) = CONNECTIONS.using(url, laid_out)
    CONNECTIONS.give_back(url, connection)
    return MySqlSource(url, table, columns, ranges, page_bytes, marker, advice)


def _named(table: str) -> tuple[str, list[str]]:
    """The condition for a table in the information schema, and its values."""
    schema, _, name = table.rpartition(".")
    place = f"table_schema = {PLACE}" if schema else "table_schema = DATABASE()"
    return f"{place} AND table_name = {PLACE}", [*([schema] if schema else []), name]


def _check_engine(connection: Any, table: str) -> None:
    where, values = _named(table)
    rows = query(connection, f"SELECT engine FROM information_schema.tables WHERE {where}", values)  # noqa: S608  (ours)
    if rows and rows[0][0] not in (None, "InnoDB"):
        raise UnsupportedError(
            f"table {table!r} has the storage engine {rows[0][0]}, which has no snapshots: reads would see "
            f"changes half done. Alter it to InnoDB, or build a page file from it.",
            argument="table",
        )


def columns_of(connection: Any, table: str) -> tuple[MySqlColumn, ...]:
    """The columns of a table or view; a `ConfigError` if there is none of this name."""
    where, values = _named(table)
    wanted = "column_name, data_type, column_type, numeric_precision, numeric_scale, collation_name"
    source = f"information_schema.columns WHERE {where} ORDER BY ordinal_position"
    found = query(connection, f"SELECT {wanted} FROM {source}", values)  # noqa: S608  (ours)
    if not found:
        raise ConfigError(f"there is no table {table!r}, or the user may not see it; give table or database.table.")
    return tuple(
        MySqlColumn(name, data, _arrow_type(data, declared, precision, scale), collation in _BY_BYTES)
        for name, data, declared, precision, scale, collation in found
    )


def _arrow_type(data: str, declared: str, precision: int | None, scale: int | None) -> pa.DataType:
    if data in _INTEGERS:
        bits = _INTEGERS[data]
        if "unsigned" in declared:
            return pa.decimal128(20, 0) if bits == 64 else {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[bits]
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    if data == "decimal":
        digits = precision or 10
        return pa.decimal128(digits, scale or 0) if digits <= 38 else pa.decimal256(digits, scale or 0)
    known = {
        "float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "datetime": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", "UTC"), "bit": pa.binary(),
    }  # fmt: skip
    return pa.binary() if data in _BYTES else known.get(data, pa.string())


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """A column of a table: its type in the database and in Arrow."""

    name: str
    kind: str
    arrow: pa.DataType
    by_bytes: bool = False  # whether the order of its collation is that of bytes

    @property
    def selected(self) -> str:
        """The SQL expression that selects it: floats with all digits, types that Arrow does not have as text."""
        name = quoted(self.name)
        if self.kind in ("float", "double"):
            return f"{name} + 0E0"
        as_they_are = (*_INTEGERS, *_TEXTS, *_BYTES, "decimal", "date", "datetime", "timestamp", "bit", "json")
        return name if self.kind in as_they_are else f"CAST({name} AS CHAR)"

    @property
    def ordered(self) -> str:
        """The SQL expression by which it is compared and ordered: text by its bytes."""
        if self.kind not in _TEXTS or self.by_bytes:
            return quoted(self.name)
        return f"CAST(CONVERT({quoted(self.name)} USING utf8mb4) AS BINARY)"

    def place(self, number: int) -> str:
        """A value of it."""
        return PLACE

    def arrow_column(self, values: Sequence[Any]) -> pa.Array:
        """The server's values in the column's type; a value that does not fit is a `DataError`."""
        try:
            if pa.types.is_string(self.arrow):
                values = [value.decode() if isinstance(value, bytes) else value for value in values]
            return pa.array(values, self.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            is_time = pa.types.is_temporal(self.arrow)
            zero = next((value for value in values if is_time and isinstance(value, str)), None)  # no day of Python's
            remedy = "" if zero is None else f"; make a view with nullif({self.name}, '{zero}')"
            raise DataError(
                f"column {self.name!r} has a value that is not of type {self.arrow}: {error}{remedy}.",
                argument="table",
            ) from error


_KEYS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal", "date", "datetime", "timestamp",
         *_TEXTS, *_BYTES)  # fmt: skip


class MySqlTable(Table[MySqlColumn]):
    """A table as one connection sees it."""

    whole_division = "DIV"

    def __init__(self, connection: Any, name: str, columns: Sequence[MySqlColumn], key: str | Sequence[str]) -> None:
        schema = pa.schema([(column.name, column.arrow) for column in columns])
        super().__init__(relation(name), schema, key_columns(columns, key, _KEYS), (one.selected for one in columns))
        self._connection, self._columns = connection, columns

    def first_row(self, sql: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the first row of a query."""
        return query(self._connection, sql, values)[0]

    def row_bytes(self) -> float:
        """Bytes of an average row in memory, by a sample; 0 if there is none."""
        sample = query(self._connection, f"{self.select} LIMIT {_SAMPLE}")
        return float(sum(column.nbytes for column in self.arrays(sample)) / max(len(sample), 1))

    def arrays(self, rows: Sequence[Any]) -> list[pa.Array]:
        """The columns of these rows."""
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [[] for _ in self.schema]
        return [column.arrow_column(values) for column, values in zip(self._columns, columns, strict=True)]

    def in_range(self, low: Bound, high: Bound) -> tuple[str, list[Any]]:
        """The condition for keys of a range, and its values; with one on the first part, for which an index is used."""
        where, values = Table.in_range(self, low, high)
        if len(self.key) > 1:
            for sign, bound in ((">=", low), ("<=", high)):
                if bound is not None:
                    where, values = f"{where} AND {self.key[0].ordered} {sign} {PLACE}", [*values, bound[0]]
        return where, values

    def range_query(self, low: Bound, high: Bound) -> tuple[str, list[Any]]:
        """The query for rows with a key from `low` on and below `high`, in the order of the key, and its values."""
        where, values = self.in_range(low, high)
        return f"{self.select} WHERE {where} ORDER BY {', '.join(column.ordered for column in self.key)}", values

    def fences(self, low: Bound, rows: int) -> pa.Table:
        """The first keys of pages of `rows` rows, from a key on; a key is never split."""
        names = ", ".join(f"k{at}" for at in range(len(self.key)))
        found = query(self._connection, *self.fence_query(low, rows, names, "{}"))
        columns: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) or [[] for _ in range(len(self.key) + 1)]
        keys = [column.arrow_column(values) for column, values in zip(self.key, columns, strict=False)]
        return fence_table(keys, keys, pa.array([int(value) for value in columns[-1]], pa.int64()))

    def key_in(self, n: int) -> str:
        """The condition for one of `n` keys, by the columns' own collations, for which their index is used."""
        terms = ", ".join(quoted(column.name) for column in self.key)
        row = ", ".join(PLACE for _ in self.key)
        if len(self.key) == 1:
            return f"{terms} IN ({', '.join([row] * n)})"
        return f"({terms}) IN ({', '.join([f'({row})'] * n)})"

    def advice(self) -> str:
        """Advice for a key that is not stored in the order of pages; empty if it is."""
        other = [column.name for column in self.key if column.kind in _TEXTS and not column.by_bytes]
        if not other:
            return ""
        return (
            f"every page scans the table, for {other} is not stored in the order of bytes; joins ask for single keys, "
            f"and pages are fast with COLLATE utf8mb4_0900_bin (MySQL) or utf8mb4_nopad_bin (MariaDB)"
        )
