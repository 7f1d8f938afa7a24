"""Connections to database servers: kept for the next reader, and a reader whose transaction sees one version."""

from __future__ import annotations

import atexit
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from dovetail.engine.storage.device import Device
from dovetail.engine.storage.secrets import shown
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.pages import NoHistory
from dovetail.joins.semistream.master.ranges import RangePages, Ranges, Table, extended, quoted

T = TypeVar("T")
_MOST_IDLE = 2


class Connections:
    """Idle connections of this process by URL: connecting takes a hundred milliseconds, asking for a version one.

    They belong to the process that opened them: a forked child must not use its parent's connections.
    """

    def __init__(
        self,
        connect: Callable[[str], Any],
        errors: Callable[[str, str], AbstractContextManager[None]],
        reset: Callable[[Any], None],
    ) -> None:
        self._connect, self._errors, self._reset = connect, errors, reset
        self._idle: dict[tuple[int, str], list[Any]] = {}
        atexit.register(self._close)

    def using(self, url: str, use: Callable[[Any], T]) -> tuple[Any, T]:
        """A connection and the result of `use`; an idle connection that is dead is replaced by a new one."""
        waiting = self._idle.get((os.getpid(), url), [])
        while waiting:
            connection = waiting.pop()
            try:
                return connection, use(connection)
            except Exception:  # a new connection shows whether the connection or the request is at fault
                connection.close()
        connection = self._connect(url)
        try:
            with self._errors(url, "cannot read from"):
                return connection, use(connection)
        except BaseException:
            connection.close()
            raise

    def give_back(self, url: str, connection: Any) -> None:
        """Keep the connection, with no transaction open, or close it if there are enough."""
        waiting = self._idle.setdefault((os.getpid(), url), [])
        try:
            self._reset(connection)
        except Exception:  # it is dead; no harm, as it was used for reading only
            connection.close()
            return
        if len(waiting) < _MOST_IDLE:
            waiting.append(connection)
        else:
            connection.close()

    def _close(self) -> None:
        for (process, _), waiting in self._idle.items():
            while process == os.getpid() and waiting:
                waiting.pop().close()


@dataclass(frozen=True, slots=True)
class ServerTable(NoHistory, ABC):
    """A table of a database server; the password is in the value but never shown.

    `columns` are those of the time when the store was named; each has a name and, as `kind`, its type in the database.
    """

    url: str = field(repr=False)
    table_name: str
    columns: tuple[Any, ...]
    ranges: Ranges
    page_bytes: int
    marker: str | None
    advice: str = ""

    server: ClassVar[str]
    connections: ClassVar[Connections]

    @abstractmethod
    def marker_of(self, connection: Any) -> str:
        """The version that a connection sees."""

    @abstractmethod
    def reader(self, version: str | None) -> SnapshotReader:
        """A connection that sees one version."""

    def version(self) -> str:
        """A value that changes with every commit that could change the table, or the user's own marker."""
        connection, found = self.connections.using(self.url, self.marker_of)
        self.connections.give_back(self.url, connection)
        return found

    def open(self, version: str | None = None, device: Device | None = None) -> RangePages:
        """The table as it is now; a `ConfigError` if that is not the requested version: old ones cannot be read."""
        reader = self.reader(version)
        return RangePages(reader.ranges(), reader.version, reader, device)

    def explain(self) -> str:
        """The table in some lines."""
        return f"{self}\n{self.ranges.explain(self.page_bytes)}" + (f"\n  {self.advice}" if self.advice else "")

    def __str__(self) -> str:
        return f"{self.server} table {self.table_name!r} at {shown(self.url)}"


def key_columns(columns: Sequence[Any], key: str | Sequence[str], kinds: Sequence[str]) -> list[Any]:
    """The columns of the key; a `PlanError` if there is none of a name, or its type has another order than Arrow's."""
    names = (key,) if isinstance(key, str) else tuple(key)
    known = {column.name: column for column in columns}
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise PlanError(f"key column {missing} is not one of the columns {list(known)}.", argument="key")
    for name in names:
        if known[name].kind not in kinds:
            raise PlanError(
                f"key column {name!r} is of type {known[name].kind}; a key is one of {list(kinds)}.", argument="key"
            )
    return [known[name] for name in names]


