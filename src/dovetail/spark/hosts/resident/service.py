"""Calls of the values of the resident process, and the messages in which they and their results travel."""

from __future__ import annotations

import contextlib
import pickle
import select
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from dovetail.spark.hosts.pool import Closable, Pool

LOOK_S = 0.5
"""Between looks whether the process is still wanted."""
_MAGIC = 0x444F5632
Log = Callable[[], Iterable[Any]]
Answers = Generator[pa.Buffer, None, dict[str, Any]]


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


def serve(listener: socket.socket, wanted: Callable[[], bool]) -> None:
    """Serve every connection in a thread, while `wanted()`."""
    pool: Pool[Resident] = Pool()
    while wanted():
        if select.select([listener], [], [], LOOK_S)[0]:
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
