"""Interval bounds as int64 codes that compare as the bounds do, and which rows have usable bounds.

After encoding, every interval is half-open: it overlaps another exactly if start_l < end_r and start_r < end_l,
whatever `closed` said. The bounds as written compare as start >> h and (end - shift) >> h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.keys import NARROW_DIGITS, Bounds, bound_codes, decimal_words, flags_of, whole
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.relation import Closed

USABLE, NULL_BOUND, EMPTY, INVERTED = 0, 1, 2, 3

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Encoded:
    """Both inputs' bounds as half-open codes on one scale, with h and shift to get back to the written order."""

    left_start: I64
    left_end: I64
    right_start: I64
    right_end: I64
    h: int
    shift: int


@dataclass(frozen=True, slots=True)
class EncodedSide:
    """One input's bounds as half-open codes on a scale that does not depend on the rows."""

    start: I64
    end: I64
    h: int
    shift: int


def classify(start: Bounds, end: Bounds, closed: Closed) -> npt.NDArray[np.int8]:
    """Per row: 0 usable, 1 a bound is null, 2 empty (no point between its bounds), 3 inverted or with a NaN."""
    kinds = np.zeros(len(start), np.int8)
    if closed != "both":
        kinds[flags_of(pc.equal(start, end))] = EMPTY
    kinds[flags_of(pc.greater(start, end))] = INVERTED
    for bound in (start, end):
        if pa.types.is_floating(bound.type):
            kinds[flags_of(pc.is_nan(bound))] = INVERTED
    for bound in (start, end):
        if bound.null_count:
            kinds[flags_of(pc.is_null(bound))] = NULL_BOUND
    return kinds


def encode_sides(
    left: tuple[Bounds, Bounds],
    right: tuple[Bounds, Bounds],
    left_closed: Closed = "left",
    right_closed: Closed = "left",
) -> Encoded:
    """Both inputs, each as (starts, ends), on one scale; every bound of one Arrow type.

    Where the bounds themselves leave no room for the half-open form (mixed `closed` on wide numbers, a closed end at
    the largest int64, decimals of more than 18 digits), codes are ranks among all bounds. Rows that `classify` does not
    call usable get codes, too, which the caller leaves out; they do not change the others.
    """
    _check_one_type(*left, *right)
    h, shift = _scale(left_closed, right_closed)
    kind = left[0].type
    if pa.types.is_decimal(kind) and kind.precision > NARROW_DIGITS:
        h, shift, bounds = 1, 0, _ranks([decimal_words(whole(array)) for array in (*left, *right)])
    else:
        bounds = [bound_codes(array) for array in (*left, *right)]
        if not all(_has_room(bound, h, shift) for bound in bounds):
            h, shift, bounds = 1, 0, _ranks([(bound,) for bound in bounds])
    ls, le = _half_open(bounds[0], bounds[1], left_closed, h, shift)
    rs, re = _half_open(bounds[2], bounds[3], right_closed, h, shift)
    return Encoded(ls, le, rs, re, h, shift)


def encode_stream(start: Bounds, end: Bounds, closed: Closed = "left", other_closed: Closed = "left") -> EncodedSide:
    """Bounds of one input, or of one batch of it, on a scale that any other batch of either input shares.

    `closed` is this input's, `other_closed` the other's. Bounds that would need ranks are an `UnsupportedError`.
    """
    _check_one_type(start, end)
    h, shift = _scale(closed, other_closed)
    codes = bound_codes(start), bound_codes(end)
    if not all(_has_room(bound, h, shift) for bound in codes):
        raise UnsupportedError(
            f"intervals of {start.type} closed {closed!r} against {other_closed!r} need codes beyond 64 bits; "
            "give both inputs the same `closed`, or read both whole (algorithm='native')."
        )
    return EncodedSide(*_half_open(*codes, closed, h, shift), h, shift)


def _scale(left_closed: Closed, right_closed: Closed) -> tuple[int, int]:
    """h and shift: one code a bound if both inputs are closed alike, else two, so that an open start comes second."""
    if left_closed != right_closed:
        return 1, 0
    return 0, 1 if left_closed == "both" else 0


def _has_room(codes: I64, h: int, shift: int) -> bool:
    if not len(codes) or (h, shift) == (0, 0):
        return True
    least, most = int(codes.min()), int(codes.max())
    return (most < 2**62 and least >= -(2**62)) if h else most + shift <= _LARGEST


def _half_open(start: I64, end: I64, closed: Closed, h: int, shift: int) -> tuple[I64, I64]:
    if h == 0:
        return start, int64s(end + shift) if shift else end
    opens_after = 0 if closed in ("left", "both") else 1
    ends_after = 1 if closed in ("right", "both") else 0
    return int64s((start << 1) + opens_after), int64s((end << 1) + ends_after)


def _ranks(bounds: Sequence[tuple[I64, ...]]) -> list[I64]:
    """Dense ranks among all bounds together; a bound is one column of numbers or several, most significant first."""
    columns = [np.concatenate(parts) for parts in zip(*bounds, strict=True)]
    order = None
    for column in reversed(columns):
        order = stable_order(column, order)
    fresh = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        ascending = column[order]
        fresh[1:] |= ascending[1:] != ascending[:-1]
    ranks = np.empty(len(fresh), np.int64)
    ranks[order] = np.cumsum(fresh)
    return np.split(ranks, np.cumsum([len(bound[0]) for bound in bounds])[:-1])


def _check_one_type(*bounds: Bounds) -> None:
    kinds = {str(bound.type) for bound in bounds}
    if len(kinds) > 1:
        raise PlanError(f"interval bounds have types {', '.join(sorted(kinds))}; cast them all to one.")
