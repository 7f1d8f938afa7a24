"""Arrow record-batch messages that lie one after the other in a buffer: where their columns are, and columns joined.

A message is a prefix of eight bytes, a flatbuffer with the places of all buffers, and the buffers. Messages of one
schema have their buffers in the same order, so that a column of many messages is one loop over them.
Reference: the Arrow columnar format, encapsulated message format; the flatbuffers internals page.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, AnyArray
from dovetail.engine.kernels.compile import kernel, register_warmup

_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
NONE = -1
_LENGTH, _NODES, _BUFFERS, _COMPRESSION = range(4)


class Parts(NamedTuple):
    """Rows of each message, and the first of them; its nulls by column; the place and the bytes of its buffers."""

    rows: I64
    first: I64
    nulls: I64
    place: I64
    nbytes: I64


def empty_parts(messages: int, columns: int, buffers: int) -> Parts:
    """Room for this number of messages."""
    shapes = (messages,), (messages,), (messages, columns), (messages, buffers), (messages, buffers)
    return Parts(*(np.empty(shape, np.int64) for shape in shapes))


def single_rows(parts: Parts, rows: I64) -> Parts:
    """The parts of single rows, numbered through all messages; nulls are those of the whole message."""
    stops = np.cumsum(parts.rows)
    message = np.searchsorted(stops, rows, side="right")
    first = rows - (stops - parts.rows)[message]
    found = np.ones(len(rows), np.int64), first, parts.nulls[message], parts.place[message], parts.nbytes[message]
    return Parts(*(np.ascontiguousarray(each) for each in found))


@kernel
def _number(data: U8, at: int, width: int) -> int:
    """An unsigned little-endian number."""
    value = np.int64(0)
    for i in range(width):
        value |= np.int64(data[at + i]) << (8 * i)
    return value  # type: ignore[return-value]  # a number in a kernel


@kernel
def _field(data: U8, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if the table has it not."""
    vtable: int = table - np.int64(np.int32(_number(data, table, 4)))  # type: ignore[assignment]  # as above
    entry = 4 + 2 * number
    if entry >= _number(data, vtable, 2):
        return 0
    offset = _number(data, vtable + entry, 2)
    return table + offset if offset else 0


@kernel
def _followed(data: U8, at: int) -> int:
    return at + _number(data, at, 4)


@kernel
def message_parts(data: U8, starts: I64, stops: I64, parts: Parts) -> bool:
    """Whether all these are record batches of as many columns and buffers, not compressed; `parts` is then filled."""
    for message in range(len(starts)):
        start, stop = starts[message], stops[message]
        if stop - start < 16 or _number(data, start, 4) != 0xFFFFFFFF:
            return False
        body = start + 8 + _number(data, start + 4, 4)
        table = _followed(data, start + 8)
        kind, header = _field(data, table, _HEADER_TYPE), _field(data, table, _HEADER)
        if body > stop or kind == 0 or header == 0 or data[kind] != _RECORD_BATCH:
            return False
        batch = _followed(data, header)
        length, nodes, buffers = (
            _field(data, batch, _LENGTH),
            _field(data, batch, _NODES),
            _field(data, batch, _BUFFERS),
        )
        if _field(data, batch, _COMPRESSION) != 0 or nodes == 0 or buffers == 0:
            return False
        parts.rows[message], parts.first[message] = _number(data, length, 8) if length else 0, 0
        if not _places(data, _followed(data, nodes), _followed(data, buffers), body, stop, message, parts):
            return False
    return True


@kernel
def _places(data: U8, nodes: int, buffers: int, body: int, stop: int, message: int, parts: Parts) -> bool:
    n_columns, n_buffers = parts.nulls.shape[1], parts.place.shape[1]
    if _number(data, nodes, 4) != n_columns or _number(data, buffers, 4) != n_buffers:
        return False
    for column in range(n_columns):
        node = nodes + 4 + 16 * column
        if _number(data, node, 8) != parts.rows[message]:
            return False
        parts.nulls[message, column] = _number(data, node + 8, 8)
    for buffer in range(n_buffers):
        place = buffers + 4 + 16 * buffer
        at, nbytes = body + _number(data, place, 8), _number(data, place + 8, 8)
        if at < body or nbytes < 0 or at + nbytes > stop:
            return False
        parts.place[message, buffer], parts.nbytes[message, buffer] = at, nbytes
    return True


