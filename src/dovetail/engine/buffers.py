"""Gives the memory of Arrow arrays as NumPy arrays, without a copy where possible."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import NO_BYTES, U8, AnyArray, Bool

NARROW_TEXT = (pa.string(), pa.binary())
WIDE_TEXT = (pa.large_string(), pa.large_binary())
VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def memory_of(array: pa.Array, number: int) -> U8:
    """All bytes of one of the array's buffers, from before its first row; empty if the buffer is absent."""
    buffer = array.buffers()[number]
    return NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)


def offsets_of(array: pa.Array) -> AnyArray:
    """The offsets of a string, binary, list or map array with at least one row: one more than it has rows."""
    wide = array.type in WIDE_TEXT or pa.types.is_large_list(array.type)
    found = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    return found[array.offset : array.offset + len(array) + 1]


def fixed_width(kind: pa.DataType) -> int | None:
    """Bytes of a value of a fixed-width type; None for other types."""
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return int(kind.bit_width) // 8 if plain and not pa.types.is_boolean(kind) else None


def fixed_values(array: pa.Array, width: int) -> U8:
    """The bytes of the rows of a fixed-width array, `width` each."""
    return memory_of(array, 1)[array.offset * width : (array.offset + len(array)) * width]


def valid_rows(array: pa.Array) -> Bool:
    """For each row whether it is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
