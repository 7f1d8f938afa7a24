"""Dates, times and durations: any year, fractions of seconds without loss, a time zone or none.

Values without a time zone are compared as if in UTC. Decimal arithmetic is exact: Python's own operators round to 28
digits, so they are never used on xs:decimal.
"""

from __future__ import annotations

import decimal
import re
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar, Self

from dovetail.errors import XQueryError

# Sums and products of decimals are exact: a result that would not fit is an error, never rounded.
EXACT = decimal.Context(prec=20_000, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX, traps=[decimal.Inexact])
MAX_DIGITS = 4000  # Python itself refuses to read or write longer integers


def plain(value: Decimal) -> str:
    """A decimal without exponent and without zeros at its end."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


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
        """Parses a duration; raises FORG0001."""
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


_PATTERNS = {
    "Y": r"(?P<year>-?(?:[1-9]\d{3,}|0\d{3}))",
    "M": r"(?P<month>\d\d)",
    "D": r"(?P<day>\d\d)",
    "t": r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:\.\d+)?)",
}
_SHOWN = {"Y": ("%04d", "year"), "M": ("%02d", "month"), "D": ("%02d", "day"), "t": ("%s", "time_text")}
_ZONE = r"(?P<zone>Z|[+-]\d\d:\d\d)?"
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_of_month(year: int, month: int) -> int:
    """How many days a month has in the Gregorian calendar, reckoned back as far as needed."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if leap else _DAYS[month - 1]


def day_number(year: int, month: int, day: int) -> int:
    """Days since 0000-03-01, for any year."""
    year -= month <= 2
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 1


