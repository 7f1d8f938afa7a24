"""Functions on dates, times and durations; pictures such as `[D01]/[M01]/[Y0001]` give English names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.calls import function, present
from dovetail.xml.evaluate.functions.numbers import cased, in_script, numbered
from dovetail.xml.xdm.temporal import EXACT, Date, DateTime, DayTimeDuration, Temporal, Time, day_number
from dovetail.xml.xdm.values import cast

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PART = re.compile(r"([YMDdFWwHhPmsfZzCE])(.*?)([atco])?(?:,(\*|[0-9]{1,4})(?:-(\*|[0-9]{1,4}))?)?", re.DOTALL)
_OF_DATE, _OF_TIME = frozenset("YMDdFWwE"), frozenset("HhPmsf")
_DEFAULTS = {"F": "Nn", "P": "n", "m": "01", "s": "01", "C": "Nn", "E": "N"}
_CALENDARS = frozenset(
    ("AH", "AM", "AME", "AP", "AS", "BE", "CB", "CE", "CL", "CS", "EE", "FE", "JE", "KE", "KY", "ME", "MS", "NS", "OS",
     "RS", "SE", "SH", "SS", "TE", "VE", "VS")
)  # fmt: skip  # known to the standard, not here
_MILITARY = "YXWVUTSRQPONZABCDEFGHIKLM"  # time zones from -12 to +12 hours


@dataclass(frozen=True, slots=True)
class _Part:
    """One part in brackets: what it shows, how, and how wide."""

    sign: str
    style: str
    modifier: str
    least: int | None
    most: int | None

    @property
    def digits(self) -> int:
        """Digits of a style that is a pattern of them, required and optional ones; 0 of any other."""
        found = [sign for sign in self.style if unicodedata.category(sign) == "Nd"]
        return len(found) + self.style.count("#") if found else 0


def _weekday(value: Temporal) -> int:
    return (day_number(value.year, value.month, value.day) + 2) % 7 + 1


def _week(value: Temporal) -> int:
    """The week of the year; the first one has the year's first Thursday."""
    thursday = day_number(value.year, value.month, value.day) + 4 - _weekday(value)
    starts = (day_number(year, 1, 1) for year in (value.year + 1, value.year, value.year - 1))
    return (thursday - next(start for start in starts if start <= thursday)) // 7 + 1


def _week_of_month(value: Temporal) -> int:
    """The week of the month; the first one has the month's first Thursday, days before it are of the month before."""
    thursday = day_number(value.year, value.month, value.day) + 4 - _weekday(value)
    start = day_number(value.year, value.month, 1)
    if thursday < start:
        year, month = (value.year, value.month - 1) if value.month > 1 else (value.year - 1, 12)
        start = day_number(year, month, 1)
    return (thursday - start) // 7 + 1


_NUMBERS: dict[str, Callable[[Temporal], int]] = {
    "Y": lambda value: abs(value.year),
    "M": lambda value: value.month,
    "D": lambda value: value.day,
    "d": lambda value: day_number(value.year, value.month, value.day) - day_number(value.year, 1, 1) + 1,
    "F": _weekday,
    "W": _week,
    "w": _week_of_month,
    "H": lambda value: value.hour,
    "h": lambda value: (value.hour + 11) % 12 + 1,
    "m": lambda value: value.minute,
    "s": lambda value: int(value.second),
}
_NAMES: dict[str, Callable[[Temporal], str]] = {
    "M": lambda value: _MONTHS[value.month - 1],
    "F": lambda value: _DAYS[_weekday(value) - 1],
}


def formatted(value: Temporal, picture: str, language: str | None = None, calendar: str | None = None) -> str:
    """The value formatted by the picture. Raises FOFD1340 for invalid pictures, FOFD1350 for parts it lacks."""
    parts, position = [], 0
    for match in re.finditer(r"\[\[|\]\]|\[([^\[\]]*)\]", picture):
        parts += [_plain(picture[position : match.start()], picture)]
        parts += [match[0][0] if match[1] is None else _component(value, "".join(match[1].split()), picture)]
        position = match.end()
    return "".join([_other_calendar(calendar), _other_language(language), *parts, _plain(picture[position:], picture)])


def _other_language(language: str | None) -> str:
    """The mark that names are not in the requested language."""
    return "" if language is None or language.partition("-")[0] == "en" else "[Language: en]"


def _other_calendar(calendar: str | None) -> str:
    name = (calendar or "AD").strip().removeprefix("Q{}")
    if name in ("AD", "ISO"):
        return ""
    if name in _CALENDARS or re.fullmatch(r"Q\{[^{}]+\}[\w.-]+", name):
        return "[Calendar: AD]"
    raise XQueryError("FOFD1340", f"{calendar!r} is not the name of a calendar")


def _plain(text: str, picture: str) -> str:
    if "[" in text or "]" in text:
        raise XQueryError("FOFD1340", f"{picture!r}: brackets do not match")
    return text


