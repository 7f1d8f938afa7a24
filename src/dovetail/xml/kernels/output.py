"""Columns that the scanner fills: text, and serialised XML as stretches of the source and what replaces them."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.chars import copied, rewritten
from dovetail.xml.kernels.codes import (
    AS_CDATA,
    C_FILL,
    C_START,
    C_STOP,
    C_VALUES,
    COL,
    COLUMN,
    DECODE,
    ENDS,
    ESCAPE,
    N_COLUMNS,
    N_TEXT,
    N_XML,
    NEEDED,
    OPEN_TEXT,
    OPEN_XML,
    OUTPUT,
    PENDING,
    PENDING_AT,
    PLAIN,
    ROOM,
    RUN_START,
    RUN_STOP,
    VALUE_ROOM,
    XML_TEXT,
)
from dovetail.xml.kernels.parts import called, inlined, small

_PLENTY = 1 << 62


@small
def open_column(which: int, i: int, mem: I64) -> int:
    """Where the record of the i-th column lies that has an open value (`which` is OPEN_TEXT or OPEN_XML)."""
    return mem[COLUMN] + COL * mem[mem[which] + 2 * i]  # type: ignore[no-any-return]  # a number of the array


@called
def flush(buf: U8, mem: I64, data: U8) -> None:
    """Write the stretch of source bytes that is owed to the open XML values."""
    start, stop = mem[RUN_START], mem[RUN_STOP]
    if start < stop:
        for i in range(mem[N_XML]):
            column = open_column(OPEN_XML, i, mem)
            mem[column + C_FILL] = copied(buf, start, stop, data, mem[column + C_FILL])
        mem[RUN_START] = stop


@small
def extend(buf: U8, start: int, stop: int, mem: I64, data: U8) -> None:
    """Owe these source bytes to the open XML values, together with those before if they lie side by side."""
    if start != mem[RUN_STOP]:
        if mem[RUN_START] < mem[RUN_STOP]:
            flush(buf, mem, data)
        mem[RUN_START] = start
    mem[RUN_STOP] = stop


@called
def write_constant(buf: U8, first: int, second: int, mem: I64, data: U8) -> None:
    """Write one or two bytes (a second of 0 is none) that the source does not have into the open XML values."""
    flush(buf, mem, data)
    for i in range(mem[N_XML]):
        column = open_column(OPEN_XML, i, mem)
        to = mem[column + C_FILL]
        data[to], data[to + 1] = first, second
        mem[column + C_FILL] = to + (2 if second else 1)


@small
def close_start_tag(buf: U8, mem: I64, data: U8) -> None:
    """Something follows inside the element, so its start tag ends here."""
    if mem[PENDING]:
        at = mem[PENDING_AT]
        if at >= 0:
            extend(buf, at, at + 1, mem, data)
        else:
            write_constant(buf, 62, 0, mem, data)
        mem[PENDING] = 0


@called
def _room(buf: U8, needed: int, mem: I64, data: U8) -> bool:
    flush(buf, mem, data)
    room = _PLENTY
    for i in range(mem[N_COLUMNS]):
        column = mem[COLUMN] + COL * i
        room = min(room, mem[column + C_STOP] - mem[column + C_FILL])
    mem[ROOM], mem[NEEDED] = room, needed
    return room >= needed


@small
def has_room(buf: U8, needed: int, mem: I64, data: U8) -> bool:
    """Whether each column has room for so many bytes more; they count as used. If not, the answer is OUTPUT."""
    if mem[ROOM] < needed and not _room(buf, needed, mem, data):
        return False
    mem[ROOM] -= needed
    return True


@called
def _put_slow(buf: U8, start: int, stop: int, source: int, mem: I64, data: U8) -> None:
    """Text with references, odd line ends or characters to escape, into every open value."""
    for i in range(mem[N_TEXT]):
        column = open_column(OPEN_TEXT, i, mem)
        mem[column + C_FILL] = rewritten(buf, start, stop, source, PLAIN, data, mem[column + C_FILL])
    flush(buf, mem, data)
    for i in range(mem[N_XML]):
        column = open_column(OPEN_XML, i, mem)
        mem[column + C_FILL] = rewritten(buf, start, stop, source, XML_TEXT, data, mem[column + C_FILL])


@inlined
def put_text(buf: U8, start: int, stop: int, source: int, flags: int, mem: I64, data: U8) -> int:
    """Add text to every open value; 0, or OUTPUT if there is no room (then nothing was written)."""
    if mem[N_TEXT] + mem[N_XML] == 0 or start == stop:
        return 0
    slow = flags & (DECODE | ESCAPE)
    if not has_room(buf, (stop - start) * (6 if slow else 1) + 16, mem, data):
        return OUTPUT
    if mem[N_XML]:
        close_start_tag(buf, mem, data)
    if slow:
        _put_slow(buf, start, stop, source, mem, data)
        return 0
    for i in range(mem[N_TEXT]):
        column = open_column(OPEN_TEXT, i, mem)
        mem[column + C_FILL] = copied(buf, start, stop, data, mem[column + C_FILL])
    if mem[N_XML]:
        extend(buf, start, stop, mem, data)
    return 0


@called
def put_markup(buf: U8, start: int, stop: int, mem: I64, data: U8) -> int:
    """Add a comment, or a part of an instruction, to every open XML value; 0 or OUTPUT."""
    if mem[N_XML] == 0:
        return 0
    if not has_room(buf, stop - start + 64, mem, data):
        return OUTPUT
    close_start_tag(buf, mem, data)
    flush(buf, mem, data)
    for i in range(mem[N_XML]):
        column = open_column(OPEN_XML, i, mem)
        mem[column + C_FILL] = rewritten(buf, start, stop, AS_CDATA, PLAIN, data, mem[column + C_FILL])
    return 0


@small
def finish_value(number: int, mem: I64) -> None:
    """The value of this column that was being written is complete."""
    column = mem[COLUMN] + COL * number
    values = mem[column + C_VALUES] + 1
    mem[column + C_VALUES] = values
    mem[mem[ENDS] + mem[VALUE_ROOM] * number + values] = mem[column + C_FILL] - mem[column + C_START]
