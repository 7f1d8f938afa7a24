"""One pass over a block of an XML document: checks that it is well-formed, and fills the columns of a request.

The scanner stops only between tokens (tags, stretches of text, comments, ...). A token that the block cuts off is left
for the next call, so that a caller who moves the rest to the front of the buffer and appends may cut anywhere.
Reference: Extensible Markup Language (XML) 1.0, fifth edition; Namespaces in XML 1.0, third edition.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.kernels.compile import register_warmup
from dovetail.xml.kernels.attributes import fault
from dovetail.xml.kernels.codes import (
    AT,
    BAD_MARKUP,
    BATCH_BYTES,
    FULL,
    HEAD,
    MORE,
    N_ROWS,
    NAME_ROOM,
    NAME_START,
    NAMED,
    PENDING_AT,
    ROW_ROOM,
    RUN_START,
    RUN_STOP,
    SLOT_MASK,
    SLOTS,
)
from dovetail.xml.kernels.elements import close_element, end_tag, start_tag
from dovetail.xml.kernels.markup import declaration, instruction, text
from dovetail.xml.kernels.names import numbered, rehashed
from dovetail.xml.kernels.output import flush
from dovetail.xml.kernels.parts import called, entry, inlined
from dovetail.xml.kernels.values import batch_bytes


@called
def _odd_markup(buf: U8, at: int, end: int, mem: I64, data: U8) -> int:
    """Where the markup at `at` that is not a tag ends, or an answer."""
    if at + 1 >= end:
        return MORE
    if buf[at + 1] == 33:
        return declaration(buf, at, end, mem, data)
    if buf[at + 1] == 63:
        return instruction(buf, at, end, mem, data)
    return fault(BAD_MARKUP, at, mem)


@inlined
def _token(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Where the token at `at` ends, or an answer."""
    if buf[at] != 60:
        return text(buf, at, end, mem, data)
    if NAME_START[buf[at + 1]]:
        stop = start_tag(buf, at, end, mem, book, data)
        if stop < 0 or buf[stop - 2] != 47:
            return stop
    elif buf[at + 1] == 47:
        stop = end_tag(buf, at, end, mem, book, data)
        if stop < 0:
            return stop
    else:
        return _odd_markup(buf, at, end, mem, data)
    close_element(buf, mem, book, data)
    return stop


@entry
def scanned(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Why the scan of `buf[at:end]` stopped (one of the answers); `mem[AT]` is where to go on.

    The byte `buf[end]` must be 0 and `buf` have 16 bytes more than `end`. `mem` holds the state and all tables (see
    `xml_codes`), `book` the bytes of names, `data` those of the columns. Rows are complete up to `mem[N_ROWS]`.
    """
    answer, rows = MORE, mem[N_ROWS]
    mem[RUN_START], mem[RUN_STOP], mem[PENDING_AT] = -1, -1, -1
    while at < end:
        answer = _token(buf, at, end, mem, book, data)
        if answer < 0:
            break
        at, answer = answer, MORE
        if mem[N_ROWS] != rows:
            rows = mem[N_ROWS]
            if rows >= mem[ROW_ROOM] or batch_bytes(mem) >= mem[BATCH_BYTES]:
                answer = FULL
                break
    flush(buf, mem, data)
    mem[AT] = at
    return answer


@register_warmup
def _warm() -> None:
    mem, book, sample = np.zeros(HEAD + 64, np.int64), np.zeros(64, np.uint8), np.zeros(17, np.uint8)
    mem[[NAMED, NAME_ROOM, SLOTS, SLOT_MASK]] = HEAD, 4, HEAD + 24, 7
    numbered(sample[:1], mem, book)
    mem[HEAD + 24 :] = 0
    rehashed(mem, book)
    scanned(sample, 0, 0, mem, book, sample)
