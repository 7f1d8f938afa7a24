"""Dates and times by a picture such as `[D01]/[M01]/[Y0001]`, for `format-date` and its kin; names are English."""

from __future__ import annotations

import re
from collections.abc import Callable

from dovetail.errors import XQueryError
from dovetail.xquery.xdm.temporal import Temporal, day_number, zone_text

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PART = re.compile(r"([YMDdFHhPmsfZz])(N|n|Nn|[0-9#]*[0-9][0-9#]*)?(o)?(?:,(\*|\d+)(?:-(\*|\d+))?)?")
_OF_DATE, _OF_TIME = frozenset("YMDdF"), frozenset("HhPmsf")
_DEFAULTS = {"F": "n", "P": "n", "m": "01", "s": "01"}


def _weekday(value: Temporal) -> int:
    return (day_number(value.year, value.month, value.day) + 2) % 7 + 1


_NUMBERS: dict[str, Callable[[Temporal], int]] = {
    "Y": lambda value: abs(value.year),
    "M": lambda value: value.month,
    "D": lambda value: value.day,
    "d": lambda value: day_number(value.year, value.month, value.day) - day_number(value.year, 1, 1) + 1,
    "F": _weekday,
    "H": lambda value: value.hour,
    "h": lambda value: (value.hour + 11) % 12 + 1,
    "m": lambda value: value.minute,
    "s": lambda value: int(value.second),
}
_NAMES: dict[str, Callable[[Temporal], str]] = {
    "M": lambda value: _MONTHS[value.month - 1],
    "F": lambda value: _DAYS[_weekday(value) - 1],
    "P": lambda value: "A.m." if value.hour < 12 else "P.m.",
}


def formatted(value: Temporal, picture: str, language: str | None) -> str:
    """The value as the picture says. Raises FOFD1340 for pictures that mean nothing or are not supported."""
    if language is not None and not language.startswith("en"):
        raise XQueryError("FOFD1340", f"names in the language {language!r} are not supported; 'en' is")
    parts, position = [], 0
    for match in re.finditer(r"\[\[|\]\]|\[([^\[\]]*)\]", picture):
        parts += [_plain(picture[position : match.start()], picture)]
        parts += [match[0][0] if match[1] is None else _component(value, "".join(match[1].split()), picture)]
        position = match.end()
    return "".join([*parts, _plain(picture[position:], picture)])


def _plain(text: str, picture: str) -> str:
    if "[" in text or "]" in text:
        raise XQueryError("FOFD1340", f"{picture!r}: brackets do not match")
    return text


def _component(value: Temporal, text: str, picture: str) -> str:
    match = _PART.fullmatch(text)
    if match is None:
        raise XQueryError("FOFD1340", f"[{text}] in {picture!r} is not a known or supported part of a date")
    sign, style, ordinal, least, most = match.groups()
    missing = _OF_TIME if value.name == "date" else _OF_DATE if value.name == "time" else frozenset()
    if sign in missing:
        raise XQueryError("FOFD1350", f"[{text}] in {picture!r}: an xs:{value.name} has no such part")
    style = style or _DEFAULTS.get(sign, "1")
    if sign in "Zz":
        return _zone(value, sign)
    if style.lower() in ("n", "nn") and sign in _NAMES:
        return _cased(_NAMES[sign](value), style, most)
    if sign == "f":
        return _fraction(value, style)
    number = _NUMBERS[sign](value)
    if sign == "Y" and (len(style) > 1 or _count(most)):
        number %= 10 ** (_count(most) or (len(style) if len(style) == 2 else 9))
    width = max(sum(figure.isdigit() for figure in style), _count(least))
    return f"{number:0{width}}" + (_ordinal(number) if ordinal else "")


def _count(text: str | None) -> int:
    return int(text) if text and text != "*" else 0


def _cased(name: str, style: str, most: str | None) -> str:
    name = name.upper() if style == "N" else name.lower() if style == "n" else name
    return name[: _count(most)] if _count(most) else name


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _fraction(value: Temporal, style: str) -> str:
    digits = format(value.second % 1, "f").partition(".")[2]
    return digits[: len(style)].ljust(len(style), "0") if len(style) > 1 else digits.rstrip("0") or "0"


def _zone(value: Temporal, sign: str) -> str:
    text = zone_text(value.zone).replace("Z", "+00:00")
    return f"GMT{text}" if text and sign == "z" else text
