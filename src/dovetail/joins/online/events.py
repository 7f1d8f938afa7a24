"""Events of a bucket: rows, pauses and ends in the order in which a join takes them, and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from dovetail.engine.rows.packing import pack, unpack, unpack_rows

Kind = Literal["push", "idle", "settle", "end", "finish", "budget"]
_PIECE = 32 << 20  # bytes of one stored value, apart from a single message that is larger


class Event(NamedTuple):
    """Rows of a side (`push`), `times` pauses of `units` units of work (`idle`), all owed pairs (`settle`), the end.

    `end` is that of one side, before or after its rows; `finish` is that of all.
    `budget` raises the budget to `units` bytes, if it is smaller. `rows` is an Arrow record batch, without its schema.
    """

    kind: Kind
    side: int = 0
    units: int = 0
    times: int = 1
    rows: pa.Buffer | bytes = b""

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows of a push; `DataError` if the bytes are not rows of these columns."""
        return unpack_rows(self.rows, schema)


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
    return pack([event[:4] for event in listed], [event.rows for event in listed])


def unpack_events(data: bytes | pa.Buffer) -> Iterator[Event]:
    """The inverse of `pack_events`; `DataError` if the bytes are not events."""
    heads, parts = unpack(data)
    for (kind, side, units, times), rows in zip(heads, parts, strict=True):
        yield Event(kind, side, units, times, rows)


def in_pieces(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Events in pieces of bounded size."""
    some: list[Event] = []
    size = 0
    for event in events:
        if some and size + len(memoryview(event.rows)) > _PIECE:
            yield some
            some, size = [], 0
        some.append(event)
        size += len(memoryview(event.rows))
    if some:
        yield some
