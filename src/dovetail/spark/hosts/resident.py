"""Resident host: keeps values in an executor between tasks.

A `Pool` keeps values in a process: values that a Python worker keeps for its own next task, such as caches, and values
of the resident process, which any worker of the machine calls. A value is disposable: one that is lost is rebuilt from
the stored state.

Workers call the resident process over a socket in a directory that only this user can enter. The process ends with the
process that started it, and removes its directory. If it dies before that, the first worker that notices has it started
again.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import pickle
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
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import psutil  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa

from dovetail import errors
from dovetail.engine.storage.spool import HeldBytes
from dovetail.errors import DovetailError

ADDRESS = "DOVETAIL_RESIDENT"
IDLE_S = 600.0
LOADED_BYTES = 64 << 20
"""Kernels and libraries that the first value loads; DINER has 60 MB of them. They are no part of a limit on values."""
_HELD_BYTES = 16 << 20
_LOOK_S = 0.5
_REVIVED_S = 10.0
_MAGIC = 0x444F5632
Log = Callable[[], Iterable[Any]]
Answers = Generator[pa.Buffer, None, dict[str, Any]]


class Closable(Protocol):
    """A value that a pool can keep, and closes when it is no longer needed."""

    def close(self) -> None:
        """Free memory and files."""
        ...


class Resident(Closable, Protocol):
    """A value of the resident process."""

    def take_up(self, pieces: Iterable[Any]) -> None:
        """Restore the state from its pieces."""
        ...

    def work(self, what: Any, is_new: bool) -> Answers:
        """The results of a call, as bytes, and at last its report; `is_new` if the state was just restored."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the value should be rebuilt for the next call."""
        ...


class ResidentCall(NamedTuple):
    """A call of the value that is kept under the stamp `before`, and is kept under `after` afterwards; can be pickled.

    Every stored state has a stamp of its own, so that a value with state that was never stored is not found. With an
    empty `after` the value is not kept. Beyond `most` bytes of the process, values that are not in use are closed.
    """

    name: str
    before: str
    after: str
    make: Callable[[], Resident]
    what: Any
    most: int | None = None


V = TypeVar("V", bound=Closable)


class _Kept(NamedTuple, Generic[V]):
    stamp: str
    at: float
    value: V


def _close_all(values: Iterable[Closable]) -> None:
    for value in values:
        value.close()


class Pool(Generic[V]):
    """Values by name, each with the stamp of its state; the caller owns a value that it takes. Thread-safe.

    Of more than `most` values, the least recently used one is closed.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[str, _Kept[V]] = {}
        self._lock = threading.Lock()
        self._allowed = _private_bytes() + LOADED_BYTES

    def make_room(self, most: int | None) -> None:
        """Close the least recently used values until all that the process holds for values is at most `most` bytes.

        It is measured: a budget that a value reserved, and did not yet use, takes no memory.
        """
        while most is not None and _private_bytes() - self._allowed > most:
            with self._lock:
                gone = [self._kept.pop(next(iter(self._kept))).value] if self._kept else []
            if not gone:
                return
            _close_all(gone)
            gone.clear()
            _give_back()

    def take(self, name: str, stamp: str = "") -> V | None:
        """The value of this name and stamp, if there is one; a value with another stamp is closed."""
        with self._lock:
            found = self._kept.pop(name, None)
        if found is None or found.stamp == stamp:
            return None if found is None else found.value
        found.value.close()
        return None

    def keep(self, name: str, value: V, stamp: str = "") -> None:
        """Keep a value; another value of that name is closed."""
        with self._lock:
            gone = [self._kept.pop(name).value] if name in self._kept else []
            self._kept[name] = _Kept(stamp, time.monotonic(), value)
            while self._most is not None and len(self._kept) > self._most:
                gone.append(self._kept.pop(next(iter(self._kept))).value)
        _close_all(gone)

    def forget_idle(self, idle_s: float = IDLE_S) -> None:
        """Close values that were not used for `idle_s` seconds."""
        now = time.monotonic()
        with self._lock:
            names = [name for name, kept in self._kept.items() if now - kept.at > idle_s]
            gone = [self._kept.pop(name).value for name in names]
        _close_all(gone)

    def close(self) -> None:
        """Close every value."""
        self.forget_idle(-1.0)


def _private_bytes() -> int:
    """Memory of this process that is no file's."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


