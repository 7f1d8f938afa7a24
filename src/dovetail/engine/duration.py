"""Lengths of time as people write them."""

from __future__ import annotations

import re

from dovetail.errors import PlanError

_UNITS = {
    "ms": 1e-3, "millisecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0,
}  # fmt: skip
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_seconds(name: str, value: str | float) -> float:
    """Seconds meant by a number or by text such as "5s", "10 min" or "1 day"; a `PlanError` on anything else.

    >>> parse_seconds("ttl", "10 min"), parse_seconds("ttl", "250ms")
    (600.0, 0.25)
    """
    seconds = _seconds_in_text(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise PlanError(f'{name}={value!r} is not a length of time; write seconds, or text such as "5s" or "10 min".')
    return float(seconds)


def parse_ms(name: str, value: str | float) -> int:
    """Whole milliseconds, at least one, meant by seconds or by such text.

    >>> parse_ms("wait", "25 ms"), parse_ms("retain", "2 hours"), parse_ms("wait", 0.5)
    (25, 7200000, 500)
    """
    return max(1, round(parse_seconds(name, value) * 1000))


def _seconds_in_text(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    return None if factor is None else float(match[1]) * factor
