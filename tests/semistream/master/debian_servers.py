"""MariaDB and Redis servers of the tests, from programs of Debian, on loopback with data of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pymysql
import pytest
import redis

PASSWORD = "s3cret p@ss/w:rd"  # noqa: S105  (of servers that live as long as the tests)


def program(name: str) -> str:
    """The path of a server; a test is skipped where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed; apt-get install mariadb-server redis-server")
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Process:
    """A server that is started, stopped at once, and started again."""

    def __enter__(self) -> Self:
        self.home, self.port = Path(tempfile.mkdtemp(prefix="dovetail-server-")), free_port()
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    running: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make what the server needs before its first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def ping(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.running = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(600):
            try:
                return self.ping()
            except (pymysql.MySQLError, redis.RedisError):
                assert self.running.poll() is None, (self.home / "log").read_text()
                time.sleep(0.1)
        raise AssertionError((self.home / "log").read_text())

    def stop(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()
            self.running = None


class MariaDb(Process):
    """MariaDB with one database, `shop`, and one user, `tester`."""

    @property
    def url(self) -> str:
        return f"mysql://tester:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/shop"

    def prepare(self) -> None:
        install = program("mariadb-install-db")
        options = ["--no-defaults", f"--datadir={self.home}/data", "--auth-root-authentication-method=normal"]
        options += ["--skip-test-db", *self._user()]
        subprocess.run([install, *options], check=True, capture_output=True, timeout=120)
        first = [
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            f"CREATE USER tester@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT ALL ON *.* TO tester@'%' WITH GRANT OPTION",
        ]
        (self.home / "first.sql").write_text("".join(f"{statement};\n" for statement in first))

    def _user(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def command(self) -> list[str]:
        options = [
            "--no-defaults", f"--datadir={self.home}/data", f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={self.home}/socket", f"--pid-file={self.home}/pid", "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=32M", "--skip-name-resolve", "--character-set-server=utf8mb4", *self._user(),
        ]  # fmt: skip
        if not (self.home / "begun").exists():
            options.append(f"--init-file={self.home}/first.sql")
        return [program("mariadbd"), *options]

    def connect(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="tester", password=PASSWORD, database="shop", autocommit=True,
            charset="utf8mb4",
        )  # fmt: skip

    def ping(self) -> None:
        self.connect().close()
        (self.home / "begun").touch()

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


class Redis(Process):
    """Redis with a password, which keeps nothing on disk."""

    @property
    def url(self) -> str:
        return f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        (self.home / "conf").write_text(f'requirepass "{PASSWORD}"\n')
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        return [program("redis-server"), str(self.home / "conf"), *options, "--dir", str(self.home)]

    def connect(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, password=PASSWORD)

    def ping(self) -> None:
        with self.connect() as client:
            client.ping()
