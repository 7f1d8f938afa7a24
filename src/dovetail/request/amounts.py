"""Parses arguments that are amounts: sizes in bytes, durations, counts; and flags."""

from __future__ import annotations

import re
from typing import Any

from dovetail.engine.memory import format_bytes, parse_bytes
from dovetail.errors import PlanError

DEFAULT_MEMORY = "64MB"
"""The default budget of each task of a join."""
MOST_PARTITIONS = 100_000
_UNITS = {
    "ms": 1e-3, "millisecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0,
}  # fmt: skip
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_size(argument: str, given: int | str, least: int = 1) -> int:
    """Bytes of a number or of text such as "64MB"; a `PlanError` if it is not a size, or below the least.

    >>> parse_size("memory", "64MB")
    67108864
    """
    size = parse_bytes(given, argument)
    if size < least:
        raise PlanError(
            f"{argument}={given!r} is {size} bytes; this join needs at least {format_bytes(least)} per task.",
            argument=argument,
        )
    return size


def parse_seconds(argument: str, given: str | float) -> float:
    """Seconds of a number or of text such as "5s", "10 min" or "1 day"; a `PlanError` for anything else.

    >>> parse_seconds("ttl", "10 min"), parse_seconds("ttl", "250ms")
    (600.0, 0.25)
    """
    seconds = _seconds_in_text(given) if isinstance(given, str) else given
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise PlanError(
            f'{argument}={given!r} is not a length of time; write seconds, or text such as "5s" or "10 min".',
            argument=argument,
        )
    return float(seconds)


def parse_ms(argument: str, given: str | float) -> int:
    """Whole milliseconds, at least one, of a number of seconds or of such text.

    >>> parse_ms("wait", "25 ms"), parse_ms("retain", "2 hours"), parse_ms("wait", 0.5)
    (25, 7200000, 500)
    """
    return max(1, round(parse_seconds(argument, given) * 1000))


def parse_count(argument: str, given: Any, most: int | None = None) -> int:
    """A whole number from 1, up to `most` if that is given.

    >>> parse_count("partitions", 8)
    8
    """
    whole = not isinstance(given, bool) and hasattr(given, "__index__")
    if not whole or given < 1 or (most is not None and given > most):
        upto = "" if most is None else f" to {most:,}"
        raise PlanError(f"{argument}={given!r} is not possible; give a whole number from 1{upto}.", argument=argument)
    return int(given)


def parse_partitions(given: int | None) -> int | None:
    """The number of partitions; None lets the join decide."""
    return None if given is None else parse_count("partitions", given, MOST_PARTITIONS)


def parse_flag(argument: str, given: Any) -> bool:
    """True or False; a `PlanError` for anything else."""
    if not isinstance(given, bool):
        raise PlanError(f"{argument}={given!r} must be True or False.", argument=argument)
    return given


def _seconds_in_text(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    return None if factor is None else float(match[1]) * factor
