"""Master data in a PostgreSQL server that the rivals of a point share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.bench.postgres_server import Server
from dovetail.bench.workbench import Workbench
from dovetail.workloads import Master

TABLE = "master"


class SharedServer:
    """A server with a table of master data: the first to enter starts it, the last to leave stops it."""

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._seed = rows, seed
        self._server: Server | None = None
        self._users = 0

    @contextmanager
    def url(self) -> Iterator[str]:
        """Where the server is."""
        if self._server is None:
            self._server = self._started()
        self._users += 1
        try:
            yield self._server.url
        finally:
            self._users -= 1
            if not self._users:
                self._server.__exit__(None, None, None)
                self._server = None

    def _started(self) -> Server:
        server = _server().__enter__()
        try:
            self._load(server.url)
        except BaseException:
            server.__exit__(None, None, None)
            raise
        return server

    def _load(self, url: str) -> None:
        load_master(url, TABLE, Master(self._rows, seed=self._seed))


def load_master(url: str, table: str, rows: Master) -> None:
    """Make a table of these rows, with an index on the key."""
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information

    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(table, rows.table(), mode="create")
        cursor.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (key)")
        cursor.execute(f"VACUUM ANALYZE {table}")


class TableServer:
    """A server for a whole run, with a table of master data for every number of rows that was asked for."""

    def __init__(self, server: Server, seed: int) -> None:
        self.url = server.url
        self._seed = seed
        self._tables: dict[int, str] = {}

    def table(self, rows: int) -> str:
        """The name of the table with so many rows."""
        if rows not in self._tables:
            name = f"{TABLE}_{rows}"
            load_master(self.url, name, Master(rows, seed=self._seed))
            self._tables[rows] = name
        return self._tables[rows]


@contextmanager
def table_server(seed: int) -> Iterator[TableServer]:
    """A server that is stopped behind it."""
    with _server() as server:
        yield TableServer(server, seed)


def _server() -> Server:
    return Server("bench", "bench", "-c shared_buffers=512MB")


@contextmanager
def master_table(bench: Workbench, rows: int) -> Iterator[str]:
    """The URL of a server that has the rows in TABLE, with an index on the key."""
    shared = bench.once(("server", rows), lambda: SharedServer(rows, bench.seed))
    with shared.url() as url:
        yield url
