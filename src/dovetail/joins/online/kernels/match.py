"""Pairs of two sorted stretches of rows that were not produced before, and exact bounds of bands on floats.

Reference: docs/algorithms/online.md, 1.2, 2.3 and 5.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.inline import inlined

NEVER = 2**63 - 1
"""The departure tick of a row that is in memory."""


class Stretch(NamedTuple):
    """Rows sorted by key, or where codes are compared by code, then key: key, code, range of matching keys of the other
    stretch, arrival and departure ticks."""

    key: I64
    code: I64
    low: I64
    high: I64
    ats: I64
    dts: I64


class Visits(NamedTuple):
    """When the disk part of one side was probed against memory of the other: its latest departure, and the tick."""

    last: I64
    tick: I64


@kernel
def produced(ats: int, dts: int, other_ats: int, other_dts: int) -> bool:
    """Whether two rows met when the later one arrived: the earlier one was still in memory then."""
    return other_ats < dts if ats < other_ats else ats < other_dts


@kernel
def _visited(visits: Visits, dts: int, memory_ats: int, memory_dts: int) -> bool:
    """Whether a row on disk met a row in memory in one of the visits."""
    for at in range(len(visits.last)):
        if dts <= visits.last[at] and memory_ats < visits.tick[at] and visits.tick[at] < memory_dts:
            return True
    return False


@inlined
def _is_below(rows: Stretch, coded: bool, at: int, code: int, key: int) -> bool:
    if coded and rows.code[at] != code:
        return rows.code[at] < code  # type: ignore[no-any-return]  # Numba's bool
    return rows.key[at] < key  # type: ignore[no-any-return]  # as above


@inlined
def _first_from(rows: Stretch, coded: bool, start: int, code: int, key: int, cursor: I64) -> int:
    """The first row from `start` on that is not below: in doubling steps, as it is near or far, then by halves."""
    step, low = 1, start
    while low < len(rows.key) and _is_below(rows, coded, min(low + step, len(rows.key)) - 1, code, key):
        low, step = min(low + step, len(rows.key)), 2 * step
        cursor[3] += 1
    high = min(low + step, len(rows.key)) - 1  # which is not below
    while low < high:
        middle = (low + high) >> 1
        cursor[3] += 1
        if _is_below(rows, coded, middle, code, key):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def match(
    outer: Stretch,
    inner: Stretch,
    coded: bool,
    outer_visits: Visits,
    inner_visits: Visits,
    cursor: I64,
    out_outer: I64,
    out_inner: I64,
) -> int:
    """How many new pairs were written, rows of both stretches by number; `cursor` says where to go on.

    `cursor` is the inner row, where its range starts in the outer stretch, and the next outer row to look at, or -1
    if it is at the start of its range; then comparisons made. All is done when the inner row is past the last.
    """
    n, row, start, at, compared = 0, cursor[0], cursor[1], cursor[2], np.int64(0)
    n_outer = len(outer.key)
    while row < len(inner.key):
        low, high, code = inner.low[row], inner.high[row], inner.code[row]
        if low > high:  # no key can match; such a range is no place to go on from
            row += 1
            continue
        if at < 0:
            start = _first_from(outer, coded, start, code, low, cursor)
            at = start
        while at < n_outer and outer.key[at] <= high and not (coded and outer.code[at] != code):
            if n == len(out_outer):
                cursor[0], cursor[1], cursor[2] = row, start, at
                cursor[3] += compared
                return n
            compared += 1
            fresh = not produced(outer.ats[at], outer.dts[at], inner.ats[row], inner.dts[row])
            fresh = fresh and not _visited(outer_visits, outer.dts[at], inner.ats[row], inner.dts[row])
            if fresh and not _visited(inner_visits, inner.dts[row], outer.ats[at], outer.dts[at]):
                out_outer[n], out_inner[n] = at, row
                n += 1
            at += 1
        row, at = row + 1, np.int64(-1)
    cursor[0], cursor[1], cursor[2] = row, start, at
    cursor[3] += compared
    return n


@kernel
def _image(number: float) -> int:
    """An int64 that orders as the double does; 0.0 and -0.0 have one image."""
    bits: int = np.float64(number + 0.0).view(np.int64)  # type: ignore[assignment]  # int and np.int64 are one in a kernel
    return bits if bits >= 0 else np.int64(-(2**63)) - bits  # type: ignore[return-value]  # as above


@kernel
def _number(image: int) -> float:
    if image >= 0:
        return np.int64(image).view(np.float64)
    return np.int64(np.int64(-(2**63)) - np.int64(image)).view(np.float64)


@kernel
def _difference(own: float, other: float, own_is_left: bool) -> float:
    return other - own if own_is_left else own - other


@kernel
def _first_image(own: float, bound: float, own_is_left: bool, low: int, high: int, beyond: bool) -> int:
    """The first image in (low, high] at which right - left has reached (or passed, if `beyond`) the bound.

    Rounded differences never fall as the right number grows, nor rise as the left one does, so bisection is exact.
    """
    while low < high - 1:  # the difference of images may not fit
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        d = _difference(own, _number(middle), own_is_left)
        reached = d > bound if own_is_left == beyond else d >= bound
        if own_is_left == reached:
            high = middle
        else:
            low = middle
    return high


@kernel
def float_range(key: int, lo: float, hi: float, own_is_left: bool) -> tuple[int, int]:
    """For the image of a finite double the first and last image of the other side's doubles within the band."""
    smallest, largest = _image(-np.inf), _image(np.inf)
    own = _number(key)
    if own_is_left:  # lo <= other - own <= hi
        first = _first_image(own, lo, True, smallest, largest, False)
        return first, _first_image(own, hi, True, smallest, largest, True) - 1
    # lo <= own - other <= hi: the first other with own - other <= hi, the last with own - other >= lo
    first = _first_image(own, hi, False, smallest, largest, False)
    return first, _first_image(own, lo, False, smallest, largest, True) - 1


