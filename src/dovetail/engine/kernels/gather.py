"""Gathers rows from raw column buffers: fixed width, bitmaps, and columns with offsets; -1 gives a null row.

A `Selection` is row numbers that were checked once for all columns of a batch. Every function takes row numbers or a
`Selection`, and raw memory that starts at row 0. One ascending run of rows is copied as one block. A null row has zero
bytes, bit 0 or an empty value. Offsets are Arrow's, int32 or int64, one more than there are rows, and need not start at
0; those of the result do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, NO_BYTES, U8, AnyArray, Offsets, int64s, raw_bytes, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def _survey(indices: I64, out: I64) -> None:
    """Fill in the smallest and the largest index, the number of -1, and whether each is its predecessor plus one."""
    smallest, largest, n_null, run = indices[0], indices[0], 0, 1
    for row in range(len(indices)):
        index = indices[row]
        smallest = min(smallest, index)
        largest = max(largest, index)
        n_null += index == -1
        run &= index == indices[0] + row
    out[0], out[1], out[2], out[3] = smallest, largest, n_null, run


@kernel
def _total_length(lengths: I64) -> int:
    total = 0
    for length in lengths:
        if length < 0:
            return -1
        total += length
    return total


@kernel
def _expand(starts: I64, lengths: I64, out: I64) -> None:
    at = 0
    for run in range(len(starts)):
        for ahead in range(lengths[run]):
            out[at + ahead] = starts[run] + ahead
        at += lengths[run]


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows to gather from `n_rows` rows; -1 stands for a null row. Built by `Selection.of`, which checks the bounds.

    `n_null` counts the -1; `start` is the first row if the rows are one ascending run, else -1.
    """

    indices: I64
    n_rows: int
    n_null: int
    start: int

    @classmethod
    def of(cls, indices: I64 | Selection, n_rows: int) -> Selection:
        """A checked selection; one that was checked against no more than `n_rows` rows is taken as it is."""
        if isinstance(indices, Selection):
            if indices.n_rows > n_rows:
                raise IndexError(f"selection made for {indices.n_rows} rows used on {n_rows}")
            return indices
        rows = int64s(indices)
        if not len(rows):
            return cls(rows, n_rows, 0, 0)
        found = np.empty(4, np.int64)
        _survey(rows, found)
        smallest, largest, n_null, run = (int(number) for number in found)
        if smallest < -1 or largest >= n_rows:
            raise IndexError(
                f"rows from {smallest} to {largest} of {n_rows}; allowed are 0 to {n_rows - 1}, -1 for null"
            )
        return cls(rows, n_rows, n_null, smallest if run and smallest >= 0 else -1)

    def __len__(self) -> int:
        return len(self.indices)


def expand_runs(starts: I64, lengths: I64) -> I64:
    """The numbers start, start + 1, ... of every run, `length` of them each, one run after the other."""
    starts, lengths = int64s(starts), int64s(lengths)
    out = np.empty(run_total(starts, lengths), np.int64)
    _expand(starts, lengths, out)
    return out


def run_total(starts: I64, lengths: I64) -> int:
    """The number of rows in all runs, which are checked to be pairs of a start and a length >= 0."""
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} starts but {len(lengths)} lengths; each run needs both")
    total = _total_length(lengths)
    if total < 0:
        raise ValueError(f"run lengths go down to {lengths.min()}; they must be 0 or more")
    return total


# Signed, because a kernel that meets uint64 and a plain 0 in one expression computes in float64 and loses bits.
_WORDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@kernel
def _take(source: AnyArray, indices: I64, out: AnyArray) -> None:
    for row in range(len(indices)):
        index = indices[row]
        out[row] = source[index] if index >= 0 else 0


@kernel
def _take_wide(source: AnyArray, indices: I64, out: AnyArray) -> None:
    for row in range(len(indices)):
        index = indices[row]
        for word in range(source.shape[1]):
            out[row, word] = source[index, word] if index >= 0 else 0


@kernel
def _take_pairs(source: AnyArray, indices: I64, out: AnyArray) -> None:
    for row in range(len(indices)):
        index = indices[row]
        first, second = (source[index, 0], source[index, 1]) if index >= 0 else (0, 0)
        out[row, 0] = first
        out[row, 1] = second


