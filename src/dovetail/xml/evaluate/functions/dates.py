"""Functions on dates, times and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dovetail.xml.evaluate.context import Environment
from dovetail.xml.evaluate.functions.date_picture import formatted
from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.cast import cast
from dovetail.xml.xdm.decimals import EXACT
from dovetail.xml.xdm.duration import DayTimeDuration, Duration
from dovetail.xml.xdm.temporal import Date, DateTime, Temporal, Time

_EPOCH = DateTime(1970, 1, 1).instant()


def _part(name: str, kind: str, read: Callable[[Any], Any]) -> None:
    function(f"{name}-from-{kind}", f"{kind}?")(lambda value: None if value is None else read(value))


def _zone(value: Temporal) -> DayTimeDuration | None:
    return None if value.zone is None else DayTimeDuration(0, value.zone * 60)


for _kind in ("dateTime", "date"):
    _part("year", _kind, lambda value: value.year)
    _part("month", _kind, lambda value: value.month)
    _part("day", _kind, lambda value: value.day)
for _kind in ("dateTime", "time"):
    _part("hours", _kind, lambda value: value.hour)
    _part("minutes", _kind, lambda value: value.minute)
    _part("seconds", _kind, lambda value: value.second)
for _kind in ("dateTime", "date", "time"):
    _part("timezone", _kind, _zone)


def _signed(value: int | Decimal, unit: int, limit: int | None) -> int:
    """A count of whole units with the sign of the duration."""
    whole = int(EXACT.divide_int(Decimal(value).copy_abs(), unit))
    if limit is not None:
        whole %= limit
    return -whole if value < 0 else whole


def _seconds(value: Duration) -> Decimal:
    return EXACT.remainder(value.seconds, 60)


_part("years", "duration", lambda value: _signed(value.months, 12, None))
_part("months", "duration", lambda value: _signed(value.months, 1, 12))
_part("days", "duration", lambda value: _signed(value.seconds, 86400, None))
_part("hours", "duration", lambda value: _signed(value.seconds, 3600, 24))
_part("minutes", "duration", lambda value: _signed(value.seconds, 60, 60))
_part("seconds", "duration", _seconds)


@function("dateTime", "date?", "time?")
def _date_time(date: Date | None, time: Time | None) -> DateTime | None:
    if date is None or time is None:
        return None
    if date.zone is not None and time.zone is not None and date.zone != time.zone:
        raise fail("FORG0008", "the date and the time have different time zones")
    zone = date.zone if time.zone is None else time.zone
    return DateTime(date.year, date.month, date.day, time.hour, time.minute, time.second, zone)


def _adjusted(value: Any, zone: Any) -> Any:
    """The same instant in another zone; a value without zone gets it as it stands."""
    if zone is None:
        minutes = None
    else:
        if abs(zone.seconds) > 50400 or zone.seconds % 60:
            raise fail("FODT0003", f"{zone} is not a time zone: from -PT14H to PT14H in minutes")
        minutes = int(zone.seconds // 60)
    seconds = value.local_seconds()
    if value.zone is not None and minutes is not None:
        seconds = EXACT.add(seconds, (minutes - value.zone) * 60)
    moved = DateTime.of_seconds(seconds, minutes)
    return moved if type(value) is DateTime else cast(moved, type(value).name)


def _adjust(kind: str) -> None:
    @function(f"adjust-{kind}-to-timezone", f"{kind}?", "dayTimeDuration?", optional=1)
    def adjust(value: Any, *zone: Any) -> Any:
        return None if value is None else _adjusted(value, zone[0] if zone else DayTimeDuration())


for _kind in ("dateTime", "date", "time"):
    _adjust(_kind)


def _at_place(value: Any, place: str | None) -> Any:
    """A point in time on the clock of a place such as `Europe/Berlin`; other places change nothing."""
    if place is None or "/" not in place or type(value) is not DateTime or value.zone is None:
        return value
    try:
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(EXACT.subtract(value.instant(), _EPOCH)))
        offset = instant.astimezone(ZoneInfo(place.strip())).utcoffset() or timedelta()
    except (ValueError, OverflowError, OSError, ZoneInfoNotFoundError):  # a place or year that is not known
        return value
    return _adjusted(value, DayTimeDuration(0, int(offset.total_seconds()) // 60 * 60))


def _format(kind: str) -> None:
    @function(f"format-{kind}", f"{kind}?", "string", "string?", "string?", "string?", optional=3, together=True)
    def format_value(value: Any, picture: str, *settings: str | None) -> str | None:
        if value is None:
            return None
        language, calendar, place = settings or (None, None, None)
        return formatted(_at_place(value, place), picture, language, calendar)


for _kind in ("dateTime", "date", "time"):
    _format(_kind)


@function("current-date", env=True)
def _current_date(environment: Environment) -> Any:
    return cast(environment.context.now, "date")


@function("current-time", env=True)
def _current_time(environment: Environment) -> Any:
    return cast(environment.context.now, "time")


@function("implicit-timezone")
def _implicit_timezone() -> DayTimeDuration:
    return DayTimeDuration()
