"""Keys of the stream and of master data as int64 codes: exact where one number names the key, else a checked hash."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.columns import VIEWS, fixed_values, fixed_width, memory_of, offsets_of, valid_rows
from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.engine.keys import KeyEncoder
from dovetail.errors import PlanError

_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_TRUE = np.ones(1 << 16, np.bool_)
_NULL = 0x5A17_0C0D_E0F0  # the code of null, which a value may share
_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())


class KeyCodes:
    """Codes for keys of these types; with `exact`, equal codes are equal keys, else `same` must have the last word.

    One column of whole numbers, booleans, dates, times, floats or decimals of up to 18 digits is coded by value. Text,
    binary values, wide decimals and several columns are hashed to 64 bits. NaN equals NaN and 0.0 equals -0.0, as in
    Spark; a null in any column makes the row invalid, or with `null_safe` is a value like others, equal to itself.
    `bits` below 64 makes hashes meet, to test that nothing trusts them.
    """

    def __init__(self, types: Sequence[pa.DataType], bits: int = 64, null_safe: bool = False) -> None:
        self.types = tuple(types)
        encoders = [KeyEncoder([kind]) for kind in self.types]
        self._parts = [encoder if encoder.stable else None for encoder in encoders]
        self.null_safe = null_safe  # no number is left to stand for null, so that codes cannot be exact
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
        return np.asarray(pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

    def _part(self, at: int, array: pa.Array) -> tuple[I64, Bool]:
        encoder = self._parts[at]
        codes, valid = encoder.encode([array]) if encoder is not None else (_hashes(array), valid_rows(array))
        if not self.null_safe:
            return codes, valid
        return (np.where(valid, codes, _NULL) if array.null_count else codes), _all_valid(len(array))


def _all_valid(n: int) -> Bool:
    return _TRUE[:n] if n <= len(_TRUE) else np.ones(n, np.bool_)


def _hashes(array: pa.Array) -> I64:
    array = array.cast(VIEWS[array.type]) if array.type in VIEWS else array
    if len(array) == 0:
        return np.empty(0, np.int64)
    width = fixed_width(array.type)
    if width is None:
        return text_hashes(offsets_of(array), memory_of(array, 2))
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    offsets.flags.writeable = False
    return text_hashes(offsets, fixed_values(array, width))


def comparable(stream: pa.DataType, master: pa.DataType) -> bool:
    """Whether every key of the stream's type is also one of the master's, so that it can be cast once and for all."""
    if pa.types.is_dictionary(stream):
        stream = stream.value_type
    if stream == master or (stream in _TEXT and master in _TEXT) or (stream in _BINARY and master in _BINARY):
        return True
    if not (pa.types.is_integer(stream) and pa.types.is_signed_integer(master)):
        return False
    room = master.bit_width - (not pa.types.is_signed_integer(stream))
    return bool(stream.bit_width <= room)


def key_columns(batch: pa.RecordBatch, names: Sequence[str], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The key columns of stream rows in the types that the master data has them in."""
    found = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return [a if a.type == kind else a.cast(kind) for a, kind in zip(found, types, strict=True)]


def check_keys(stream: pa.Schema, on: Sequence[str], master: pa.Schema, key: Sequence[str]) -> None:
    """`PlanError` unless the stream has these columns, as many as the master's key, and of types that compare."""
    missing = [name for name in on if name not in stream.names]
    if missing:
        raise PlanError(f"the stream has no column {missing}; it has {stream.names}.")
    if len(on) != len(key):
        raise PlanError(
            f"on={list(on)} names {len(on)} columns; the master data has the key {list(key)}.", argument="on"
        )
    for name, other in zip(on, key, strict=True):
        mine, theirs = stream.field(name).type, master.field(other).type
        if not comparable(mine, theirs):
            raise PlanError(
                f"stream column {name!r} is {mine}, master key {other!r} is {theirs}; cast the former to {theirs}."
            )
