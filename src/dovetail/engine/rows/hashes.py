"""Hashes of values and of rows, and codes of keys: the same in every process, for all time.

They decide the buckets of stored state, and pages of page files: a change would make both unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.engine.rows.columns import VIEWS, fixed_values, fixed_width, memory_of, offsets_of, valid_rows
from dovetail.engine.rows.keys import KeyEncoder

_TRUE = np.ones(1 << 16, np.bool_)


class KeyCodes:
    """Codes for keys of these types; with `exact`, equal codes are equal keys, else `same` decides.

    One column of whole numbers, booleans, dates, times, floats or decimals of up to 18 digits is coded by value. Text,
    binary values, wide decimals and several columns are hashed to 64 bits. NaN equals NaN and 0.0 equals -0.0, as in
    Spark; a null in any column makes the row invalid, or with `null_safe` is a value like others, equal to itself: its
    code is `null`, which a value may share. `bits` below 64 makes hashes collide, for tests.
    """

    def __init__(
        self, types: Sequence[pa.DataType], bits: int = 64, null_safe: bool = False, null: int = 0x5A17_0C0D_E0F0
    ) -> None:
        self.types = tuple(types)
        encoders = [KeyEncoder([kind.value_type if pa.types.is_dictionary(kind) else kind]) for kind in self.types]
        self._parts = [encoder if encoder.stable else None for encoder in encoders]
        self.null_safe, self._null = null_safe, null  # no number is left to stand for null, so that codes are not exact
        self.exact = len(self._parts) == 1 and self._parts[0] is not None and not null_safe
        self._plain = self.exact and self.types[0] == pa.int64()
        self._bits = bits

    def encode(self, columns: Sequence[pa.Array]) -> tuple[I64, Bool]:
        """The code of each row, and whether it is a key that can match; do not write to the codes."""
        if self._plain and columns[0].null_count == 0:  # the usual key: nothing to convert, nothing to check
            return int64s(columns[0].to_numpy()), _all_valid(len(columns[0]))
        codes, valid = self._part(0, columns[0])
        for at in range(1, len(columns)):
            more, also = self._part(at, columns[at])
            codes, valid = folded(codes, more), valid & also
        if not self.exact and self._bits < 64:
            codes = codes & ((1 << self._bits) - 1)
        return int64s(codes), valid

    def same(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Bool:
        """Row by row whether the keys are equal; nulls are if null is a value, and otherwise must not be here."""
        equal = np.ones(len(left[0]), np.bool_)
        for at, (one, other) in enumerate(zip(left, right, strict=True)):
            same = self._same_part(at, one, other)
            if self.null_safe and (one.null_count or other.null_count):
                mine, theirs = valid_rows(one), valid_rows(other)
                same = np.where(mine & theirs, same, mine == theirs)
            equal &= same
        return equal

    def _same_part(self, at: int, one: pa.Array, other: pa.Array) -> Bool:
        if self._parts[at] is not None:
            same: Bool = self._part(at, one)[0] == self._part(at, other)[0]
            return same
        equal = pc.equal(_decoded(one), _decoded(other))
        return np.asarray(equal.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

    def _part(self, at: int, array: pa.Array) -> tuple[I64, Bool]:
        array, encoder = _decoded(array), self._parts[at]
        codes, valid = encoder.encode([array]) if encoder is not None else (_byte_hashes(array), valid_rows(array))
        if not self.null_safe:
            return codes, valid
        return (np.where(valid, codes, self._null) if array.null_count else codes), _all_valid(len(array))


def _all_valid(n: int) -> Bool:
    return _TRUE[:n] if n <= len(_TRUE) else np.ones(n, np.bool_)


def _decoded(array: pa.Array) -> pa.Array:
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return array.cast(VIEWS[array.type]) if array.type in VIEWS else array


def row_hashes(batch: pa.RecordBatch) -> I64:
    """A hash of all columns of each row, the same in every process."""
    found = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        found = folded(found, _hashes(column))
    return found


def _hashes(array: pa.Array) -> I64:
    """A hash of each value; 0 for nulls."""
    return np.where(valid_rows(array), _value_hashes(array), 0)


def _value_hashes(array: pa.Array) -> I64:
    kind, n = array.type, len(array)
    if pa.types.is_null(kind) or n == 0:
        return np.zeros(n, np.int64)
    if pa.types.is_boolean(kind):
        return _byte_hashes(array.cast(pa.int8()))
    if pa.types.is_struct(kind):
        return row_hashes(pa.RecordBatch.from_arrays(array.flatten(), [str(at) for at in range(kind.num_fields)]))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_hashes(array)
    return _byte_hashes(array)


def _list_hashes(array: pa.Array) -> I64:
    """Hashes of lists: the sum of the hashes of items at their places, as a difference of two running sums."""
    offsets = offsets_of(array).astype(np.int64)
    items = _hashes(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets, sizes = offsets - offsets[0], np.diff(offsets)
    places = np.arange(len(items)) - np.repeat(offsets[:-1], sizes)
    sums = np.append(0, np.cumsum(folded(items, places)))
    return folded(int64s(sums[offsets[1:]] - sums[offsets[:-1]]), int64s(sizes))


def _byte_hashes(array: pa.Array) -> I64:
    """A hash of each value of a type of fixed width, of text or of binary values."""
    if len(array) == 0:
        return np.empty(0, np.int64)
    width = fixed_width(array.type)
    if width is None:
        return text_hashes(offsets_of(array), memory_of(array, 2))
    return text_hashes(np.arange(len(array) + 1, dtype=np.int64) * width, fixed_values(array, width))
