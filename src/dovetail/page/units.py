"""Formats numbers for readers: at most four digits and a unit."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Literal

from dovetail.engine.memory import format_bytes

Unit = Literal["rows", "rows/s", "pages/s", "bytes", "%", "s"]

_LARGER = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
NOTHING = "–"


def amount(value: float) -> str:
    """A count or a rate: exact below ten thousand, then three digits and k, M, G or T.

    >>> amount(0), amount(4.25), amount(9_999), amount(12_345), amount(1_250_000)
    ('0', '4.25', '9,999', '12.3 k', '1.25 M')
    """
    for size, letter in _LARGER:
        if abs(value) >= size:
            base = 1e3 if letter == "k" else size
            return f"{_three(value / base)} {letter}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else _three(value)


def seconds(value: float) -> str:
    """A short time, in ms below one second.

    >>> seconds(0.0042), seconds(0.25), seconds(1.5), seconds(75.0)
    ('4.2 ms', '250 ms', '1.5 s', '1 min 15 s')
    """
    if abs(value) < 1:
        return f"{_three(value * 1000)} ms"
    return f"{_three(value)} s" if value < 60 else duration(value)


def duration(value: float) -> str:
    """A duration in its two largest units.

    >>> duration(7.2), duration(75), duration(3_700), duration(90_000)
    ('7 s', '1 min 15 s', '1 h 1 min', '1 d 1 h')
    """
    whole = int(value)
    for size, unit, part, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def moment(epoch: float) -> str:
    """A point in time, to the second, in UTC."""
    return datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def quantity(value: float | None, unit: Unit) -> str:
    """A value with its unit; a dash for no value.

    >>> quantity(12_345.6, "rows/s"), quantity(41.5 * 2**20, "bytes"), quantity(93.21, "%"), quantity(None, "rows")
    ('12.3 k rows/s', '41.5 MiB', '93.2 %', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if unit == "bytes":
        return format_bytes(round(value))
    return seconds(value) if unit == "s" else f"{amount(value)} {unit}"


def _three(value: float) -> str:
    """Three significant digits without trailing zeros."""
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
