"""Starts the resident process, which workers call over a socket in a directory that only this user can enter.

It ends with the process that started it, and removes its directory. If it dies before that, the first worker that
notices has it started again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dovetail.spark.hosts.resident.service import LOOK_S, serve

ADDRESS = "DOVETAIL_RESIDENT"
_REVIVED_S = 10.0


class _Starter:
    """Starts the resident process, and starts it again if it has died; workers are forked from the starter."""

    def __init__(self, place: Path) -> None:
        self.address, self.starter, self._pid = place / "socket", os.getpid(), 0
        self._is_reviving = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Fork the process; it accepts connections when this returns."""
        with self._listener() as listener:
            self._pid = os.fork()
            if self._pid == 0:
                become_resident(listener, self.address.parent, self.starter)

    def _listener(self) -> socket.socket:
        self.address.parent.mkdir(mode=0o700, exist_ok=True)
        self.address.unlink(missing_ok=True)  # of one that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.address))
        listener.listen(256)
        return listener

    def revive(self, *_: Any) -> None:
        """Start the process if there is none. This handles a signal, which workers may send several times.

        A signal may arrive while this process forks a worker and holds locks that another fork would wait for. So the
        resident process is a new interpreter, whose start takes none of these locks.
        """
        if self._is_reviving:
            return
        self._is_reviving = True
        try:
            with contextlib.suppress(OSError):  # the starter continues without it
                if not self._is_alive():
                    self._spawn()
        finally:
            self._is_reviving = False

    def _spawn(self) -> None:
        with self._listener() as listener:
            # Not with -m: the module would be __main__, and pickled classes would not be found.
            call = f"resident_from({listener.fileno()}, {str(self.address.parent)!r}, {self.starter})"
            self._process = subprocess.Popen(  # noqa: S603  (our own module)
                [sys.executable, "-c", f"from {__name__} import resident_from; {call}"],
                pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self._pid = self._process.pid

    def _is_alive(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def ask_for(self) -> bool:
        """Ask the starter, from a process that it forked, for a resident process; whether there is one now."""
        if os.getppid() != self.starter:
            return False
        os.kill(self.starter, signal.SIGUSR1)
        end = time.monotonic() + _REVIVED_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(str(self.address))
                return True
            time.sleep(LOOK_S / 10)
        return False


_STARTER: _Starter | None = None


def start() -> str | None:
    """Fork the resident process; returns its address, also in the environment. None if the platform has no fork.

    Call it in the main thread, before there are others. This process starts it again at a SIGUSR1 if it has died.
    """
    global _STARTER
    if not hasattr(os, "fork") or not hasattr(socket, "AF_UNIX"):
        return None
    _STARTER = _Starter(Path(tempfile.mkdtemp(prefix="dovetail-resident-")))
    _STARTER.start()
    signal.signal(signal.SIGUSR1, _STARTER.revive)
    os.environ[ADDRESS] = str(_STARTER.address)
    return os.environ[ADDRESS]


def revived() -> bool:
    """Whether there is a resident process again after one has died; false if this process has no starter."""
    return _STARTER is not None and _STARTER.ask_for()


def resident_from(listener: int, place: str, parent: int) -> None:
    """Run the resident process in a new interpreter, on a socket that it inherits."""
    become_resident(socket.socket(fileno=listener), Path(place), parent)


def become_resident(listener: socket.socket, place: Path, parent: int) -> None:
    """Serve, then exit without returning to the code of the parent."""
    code = 1
    try:
        os.setsid()  # signals to the parent's group do not reach us
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):  # the parent's handlers end its workers
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        serve(listener, lambda: os.getppid() == parent)
        code = 0
    finally:
        shutil.rmtree(place, ignore_errors=True)
        atexit._run_exitfuncs()  # spill files go
        os._exit(code)
