"""Rows and values: columns of text, and of serialised XML as stretches of the source and what replaces them.

A row begins and ends with an element on the path. A row whose text is not the one asked for is taken back before it is
complete.
"""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.attributes import put_bindings
from dovetail.xml.kernels.codes import (
    A_NUMBER,
    A_START,
    A_STOP,
    A_URI,
    AS_CDATA,
    AS_VALUE,
    ATTR,
    ATTRIBUTE,
    ATTRIBUTE_OPENS,
    C_FILL,
    C_KIND,
    C_MANY,
    C_ROW_FILL,
    C_ROW_VALUES,
    C_START,
    C_STOP,
    C_VALUES,
    COL,
    COLUMN,
    COUNTS,
    DECODE,
    DROPPED,
    ENDS,
    ESCAPE,
    FIRST,
    FIRST_ATTRIBUTE,
    FLAGGED,
    KEPT,
    MATCH,
    N_ATTRIBUTES,
    N_COLUMNS,
    N_DEPTH,
    N_KEPT,
    N_ROWS,
    N_TEXT,
    N_XML,
    NAME_BYTE,
    NEEDED,
    OPEN_TEXT,
    OPEN_XML,
    OPENS,
    OUTPUT,
    PENDING,
    PENDING_AT,
    PLAIN,
    ROOM,
    ROW_OPEN,
    ROW_ROOM,
    RUN_START,
    RUN_STOP,
    TEXT_KIND,
    VALUE_ROOM,
    W_LOCAL,
    WORD,
    XML_TEXT,
    XML_VALUE,
    XMLNS_URI,
    called,
    inlined,
    small,
)
from dovetail.xml.kernels.names import copied, rewritten, same_bytes, word

_PLENTY = 1 << 62


@small
def open_column(which: int, i: int, mem: I64) -> int:
    """Where the record of the i-th column lies that has an open value (`which` is OPEN_TEXT or OPEN_XML)."""
    return mem[COLUMN] + COL * mem[mem[which] + 2 * i]  # type: ignore[no-any-return]  # a number of the array


@called
def flush(buf: U8, mem: I64, data: U8) -> None:
    """Write the pending stretch of source bytes to the open XML values."""
    start, stop = mem[RUN_START], mem[RUN_STOP]
    if start < stop:
        for i in range(mem[N_XML]):
            column = open_column(OPEN_XML, i, mem)
            mem[column + C_FILL] = copied(buf, start, stop, data, mem[column + C_FILL])
        mem[RUN_START] = stop


@small
def extend(buf: U8, start: int, stop: int, mem: I64, data: U8) -> None:
    """Make these source bytes pending for the open XML values; bytes side by side are one stretch."""
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
    """Whether each column has room for `needed` more bytes; they count as used. If not, the answer is OUTPUT."""
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


@inlined
def begin_row(mem: I64) -> None:
    """Note how far each column is filled, so that the row can be taken back."""
    for i in range(mem[N_COLUMNS]):
        column = mem[COLUMN] + COL * i
        mem[column + C_ROW_FILL] = mem[column + C_FILL] - mem[column + C_START]
        mem[column + C_ROW_VALUES] = mem[column + C_VALUES]


@inlined
def _is_other(number: int, wanted: int, mem: I64, book: U8, data: U8) -> bool:
    """Whether the one value of this column in this row differs from the wanted string."""
    column = mem[COLUMN] + COL * number
    ends = mem[ENDS] + mem[VALUE_ROOM] * number + mem[column + C_ROW_VALUES]
    at, n = mem[word(wanted, mem)], mem[ends + 1] - mem[ends]
    if mem[word(wanted + 1, mem)] - at != n:
        return True
    return not same_bytes(data, mem[column + C_START] + mem[ends], book, at, n)


@called
def is_wanted(mem: I64, book: U8, data: U8) -> bool:
    """Whether the row that is about to be complete has the wanted texts, or several where one is allowed.

    Several texts may be an error, which is not found here: such a row stays.
    """
    for k in range(mem[N_KEPT]):
        number, wanted = mem[mem[KEPT] + 2 * k], mem[mem[KEPT] + 2 * k + 1]
        count = mem[mem[COUNTS] + mem[ROW_ROOM] * number + mem[N_ROWS]]
        if count > 1:
            return True
        if count == 0 or _is_other(number, wanted, mem, book, data):
            return False
    return True


