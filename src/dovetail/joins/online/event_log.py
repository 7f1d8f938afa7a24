"""What happens to the join of one bucket, as events; and lists of events as bytes, which are its state.

A state is pieces of events. Of settled pieces, which come first, only rows count: all their answers were given, and a
join takes them up without joining them again. The events of the others, the tail, are replayed in their order. A join
is deterministic: the same pieces make the same join.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import pyarrow as pa

from dovetail.errors import DataError

Kind = Literal["push", "idle", "settle", "finish", "budget"]
EPOCH = 3
"""Raised whenever a join gives other answers, or the same in another order, to the same pieces and events.

A tail that was written in another epoch is not replayed. `tests/online/frame/golden_log.py` says when to raise it.
"""
_LINE = 64  # payloads start where Arrow can use them in place


class Event(NamedTuple):
    """Rows of a side (`push`), `times` pauses of `units` units of work (`idle`), all owed pairs (`settle`), the end.

    `budget` raises the budget to `units` bytes, if it is smaller. `rows` is an Arrow record batch, without its schema.
    """

    kind: Kind
    side: int = 0
    units: int = 0
    times: int = 1
    rows: pa.Buffer | bytes = b""

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows of a push; `DataError` if the bytes are not rows of these columns."""
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(self.rows), schema)
            batch.validate()
        except (pa.ArrowInvalid, pa.ArrowIndexError, OSError, ValueError) as error:
            raise DataError(
                f"{len(memoryview(self.rows))} bytes that should be rows of columns {schema.names} cannot be read "
                f"({error}); the state or the exchange of this query is damaged: start it from an older checkpoint."
            ) from error
        return batch


class Piece(NamedTuple):
    """Events as bytes; of a settled piece only the rows count."""

    data: bytes | pa.Buffer
    settled: bool


def joined_pauses(events: Iterable[Event]) -> list[Event]:
    """The same events, pauses that follow each other as one event of several."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if last is not None and last.kind == event.kind == "idle" and last.units == event.units:
            found[-1] = last._replace(times=last.times + event.times)
        else:
            found.append(event)
    return found


def pack_events(events: Iterable[Event]) -> bytes:
    """Events as bytes."""
    listed = list(events)
    heads = [[e.kind, e.side, e.units, e.times, len(memoryview(e.rows))] for e in listed]
    text = json.dumps(heads).encode()
    parts: list[bytes | memoryview] = [struct.pack("<I", len(text)), text]
    at = 4 + len(text)
    for event in (e for e in listed if e.kind == "push"):
        parts += [b"\0" * (-at % _LINE), memoryview(event.rows)]
        at += -at % _LINE + len(memoryview(event.rows))
    return b"".join(parts)


def unpack_events(data: bytes | pa.Buffer) -> Iterator[Event]:
    """The events that `pack_events` was given; `DataError` if there are none such."""
    buffer = pa.py_buffer(data)
    try:
        (size,) = struct.unpack_from("<I", buffer)
        heads = json.loads(bytes(buffer[4 : 4 + size]))
        at = 4 + size
        for kind, side, units, times, length in heads:
            at += -at % _LINE if kind == "push" else 0
            yield Event(kind, side, units, times, buffer.slice(at, length))
            at += length
    except (struct.error, ValueError, TypeError, IndexError) as error:
        raise DataError(f"a piece of the state of {buffer.size} bytes cannot be read: {error}.") from error
