"""A process that keeps the joins of buckets while Python workers come and go.

Workers ask it over a socket in a directory that only this user can enter. A message is a JSON text and, after it, plain
bytes; rows are Arrow. The process ends when the one that started it does, and takes its directory with it. If it dies
before that, the first worker that finds it gone has it started again.
"""

from __future__ import annotations

import atexit
import contextlib
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
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail import errors
from dovetail.errors import DovetailError
from dovetail.joins.online.event_log import Event, Piece
from dovetail.joins.online.resident.pool import Pool

ADDRESS = "DOVETAIL_ONLINE_HOST"
_LOOK_S = 0.5
_REVIVED_S = 10.0
_MAGIC = 0x444F5631


class HostGone(ConnectionError):  # noqa: N818  (a state of affairs, which callers handle)
    """The host does not answer any more, or there is none."""


def send(sock: socket.socket, head: dict[str, Any], buffers: Sequence[pa.Buffer | bytes] = ()) -> None:
    """One message."""
    views = [memoryview(buffer) for buffer in buffers]
    text = json.dumps([head, [view.nbytes for view in views]]).encode()
    sock.sendall(struct.pack("<II", _MAGIC, len(text)) + text)
    for view in views:
        if view.nbytes:
            sock.sendall(view)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[pa.Buffer]]:
    """The next message; `HostGone` at the end of all."""
    magic, size = struct.unpack("<II", _exactly(sock, 8))
    if magic != _MAGIC:
        raise HostGone("what came is not a message")
    head, sizes = json.loads(_exactly(sock, size).to_pybytes())
    return head, [_exactly(sock, n) for n in sizes]


def _exactly(sock: socket.socket, n: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(n)
    view, at = memoryview(buffer), 0
    while at < n:
        got = sock.recv_into(view[at:])
        if got == 0:
            raise HostGone("the other side is gone")
        at += got
    return buffer


class _Resident:
    """The host, as the process that starts it and those forked from that one see it."""

    def __init__(self, place: Path) -> None:
        self.address, self.starter, self._pid = place / "host", os.getpid(), 0
        self._is_reviving = False
        self._host: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Fork the host; it can be reached when this returns."""
        with self._listener() as listener:
            self._pid = os.fork()
            if self._pid == 0:
                _become_host(listener, self.address.parent, self.starter)

    def _listener(self) -> socket.socket:
        self.address.parent.mkdir(mode=0o700, exist_ok=True)
        self.address.unlink(missing_ok=True)  # of one that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.address))
        listener.listen(256)
        return listener

    def revive(self, *_: Any) -> None:
        """Start the host if there is none: what the starter does at a signal, of which workers may send several.

        A signal may come while this process forks a worker, with locks held that another fork would wait for. So the
        host is a new interpreter: to start one takes none of these locks.
        """
        if self._is_reviving:
            return
        self._is_reviving = True
        try:
            with contextlib.suppress(OSError):  # the starter has more to do than this
                if not self._is_alive():
                    self._spawn()
        finally:
            self._is_reviving = False

    def _spawn(self) -> None:
        with self._listener() as listener:
            words = [str(listener.fileno()), str(self.address), str(self.starter)]
            self._host = subprocess.Popen(  # noqa: S603  (our own module)
                [sys.executable, "-m", "dovetail.joins.online.resident.process", *words],
                pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self._pid = self._host.pid

    def _is_alive(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def ask_for(self) -> bool:
        """Whether the starter has seen to it that there is a host, in a process that it has forked."""
        if os.getppid() != self.starter:
            return False
        os.kill(self.starter, signal.SIGUSR1)
        end = time.monotonic() + _REVIVED_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(str(self.address))
                return True
            time.sleep(_LOOK_S / 10)
        return False


_RESIDENT: _Resident | None = None


def start() -> str | None:
    """Fork the host and say where it listens, in the environment too; None if that is not possible here.

    To be called before there are threads, in the main one. This process forks it again at a SIGUSR1 if it has died.
    """
    global _RESIDENT
    if not hasattr(os, "fork") or not hasattr(socket, "AF_UNIX"):
        return None
    _RESIDENT = _Resident(Path(tempfile.mkdtemp(prefix="dovetail-online-")))
    _RESIDENT.start()
    signal.signal(signal.SIGUSR1, _RESIDENT.revive)
    os.environ[ADDRESS] = str(_RESIDENT.address)
    return os.environ[ADDRESS]


def revived() -> bool:
    """Whether there is a host again, after one was gone; false where nobody can start one."""
    return _RESIDENT is not None and _RESIDENT.ask_for()


def _become_host(listener: socket.socket, place: Path, parent: int) -> None:
    """Serve, then leave without returning to the code of the parent."""
    code = 1
    try:
        os.setsid()  # signals to the parent's group are not for us
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):  # those of the parent end its workers
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


def serve(listener: socket.socket, wanted: Any) -> None:
    """Answer everyone who connects, each in a thread, while `wanted()`."""
    pool = Pool()
    while wanted():
        if select.select([listener], [], [], _LOOK_S)[0]:
            connection, _ = listener.accept()
            threading.Thread(target=_serve_one, args=(connection, pool), daemon=True).start()
        pool.forget_idle()
    pool.close()


def _serve_one(sock: socket.socket, pool: Pool) -> None:
    with sock, contextlib.suppress(OSError):
        while True:
            head, buffers = receive(sock)
            _serve_turn(sock, pool, head, buffers)


def _serve_turn(sock: socket.socket, pool: Pool, head: dict[str, Any], buffers: list[pa.Buffer]) -> None:
    events = [Event(*fields)._replace(rows=rows) for fields, rows in zip(head["events"], buffers, strict=True)]
    names = (head["name"], head["before"], head["after"], head["join"])
    turn = pool.turn(*names, events, lambda: _fetched(sock), head["leaving"])
    try:
        while True:
            try:
                answer = next(turn)
            except StopIteration as end:
                send(sock, {"done": end.value})
                return
            send(sock, {"answer": True}, [answer])
    except OSError:
        raise
    except Exception as error:  # whatever it is, the worker that asked must hear of it
        send(sock, {"error": type(error).__name__, "message": str(error)})
    finally:
        turn.close()


def _fetched(sock: socket.socket) -> Iterator[Piece]:
    """The pieces of the state, which the worker has."""
    send(sock, {"log": True})
    while True:
        head, buffers = receive(sock)
        if head.get("end"):
            return
        yield Piece(buffers[0], head["settled"])


def error_of(name: str, message: str) -> Exception:
    """The error that the host had, as it would have been here."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, DovetailError):
        return kind(message)
    return RuntimeError(f"{name} in the process that hosts online joins: {message}")


if __name__ == "__main__":
    _become_host(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]).parent, int(sys.argv[3]))
