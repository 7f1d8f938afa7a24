"""Hashes of text and of several codes together, for keys that no int64 can name."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, AnyArray, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import bytes_hash, pair_hash


@kernel
def _text_hashes(offsets: AnyArray, data: U8, out: I64) -> None:
    for row in range(len(out)):
        out[row] = bytes_hash(data, offsets[row], offsets[row + 1])


@kernel
def _fold(first: I64, second: I64, out: I64) -> None:
    for row in range(len(out)):
        out[row] = pair_hash(first[row], second[row])


def text_hashes(offsets: AnyArray, data: U8) -> I64:
    """The hash of each stretch of bytes; equal hashes do not mean equal bytes."""
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
