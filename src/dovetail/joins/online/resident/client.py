"""Turns of a bucket's join, wherever it lives: in the host process, or in this one where there is no host."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Sequence
from typing import Any

import pyarrow as pa

from dovetail.joins.online.event_log import Event
from dovetail.joins.online.resident.pool import Log, Pool
from dovetail.joins.online.resident.process import ADDRESS, HostGone, error_of, receive, revived, send

Turn = Generator[pa.Buffer, None, dict[str, Any]]
_HELD_BYTES = 16 << 20
_POOL = Pool()
_CONNECTIONS: dict[str, socket.socket] = {}


def run_turn(
    name: str,
    before: str,
    after: str,
    join: str,
    events: Sequence[Event],
    log: Log,
    leaving: int = 0,
    in_order: bool = True,
) -> Turn:
    """As `Pool.turn`, in the host if there is one.

    If the host dies on the way, the turn is repeated in the next one, and in this process if that dies too. A join that
    is made anew gives the same answers. With `in_order` it gives them in the same order, and those that were given are
    left out. Else some megabytes of answers are held back until the turn is complete; where there are more, the task
    fails if the host dies, so that Spark repeats it.
    """
    given = 0
    address = os.environ.get(ADDRESS, "")
    for is_first in (True, False) if address else ():
        try:
            turn = _hosted(address, name, before, after, join, events, log, leaving)
            turn = _skipped(turn, given) if in_order else _held_back(turn)
            while True:
                try:
                    answer = next(turn)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # what the turn returned
                yield answer
                given += 1
        except (HostGone, OSError) as error:
            _disconnect(address)
            if given and not in_order:
                raise RuntimeError(
                    "the process that keeps online joins died while it gave answers; Spark repeats the task, or start "
                    "the query again: it goes on from its checkpoint."
                ) from error
            if not is_first or not revived():
                break
        except BaseException:
            _disconnect(address)  # a turn that is not finished: what follows would be taken for the next one
            raise
    _POOL.forget_idle()
    return (yield from _skipped(_POOL.turn(name, before, after, join, events, log, leaving), given))


def _skipped(turn: Turn, n: int) -> Turn:
    while True:
        try:
            answer = next(turn)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the turn returned
        if n:
            n -= 1
        else:
            yield answer


def _held_back(turn: Turn) -> Turn:
    """The same answers, the first of them when the turn is complete or they are many bytes."""
    held: list[pa.Buffer] = []
    size = 0
    while True:
        try:
            answer = next(turn)
        except StopIteration as end:
            yield from held
            return end.value  # type: ignore[no-any-return]  # what the turn returned
        held.append(answer)
        size += answer.size
        if size > _HELD_BYTES:
            yield from held
            held = []


def _hosted(
    address: str, name: str, before: str, after: str, join: str, events: Sequence[Event], log: Log, leaving: int
) -> Turn:
    sock = _connected(address)
    heads = [[e.kind, e.side, e.units, e.times] for e in events]
    head = {"name": name, "before": before, "after": after, "join": join, "events": heads, "leaving": leaving}
    send(sock, head, [event.rows for event in events])
    while True:
        message, buffers = receive(sock)
        if message.get("answer"):
            yield buffers[0]
        elif message.get("log"):
            for piece in log():
                send(sock, {"settled": piece.settled}, [piece.data])
            send(sock, {"end": True})
        elif "error" in message:
            raise error_of(message["error"], message["message"])
        else:
            return message["done"]  # type: ignore[no-any-return]  # a JSON object


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
