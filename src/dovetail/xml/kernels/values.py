"""Rows and values that begin at a start tag."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.bindings import put_bindings
from dovetail.xml.kernels.chars import copied, rewritten
from dovetail.xml.kernels.codes import (
    A_NUMBER,
    A_START,
    A_STOP,
    A_URI,
    AGAIN,
    AS_VALUE,
    ATTR,
    ATTRIBUTE,
    ATTRIBUTE_OPENS,
    C_FILL,
    C_KIND,
    C_MANY,
    C_START,
    C_VALUES,
    COL,
    COLUMN,
    COUNTS,
    FIRST,
    FIRST_ATTRIBUTE,
    FLAGGED,
    MATCH,
    N_ATTRIBUTES,
    N_COLUMNS,
    N_DEPTH,
    N_KEPT,
    N_ROWS,
    N_TEXT,
    N_XML,
    NAME_BYTE,
    OPEN_TEXT,
    OPEN_XML,
    OPENS,
    PLAIN,
    ROW_OPEN,
    ROW_ROOM,
    TEXT_KIND,
    W_LOCAL,
    WORD,
    XML_VALUE,
    XMLNS_URI,
)
from dovetail.xml.kernels.names import word
from dovetail.xml.kernels.output import finish_value, flush
from dovetail.xml.kernels.parts import called, inlined, small
from dovetail.xml.kernels.rows import begin_row


@called
def put_start(buf: U8, at: int, low: int, number: int, mem: I64, book: U8, data: U8) -> None:
    """Write a start tag up to its '>', with the declarations from binding `low` on that are news (all of them at 0)."""
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
        for i in range(mem[N_COLUMNS] + 1):
            mem[mem[COUNTS] + mem[ROW_ROOM] * i + mem[N_ROWS]] = 0
        if mem[N_KEPT]:
            begin_row(mem)
    if flags & AGAIN:
        mem[mem[COUNTS] + mem[ROW_ROOM] * mem[N_COLUMNS] + mem[N_ROWS]] += 1
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
