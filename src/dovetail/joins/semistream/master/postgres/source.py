"""A table of a PostgreSQL server as master data, read as Arrow over ADBC."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.engine.device import Device
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import parse_bytes
from dovetail.errors import ConfigError, UnsupportedError
from dovetail.joins.semistream.master.postgres.connection import (
    as_config_errors,
    check_url,
    give_back,
    query,
    scalars,
    with_connection,
    without_password,
)
from dovetail.joins.semistream.master.postgres.layout import (
    PgColumn,
    can_send,
    columns_of,
    count_from,
    fences_from,
    index_advice,
    key_columns,
    key_condition,
    lay_out,
    range_condition,
    relation,
    sent_keys,
)
from dovetail.joins.semistream.master.ranges import Bound, RangePages, Ranges, extended, null_condition

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection


_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# The table's file changes when it is rewritten or made anew, the snapshot with every transaction that writes anything.
_DEFAULT_MARKER = "pg_relation_filenode($1::text::regclass)::text || '/' || pg_current_snapshot()::text"


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A table of a server; the password is in the value but never shown."""

    url: str = field(repr=False)
    table_name: str
    columns: tuple[PgColumn, ...]
    ranges: Ranges
    page_bytes: int
    marker: str | None
    advice: str = ""

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> PostgresSource:
        """The same table in ranges of part of its key."""
        return postgres_source(self.url, self.table_name, key, self.page_bytes, self.marker)

    def version(self) -> str:
        """What changes with every commit that could change the table, or the user's own marker."""
        connection, found = with_connection(self.url, self.marker_of)
        give_back(self.url, connection)
        return found

    def marker_of(self, connection: Connection) -> str:
        """The version that this connection's transaction sees."""
        if self.marker is None:
            (found,) = scalars(connection, f"SELECT {_DEFAULT_MARKER}", [relation(self.table_name)])
        else:
            found = scalars(connection, self.marker)[0]
        return str(found)

    def open(self, version: str | None = None, device: Device | None = None) -> RangePages:
        """The table as it is now; a `ConfigError` if that is not the version asked for: old ones cannot be read."""
        reader = PostgresReader(self, version)
        with as_config_errors(self.url, "cannot read from"):
            return RangePages(reader.ranges(), reader.version, reader, device)

    def changed(self, old: str, new: str) -> I64 | None:
        """Not known: the server does not say which rows changed."""
        return None

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Nothing to remove: the server keeps no old versions for us."""
        raise UnsupportedError(f"{self} keeps no old versions, so there is nothing to prune.")

    def explain(self) -> str:
        """The table in some lines."""
        return f"{self}\n{self.ranges.explain(self.page_bytes)}" + (f"\n  {self.advice}" if self.advice else "")

    def __str__(self) -> str:
        return f"PostgreSQL table {self.table_name!r} at {without_password(self.url)}"


class PostgresReader:
    """One connection whose transaction sees one version, whatever others commit meanwhile.

    A connection that is lost is made anew at the next read, which goes on if the version is still there. The
    transaction is open as long as the reader: close it when the version is no longer needed, or the server cannot
    clean up rows that were deleted since; `rest` ends it between reads.
    """

    def __init__(self, source: PostgresSource, version: str | None) -> None:
        self._source = source
        self._key = key_columns(source.columns, source.ranges.key)
        self._names = ", ".join(column.selected for column in source.columns)
        self._closed = False
        connection, self.version = self._begun(version)
        self._keep(connection)

    def fetch(self, low: Bound, high: Bound) -> pa.RecordBatch:
        """Rows with a key from `low` on and below `high`, in the order of the key."""
        where, values = range_condition(self._key, low, high)
        # Without the name of the rows, ORDER BY would mean the column as selected, which may be text.
        order = ", ".join(f"r.{column.ordered}" for column in self._key)
        sql = f"SELECT {self._names} FROM {relation(self._source.table_name)} r WHERE {where} ORDER BY {order}"  # noqa: S608  (names are quoted)
        return self._rows(self._answered(sql, tuple(values)))

    def fetch_nulls(self) -> pa.RecordBatch:
        """Rows with a null in the key."""
        where = null_condition(self._source.ranges.key)
        sql = f"SELECT {self._names} FROM {relation(self._source.table_name)} r WHERE {where}"  # noqa: S608  (names are quoted)
        return self._rows(self._answered(sql, ()))

    @property
    def finds_keys(self) -> bool:
        """Whether keys of these types can be sent."""
        return can_send(self._key)

    def find(self, key: Sequence[pa.Array]) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order; None if one of them cannot be sent."""
        sent = sent_keys(self._key, key)
        if sent is None:
            return None
        where = key_condition(self._key)
        sql = f"SELECT {self._names} FROM {relation(self._source.table_name)} r WHERE {where}"  # noqa: S608  (names are quoted)
        return self._rows(self._answered(sql, sent))

    def _rows(self, found: pa.Table) -> pa.RecordBatch:
        arrays = [c.arrow_column(found.column(at)) for at, c in enumerate(self._source.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._source.ranges.schema)

    def ranges(self) -> Ranges:
        """The source's ranges, with more of them if rows were added at the end."""
        table = self._connection, self._source.table_name, self._key
        count, fences = partial(count_from, *table), partial(fences_from, *table)
        return extended(self._source.ranges, self._source.page_bytes, count, fences)

    def rest(self) -> None:
        """End the transaction, which keeps tables locked and deleted rows on the disk; the next read begins one."""
        self._end()

    def close(self) -> None:
        """End the transaction and the connection; twice is fine."""
        self._closed = True
        self._end()

    def _answered(self, sql: str, values: tuple[str, ...] | pa.RecordBatch) -> pa.Table:
        """The rows of a query, by a new connection if the one there was is gone; the second failure counts."""
        if self._closed:
            raise ValueError(f"{self._source} is closed; pages cannot be read.")
        if self._end.alive:
            try:
                with as_config_errors(self._source.url, "cannot read from"):
                    return query(self._connection, sql, values)
            except ConfigError:
                self._end()
        self._keep(self._begun(self.version)[0])
        with as_config_errors(self._source.url, "cannot read from"):
            return query(self._connection, sql, values)

    def _keep(self, connection: Connection) -> None:
        self._connection = connection
        self._end = weakref.finalize(self, give_back, self._source.url, connection)

    def _begun(self, version: str | None) -> tuple[Connection, str]:
        """A connection in a transaction that sees the version."""
        connection, (found, columns) = with_connection(self._source.url, self._begin)
        try:
            self._check(version, found, columns)
        except BaseException:
            give_back(self._source.url, connection)
            raise
        return connection, found

    def _begin(self, connection: Connection) -> tuple[str, tuple[PgColumn, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(_SNAPSHOT)
        return self._source.marker_of(connection), tuple(columns_of(connection, self._source.table_name))

    def _check(self, version: str | None, found: str, columns: tuple[PgColumn, ...]) -> None:
        source = self._source
        if columns != source.columns:
            now = ", ".join(f"{column.name} {column.pg_type}" for column in columns)
            raise ConfigError(f"{source} now has columns [{now}]; name the store and plan the query anew.")
        if version not in (None, found):
            raise ConfigError(
                f"{source} has changed: version {version} is gone, now it is {found}. The server keeps no old "
                f"versions; build a page file where a query must be able to read one again."
            )


def postgres_source(
    url: str, table: str, key: str | Sequence[str], page: int | str, marker: str | None
) -> PostgresSource:
    """The table, laid out in pages by one pass over its key in one snapshot."""
    page_bytes, url = parse_bytes(page, "page"), check_url(url)

    def laid_out(connection: Connection) -> tuple[tuple[PgColumn, ...], Ranges, str]:
        with connection.cursor() as cursor:
            cursor.execute(_SNAPSHOT)
        columns = tuple(columns_of(connection, table))
        keys = key_columns(columns, key)
        ranges = lay_out(connection, table, columns, keys, page_bytes)
        return columns, ranges, index_advice(connection, table, keys, ranges)

    connection, (columns, ranges, advice) = with_connection(url, laid_out)
    give_back(url, connection)
    return PostgresSource(url, table, columns, ranges, page_bytes, marker, advice)
