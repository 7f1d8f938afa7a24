"""Calls values of the resident process from a worker, or values of the worker itself if there is no such process."""

from __future__ import annotations

import os
import socket
from typing import Any

from dovetail import errors
from dovetail.engine.storage.spool import HeldBytes
from dovetail.errors import DovetailError
from dovetail.spark.hosts.pool import Pool
from dovetail.spark.hosts.resident.process import ADDRESS, revived
from dovetail.spark.hosts.resident.service import (
    Answers,
    Log,
    Resident,
    ResidentCall,
    ResidentGone,
    receive,
    run_in,
    send,
)

_HELD_BYTES = 16 << 20
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
