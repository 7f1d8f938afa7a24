"""Master data in a PostgreSQL server that all rivals and experiments of a run share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.context import BenchContext
from bench.postgres_server import Server
from dovetail.workloads import Master


@dataclass(frozen=True, slots=True)
class MasterTable:
    """A table of master data: the server that has it, and its name there."""

    url: str
    name: str


def master_table(bench: BenchContext, rows: int) -> MasterTable:
    """A table of so many master rows with an index on the key, made once; its server runs until the benchmark ends."""
    server = bench.lasting(("table server", bench.seed), lambda: _table_server(bench.seed))
    return server.table(rows)


class _TableServer:
    """A table of master data for every number of rows that was asked for."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._seed = url, seed
        self._tables: dict[int, MasterTable] = {}

    def table(self, rows: int) -> MasterTable:
        if rows not in self._tables:
            table = MasterTable(self._url, f"master_{rows}")
            _load(table, Master(rows, seed=self._seed))
            self._tables[rows] = table
        return self._tables[rows]


@contextmanager
def _table_server(seed: int) -> Iterator[_TableServer]:
    with Server("bench", "bench", "-c shared_buffers=512MB") as server:
        yield _TableServer(server.url, seed)


def _load(table: MasterTable, rows: Master) -> None:
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information

    with dbapi.connect(table.url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(table.name, rows.table(), mode="create")
        cursor.execute(f"ALTER TABLE {table.name} ADD PRIMARY KEY (key)")
        cursor.execute(f"VACUUM ANALYZE {table.name}")
