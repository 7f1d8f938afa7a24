"""What happens to the join of one bucket, as events; and lists of events as bytes, which are its state.

A state is pieces of events. Of settled pieces, which come first, only rows count: all their answers were given, and a
join takes them up without joining them again. The events of the others, the tail, are replayed in their order. A join
is deterministic: the same pieces make the same join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import pyarrow as pa

from dovetail.engine.packing import pack, unpack, unpack_rows

Kind = Literal["push", "idle", "settle", "finish", "budget"]
EPOCH = 4
"""Raised whenever a join gives other answers, or the same in another order, to the same pieces and events.

A tail that was written in another epoch is not replayed. `tests/online/frame/golden_log.py` says when to raise it.
"""


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
    """The events that `pack_events` was given; `DataError` if there are none such."""
    heads, parts = unpack(data)
    for (kind, side, units, times), rows in zip(heads, parts, strict=True):
        yield Event(kind, side, units, times, rows)
