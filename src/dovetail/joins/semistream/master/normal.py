"""Keys in a normal form that sorts and searches alike for every type: a number, or bytes that sort like the key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.buffers import memory_of, offsets_of
from dovetail.engine.kernels.arrays import I64, U8, Bool
from dovetail.joins.semistream.kernels import byte_keys
from dovetail.joins.semistream.kernels.sorted_search import count_below


@dataclass(frozen=True, slots=True)
class Numbers:
    """Keys of one column whose values are numbers of at most 64 bits."""

    values: I64

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: I64) -> Numbers:
        """The keys of these rows."""
        return Numbers(self.values[rows])

    def sorted_rows(self) -> I64:
        """Row numbers in the order of the keys; equal keys keep theirs."""
        return np.argsort(self.values, kind="stable")

    def steps(self) -> I64:
        """For each row but the first 1, 0 or -1: its key is above, equal to or below the one before."""
        return (self.values[1:] > self.values[:-1]).astype(np.int64) - (self.values[1:] < self.values[:-1])

    def codes(self) -> I64:
        """The keys as int64: exactly as many codes as keys."""
        return self.values

    def column(self) -> pa.Array:
        """The keys as an Arrow column, for storing."""
        return pa.array(self.values)


@dataclass(frozen=True, slots=True)
class Texts:
    """Keys as bytes that sort like the keys, of text, wide decimals and several columns."""

    offsets: I64
    data: U8

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: I64) -> Texts:
        """The keys of these rows."""
        return normal_of(self.column().take(pa.array(rows)))  # type: ignore[return-value]  # bytes in, bytes out

    def sorted_rows(self) -> I64:
        """Row numbers in the order of the keys; equal keys keep theirs."""
        return np.asarray(pc.array_sort_indices(self.column()), np.int64)

    def steps(self) -> I64:
        """For each row but the first 1, 0 or -1: its key is above, equal to or below the one before."""
        return byte_keys.order_of_neighbours(self.offsets, self.data)

    def codes(self) -> I64:
        """A 64-bit hash of each key: different keys may, very rarely, share one."""
        return byte_keys.byte_hashes(self.offsets, self.data)

    def column(self) -> pa.Array:
        """The keys as an Arrow column, for storing."""
        buffers = [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


Normal = Numbers | Texts


def normal_of(column: pa.Array) -> Normal:
    """The keys that `column()` made a column of."""
    if column.type == pa.int64():
        return Numbers(column.to_numpy())
    if len(column) == 0:
        return Texts(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return Texts(np.asarray(offsets_of(column), np.int64), memory_of(column, 2))


def last_not_above(keys: Normal, fences: Normal) -> I64:
    """For each key the number of the last of the sorted fences that is not above it, or -1 if all are."""
    if isinstance(keys, Numbers) and isinstance(fences, Numbers):
        return count_below(fences.values, keys.values, or_equal=True) - 1
    if isinstance(keys, Texts) and isinstance(fences, Texts):
        return byte_keys.last_not_above(fences.offsets, fences.data, keys.offsets, keys.data)
    raise TypeError("keys and fences are of different forms")


def above(keys: Normal, fences: Normal, picked: I64) -> Bool:
    """For each key whether it is above the fence of the number picked for it."""
    if isinstance(keys, Numbers) and isinstance(fences, Numbers):
        return keys.values > fences.values[picked]
    if isinstance(keys, Texts) and isinstance(fences, Texts):
        return byte_keys.above(picked, fences.offsets, fences.data, keys.offsets, keys.data)
    raise TypeError("keys and fences are of different forms")
