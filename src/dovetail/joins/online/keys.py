"""Keys of both sides as int64: one to order and match ranges by, and a code that must be equal besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.buffers import VIEWS, valid_rows
from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.kernels.key_bytes import folded
from dovetail.engine.keys import KeyEncoder
from dovetail.joins.online.kernels.match import float_images, float_ranges, whole_ranges
from dovetail.joins.online.predicate import Predicate, whole_bounds
from dovetail.joins.online.row_order import byte_hashes

SIDES = ("left", "right")
_SMALLEST = -(2**63)


class Coded(NamedTuple):
    """Per row: key, code (the very key where there is only one), and whether it can match anything."""

    key: I64
    code: I64
    valid: Bool


class RowKeys:
    """Keys of rows under a predicate, the same in every process and at every time; no memory a distinct value.

    With a band, keys are the band's column; with equality alone, keys are the codes. Codes of one column of numbers,
    booleans, dates, times or short decimals are exact; text, binary, wide decimals and several columns are hashed, and
    `same` must have the last word on pairs: see `exact`. `hash_bits` below 64 makes hashes meet, for tests.
    """

    def __init__(self, predicate: Predicate, schemas: Mapping[str, pa.Schema], hash_bits: int = 64) -> None:
        self.predicate = predicate
        self._mask = -1 if hash_bits >= 64 else (1 << hash_bits) - 1
        left = schemas["left"]
        self._types = [_plain(left.field(a).type) for a, _ in predicate.pairs]
        self._encoders = [_by_value(kind) for kind in self._types]
        self.exact = len(self._types) <= 1 and None not in self._encoders
        band = predicate.within
        self.banded, self.coded = band is not None, band is not None and bool(self._types)
        if band is not None:
            kind = left.field(band.left).type
            self._bounds = whole_bounds(band, kind)
            self._band_encoder = KeyEncoder([kind])
            self._unsigned = kind == pa.uint64()

    def encode(self, side: int, batch: pa.RecordBatch) -> Coded:
        """Keys and codes of rows of one side; do not write to them."""
        code, valid = self._codes(side, batch) if self._types else (np.empty(0, np.int64), None)
        if not self.banded:
            assert valid is not None  # noqa: S101  (a predicate has one or the other)
            return Coded(code, code, valid)
        key, finite = self._band_keys(side, batch)
        return Coded(key, code if self.coded else key, finite if valid is None else valid & finite)

    def ranges(self, side: int, key: I64) -> tuple[I64, I64]:
        """For rows of one side with these keys the first and last key of the other side that they match."""
        band = self.predicate.within
        if band is None:
            return key, key
        if self._bounds is None:
            return float_ranges(key, float(band.lo), float(band.hi), side == 0)  # type: ignore[arg-type]  # numbers
        lo, hi = self._bounds
        down, up = (lo, hi) if side == 0 else (-hi, -lo)
        return whole_ranges(key, down, up)

    def same(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bool:
        """Row by row whether the equal columns, none of them null, are equal."""
        equal = np.ones(left.num_rows, np.bool_)
        for at, (a, b) in enumerate(self.predicate.pairs):
            mine, theirs = _decoded(left.column(a)), _decoded(right.column(b))
            if self._encoders[at] is not None:
                equal &= self._part(at, mine)[0] == self._part(at, theirs)[0]
            else:
                equal &= np.asarray(pc.equal(mine, theirs).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
        return equal

    def _codes(self, side: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        columns = [_decoded(batch.column(pair[side])) for pair in self.predicate.pairs]
        codes, valid = self._part(0, columns[0])
        for at in range(1, len(columns)):
            more, also = self._part(at, columns[at])
            codes, valid = folded(codes, more), valid & also
        return int64s(codes if self.exact or self._mask == -1 else codes & self._mask), valid

    def _part(self, at: int, array: pa.Array) -> tuple[I64, Bool]:
        encoder = self._encoders[at]
        return encoder.encode([array]) if encoder is not None else (byte_hashes(array), valid_rows(array))

    def _band_keys(self, side: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        band = self.predicate.within
        assert band is not None  # noqa: S101  (asked for bands only)
        column = batch.column(band.left if side == 0 else band.right)
        if self._bounds is not None:
            key, valid = self._band_encoder.encode([column])
            return int64s(key ^ _SMALLEST if self._unsigned else key), valid
        numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        finite = np.isfinite(numbers)  # nulls are NaN here
        return float_images(np.where(finite, numbers, 0.0)), finite


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return VIEWS.get(kind, kind)


def _decoded(array: pa.Array) -> pa.Array:
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return array.cast(VIEWS[array.type]) if array.type in VIEWS else array


def _by_value(kind: pa.DataType) -> KeyEncoder | None:
    """The encoder of a type whose values are numbers; None where they must be hashed."""
    encoder = KeyEncoder([kind])
    return encoder if encoder.stable else None
