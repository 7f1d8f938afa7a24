"""Payload text of an exact width that depends on its key, so that a row joined with the wrong one shows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.workloads.blocks import I64, U64, mix64


def checksum(keys: I64) -> I64:
    """A 64-bit scrambling of each key: equal only for equal keys."""
    return mix64(keys, 1).view(np.int64)


def filler(keys: I64, width: int) -> pa.Array:
    """One ASCII string of exactly `width` bytes for each key, the same for equal keys; 8 bytes hold 48 random bits."""
    if width == 0:
        return pa.repeat(pa.scalar(""), keys.size)
    words = -(-width // 8)
    start: U64 = mix64(keys, 2)
    steps = np.arange(words, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
    grid = start[:, None] + steps[None, :]
    grid ^= grid >> np.uint64(29)
    # 64 letters from '0' on: one byte each, valid UTF-8, no escaping anywhere.
    text = (grid.view(np.uint8)[:, :width] & np.uint8(0x3F)) + np.uint8(0x30)
    offsets = np.arange(keys.size + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(text)
    return pa.StringArray.from_buffers(keys.size, pa.py_buffer(offsets), pa.py_buffer(data))