def relation(table: str) -> str:
    """The table as SQL takes it: with its schema or database, or by its name alone."""
    return ".".join(quoted(part) for part in table.split("."))


class SnapshotReader(ABC):
    """One connection whose transaction sees one version, whatever others commit meanwhile.

    A lost connection is opened again at the next read, which continues if the version still exists. The
    transaction is open as long as the reader: close it when the version is no longer needed, or the server cannot
    clean up rows that were deleted since; `rest` ends it between reads.
    """

    connections: Connections
    errors: Callable[[str, str], AbstractContextManager[None]]

    def __init__(self, source: ServerTable, version: str | None) -> None:
        self._source = source
        self._closed = False
        connection, self.version = self._begun(version)
        self._keep(connection)

    @property
    @abstractmethod
    def finds_keys(self) -> bool:
        """Whether keys of these types can be sent."""

    @abstractmethod
    def find(self, key: Sequence[pa.Array], most: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order; None if one cannot be sent, or with more than `most`."""

    @abstractmethod
    def begin(self, connection: Any) -> tuple[str, tuple[Any, ...]]:
        """Begin a transaction that sees one version; the version, and the columns that the table has in it."""

    @abstractmethod
    def table_on(self, connection: Any) -> Table[Any]:
        """The table as a connection sees it."""

    @abstractmethod
    def query(self, connection: Any, sql: str, values: Any) -> pa.RecordBatch:
        """The rows of a query that selects all columns."""

    def ranges(self) -> Ranges:
        """The source's ranges, with more of them if rows were added at the end."""
        with type(self).errors(self._source.url, "cannot read from"):
            return extended(self._source.ranges, self._source.page_bytes, self.table)

    def rest(self) -> None:
        """End the transaction, which keeps tables locked and deleted rows on the disk; the next read begins one."""
        self._end()

    def wake(self) -> bool:
        """Begin a transaction if there is none; whether it sees the version."""
        if not self._end.alive:
            connection, (found, _) = self.connections.using(self._source.url, self.begin)
            if found != self.version:
                self.connections.give_back(self._source.url, connection)
                return False
            self._keep(connection)
        return True

    def close(self) -> None:
        """End the transaction and the connection; twice is fine."""
        self._closed = True
        self._end()

    def rows(self, sql: str, values: Sequence[Any] | pa.RecordBatch = ()) -> pa.RecordBatch:
        """The rows of a query that selects all columns; by a new connection if this one is lost."""
        if self._closed:
            raise ValueError(f"{self._source} is closed; pages cannot be read.")
        if self._end.alive:
            try:
                with type(self).errors(self._source.url, "cannot read from"):
                    return self.query(self._connection, sql, values)
            except ConfigError:
                self._end()
        self._keep(self._begun(self.version)[0])
        with type(self).errors(self._source.url, "cannot read from"):
            return self.query(self._connection, sql, values)

    def _keep(self, connection: Any) -> None:
        self._connection = connection
        self.table = self.table_on(connection)
        self._end = weakref.finalize(self, self.connections.give_back, self._source.url, connection)

    def _begun(self, version: str | None) -> tuple[Any, str]:
        """A connection in a transaction that sees the version."""
        connection, (found, columns) = self.connections.using(self._source.url, self.begin)
        try:
            self._check(version, found, columns)
        except BaseException:
            self.connections.give_back(self._source.url, connection)
            raise
        return connection, found

    def _check(self, version: str | None, found: str, columns: tuple[Any, ...]) -> None:
        source = self._source
        if columns != source.columns:
            now = ", ".join(f"{column.name} {column.kind}" for column in columns)
            raise ConfigError(f"{source} now has columns [{now}]; name the store and plan the query again.")
        if version not in (None, found):
            raise ConfigError(
                f"{source} has changed: version {version} is gone, now it is {found}. The server keeps no old "
                f"versions; build a page file where a query must be able to read one again."
            )
