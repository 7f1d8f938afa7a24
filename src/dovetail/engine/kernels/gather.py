"""Gathers over raw column buffers of fixed width and over bitmaps; -1 gives a null row (zero bytes, bit 0).

Every function takes row numbers or a `Selection` of them, and raw memory that starts at row 0. One ascending run of
rows is copied as one block.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, NO_BYTES, U8, AnyArray, int64s, raw_bytes, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.selection import Selection, run_total

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


@kernel
def _take_runs(source: AnyArray, starts: I64, lengths: I64, width: int, out: AnyArray) -> None:
    at = 0
    for run in range(len(starts)):
        n = lengths[run] * width
        # Views from 0 spare the inner loop Numba's test for negative indices, and so it becomes vector code.
        old = source[starts[run] * width : starts[run] * width + n]
        new = out[at : at + n]
        for ahead in range(n):
            new[ahead] = old[ahead]
        at += n


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


def gather_fixed_runs(data: U8, width: int, starts: I64, lengths: I64) -> U8:
    """The bytes of the rows of all runs, `width` each, one run after the other; runs hold no null rows."""
    words = _as_words(data, width)
    starts, lengths = checked_runs(starts, lengths, len(words))
    out = np.empty((run_total(starts, lengths), *words.shape[1:]), words.dtype)
    flat = out.reshape(-1)
    _take_runs(readonly(words.reshape(-1), words.dtype), starts, lengths, width // words.itemsize, flat)
    return flat.view(np.uint8)


def checked_runs(starts: I64, lengths: I64, n_rows: int) -> tuple[I64, I64]:
    """The runs as kernel input, checked to lie within `n_rows` rows."""
    starts, lengths = int64s(starts), int64s(lengths)
    run_total(starts, lengths)
    outside = (lengths > 0) & ((starts < 0) | (starts > n_rows - lengths))
    if outside.any():
        first = int(np.argmax(outside))
        raise IndexError(f"run of {lengths[first]} rows at row {starts[first]}; there are {n_rows} rows")
    return starts, lengths


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


@register_warmup
def _warm() -> None:
    rows, data = np.array([1, 0, -1]), np.zeros(96, np.uint8)
    run = np.array([0]), np.array([2])
    for width in (1, 2, 3, 4, 8, 16, 24):
        gather_fixed(data, width, rows)
        gather_fixed_runs(data, width, *run)
    gather_bits(data, 0, rows)
