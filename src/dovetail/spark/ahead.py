"""Imports ahead: an interpreter that the driver starts while the JVM boots, and that worker daemons are forked from.

A daemon of Spark that finds it hands over its streams and its environment, and runs as a fork of it. That takes some 20
milliseconds instead of a second or two, for each of the several daemons that a streaming query has. If anything that
an interpreter reads at its start differs, or with DOVETAIL_AHEAD=off, a daemon imports by itself.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

AHEAD = "DOVETAIL_AHEAD"
"""The socket of the interpreter that was started ahead, or "off"."""
_SPARKS_OWN = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_")
_OF_A_PROCESS = {AHEAD, "PYTHONPATH", "PYTHONUNBUFFERED", "JAVA_HOME", "SHLVL", "PWD", "OLDPWD", "_"}
_LOOK_MS, _PATIENCE_S = 1000, 0.2
_BOOT_S = 2.0  # of the JVM, which needs the processor more


def start_ahead(threads: str = "1") -> dict[str, str]:
    """Start the interpreter that imports ahead, and ends with this process; the variables with its address.

    `threads` are those of a task, which NumPy reads when it is imported.
    """
    if os.environ.get(AHEAD, "").strip().lower() in {"off", "0", "false", "no"} or not hasattr(socket, "send_fds"):
        return {}
    place = Path(tempfile.mkdtemp(prefix="dovetail-daemon-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(place / "socket"))
        except OSError:  # the path of temporary files is too long for a socket
            return {}
        listener.listen(16)
        _start(listener.fileno(), threads)
    return {AHEAD: str(place / "socket")}


def _start(listener: int, threads: str) -> None:
    command = [sys.executable, "-u", "-m", "dovetail.spark.daemon", "--ahead", str(listener)]
    seed = os.environ.get("PYTHONHASHSEED", "0")  # as spark-submit sets it
    env = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603  (our own module)
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=env, pass_fds=[listener]
    )
    atexit.register(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the interpreter; daemons that it forked end with Spark."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:  # it is still importing
        process.kill()
        process.wait()


def hand_over(address: str) -> int | None:
    """Run the daemon as a fork of the interpreter at this address; returns its exit code, or None if it cannot."""
    import resource

    own: dict[str, Any] = {"process": _identity(sys.path), "argv": sys.argv, "path": sys.path, "env": dict(os.environ)}
    own["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            message = json.dumps(own | {"cwd": str(Path.cwd())}).encode()
            sock.connect(address)
            socket.send_fds(sock, [struct.pack("<I", len(message))], [0, 1, 2])
            sock.sendall(message)
            if not sock.recv(1):
                return None
        except OSError:  # there is none
            return None
        return (sock.recv(1) or b"\1")[0]


def _identity(path: list[str]) -> list[str]:
    """The interpreter and the packages that a daemon runs from."""
    places = [importlib.machinery.PathFinder.find_spec(name, path) for name in ("pyspark", "dovetail")]
    return [sys.executable, sys.prefix, *(str(place and place.origin) for place in places)]


def fork_daemons(listener: int, load: Callable[[], None], steps: Iterator[str]) -> bool:
    """Be the interpreter that was started ahead: `load`, then fork a daemon for each that asks.

    Once the JVM has had time to boot, it takes one of the `steps` after the other while no daemon asks.
    Returns true in such a daemon, and false when the driver has ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, as PySpark has it
    ahead = _Ahead(socket.socket(fileno=listener), steps)
    load()
    return ahead.serve()


class _Ahead:
    """The interpreter that was started ahead: forks daemons, until the driver's end of its input closes."""

    def __init__(self, listener: socket.socket, steps: Iterator[str]) -> None:
        self._env = dict(os.environ)
        self._steps, self._rests_until = steps, time.monotonic() + _BOOT_S
        self._daemons: dict[int, socket.socket] = {}
        self._listener = listener

    def serve(self) -> bool:
        """Fork a daemon for each process that asks; true in such a daemon, false at the end."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._listener, select.POLLIN)
        wait = _LOOK_MS
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(wait)}
            wait = self._wait() if not ready else 0
            self._report_ends()
            if 0 in ready:
                shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)  # the driver may be killed
                return False
            if ready and self._fork():
                return True

    def _wait(self) -> int:
        """Take a step, if the JVM has had time to boot; milliseconds until the next."""
        left = self._rests_until - time.monotonic()
        if left > 0:
            return min(_LOOK_MS, int(left * 1e3) + 1)
        return _LOOK_MS if next(self._steps, None) is None else 0

    def _fork(self) -> bool:
        sock, _ = self._listener.accept()
        asked, descriptors = _received(sock)
        pid = os.fork() if asked is not None and self._is_alike(asked) else None
        if pid == 0 and asked is not None:
            for other in (sock, self._listener, *self._daemons.values()):
                other.close()
            _become(asked, descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        if pid is None:
            sock.close()
            return False
        self._daemons[pid] = sock
        with suppress(OSError):
            sock.sendall(b"\1")
        return False

    def _is_alike(self, asked: dict[str, Any]) -> bool:
        """Whether a new interpreter would read nothing else at its start than this one did."""
        theirs = {"OMP_NUM_THREADS": self._env["OMP_NUM_THREADS"]} | asked["env"]  # not set for those that plan
        return asked["process"] == _identity(asked["path"]) and _relevant(theirs) == _relevant(self._env)

    def _report_ends(self) -> None:
        for pid in list(self._daemons):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError), self._daemons.pop(pid) as sock:
                    sock.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))


def _received(sock: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """A daemon's message about itself, and its streams."""
    sock.settimeout(_LOOK_MS / 1e3)
    descriptors: list[int] = []
    try:
        head, descriptors, _, _ = socket.recv_fds(sock, 4, 3)
        return json.loads(_exactly(sock, *struct.unpack("<I", head))), descriptors
    except (OSError, ValueError, struct.error):
        return None, descriptors


def _become(asked: dict[str, Any], descriptors: list[int]) -> None:
    """Take over the streams and the environment of the process that asked."""
    import resource

    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv[:], sys.path[:] = asked["argv"], asked["path"]
    os.chdir(asked["cwd"])
    resource.setrlimit(resource.RLIMIT_NOFILE, asked["files"])


def _relevant(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name not in _OF_A_PROCESS and not name.startswith(_SPARKS_OWN)
    }


def _exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        piece = sock.recv(n - len(data))
        if not piece:
            raise OSError("the other side is gone")
        data += piece
    return data
