"""Encodes numbers, dates and times as int64 codes that compare as the values do, or as numbers with distances."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, int64s
from dovetail.errors import PlanError, UnsupportedError

Bounds: TypeAlias = pa.Array | pa.ChunkedArray

NARROW_DIGITS = 18
"""Decimals of up to this many digits fit in int64, as multiples of their last digit."""


def bound_codes(bounds: Bounds) -> I64:
    """Codes that compare as the bounds do: whole numbers, dates, times, decimals as themselves, floats by their bits.

    Two columns of one Arrow type share a scale. -0.0 equals 0.0. Nulls and NaNs get codes that mean nothing (0, and one
    above every number). A decimal of more than 18 digits is an `UnsupportedError`.
    """
    array = whole(bounds)
    kind = array.type
    if pa.types.is_floating(kind):
        return _float_codes(array)
    if pa.types.is_decimal(kind):
        if kind.precision > NARROW_DIGITS:
            raise UnsupportedError(f"{kind} has no int64 code; use at most {NARROW_DIGITS} digits, or cast to double.")
        return int64s(decimal_words(array)[1])
    return int64s(_filled(_as_integers(array)))


def bound_numbers(bounds: Bounds) -> AnyArray:
    """The bounds as numbers whose differences are lengths: float32 or float64 as they are, all else as its codes."""
    array = whole(bounds)
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    return _filled(array) if pa.types.is_floating(array.type) else bound_codes(array)


def _float_codes(array: pa.Array) -> I64:
    """IEEE bits; below zero they grow the wrong way, so all but the sign are flipped there."""
    wide = pa.types.is_float64(array.type)
    numbers = _filled(array if wide else array.cast(pa.float32())) + 0  # + 0 turns -0.0 into 0.0
    numbers[np.isnan(numbers)] = np.nan  # one NaN of the many, so that its code is known to have room above
    bits: AnyArray = numbers.view(np.int64 if wide else np.int32)
    return int64s(np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits))


def decimal_words(array: pa.Array) -> tuple[I64, I64]:
    """High and low 64 bits of each number, the low ones moved so that they compare as signed numbers do.

    Narrow decimals are their low word alone, unmoved: the high one only repeats the sign.
    """
    kind = array.type
    if pa.types.is_decimal256(kind):
        raise UnsupportedError(f"{kind} has no order here; use at most 38 digits.")
    wide = array.cast(pa.decimal128(kind.precision, kind.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)
    high, low = words[:, 1], words[:, 0]
    if wide.null_count:
        present = flags_of(wide.is_valid())
        high, low = np.where(present, high, 0), np.where(present, low, 0)
    if kind.precision > NARROW_DIGITS:
        low = low ^ np.iinfo(np.int64).min
    return int64s(high), int64s(low)


def _as_integers(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_date32(kind):
        return array.view(pa.int32())
    if pa.types.is_date64(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return array.view(pa.int64())
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return array
    raise PlanError(f"{kind} cannot bound or order rows; use a number, decimal, date, timestamp or day-time interval.")


def _filled(array: pa.Array) -> AnyArray:
    filled = array.fill_null(0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow is untyped


def whole(array: Bounds) -> pa.Array:
    """The rows as one array."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def flags_of(flags: Bounds) -> npt.NDArray[np.bool_]:
    """A column of truth values as NumPy flags; null is false."""
    filled = whole(flags).fill_null(False)
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow is untyped