def _component(value: Temporal, text: str, picture: str) -> str:
    part = _parsed(text, picture)
    missing = _OF_TIME if value.name == "date" else _OF_DATE if value.name == "time" else frozenset()
    if part.sign in missing:
        raise XQueryError("FOFD1350", f"[{text}] in {picture!r}: an xs:{value.name} has no such part")
    try:
        return _shown(value, part)
    except XQueryError as error:
        raise XQueryError("FOFD1340", f"[{text}] in {picture!r}: {str(error).partition('] ')[2]}") from None


def _parsed(text: str, picture: str) -> _Part:
    match = _PART.fullmatch(text)
    if match is None or ("," in match[2] and match[4] is None):  # the last comma is that of the width
        raise XQueryError("FOFD1340", f"[{text}] in {picture!r} is not a known part of a date")
    sign, style, modifier, least, most = match.groups()
    if modifier and not style and modifier in "ac":
        style, modifier = modifier, None  # a style of letters; without style `o` and `t` change the usual one
    widths = [None if width in (None, "*") else int(width) for width in (least, most)]
    if "#" in style and not any(sign.isdecimal() for sign in style):
        raise XQueryError("FOFD1340", f"[{text}] in {picture!r}: {style!r} has no digit")
    if 0 in widths or (widths[0] and widths[1] and widths[0] > widths[1]):
        raise XQueryError(
            "FOFD1340", f"[{text}] in {picture!r}: widths are positive, the second not less than the first"
        )
    if least == "*" and sign in "Zz" and not style:
        widths[0] = 1
    return _Part(sign, style or _DEFAULTS.get(sign, "" if sign in "Zz" else "1"), modifier or "", *widths)


def _shown(value: Temporal, part: _Part) -> str:
    if part.sign in "Zz":
        return _zone_text(value, part)
    if part.sign in "CE":
        return "Gregorian" if part.sign == "C" else "BC" if value.year < 0 else "AD"
    if part.sign == "P":
        return _half_day(value, part)
    if part.sign == "f":
        return _fraction(value, part)
    if part.style in ("N", "n", "Nn"):
        if part.sign in _NAMES:
            return _name(_NAMES[part.sign](value), part)
        part = _Part(part.sign, _DEFAULTS.get(part.sign, "1"), part.modifier, part.least, part.most)
    number = _NUMBERS[part.sign](value)
    if part.sign == "Y":
        places = part.most or (part.digits if part.digits > 1 else 0)
        number = number % 10**places if places else number
    style = _widened(part.style, part.least or 0) if part.digits else part.style
    return numbered(number, style, ordinal=part.modifier == "o")


def _widened(style: str, least: int) -> str:
    """A pattern with at least `least` required digits: optional ones become required, then new ones are added."""
    digits = [sign for sign in style if unicodedata.category(sign) == "Nd"]
    zero, missing, at = in_script("0", digits[0]), least - len(digits), len(style)
    while missing > 0 and (at := style.rfind("#", 0, at)) >= 0:
        style, missing = style[:at] + zero + style[at + 1 :], missing - 1
    return zero * max(0, missing) + style


def _name(name: str, part: _Part) -> str:
    """A name, shortened to three letters (of a day to two) where it is too long, with spaces where it is too short."""
    if part.most is not None and part.most < len(name):
        name = name[: 2 if part.sign == "F" and part.most < 3 else 3]
    return cased(name, part.style).ljust(part.least or 0)


def _half_day(value: Temporal, part: _Part) -> str:
    name = "A.M." if value.hour < 12 else "P.M."
    most = part.most or (part.digits if part.digits > 1 else None)
    style = part.style if part.style in ("N", "n", "Nn") else "n"
    if most is not None and most < 4:
        short = name.replace(".", "").capitalize()[:most]
        return cased(short, style)
    return name.lower() if style == "n" else name


def _fraction(value: Temporal, part: _Part) -> str:
    """Digits of the second's fraction, cut off, not rounded; `001` asks for three, `1` for all."""
    if any(sign == "#" for sign in part.style) and not re.fullmatch(r"\d+#*", part.style):
        raise XQueryError("FOFD1340", "# stands behind the digits of a fraction")
    digits = format(EXACT.remainder(value.second, 1), "f").partition(".")[2].rstrip("0")
    required = sum(unicodedata.category(sign) == "Nd" for sign in part.style)
    least = max(required or 1, part.least or 0)
    single = part.digits <= 1
    most = max(part.most or 0, part.digits, least) if part.most or not single else max(least, len(digits))
    text = digits[:most].ljust(least, "0")
    return _in_pattern(text, part.style) if required else text


def _in_pattern(text: str, style: str) -> str:
    """Digits in the script of a pattern, with its grouping signs."""
    rest = iter(text)
    out = [next(rest, "") if sign == "#" or sign.isdecimal() else sign for sign in style]
    return in_script("".join([*out, *rest]), _digit(style))


# --- time zones


