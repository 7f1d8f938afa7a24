"""Encodes bounds and keys as int64 codes: bounds compare as their values do, equal keys have equal codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import F64, I64, U8, AnyArray, Bool, float64s, int64s
from dovetail.engine.kernels.interning import ByteInterner, PairInterner
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.rows.columns import (
    NARROW_TEXT,
    VIEWS,
    WIDE_TEXT,
    fixed_values,
    fixed_width,
    memory_of,
    offsets_of,
    valid_rows,
)
from dovetail.errors import BudgetExceeded, PlanError, UnsupportedError

Bounds: TypeAlias = pa.Array | pa.ChunkedArray

NARROW_DIGITS = 18
"""Decimals of up to this many digits fit in int64, as multiples of their last digit."""
MOST_DIGITS = 38  # of a decimal of Spark; the difference of two such decimals is rounded


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


def bound_positions(bounds: Bounds) -> F64:
    """The bounds as doubles that never descend where the bounds ascend: seconds, days, or the numbers themselves."""
    array = whole(bounds)
    numbers = bound_numbers(array)
    if pa.types.is_decimal(array.type):
        return float64s(numbers / 10.0**array.type.scale)
    micros = pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type)
    return float64s(numbers / 1e6 if micros else numbers)


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
    return int64s(_ascending(numbers.view(np.int64 if wide else np.int32)))


def _ascending(bits: AnyArray) -> AnyArray:
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


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
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return array
    raise PlanError(f"{kind} cannot bound or order rows; use a number, decimal, date, time or day-time interval.")


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


Column: TypeAlias = pa.Array | pa.ChunkedArray

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class KeyEncoder:
    """Codes for the rows of key columns of these types, the same for every batch and every side that it encodes.

    Integers, booleans, dates, times, durations, floats and decimals of up to 18 digits are coded by value. Other
    decimals, text, binary values and composite keys are coded in the order of first occurrence: that takes memory for
    every distinct value, charged to the reservation, and the codes are valid for this encoder only; see `stable`.
    NaN equals NaN and 0.0 equals -0.0, as in Spark. A null in any column makes the row invalid, and its code 0.

    >>> encoder = KeyEncoder([pa.string()])
    >>> codes, valid = encoder.encode([pa.array(["b", "a", None, "b"])])
    >>> codes.tolist(), valid.tolist()
    ([0, 1, 0, 0], [True, True, False, True])
    """

    def __init__(self, types: Sequence[pa.DataType], reservation: Reservation | None = None) -> None:
        if not types:
            raise PlanError("a key needs at least one column; none was given.")
        self.types = tuple(map(_in_one_zone, types))
        self._room = _Room(reservation)
        self._parts = [_coder(kind, self._room) for kind in self.types]
        self._folds = [_Pairs(self._room) for _ in self.types[1:]]

    @property
    def stable(self) -> bool:
        """Whether codes depend on the values alone, so that encoders in different processes agree."""
        return not self._folds and isinstance(self._parts[0], _ByValue)

    @property
    def nbytes(self) -> int:
        """Bytes held for the values seen so far."""
        return self._room.used

    def encode(self, columns: Sequence[Column]) -> tuple[I64, Bool]:
        """The code of each row and whether it is valid; values not seen before get new codes.

        The codes may be the column's own memory: do not write to them. `BudgetExceeded` when new values do not fit.
        """
        return self._codes(columns, adding=True)

    def find(self, columns: Sequence[Column]) -> tuple[I64, Bool]:
        """As `encode`, but without new codes: a row whose key would need one is invalid."""
        return self._codes(columns, adding=False)

    def close(self) -> None:
        """Drop every value and release the memory."""
        for part in self._parts:
            part.clear()
        for fold in self._folds:
            fold.clear()
        self._room.close()

    def _codes(self, columns: Sequence[Column], adding: bool) -> tuple[I64, Bool]:
        arrays = self._checked(columns)
        codes, valid = self._parts[0].codes(arrays[0], adding)
        for array, part, fold in zip(arrays[1:], self._parts[1:], self._folds, strict=True):
            more, also = part.codes(array, adding)
            codes, valid = fold.codes(codes, more, valid & also, adding)
        return (codes if valid.all() else np.where(valid, codes, 0)), valid

    def _checked(self, columns: Sequence[Column]) -> list[pa.Array]:
        kinds = tuple(_in_one_zone(column.type) for column in columns)
        if kinds != self.types:
            raise PlanError(
                f"key columns are {[str(kind) for kind in kinds]}; this encoder is for "
                f"{[str(kind) for kind in self.types]}. Cast both sides to one type before the join."
            )
        return [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]


class _Room:
    """The memory of all interners of one encoder, reserved before they grow."""

    def __init__(self, reservation: Reservation | None) -> None:
        self._reservation = reservation or MemoryBudget(2**63 - 1, "unlimited").reserve("keys")
        self._charged: dict[int, int] = {}

    @property
    def used(self) -> int:
        return sum(self._charged.values())

    def hold(self, interner: ByteInterner | PairInterner) -> None:
        """Charge the current size of the interner."""
        self._reservation.resize(self._reservation.used - self._charged.get(id(interner), 0) + interner.nbytes)
        self._charged[id(interner)] = interner.nbytes

    def grown(self, interner: ByteInterner | PairInterner, after: int, work: Callable[[], I64]) -> I64:
        """The result of `work`, with room for the interner to grow to `after` bytes, old arrays beside new ones."""
        extra = after if after > interner.nbytes else 0
        self._reservation.grow(extra)
        try:
            return work()
        finally:
            self._reservation.shrink(extra)
            self.hold(interner)

    def close(self) -> None:
        self._charged.clear()
        self._reservation.close()


class _Coder(Protocol):
    def codes(self, array: pa.Array, adding: bool) -> tuple[I64, Bool]: ...

    def clear(self) -> None: ...


class _ByValue:
    """Types whose values are numbers of at most 64 bits."""

    def codes(self, array: pa.Array, adding: bool) -> tuple[I64, Bool]:
        return np.ascontiguousarray(_numbers(array)), valid_rows(array)

    def clear(self) -> None:
        pass


class _ByBytes:
    """Types whose values are byte strings."""

    def __init__(self, room: _Room) -> None:
        self._room, self._known = room, ByteInterner()
        room.hold(self._known)

    def codes(self, array: pa.Array, adding: bool) -> tuple[I64, Bool]:
        array = array.cast(VIEWS[array.type]) if array.type in VIEWS else array
        valid = valid_rows(array)
        if len(array) == 0:
            return np.empty(0, np.int64), valid
        offsets, data = _stretches(array)
        if not adding:
            codes = self._known.find(offsets, data, valid)
            return codes, codes >= 0

        def intern(first: int, last: int) -> I64:
            size = int(offsets[last]) - int(offsets[first])
            after = self._known.nbytes_after(last - first, size)
            part = offsets[first : last + 1], data, valid[first:last]
            return self._room.grown(self._known, after, lambda: self._known.intern(*part))

        return _in_parts(intern, 0, len(array)), valid

    def clear(self) -> None:
        self._known.clear()


class _Pairs:
    """Codes of pairs: the code of the columns so far, and that of the next column."""

    def __init__(self, room: _Room) -> None:
        self._room, self._known = room, PairInterner()
        room.hold(self._known)

    def codes(self, first: I64, second: I64, valid: Bool, adding: bool) -> tuple[I64, Bool]:
        if not adding:
            codes = self._known.find(first, second, valid)
            return codes, codes >= 0

        def intern(start: int, stop: int) -> I64:
            part = first[start:stop], second[start:stop], valid[start:stop]
            after = self._known.nbytes_after(stop - start)
            return self._room.grown(self._known, after, lambda: self._known.intern(*part))

        return _in_parts(intern, 0, len(first)), valid

    def clear(self) -> None:
        self._known.clear()


class _ByDictionary:
    """Dictionary columns, coded by their values, as each batch may have a dictionary of its own."""

    def __init__(self, values: _Coder) -> None:
        self._values = values

    def codes(self, array: pa.Array, adding: bool) -> tuple[I64, Bool]:
        known, some = self._values.codes(array.dictionary, adding)
        valid = valid_rows(array.indices)
        at = np.where(valid, _numbers(array.indices), 0).astype(np.int64)
        if len(known) == 0:
            return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
        return known[at], valid & some[at]

    def clear(self) -> None:
        self._values.clear()


def _in_one_zone(kind: pa.DataType) -> pa.DataType:
    """The type with the time zone UTC: timestamps of all zones count from the same instant."""
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _coder(kind: pa.DataType, room: _Room) -> _Coder:
    if pa.types.is_dictionary(kind):
        return _ByDictionary(_coder(kind.value_type, room))
    if pa.types.is_decimal(kind):
        return _ByValue() if kind.precision <= NARROW_DIGITS else _ByBytes(room)
    if kind in NARROW_TEXT or kind in WIDE_TEXT or kind in VIEWS or pa.types.is_fixed_size_binary(kind):
        return _ByBytes(room)
    by_value = pa.types.is_null(kind) or pa.types.is_boolean(kind) or fixed_width(kind) in _SIGNED
    if by_value and not isinstance(kind, pa.BaseExtensionType):
        return _ByValue()
    raise PlanError(
        f"a column of type {kind} cannot be a join key; join on its parts, or cast it to text, a number or a time."
    )


def _numbers(array: pa.Array) -> I64:
    """The rows of an array as int64, exactly; null rows have any value."""
    kind = array.type
    if pa.types.is_null(kind) or len(array) == 0:
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(kind):
        start, stop = array.offset, array.offset + len(array)
        bits = np.unpackbits(memory_of(array, 1)[start // 8 : (stop + 7) // 8], bitorder="little")
        return bits[start % 8 : start % 8 + len(array)].astype(np.int64)
    width = fixed_width(kind) or 8
    if pa.types.is_decimal(kind) and width > 8:  # little-endian: the number is in the first eight bytes
        return fixed_values(array, width).view(np.int64)[:: width // 8]
    if pa.types.is_floating(kind):
        return _float_bits(fixed_values(array, width).view(f"f{width}"))
    found = fixed_values(array, width).view((_UNSIGNED if pa.types.is_unsigned_integer(kind) else _SIGNED)[width])
    return found.view(np.int64) if width == 8 else found.astype(np.int64)


def ordered_numbers(array: pa.Array) -> I64:
    """Values of at most 64 bits as int64 that sort like them, NaN above all; nulls give anything."""
    found = _numbers(array)
    if pa.types.is_floating(array.type):
        return _ascending(found)
    return found ^ np.iinfo(np.int64).min if array.type == pa.uint64() else found


def _float_bits(numbers: AnyArray) -> I64:
    doubles = numbers.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    doubles[np.isnan(doubles)] = np.nan  # one of the many bit patterns
    return doubles.view(np.int64)


def _stretches(array: pa.Array) -> tuple[AnyArray, U8]:
    width = fixed_width(array.type)
    if width is None:
        return offsets_of(array), memory_of(array, 2)
    return np.arange(len(array) + 1, dtype=np.int64) * width, fixed_values(array, width)


def _in_parts(intern: Callable[[int, int], I64], first: int, last: int) -> I64:
    """Intern all rows at once if there is room for all values to be new; else half by half, down to single rows."""
    try:
        return intern(first, last)
    except BudgetExceeded:
        if last - first <= 1:
            raise
    middle = (first + last) // 2
    return np.concatenate([_in_parts(intern, first, middle), _in_parts(intern, middle, last)])
