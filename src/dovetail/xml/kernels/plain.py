"""Texts as whole numbers and as moments, where they are written plainly; and which of them are.

A text that is not plain may still be a number, a date or an error: only the evaluator of the query tells.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, U8, Bool, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.xml.kernels.codes import called, whole

DIGITS = 15
"""Most digits of a number: each such number is exact as a double too."""
YEAR, MONTH, DAY, HOUR, MINUTE, SECONDS = range(6)
"""Columns of a moment; the last one counts all seconds since the year 1 began."""


@kernel
def _integers(offsets: I32, data: U8, values: I64, known: Bool) -> None:
    for row in range(len(values)):
        at, stop = whole(offsets[row]), whole(offsets[row + 1])
        negative = at < stop and data[at] == 45
        at += negative
        value, good = 0, 0 < stop - at <= DIGITS
        while good and at < stop:
            digit = whole(data[at]) - 48
            good = 0 <= digit <= 9
            value = 10 * value + digit
            at += 1
        known[row] = good and not (negative and value == 0)
        values[row] = -value if negative else value


@called
def _number(data: U8, at: int, digits: int) -> int:
    """The number that these digits write, or -1."""
    value = 0
    for place in range(at, at + digits):
        digit = whole(data[place]) - 48
        if digit < 0 or digit > 9:
            return -1
        value = 10 * value + digit
    return value


@called
def _days(year: int, month: int, day: int) -> int:
    """Days from the first day of the year 1 to this one; -1 if there is no such day."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return -1
    length = 30 + ((month + (month > 7)) & 1)
    if month == 2:
        length = 29 if leap else 28
    if day > length:
        return -1
    before = (367 * month - 362) // 12 - (0 if month <= 2 else (1 if leap else 2))
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400 + before + day - 1


@kernel
def _moments(offsets: I32, data: U8, timed: bool, values: I64, known: Bool) -> None:
    for row in range(len(known)):
        at, stop = whole(offsets[row]), whole(offsets[row + 1])
        size = stop - at
        known[row] = False
        if (size < 19 if timed else size != 10) or data[at + 4] != 45 or data[at + 7] != 45:
            continue
        year, month, day = _number(data, at, 4), _number(data, at + 5, 2), _number(data, at + 8, 2)
        days, hour, minute, second = _days(year, month, day), 0, 0, 0
        good = days >= 0
        if timed:
            hour, minute, second = _number(data, at + 11, 2), _number(data, at + 14, 2), _number(data, at + 17, 2)
            good = good and data[at + 10] == 84 and data[at + 13] == 58 and data[at + 16] == 58
            good = good and 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59
            good = good and (size == 19 or (size > 20 and data[at + 19] == 46))
            for place in range(at + 20, stop):
                good = good and data[place] == 48
        known[row] = good
        values[YEAR, row], values[MONTH, row], values[DAY, row] = year, month, day
        values[HOUR, row], values[MINUTE, row] = hour, minute
        values[SECONDS, row] = 86400 * days + 3600 * hour + 60 * minute + second


def plain_integers(offsets: I32, data: U8) -> tuple[I64, Bool]:
    """The whole number that each text says, and whether it says one: an optional minus, then 1 to 15 digits.

    Text k is `data[offsets[k]:offsets[k + 1]]`. A negative zero is none: it is another number as a double.
    """
    values, known = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.bool_)
    _integers(readonly(offsets, np.int32), readonly(data, np.uint8), values, known)
    return values, known


def plain_moments(offsets: I32, data: U8, *, timed: bool) -> tuple[I64, Bool]:
    """Year, month, day, hour, minute and all seconds of each text (a row each), and whether it says a moment.

    That is `yyyy-mm-dd`, with `timed` followed by `Thh:mm:ss` and at most zeros after a point; no time zone.
    """
    values, known = np.zeros((6, len(offsets) - 1), np.int64), np.empty(len(offsets) - 1, np.bool_)
    _moments(readonly(offsets, np.int32), readonly(data, np.uint8), timed, values, known)
    return values, known


@register_warmup
def _warm() -> None:
    offsets, data = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    plain_integers(offsets, data)
    plain_moments(offsets, data, timed=True)