@kernel
def _float_ranges(keys: I64, lo: float, hi: float, own_is_left: bool, low: I64, high: I64) -> None:
    for row in range(len(keys)):
        low[row], high[row] = float_range(keys[row], lo, hi, own_is_left)


def float_ranges(keys: I64, lo: float, hi: float, own_is_left: bool) -> tuple[I64, I64]:
    """For each image of a finite double the first and last image of the other side's doubles within the band."""
    low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    _float_ranges(int64s(keys), lo, hi, own_is_left, low, high)
    return low, high


@kernel
def _moved(key: int, by: int) -> int:
    """key + by, or where int64 ends; asked first, as compiled sums must not overflow."""
    if by > 0 and key > 2**63 - 1 - by:
        return 2**63 - 1
    if by < 0 and key < -(2**63) - by:
        return -(2**63)
    return key + by


@kernel
def _whole_ranges(keys: I64, down: int, up: int, low: I64, high: I64) -> None:
    smallest, largest = -(2**63), 2**63 - 1
    for row in range(len(keys)):
        key = keys[row]
        low[row], high[row] = _moved(key, down), _moved(key, up)
        if (down > 0 and key > largest - down) or (up < 0 and key < smallest - up):  # the whole range is outside
            low[row], high[row] = largest, smallest


def whole_ranges(keys: I64, down: int, up: int) -> tuple[I64, I64]:
    """[key + down, key + up] for each key, cut off where int64 ends; low > high where nothing is left."""
    low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    _whole_ranges(int64s(keys), down, up, low, high)
    return low, high


@kernel
def _images(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]], out: I64) -> None:
    for row in range(len(out)):
        out[row] = _image(numbers[row])


def float_images(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> I64:
    """An int64 for each double that orders as the doubles do."""
    out = np.empty(len(numbers), np.int64)
    _images(np.ascontiguousarray(numbers, np.float64), out)
    return out


@register_warmup
def _warm() -> None:
    some = int64s(np.arange(3))
    stretch, none = Stretch(some, some, some, some, some, some), Visits(int64s(some[:0]), int64s(some[:0]))
    out = np.zeros(2, np.int64)
    match(stretch, stretch, False, none, none, np.array([0, 0, -1, 0]), out, out)
    whole_ranges(some, -1, 1)
    float_ranges(float_images(np.array([0.5])), -1.0, 1.0, True)
