"""Durations: months and seconds, never mixed in the two kinds that can be ordered."""

from __future__ import annotations

import re
from decimal import Decimal

from dovetail.errors import XQueryError
from dovetail.xml.xdm.decimals import EXACT, MAX_DIGITS, plain

_PATTERN = re.compile(
    r"(-)?P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(T)?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?", re.ASCII
)


class Duration:
    """xs:duration: a count of months and a count of seconds, of one sign."""

    __slots__ = ("months", "seconds")
    name = "duration"

    def __init__(self, months: int = 0, seconds: Decimal | int = 0) -> None:
        self.months, self.seconds = months, Decimal(seconds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and (self.months, self.seconds) == (other.months, other.seconds)

    def __hash__(self) -> int:
        return hash((self.months, self.seconds))

    def __str__(self) -> str:
        years, months = divmod(abs(self.months), 12)
        days, rest = EXACT.divmod(self.seconds.copy_abs(), 86400)
        hours, rest = EXACT.divmod(rest, 3600)
        minutes, seconds = EXACT.divmod(rest, 60)
        date = "".join(f"{plain(Decimal(n))}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
        time = "".join(f"{plain(Decimal(n))}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
        time += f"{plain(seconds)}S" if seconds else ""
        sign = "-" if self.months < 0 or self.seconds < 0 else ""
        body = date + (f"T{time}" if time else "")
        return f"{sign}P{body}" if body else self._zero()

    def _zero(self) -> str:
        return "PT0S"

    @classmethod
    def parse(cls, text: str) -> Duration:
        """The duration that the text says; raises FORG0001."""
        match = _PATTERN.fullmatch(text)
        if match is None or text.endswith(("P", "T")) or not cls._allows(match):
            raise XQueryError("FORG0001", f"{text!r} is not a valid xs:{cls.name}")
        if len(text) > MAX_DIGITS:
            raise XQueryError("FODT0002", f"a duration of {len(text)} characters; {MAX_DIGITS} are allowed")
        sign = -1 if match[1] else 1
        months = 12 * int(match[2] or 0) + int(match[3] or 0)
        seconds = 86400 * int(match[4] or 0) + 3600 * int(match[6] or 0) + 60 * int(match[7] or 0)
        return cls(sign * months, EXACT.multiply(sign, EXACT.add(seconds, Decimal(match[8] or 0))))

    @classmethod
    def _allows(cls, match: re.Match[str]) -> bool:
        return (match[5] is None) == (match[6] is None and match[7] is None and match[8] is None)


class YearMonthDuration(Duration):
    """xs:yearMonthDuration: months only."""

    __slots__ = ()
    name = "yearMonthDuration"

    def _zero(self) -> str:
        return "P0M"

    @classmethod
    def _allows(cls, match: re.Match[str]) -> bool:
        return match[4] is None and match[5] is None and super()._allows(match)


class DayTimeDuration(Duration):
    """xs:dayTimeDuration: seconds only."""

    __slots__ = ()
    name = "dayTimeDuration"

    @classmethod
    def _allows(cls, match: re.Match[str]) -> bool:
        return match[2] is None and match[3] is None and super()._allows(match)
