"""Rows that are not wanted: a row whose text is not the one asked for is taken back before it is complete."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.codes import (
    C_FILL,
    C_ROW_FILL,
    C_ROW_VALUES,
    C_START,
    C_VALUES,
    COL,
    COLUMN,
    COUNTS,
    DROPPED,
    ENDS,
    KEPT,
    N_COLUMNS,
    N_KEPT,
    N_ROWS,
    N_TEXT,
    N_XML,
    ROW_ROOM,
    RUN_START,
    RUN_STOP,
    VALUE_ROOM,
)
from dovetail.xml.kernels.names import same_bytes, word
from dovetail.xml.kernels.parts import called, inlined


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
    """Undo the row that is about to be complete; what is owed to its open values is owed no more."""
    for i in range(mem[N_COLUMNS]):
        column = mem[COLUMN] + COL * i
        mem[column + C_FILL] = mem[column + C_START] + mem[column + C_ROW_FILL]
        mem[column + C_VALUES] = mem[column + C_ROW_VALUES]
    mem[N_TEXT], mem[N_XML], mem[RUN_START] = 0, 0, mem[RUN_STOP]
    mem[DROPPED] += 1