def date_of_day(number: int) -> tuple[int, int, int]:
    """Year, month and day of a day number."""
    era, rest = divmod(number, 146097)
    year = (rest - rest // 1460 + rest // 36524 - rest // 146096) // 365
    day = rest - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153
    return era * 400 + year + (month >= 10), month + 3 if month < 10 else month - 9, day - (153 * month + 2) // 5 + 1


def zone_text(zone: int | None) -> str:
    """`Z`, `+hh:mm` or nothing."""
    if zone is None:
        return ""
    return "Z" if zone == 0 else f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"


class Temporal:
    """Any of the eight types; the parts that a type lacks have the values that XML Schema compares them by.

    The picture of a type says how it is written: Y year, M month, D day, t time; a time zone may follow.
    """

    __slots__ = ("day", "hour", "minute", "month", "second", "year", "zone")
    name: ClassVar[str] = ""
    picture: ClassVar[str] = ""
    _pattern: ClassVar[re.Pattern[str]]
    _template: ClassVar[str]
    _shown: ClassVar[attrgetter[Any]]

    def __init_subclass__(cls) -> None:
        cls._pattern = re.compile("".join(_PATTERNS.get(sign, sign) for sign in cls.picture) + _ZONE, re.ASCII)
        cls._template = "".join(_SHOWN[sign][0] if sign in _SHOWN else sign for sign in cls.picture)
        cls._shown = attrgetter(*(_SHOWN[sign][1] for sign in cls.picture if sign in _SHOWN))

    def __init__(
        self,
        year: int = 1972,
        month: int = 12,
        day: int = 31,
        hour: int = 0,
        minute: int = 0,
        second: Decimal | int = 0,
        zone: int | None = None,
    ) -> None:
        self.year, self.month, self.day = year, month, day
        self.hour, self.minute, self.second = hour, minute, Decimal(second)
        self.zone = zone

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Temporal) and self.instant() == other.instant()

    def __hash__(self) -> int:
        return hash(self.instant())

    def local_seconds(self) -> Decimal:
        """Seconds on the clock that the value shows."""
        days = day_number(self.year, self.month, self.day)
        return EXACT.add(self.second, days * 86400 + self.hour * 3600 + self.minute * 60)

    def instant(self) -> Decimal:
        """Seconds in UTC."""
        return EXACT.subtract(self.local_seconds(), (self.zone or 0) * 60)

    @classmethod
    def of_seconds(cls, seconds: Decimal, zone: int | None) -> Self:
        """The value that shows these seconds on its clock."""
        days, rest = EXACT.divmod(seconds, 86400)
        if rest < 0:  # Decimal's divmod truncates; the calendar needs the floor
            days, rest = EXACT.subtract(days, 1), EXACT.add(rest, 86400)
        hour, rest = EXACT.divmod(rest, 3600)
        minute, second = EXACT.divmod(rest, 60)
        return cls(*date_of_day(int(days)), int(hour), int(minute), second, zone)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a value; raises FORG0001."""
        match = cls._pattern.fullmatch(text)
        if match is None:
            raise XQueryError("FORG0001", f"{text!r} is not a valid xs:{cls.name}")
        if len(text) > MAX_DIGITS:
            raise XQueryError("FODT0001", f"an xs:{cls.name} of {len(text)} characters; {MAX_DIGITS} are allowed")
        parts = match.groupdict()
        zone = parts.pop("zone")
        second = Decimal(parts.pop("second", None) or 0)
        numbers = {part: int(value) for part, value in parts.items()}
        value = cls(**numbers, second=second, zone=_zone(zone, text, cls.name))
        return value._checked(text)

    def _checked(self, text: str) -> Self:
        midnight = self.hour == 24 and self.minute == 0 and self.second == 0
        good = 1 <= self.month <= 12 and 1 <= self.day <= days_of_month(self.year, self.month)
        if not good or not (midnight or self.hour < 24) or self.minute > 59 or self.second >= 60:
            raise XQueryError("FORG0001", f"{text!r} is not a valid xs:{self.name}")
        return self.of_seconds(self.local_seconds(), self.zone) if midnight else self

    def __str__(self) -> str:
        template = self._template if self.year >= 0 else self._template.replace("%04d", "%05d")  # a sign before it
        text: str = template % self._shown(self)
        return text if self.zone is None else text + zone_text(self.zone)

    @property
    def time_text(self) -> str:
        """`hh:mm:ss.s`."""
        second = plain(self.second)
        return f"{self.hour:02}:{self.minute:02}:{second if self.second >= 10 else '0' + second}"


def _zone(text: str | None, whole: str, name: str) -> int | None:
    if text is None:
        return None
    if text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[4:])
    if minutes > 840 or int(text[4:]) > 59:
        raise XQueryError("FORG0001", f"{whole!r} is not a valid xs:{name}: time zones go to 14:00")
    return -minutes if text[0] == "-" else minutes


class DateTime(Temporal):
    """xs:dateTime."""

    __slots__ = ()
    name, picture = "dateTime", "Y-M-DTt"


class Date(Temporal):
    """xs:date."""

    __slots__ = ()
    name, picture = "date", "Y-M-D"


class Time(Temporal):
    """xs:time."""

    __slots__ = ()
    name, picture = "time", "t"

    def _checked(self, text: str) -> Self:
        checked = super()._checked(text)
        return type(self)(hour=checked.hour, minute=checked.minute, second=checked.second, zone=checked.zone)


class GYear(Temporal):
    """xs:gYear."""

    __slots__ = ()
    name, picture = "gYear", "Y"


class GYearMonth(Temporal):
    """xs:gYearMonth."""

    __slots__ = ()
    name, picture = "gYearMonth", "Y-M"

    def __init__(self, year: int = 1972, month: int = 12, day: int = 1, zone: int | None = None, **_: object) -> None:
        super().__init__(year, month, day, zone=zone)


class GMonth(GYearMonth):
    """xs:gMonth."""

    __slots__ = ()
    name, picture = "gMonth", "--M"


class GMonthDay(Temporal):
    """xs:gMonthDay."""

    __slots__ = ()
    name, picture = "gMonthDay", "--M-D"


class GDay(Temporal):
    """xs:gDay."""

    __slots__ = ()
    name, picture = "gDay", "---D"