def _as_words(data: U8, width: int) -> AnyArray:
    """The memory as rows: one machine word each where the width allows, else several words or bytes each."""
    memory = raw_bytes(data)
    rows = memory[: len(memory) // width * width]
    if width in _WORDS:
        return readonly(rows.view(_WORDS[width]), _WORDS[width])
    word = np.int64 if width % 8 == 0 else np.int8
    return readonly(rows.view(word).reshape(-1, width // np.dtype(word).itemsize), word)


def gather_fixed(data: U8, width: int, indices: I64 | Selection) -> U8:
    """The bytes of the chosen rows, `width` each, one after the other."""
    if width < 1:
        raise ValueError(f"width is {width} bytes; it must be at least 1")
    words = _as_words(data, width)
    picked = Selection.of(indices, len(words))
    if picked.start >= 0:
        return raw_bytes(data)[picked.start * width : (picked.start + len(picked)) * width].copy()
    out = np.empty((len(picked), *words.shape[1:]), words.dtype)
    take = _take if words.ndim == 1 else _take_pairs if width == 16 else _take_wide
    take(words, picked.indices, out)
    return out.reshape(-1).view(np.uint8)


@kernel
def _take_bits(bits: U8, offset: int, indices: I64, out: U8) -> int:
    """Gather bits, eight to a byte, lowest first; returns how many are set. Without `bits` every row's bit is set."""
    n_set = 0
    for byte in range(len(out)):
        packed = 0
        for bit in range(min(8, len(indices) - 8 * byte)):
            index = indices[8 * byte + bit]
            if index >= 0:
                at = index + offset
                value = (np.int64(bits[at >> 3]) >> (at & 7)) & 1 if len(bits) else 1
                packed |= value << bit
                n_set += value
        out[byte] = packed
    return n_set


def gather_bits(bits: U8, bit_offset: int, indices: I64 | Selection) -> U8:
    """The chosen bits as a bitmap, lowest bit of a byte first, unused bits 0; row 0 is bit `bit_offset` of `bits`."""
    memory = raw_bytes(bits)
    picked = Selection.of(indices, max(0, 8 * len(memory) - bit_offset))
    out = np.empty(-(-len(picked) // 8), np.uint8)
    _take_bits(memory, bit_offset, picked.indices, out)
    return out


def gather_validity(bits: U8, bit_offset: int, indices: I64 | Selection, n_rows: int) -> tuple[U8, int]:
    """The validity bitmap of the chosen rows and the number of nulls, -1 rows among them.

    `bits` may be empty: all `n_rows` rows are valid then. The bitmap is empty if no chosen row is null.
    """
    picked = Selection.of(indices, n_rows)
    memory = raw_bytes(bits)
    if len(memory) == 0 and picked.n_null == 0:
        return NO_BYTES, 0
    if 0 < 8 * len(memory) < bit_offset + n_rows:
        raise IndexError(f"bitmap of {8 * len(memory)} bits for {n_rows} rows from bit {bit_offset}")
    out = np.empty(-(-len(picked) // 8), np.uint8)
    n_null = len(picked) - _take_bits(memory, bit_offset, picked.indices, out)
    return (out, n_null) if n_null else (NO_BYTES, 0)


O = TypeVar("O", I32, I64)  # noqa: E741  (offsets of one of the two widths)

SLACK = 16
_1, _2, _3, _4, _5, _6, _7 = (np.uint64(byte) for byte in range(1, 8))


@kernel
def _lay_out(offsets: Offsets, indices: I64, out: Offsets) -> int:
    """Fill in the offsets of the chosen rows; returns their total, which may be more than `out` can hold."""
    total = 0
    out[0] = 0
    for row in range(len(indices)):
        index = indices[row]
        if index >= 0:
            total += int(offsets[index + 1]) - int(offsets[index])
        out[row + 1] = total
    return total


@kernel
def _copy_eight(data: U8, start: int, out: U8, at: int) -> None:
    """Copy eight bytes. Reading all before writing any lets the compiler use one load and one store."""
    s, t = np.uint64(start), np.uint64(at)
    b0, b1, b2, b3 = data[s], data[s + _1], data[s + _2], data[s + _3]
    b4, b5, b6, b7 = data[s + _4], data[s + _5], data[s + _6], data[s + _7]
    out[t], out[t + _1], out[t + _2], out[t + _3] = b0, b1, b2, b3
    out[t + _4], out[t + _5], out[t + _6], out[t + _7] = b4, b5, b6, b7


@kernel
def _copy_values(offsets: Offsets, data: U8, indices: I64, out: U8) -> None:
    """Copy the bytes of the chosen rows; up to SLACK bytes behind them change, so that short values need no loop."""
    at = 0
    for row in range(len(indices)):
        index = indices[row]
        if index < 0:
            continue
        start = int(offsets[index])
        length = int(offsets[index + 1]) - start
        # Written out here and below: as a function of its own it is not inlined, and several times slower.
        if start + length + SLACK <= len(data):
            _copy_eight(data, start, out, at)
            _copy_eight(data, start + 8, out, at + 8)
            for byte in range(16, length, 8):
                _copy_eight(data, start + byte, out, at + byte)
        else:
            for byte in range(length):
                out[at + byte] = data[start + byte]
        at += length


@kernel
def _child_rows(offsets: Offsets, indices: I64, out: I64) -> None:
    at = 0
    for row in range(len(indices)):
        index = indices[row]
        if index >= 0:
            for child in range(offsets[index], offsets[index + 1]):
                out[at] = child
                at += 1


def _laid_out(offsets: O, picked: Selection) -> tuple[O, int]:
    out = np.empty(len(picked) + 1, offsets.dtype)
    total = _lay_out(offsets, picked.indices, out)
    _check_total(total, offsets)
    return out, total


def _check_total(total: int, offsets: Offsets) -> None:
    limit = np.iinfo(offsets.dtype).max
    if total > limit:
        raise OverflowError(
            f"{total} bytes or items in one column, but {offsets.dtype} offsets end at {limit}; take fewer rows"
        )


def checked_offsets(offsets: O, end: int) -> O:
    """The offsets as kernel input, checked to be of an Arrow type and to end within `end` bytes or items."""
    if offsets.dtype not in (np.int32, np.int64):
        raise TypeError(f"offsets are {offsets.dtype}; they must be int32 or int64")
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > end:
        raise IndexError(f"offsets must be one more than the rows and lie within the {end} bytes of data")
    return readonly(offsets, offsets.dtype)


def gather_bytes(offsets: O, data: U8, indices: I64 | Selection) -> tuple[O, U8]:
    """Offsets and bytes of the chosen strings or binary values; OverflowError if the offsets cannot reach so far."""
    data = raw_bytes(data)
    offsets = checked_offsets(offsets, len(data))
    picked = Selection.of(indices, len(offsets) - 1)
    out_offsets, total = _laid_out(offsets, picked)
    if picked.start >= 0:
        first = int(offsets[picked.start])
        return out_offsets, data[first : first + total].copy()
    out = np.empty(total + SLACK, np.uint8)
    _copy_values(offsets, data, picked.indices, out)
    return out_offsets, out[:total]


def gathered_bytes(offsets: O, indices: I64 | Selection) -> int:
    """How many bytes or items `gather_bytes` or `gather_lists` would give, to reserve them or split the rows first."""
    offsets = checked_offsets(offsets, np.iinfo(np.int64).max)
    picked = Selection.of(indices, len(offsets) - 1)
    ends, starts = offsets[1:], offsets[:-1]
    chosen = picked.indices[picked.indices >= 0] if picked.n_null else picked.indices
    return int((ends[chosen].astype(np.int64) - starts[chosen]).sum())


def gather_lists(offsets: O, indices: I64 | Selection) -> tuple[O, I64]:
    """Offsets of the chosen lists and the rows of the child column to gather for them."""
    offsets = checked_offsets(offsets, np.iinfo(np.int64).max)
    picked = Selection.of(indices, len(offsets) - 1)
    out_offsets, total = _laid_out(offsets, picked)
    if picked.start >= 0:
        return out_offsets, np.arange(offsets[picked.start], int(offsets[picked.start]) + total, dtype=np.int64)
    children = np.empty(total, np.int64)
    _child_rows(offsets, picked.indices, children)
    return out_offsets, children


def gather_fixed_lists(list_size: int, indices: I64 | Selection, n_rows: int) -> I64:
    """The rows of the child column to gather for lists of one size each; -1 for every item of a null list."""
    picked = Selection.of(indices, n_rows)
    children = expand_runs(picked.indices * list_size, np.full(len(picked), list_size))
    if picked.n_null:
        children[np.repeat(picked.indices < 0, list_size)] = -1
    return children


@register_warmup
def _warm() -> None:
    Selection.of(expand_runs(np.array([0]), np.array([2])), 2)
    rows, data = np.array([1, 0, -1]), np.zeros(96, np.uint8)
    for width in (1, 2, 3, 4, 8, 16, 24):
        gather_fixed(data, width, rows)
    gather_bits(data, 0, rows)
    narrow, wide = np.array([0, 2, 3], np.int32), np.array([0, 2, 3], np.int64)
    gather_bytes(narrow, data, rows), gather_bytes(wide, data, rows)
    gather_lists(narrow, rows), gather_lists(wide, rows)