@called
def take_back(mem: I64) -> None:
    """Undo the row that is about to be complete. Its open values get no further bytes."""
    for i in range(mem[N_COLUMNS]):
        column = mem[COLUMN] + COL * i
        mem[column + C_FILL] = mem[column + C_START] + mem[column + C_ROW_FILL]
        mem[column + C_VALUES] = mem[column + C_ROW_VALUES]
    mem[N_TEXT], mem[N_XML], mem[RUN_START] = 0, 0, mem[RUN_STOP]
    mem[DROPPED] += 1


@called
def put_start(buf: U8, at: int, low: int, number: int, mem: I64, book: U8, data: U8) -> None:
    """Write a start tag up to its '>', with the declarations that bindings from `low` on need (all of them at 0)."""
    column, stop = mem[COLUMN] + COL * number, at + 1
    while NAME_BYTE[buf[stop]]:
        stop += 1
    to = copied(buf, at, stop, data, mem[column + C_FILL])
    to = put_bindings(low, mem, book, data, to)
    for i in range(mem[N_ATTRIBUTES]):
        row = mem[ATTRIBUTE] + ATTR * i
        if mem[row + A_URI] == XMLNS_URI:
            continue
        name = word(mem[row + A_NUMBER], mem)
        data[to] = 32
        to = copied(book, mem[name], mem[name + WORD], data, to + 1)
        data[to], data[to + 1] = 61, 34
        to = rewritten(buf, mem[row + A_START], mem[row + A_STOP], AS_VALUE, XML_VALUE, data, to + 2)
        data[to] = 34
        to += 1
    mem[column + C_FILL] = to


@small
def _counted(number: int, mem: I64) -> bool:
    """Whether another value of this column in this row is to be written; it is counted in any case."""
    at = mem[COUNTS] + mem[ROW_ROOM] * number + mem[N_ROWS]
    mem[at] += 1
    return bool(mem[at] == 1 or mem[mem[COLUMN] + COL * number + C_MANY])


@small
def _opened(which: int, count: int, number: int, mem: I64) -> None:
    """Note that this column has an open value, to be complete with the innermost element."""
    at = mem[which] + 2 * mem[count]
    mem[at], mem[at + 1] = number, mem[N_DEPTH] - 1
    mem[count] += 1


@inlined
def open_values(buf: U8, at: int, status: int, mem: I64, book: U8, data: U8) -> None:
    """Begin the row, and the values, that this element opens."""
    flags = mem[mem[FLAGGED] + status]
    if flags & MATCH:
        mem[ROW_OPEN] = 1
        for i in range(mem[N_COLUMNS]):
            mem[mem[COUNTS] + mem[ROW_ROOM] * i + mem[N_ROWS]] = 0
        if mem[N_KEPT]:
            begin_row(mem)
    for k in range(mem[mem[FIRST] + status], mem[mem[FIRST] + status + 1]):
        number = mem[mem[OPENS] + k]
        if not _counted(number, mem):
            continue
        if mem[mem[COLUMN] + COL * number + C_KIND] == TEXT_KIND:
            _opened(OPEN_TEXT, N_TEXT, number, mem)
        else:
            flush(buf, mem, data)
            put_start(buf, at, 0, number, mem, book, data)
            _opened(OPEN_XML, N_XML, number, mem)
    for k in range(mem[mem[FIRST_ATTRIBUTE] + status], mem[mem[FIRST_ATTRIBUTE] + status + 1]):
        _attribute_value(buf, mem[ATTRIBUTE_OPENS] + 3 * k, mem, data)


@inlined
def _attribute_value(buf: U8, wanted: int, mem: I64, data: U8) -> None:
    """Write the value of an attribute that is asked for, if this tag has it."""
    uri, local, number = mem[wanted], mem[wanted + 1], mem[wanted + 2]
    column = mem[COLUMN] + COL * number
    for i in range(mem[N_ATTRIBUTES]):
        row = mem[ATTRIBUTE] + ATTR * i
        if mem[row + A_URI] == uri and mem[word(mem[row + A_NUMBER], mem) + W_LOCAL] == local and _counted(number, mem):
            to = rewritten(buf, mem[row + A_START], mem[row + A_STOP], AS_VALUE, PLAIN, data, mem[column + C_FILL])
            mem[column + C_FILL] = to
            finish_value(number, mem)


@inlined
def batch_bytes(mem: I64) -> int:
    """Bytes of all columns that are filled, offsets included."""
    size = 0
    for i in range(mem[N_COLUMNS]):
        column = mem[COLUMN] + COL * i
        size += mem[column + C_FILL] - mem[column + C_START] + 4 * mem[column + C_VALUES]
    return size
