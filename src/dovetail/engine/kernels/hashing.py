"""Hashes of int64 keys, pairs and byte strings: good spread on any pattern, no claim of equality.

Equal hashes never stand for equal keys here; every table that uses them compares the keys themselves.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, int64s
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
    """True if the two stretches of `length` bytes are equal."""
    for at in range(length):  # noqa: SIM110  (a generator does not compile)
        if left[left_start + at] != right[right_start + at]:
            return False
    return True


@kernel
def _partition(keys: I64, n_parts: int, out: I64) -> None:
    for row in range(len(keys)):
        # The high half chooses the part, so that rows of one part still spread over the low bits of its own table.
        high = mixed(np.uint64(keys[row])) >> _S32
        out[row] = np.int64((high * np.uint64(n_parts)) >> _S32)


def partition_of(keys: I64, n_parts: int) -> I64:
    """For each key its part, 0 <= part < n_parts, evenly spread; equal keys share a part. n_parts is at most 2**31."""
    if not 1 <= n_parts <= 2**31:
        raise ValueError(f"n_parts is {n_parts}; it must be between 1 and 2**31")
    out = np.empty(len(keys), np.int64)
    _partition(int64s(keys), n_parts, out)
    return out


@register_warmup
def _warm() -> None:
    partition_of(np.arange(3), 2)