@kernel
def _copy(source: U8, target: U8) -> None:
    for at in range(len(target)):
        target[at] = source[at]


@kernel
def _moved(words: AnyArray, by: int, out: AnyArray) -> bool:
    """Whether the offsets ascend; all but the first are written, this much higher."""
    falls = 0
    for at in range(len(out)):
        falls += words[at + 1] < words[at]
        out[at] = words[at + 1] + by
    return falls == 0


@kernel
def joined_values(data: U8, parts: Parts, buffer: int, width: int, out: U8) -> bool:
    """Whether every message has the values of its rows, `width` bytes each; they are written one after the other."""
    to = 0
    for message in range(len(parts.rows)):
        size, before = parts.rows[message] * width, parts.first[message] * width
        if parts.nbytes[message, buffer] < before + size:
            return False
        at = parts.place[message, buffer] + before
        _copy(data[at : at + size], out[to : to + size])
        to += size
    return True


@kernel
def joined_bits(data: U8, parts: Parts, buffer: int, out: U8) -> bool:
    """Whether every message has a bit for each of its rows, or none at all, which stands for ones; `out` has zeros."""
    to = 0
    for message in range(len(parts.rows)):
        nbytes, at, first = parts.nbytes[message, buffer], parts.place[message, buffer], parts.first[message]
        if nbytes and 8 * nbytes < first + parts.rows[message]:
            return False
        for row in range(first, first + parts.rows[message]):
            if nbytes == 0 or (data[at + (row >> 3)] >> (row & 7)) & 1:
                out[to >> 3] |= np.uint8(1 << (to & 7))
            to += 1
    return True


@kernel
def _ends(words: AnyArray, parts: Parts, buffer: int, message: int) -> tuple[int, int]:
    """The first and the last offset of a message's text; the last is -1 if offsets are not where they can be read."""
    width, rows, first = words.itemsize, parts.rows[message], parts.first[message]
    if rows == 0:
        return 0, 0
    if parts.nbytes[message, buffer] < (first + rows + 1) * width or parts.place[message, buffer] % width != 0:
        return 0, NONE
    at = parts.place[message, buffer] // width + first
    return words[at], words[at + rows]


@kernel
def text_bytes(words: AnyArray, parts: Parts, buffer: int) -> int:
    """Bytes of the text of all messages, whose offsets are in this buffer; -1 if one is amiss.

    `words` is all the memory as offsets.
    """
    total = 0
    for message in range(len(parts.rows)):
        first, last = _ends(words, parts, buffer, message)
        if first < 0 or last < first or last > parts.nbytes[message, buffer + 1]:
            return NONE
        total += last - first
    return total


@kernel
def joined_text(data: U8, words: AnyArray, parts: Parts, buffer: int, offsets: AnyArray, out: U8) -> bool:
    """Whether offsets ascend in every message; they, from 0 on, and the text are written message by message."""
    row, to = 0, 0
    offsets[0] = 0
    for message in range(len(parts.rows)):
        at = parts.place[message, buffer] // words.itemsize + parts.first[message]
        text = parts.place[message, buffer + 1]
        first, last = _ends(words, parts, buffer, message)
        n = parts.rows[message]
        if not _moved(words[at : at + n + 1], to - first, offsets[row + 1 : row + 1 + n]):
            return False
        _copy(data[text + first : text + last], out[to : to + last - first])
        row += n
        to += last - first
    return True


@register_warmup
def _warm() -> None:
    data = np.zeros(64, np.uint8)
    data.flags.writeable = False
    parts, one = empty_parts(1, 1, 2), np.zeros(1, np.int64)
    one.flags.writeable = False
    message_parts(data, one, one, parts)
    for array in parts:
        array[...] = 0
    joined_values(data, parts, 0, 8, np.empty(8, np.uint8))
    joined_bits(data, parts, 0, np.zeros(8, np.uint8))
    for kind in (np.int32, np.int64):
        text_bytes(data.view(kind), parts, 0)
        joined_text(data, data.view(kind), parts, 0, np.empty(1, kind), np.empty(0, np.uint8))
