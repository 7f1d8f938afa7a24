"""The range of keys that match a key: equal ones, whole numbers around it, doubles as a computer subtracts them.

Reference: docs/algorithms/online.md, 1.2.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup

_MIN, _MAX = -(2**63), 2**63 - 1
WHOLE, FORTH, BACK = range(3)
"""How the keys of an edge's ends are compared: as whole numbers, or as doubles from the first end or the second."""
ENDLESS = _MIN
"""As down or up of whole numbers: there is no such bound."""


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
def reach(key: int, down: int, up: int) -> tuple[int, int]:
    """First and last key from key + down to key + up, cut off where int64 ends; none where the first is the larger."""
    if (down > 0 and key > _MAX - down) or (up < 0 and up != ENDLESS and key < _MIN - up):
        return _MAX, _MIN
    low = _MIN if down == ENDLESS or (down < 0 and key < _MIN - down) else key + down
    high = _MAX if up == ENDLESS or (up > 0 and key > _MAX - up) else key + up
    return low, high


@kernel
def _whole_ranges(keys: I64, down: int, up: int, low: I64, high: I64) -> None:
    for row in range(len(keys)):
        low[row], high[row] = reach(keys[row], down, up)


def whole_ranges(keys: I64, down: int, up: int) -> tuple[I64, I64]:
    """[key + down, key + up] for each key, cut off where int64 ends; low > high where nothing is left."""
    low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    _whole_ranges(int64s(keys), down, up, low, high)
    return low, high


@kernel
def _images(numbers: F64, out: I64) -> None:
    for row in range(len(out)):
        out[row] = _image(numbers[row])


def float_images(numbers: F64) -> I64:
    """An int64 for each double that orders as the doubles do."""
    out = np.empty(len(numbers), np.int64)
    _images(np.ascontiguousarray(numbers, np.float64), out)
    return out


@kernel
def range_of(key: int, around: I64) -> tuple[int, int]:
    """First and last key of the other end that match a key; `around` is down, up and measure. Of doubles, the first two
    are the bits of the band's bounds."""
    if around[2] == WHOLE:
        return reach(key, around[0], around[1])
    lo, hi = np.int64(around[0]).view(np.float64), np.int64(around[1]).view(np.float64)
    return float_range(key, lo, hi, around[2] == FORTH)


def key_ranges(keys: I64, down: int, up: int, measure: int) -> tuple[I64, I64]:
    """As `range_of`, for many keys."""
    if measure == WHOLE:
        return whole_ranges(keys, down, up)
    lo, hi = np.array([down, up], np.int64).view(np.float64).tolist()
    return float_ranges(keys, lo, hi, measure == FORTH)


@register_warmup
def _warm() -> None:
    some = int64s(np.arange(3))
    whole_ranges(some, -1, 1)
    float_ranges(float_images(np.array([0.5])), -1.0, 1.0, True)
