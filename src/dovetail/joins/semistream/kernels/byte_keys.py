"""Sorted keys: numbers searched for in blocks, and keys as byte strings that sort like the keys.

A key of several columns is the bytes of its parts one after the other. Numbers are eight bytes, highest first, with the
sign bit turned over. Text that more parts follow is escaped: a zero byte becomes 00 FF and the end is 00 00, so that
"a" sorts before "a\\0" and before "ab" whatever follows.

Numbers are searched for in blocks whose searches go step by step together. The steps of one search wait for each
other's memory; those of different searches do not. On 8 million keys a block of 64 searches takes a twelfth of the time
of as many searches one after the other (1.1 microseconds a key, then 0.09).
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, U8, Bool, int64s, raw_bytes
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import place

_SIGN = np.uint64(1 << 63)

_S8 = np.uint64(8)


@kernel
def _escaped_lengths(offsets: I64, data: U8, out: I64) -> None:
    for row in range(len(out)):
        zeros = 0
        for at in range(offsets[row], offsets[row + 1]):
            zeros += data[at] == 0
        out[row] = offsets[row + 1] - offsets[row] + zeros + 2


@kernel
def _put_numbers(numbers: I64, at: I64, out: U8) -> None:
    for row in range(len(numbers)):
        word = np.uint64(numbers[row]) ^ _SIGN
        for byte in range(7, -1, -1):
            out[at[row] + byte] = np.uint8(word & np.uint64(255))
            word >>= _S8


@kernel
def _put_text(offsets: I64, data: U8, escape: bool, at: I64, out: U8) -> None:
    for row in range(len(at)):
        place, length = at[row], offsets[row + 1] - offsets[row]
        zeros = 0
        for source in range(offsets[row], offsets[row + 1]):
            zeros += data[source] == 0
        if escape and zeros:
            _put_escaped(data, offsets[row], offsets[row + 1], place, out)
        else:  # the usual case, in a loop plain enough to run many bytes at once
            for byte in range(length):
                out[place + byte] = data[offsets[row] + byte]
        if escape:
            out[place + length + zeros] = 0
            out[place + length + zeros + 1] = 0


@kernel
def _put_escaped(data: U8, start: int, stop: int, place: int, out: U8) -> None:
    for source in range(start, stop):
        out[place] = data[source]
        place += 1
        if data[source] == 0:
            out[place] = 255
            place += 1


@kernel
def _order(left: U8, left_start: int, left_stop: int, right: U8, right_start: int, right_stop: int) -> int:
    length = min(left_stop - left_start, right_stop - right_start)
    for at in range(length):
        if left[left_start + at] != right[right_start + at]:
            return -1 if left[left_start + at] < right[right_start + at] else 1
    return (left_stop - left_start > length) - (right_stop - right_start > length)


@kernel
def _neighbours(offsets: I64, data: U8, out: I64) -> None:
    for row in range(len(out)):
        out[row] = _order(data, offsets[row + 1], offsets[row + 2], data, offsets[row], offsets[row + 1])


@kernel
def _last_not_above(fences: I64, fence_data: U8, offsets: I64, data: U8, out: I64) -> None:
    for row in range(len(out)):
        low, high = 0, len(fences) - 1  # the answer is low - 1 when they meet
        while low < high:
            middle = (low + high) // 2
            start, stop = fences[middle], fences[middle + 1]
            if _order(fence_data, start, stop, data, offsets[row], offsets[row + 1]) <= 0:
                low = middle + 1
            else:
                high = middle
        out[row] = low - 1


@kernel
def _above(picked: I64, fences: I64, fence_data: U8, offsets: I64, data: U8, out: Bool) -> None:
    for row in range(len(out)):
        start, stop = fences[picked[row]], fences[picked[row] + 1]
        out[row] = _order(data, offsets[row], offsets[row + 1], fence_data, start, stop) > 0


def escaped_lengths(offsets: I64, data: U8) -> I64:
    """For each text the bytes that it takes once escaped and ended."""
    out = np.empty(len(offsets) - 1, np.int64)
    _escaped_lengths(int64s(offsets), raw_bytes(data), out)
    return out


def put_numbers(numbers: I64, at: I64, out: U8) -> None:
    """Write each number to `out` from its place on: eight bytes that sort like the numbers."""
    _put_numbers(int64s(numbers), int64s(at), out)


def put_text(offsets: I64, data: U8, escape: bool, at: I64, out: U8) -> None:
    """Write each text to `out` from its place on, escaped and ended or as it is."""
    _put_text(int64s(offsets), raw_bytes(data), escape, int64s(at), out)


def order_of_neighbours(offsets: I64, data: U8) -> I64:
    """For each row but the first: 1 if it sorts after the row before it, 0 if it is equal, -1 if it sorts before."""
    out = np.empty(max(len(offsets) - 2, 0), np.int64)
    _neighbours(int64s(offsets), raw_bytes(data), out)
    return out


def last_not_above(fences: I64, fence_data: U8, offsets: I64, data: U8) -> I64:
    """For each row the number of the last of the sorted fences that does not sort after it; -1 if all do."""
    out = np.empty(len(offsets) - 1, np.int64)
    _last_not_above(int64s(fences), raw_bytes(fence_data), int64s(offsets), raw_bytes(data), out)
    return out


def above(picked: I64, fences: I64, fence_data: U8, offsets: I64, data: U8) -> Bool:
    """For each row whether it sorts after the fence of the number picked for it."""
    out = np.empty(len(picked), np.bool_)
    _above(int64s(picked), int64s(fences), raw_bytes(fence_data), int64s(offsets), raw_bytes(data), out)
    return out


@register_warmup
def _warm() -> None:
    offsets, data, out = np.array([0, 1, 2]), np.array([97, 0], np.uint8), np.empty(32, np.uint8)
    escaped_lengths(offsets, data)
    put_numbers(np.array([5, -5]), np.array([0, 8]), out)
    put_text(offsets, data, True, np.array([16, 20]), out)
    order_of_neighbours(offsets, data)
    above(np.maximum(last_not_above(offsets, data, offsets, data), 0), offsets, data, offsets, data)


_BLOCK = 64


@kernel
def _search(keys: I64, wanted: I64, or_equal: bool, out: I64) -> None:
    at = np.zeros(_BLOCK, np.int64)
    for start in range(0, len(wanted), _BLOCK):
        width = min(_BLOCK, len(wanted) - start)
        at[:width] = 0
        left = len(keys)
        while left > 1:
            half = left >> 1
            for j in range(width):  # no branch on the outcome, so that the processor need not guess it
                key = keys[at[j] + half - 1]
                at[j] += ((key < wanted[start + j]) | (or_equal & (key == wanted[start + j]))) * half
            left -= half
        for j in range(width):
            key = keys[at[j]]
            out[start + j] = at[j] + ((key < wanted[start + j]) | (or_equal & (key == wanted[start + j])))


def count_below(keys: I64, wanted: I64, or_equal: bool = False) -> I64:
    """For each wanted key how many of the sorted keys are below it, or with `or_equal` below or equal.

    >>> count_below(np.array([2, 4, 4, 9]), np.array([1, 4, 9])).tolist()
    [0, 1, 3]
    """
    out = np.zeros(len(wanted), np.int64)
    if len(keys):
        _search(int64s(keys), int64s(wanted), or_equal, out)
    return out


@kernel
def _among(codes: I64, wanted: I64, cells: I32, out: I64) -> int:
    mask, n = len(cells) - 1, 0
    for key in range(len(wanted)):
        at = place(wanted[key], mask)
        while cells[at] != 0 and wanted[cells[at] - 1] != wanted[key]:
            at = (at + 1) & mask
        cells[at] = key + 1
    for row in range(len(codes)):
        at = place(codes[row], mask)
        while cells[at] != 0 and wanted[cells[at] - 1] != codes[row]:
            at = (at + 1) & mask
        if cells[at] != 0:
            out[n] = row
            n += 1
    return n


def rows_among(codes: I64, wanted: I64) -> I64:
    """The rows, in order, whose code is one of those wanted.

    >>> rows_among(np.array([7, 3, 7, 5]), np.array([5, 7])).tolist()
    [0, 2, 3]
    """
    cells, out = np.zeros(2 << (2 * len(wanted)).bit_length(), np.int32), np.empty(len(codes), np.int64)
    return out[: _among(int64s(codes), int64s(wanted), cells, out)]


@register_warmup
def _warm_search() -> None:
    count_below(np.array([1, 3]), np.array([2]))
    rows_among(np.array([1, 3]), np.array([3]))
