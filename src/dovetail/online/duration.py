"""Lengths of time as people write them, in milliseconds."""

from __future__ import annotations

import re

from dovetail.errors import PlanError

_UNITS = {
    "ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_ms(name: str, value: str | float) -> int:
    """Milliseconds, at least 1, meant by seconds or by text such as "25 ms", "2 hours"; else a `PlanError`.

    >>> parse_ms("wait", "25 ms"), parse_ms("retain", "2 hours"), parse_ms("wait", 0.5)
    (25, 7200000, 500)
    """
    found = _in_text(value) if isinstance(value, str) else value
    given = isinstance(value, str) and found is not None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < float("inf"):
        raise PlanError(f'{name}={value!r} is not a length of time; write seconds, or text such as "25 ms", "2 hours".')
    return max(1, round(found if given else found * 1000))


def _in_text(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    return None if factor is None else float(match[1]) * factor
