"""Hashes int64 keys, pairs and byte strings; evenly spread on any pattern.

Equal hashes do not mean equal keys; every table that uses them compares the keys themselves.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, AnyArray, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup

_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S29 = np.uint64(29)
_S32 = np.uint64(32)
_S33 = np.uint64(33)
_S35 = np.uint64(35)
_S8 = np.uint64(8)


@kernel
def mixed(word: np.uint64) -> np.uint64:
    """A bijection of 64-bit words in which every input bit reaches every output bit.

    Reference: the finalizer of MurmurHash3 (Appleby, public domain).
    """
    word ^= word >> _S33
    word *= _M1
    word ^= word >> _S33
    word *= _M2
    return word ^ (word >> _S33)


@kernel
def place(key: int, mask: int) -> int:
    """The home cell of a key in a table of mask + 1 cells, a power of two."""
    return np.int64(mixed(np.uint64(key))) & mask  # type: ignore[return-value]  # int and np.int64 are one in a kernel


@kernel
def pair_hash(first: int, second: int) -> int:
    """A hash of two int64 keys in this order, as int64."""
    inner = mixed(np.uint64(first) + _GOLDEN)
    rotated = (inner << _S29) | (inner >> _S35)
    return np.int64(mixed(rotated ^ np.uint64(second)))  # type: ignore[return-value]  # as above


@kernel
def _word(data: U8, start: int, stop: int) -> np.uint64:
    word = np.uint64(0)
    for at in range(stop - 1, start - 1, -1):
        word = (word << _S8) | np.uint64(data[at])
    return word


@kernel
def bytes_hash(data: U8, start: int, stop: int) -> int:
    """A hash of data[start:stop], eight bytes a step, as int64; the length takes part."""
    state = np.uint64(stop - start) * _GOLDEN
    at = start
    while at + 8 <= stop:
        word = np.uint64(0)
        for byte in range(8):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        state = (state ^ word) * _M1
        state ^= state >> _S32
        at += 8
    return np.int64(mixed((state ^ _word(data, at, stop)) + _GOLDEN))  # type: ignore[return-value]  # as above


@kernel
def same_bytes(left: U8, left_start: int, right: U8, right_start: int, length: int) -> bool:
    """True if the two byte strings of `length` bytes are equal."""
    for at in range(length):  # noqa: SIM110  (a generator does not compile)
        if left[left_start + at] != right[right_start + at]:
            return False
    return True


@kernel
def _text_hashes(offsets: AnyArray, data: U8, out: I64) -> None:
    for row in range(len(out)):
        out[row] = bytes_hash(data, offsets[row], offsets[row + 1])


@kernel
def _fold(first: I64, second: I64, out: I64) -> None:
    for row in range(len(out)):
        out[row] = pair_hash(first[row], second[row])


def text_hashes(offsets: AnyArray, data: U8) -> I64:
    """The hash of each byte string."""
    out = np.empty(max(0, len(offsets) - 1), np.int64)
    _text_hashes(readonly(offsets, offsets.dtype), readonly(data, np.uint8), out)
    return out


def folded(first: I64, second: I64) -> I64:
    """One hash for each pair of codes, in this order."""
    out = np.empty(len(first), np.int64)
    _fold(int64s(first), int64s(second), out)
    return out


@register_warmup
def _warm() -> None:
    data = np.frombuffer(b"ab", np.uint8)
    for kind in (np.int32, np.int64):
        text_hashes(np.array([0, 1, 2], kind), data)
    folded(np.arange(2), np.arange(2))