def _zone_text(value: Temporal, part: _Part) -> str:
    if part.style == "Z":
        if value.zone is None:
            return "J"
        if value.zone % 60 == 0 and abs(value.zone) <= 720:
            return _MILITARY[value.zone // 60 + 12]
    if value.zone is None:
        return ""
    if part.modifier == "t" and value.zone == 0:
        return "Z"
    text = ("-" if value.zone < 0 else "+") + _offset(abs(value.zone), part)
    return f"GMT{text}" if part.sign == "z" else text


def _offset(minutes: int, part: _Part) -> str:
    """Hours and minutes: `0` and `00` leave out minutes that are zero, `0000` and `00:00` do not."""
    hours, minutes = divmod(minutes, 60)
    style = part.style
    if not part.digits:
        short = part.most is not None and part.most < 4
        style = ("0" if part.least == 1 and not style else "00") + ("" if short and not style else ":00")
    separator = "".join(sign for sign in style if not sign.isdecimal() and sign != "#")[:1]
    if separator:
        before = style.partition(separator)[0]
        text = f"{hours:0{min(len(before), 2)}}{separator}{minutes:02}"
    elif len(style) > 2:
        text = f"{hours:0{min(len(style), 4) - 2}}{minutes:02}"
    else:
        text = f"{hours:0{len(style)}}" + (f":{minutes:02}" if minutes else "")
    return in_script(text, _digit(style))


def _digit(style: str) -> str:
    return next(sign for sign in style if sign.isdecimal())


_EPOCH, _UTC = DateTime(1970, 1, 1).instant(), DayTimeDuration()


def _parts(kind: str, **parts: Callable[[Any], Any]) -> None:
    for name, read in parts.items():
        function(f"{name}-from-{kind}", f"{kind}?")(present(read))


def _zone(value: Temporal) -> DayTimeDuration | None:
    return None if value.zone is None else DayTimeDuration(0, value.zone * 60)


def _signed(value: int | Decimal, unit: int, limit: int | None) -> int:
    """A count of whole units with the sign of the duration."""
    whole = int(EXACT.divide_int(Decimal(value).copy_abs(), unit))
    if limit is not None:
        whole %= limit
    return -whole if value < 0 else whole


_DATE = {"year": attrgetter("year"), "month": attrgetter("month"), "day": attrgetter("day")}
_TIME = {"hours": attrgetter("hour"), "minutes": attrgetter("minute"), "seconds": attrgetter("second")}
_parts("dateTime", **_DATE, **_TIME, timezone=_zone)
_parts("date", **_DATE, timezone=_zone)
_parts("time", **_TIME, timezone=_zone)
_parts(
    "duration",
    years=lambda value: _signed(value.months, 12, None),
    months=lambda value: _signed(value.months, 1, 12),
    days=lambda value: _signed(value.seconds, 86400, None),
    hours=lambda value: _signed(value.seconds, 3600, 24),
    minutes=lambda value: _signed(value.seconds, 60, 60),
    seconds=lambda value: EXACT.remainder(value.seconds, 60),
)


@function("dateTime", "date?", "time?")
def _date_time(date: Date | None, time: Time | None) -> DateTime | None:
    if date is None or time is None:
        return None
    if date.zone is not None and time.zone is not None and date.zone != time.zone:
        raise XQueryError("FORG0008", "the date and the time have different time zones")
    zone = date.zone if time.zone is None else time.zone
    return DateTime(date.year, date.month, date.day, time.hour, time.minute, time.second, zone)


def _adjusted(value: Any, zone: DayTimeDuration | None = _UTC) -> Any:
    """The same instant in another zone; a value without zone gets it as it stands."""
    if zone is None:
        minutes = None
    else:
        if abs(zone.seconds) > 50400 or zone.seconds % 60:
            raise XQueryError("FODT0003", f"{zone} is not a time zone: from -PT14H to PT14H in minutes")
        minutes = int(zone.seconds // 60)
    seconds = value.local_seconds()
    if value.zone is not None and minutes is not None:
        seconds = EXACT.add(seconds, (minutes - value.zone) * 60)
    moved = DateTime.of_seconds(seconds, minutes)
    return moved if type(value) is DateTime else cast(moved, type(value).name)


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


def _format(value: Any, picture: str, *settings: str | None) -> str:
    language, calendar, place = settings or (None, None, None)
    return formatted(_at_place(value, place), picture, language, calendar)


for _kind in ("dateTime", "date", "time"):
    function(f"adjust-{_kind}-to-timezone", f"{_kind}?", "dayTimeDuration?", optional=1)(present(_adjusted))
    function(f"format-{_kind}", f"{_kind}?", "string", "string?", "string?", "string?", optional=3, together=True)(
        present(_format)
    )
function("current-date", env=True)(lambda context: cast(context.now, "date"))
function("current-time", env=True)(lambda context: cast(context.now, "time"))
function("implicit-timezone")(DayTimeDuration)