def _give_back() -> None:
    """Return the memory of closed values to the system, which allocators would keep for the next ones."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library than GNU's
            ctypes.CDLL(None).malloc_trim(0)


def run_in(pool: Pool[Resident], call: ResidentCall, log: Log) -> Answers:
    """The results of a call in this process, and its report; `log` gives the pieces of the state, if needed."""
    found = pool.take(call.name, call.before)
    value = found or call.make()
    try:
        if found is None:
            value.take_up(log())
        pool.make_room(call.most)
        report = yield from value.work(call.what, found is None)
    except BaseException:
        value.close()
        raise
    if call.after and not value.is_over:
        pool.keep(call.name, value, call.after)
    else:
        value.close()
    pool.make_room(call.most)
    return report | {"replayed": found is None}


# ---------------------------------------------------------------------- workers

_POOL: Pool[Resident] = Pool()
_CONNECTIONS: dict[str, socket.socket] = {}


def run_call(call: ResidentCall, log: Log, in_order: bool = True) -> Answers:
    """As `run_in`, in the resident process if there is one.

    If it dies meanwhile, the call is repeated in the next resident process, and in this process if that one dies too. A
    rebuilt value gives the same results. With `in_order` it gives them in the same order, and those that were already
    returned are skipped. Else results are held back, on disk if they are large, until the call is complete.
    """
    given, address = 0, os.environ.get(ADDRESS, "")
    for is_first in (True, False) if address else ():
        try:
            answers = _remote(address, call, log)
            answers = _without(answers, given) if in_order else _held_back(answers)
            while True:
                try:
                    answer = next(answers)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # the report
                yield answer
                given += 1
        except (ResidentGone, OSError):
            _disconnect(address)
            if given and not in_order:
                raise  # the call was complete: the disk that held its results failed
            if not is_first or not revived():
                break
        except BaseException:
            _disconnect(address)  # the rest of an unfinished call must not be read as the next one
            raise
    _POOL.forget_idle()
    return (yield from _without(run_in(_POOL, call, log), given))


def _without(answers: Answers, n: int) -> Answers:
    """The results after the first `n`."""
    while True:
        try:
            answer = next(answers)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the report
        if n:
            n -= 1
        else:
            yield answer


def _held_back(answers: Answers) -> Answers:
    """The same results, once all of them have arrived."""
    with HeldBytes(_HELD_BYTES, name="answers") as held:
        kept = []
        while True:
            try:
                kept.append(held.keep(next(answers)))
            except StopIteration as end:
                report: dict[str, Any] = end.value
                break
        for answer in kept:
            yield held.read(answer)
    return report


def _remote(address: str, call: ResidentCall, log: Log) -> Answers:
    sock = _connected(address)
    send(sock, call)
    while True:
        kind, value = receive(sock)
        if kind == "answer":
            yield value
        elif kind == "log":
            for piece in log():
                send(sock, piece)
            send(sock, None)
        elif kind == "error":
            raise error_of(*value)
        else:
            return value  # type: ignore[no-any-return]  # a report


def _connected(address: str) -> socket.socket:
    if address not in _CONNECTIONS:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(address)
        _CONNECTIONS[address] = sock
    return _CONNECTIONS[address]


def _disconnect(address: str) -> None:
    sock = _CONNECTIONS.pop(address, None)
    if sock is not None:
        sock.close()


def error_of(name: str, message: str) -> Exception:
    """The error of the resident process, as the class that it had there."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, DovetailError):
        return kind(message)
    return RuntimeError(f"{name} in the resident process: {message}")


# ---------------------------------------------------------------------- messages


class ResidentGone(ConnectionError):  # noqa: N818  (callers handle it; it is no failure)
    """The resident process does not answer, or there is none."""


def send(sock: socket.socket, message: Any) -> None:
    """Send one message; its buffers are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    views = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    sizes = [view.nbytes for view in views]
    sock.sendall(struct.pack(f"<II{len(sizes)}Q", _MAGIC, len(sizes), *sizes))
    for view in views:
        if view.nbytes:
            sock.sendall(view)


def receive(sock: socket.socket) -> Any:
    """The next message; `ResidentGone` at the end of the stream."""
    magic, n = struct.unpack("<II", _exactly(sock, 8))
    if magic != _MAGIC:
        raise ResidentGone("the bytes are not a message")
    sizes = struct.unpack(f"<{n}Q", _exactly(sock, 8 * n))
    head, *buffers = (_exactly(sock, size) for size in sizes)
    return pickle.loads(head, buffers=buffers)  # noqa: S301  (from a process of this user, by a socket of its own)


def _exactly(sock: socket.socket, n: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(n)
    view, at = memoryview(buffer), 0
    while at < n:
        got = sock.recv_into(view[at:])
        if got == 0:
            raise ResidentGone("the other side is gone")
        at += got
    return buffer


# ---------------------------------------------------------------------- the process, and its starter


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
            time.sleep(_LOOK_S / 10)
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


def serve(listener: socket.socket, wanted: Callable[[], bool]) -> None:
    """Serve every connection in a thread, while `wanted()`."""
    pool: Pool[Resident] = Pool()
    while wanted():
        if select.select([listener], [], [], _LOOK_S)[0]:
            connection, _ = listener.accept()
            threading.Thread(target=_serve_one, args=(connection, pool), daemon=True).start()
        pool.forget_idle()
    pool.close()


def _serve_one(sock: socket.socket, pool: Pool[Resident]) -> None:
    with sock, contextlib.suppress(OSError):
        while True:
            _serve_call(sock, pool, receive(sock))


def _serve_call(sock: socket.socket, pool: Pool[Resident], call: ResidentCall) -> None:
    answers = run_in(pool, call, lambda: _fetched(sock))
    try:
        while True:
            try:
                answer = next(answers)
            except StopIteration as end:
                send(sock, ("done", end.value))
                return
            send(sock, ("answer", answer))
    except OSError:
        raise
    except Exception as error:  # any error is sent to the calling worker
        send(sock, ("error", (type(error).__name__, str(error))))
    finally:
        answers.close()


def _fetched(sock: socket.socket) -> Iterator[Any]:
    """The pieces of the state, requested from the worker."""
    send(sock, ("log", None))
    while (piece := receive(sock)) is not None:
        yield piece
