"""Daemons are forked from an interpreter that was started ahead, unless they would differ from a new one."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dovetail.spark import ahead
from dovetail.spark.daemon import installed_path, load_first


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Path, int]]:
    """The address of an interpreter that was started ahead, and its process."""
    ended: list[subprocess.Popen[bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atexit, "register", lambda function, *given, **_: ended.append(given[0]))
        patch.delenv("PYTEST_CURRENT_TEST")  # which is another one when a daemon starts
        address = Path(ahead.start_ahead()[ahead.AHEAD])
    process = ended[-1]
    yield address, process.pid
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
    assert not address.parent.exists()


class Daemon:
    """A daemon as Spark starts it, and the process id of a worker that it forks."""

    def __init__(self, address: Path, **more: str) -> None:
        env = os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", ahead.AHEAD: str(address)} | more
        command = [sys.executable, "-m", "dovetail.spark.daemon", "pyspark.worker"]
        del env["PYTEST_CURRENT_TEST"]
        quiet = subprocess.DEVNULL  # the worker complains that nothing was sent
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, env=env)
        assert self.process.stdout is not None
        (port,) = struct.unpack("!i", self.process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as sock:
            (self.worker,) = struct.unpack("!i", sock.recv(4))
            self.parents = [parent.pid for parent in psutil.Process(self.worker).parents()]

    def end(self) -> None:
        """Close its input, as Spark does, and wait for its end."""
        self.process.communicate(timeout=60)


def test_a_daemon_is_a_fork_that_ends_with_its_input(started: tuple[Path, int]) -> None:
    address, interpreter = started
    daemon = Daemon(address, SPARK_LOCAL_DIRS="elsewhere")
    assert daemon.parents[1] == interpreter
    assert daemon.process.pid not in daemon.parents
    assert daemon.process.poll() is None
    daemon.end()
    assert not psutil.pid_exists(daemon.parents[0])


def test_a_daemon_that_is_killed_ends_the_process_that_spark_knows(started: tuple[Path, int]) -> None:
    address, interpreter = started
    daemon = Daemon(address)
    assert daemon.parents[1] == interpreter
    os.kill(daemon.parents[0], signal.SIGKILL)
    assert daemon.process.wait(60) != 0
    daemon.end()


@pytest.mark.parametrize("variable", ["NUMBA_OPT", "PYTHONHASHSEED", "OMP_NUM_THREADS"])
def test_another_environment_is_an_interpreter_of_its_own(started: tuple[Path, int], variable: str) -> None:
    address, interpreter = started
    daemon = Daemon(address, **{variable: "2"})
    assert daemon.parents[0] == daemon.process.pid
    assert interpreter not in daemon.parents
    daemon.end()


def test_without_an_interpreter_a_daemon_runs_by_itself(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "none")
    assert daemon.parents[0] == daemon.process.pid
    daemon.end()


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ahead.AHEAD, "off")
    assert ahead.start_ahead() == {}


def test_zip_files_of_pyspark_are_used_only_if_they_differ_from_what_is_installed(tmp_path: Path) -> None:
    lib = tmp_path / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    zips = [str(lib / "pyspark.zip"), str(lib / "py4j-0.10.9.9-src.zip")]
    for path, package in zip(zips, ("pyspark", "py4j"), strict=True):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(f"{package}/__init__.py", "")
    assert installed_path([*zips, *sys.path]) == [*zips, *sys.path]  # another PySpark is installed
    for package in ("pyspark", "py4j"):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    assert installed_path([*zips, str(tmp_path)]) == [str(tmp_path)]
    assert installed_path([*zips, "/nowhere"]) == [*zips, "/nowhere"]


def test_between_two_steps_of_loading_a_daemon_can_say_its_address() -> None:
    """A daemon that is forked there drops the steps, and then writes to its output."""
    before = os.fstat(1)
    steps = load_first()
    for _ in range(8):
        assert next(steps)
        assert os.path.samestat(os.fstat(1), before)
    steps.close()
    assert os.path.samestat(os.fstat(1), before)
