"""Numbers by a picture such as `#,##0.00` or `0.0##e0`, for `format-number`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.xdm.decimals import EXACT
from dovetail.xml.xdm.numbers import shortest

_ROUNDING = Context(prec=EXACT.prec, Emin=EXACT.Emin, Emax=EXACT.Emax, traps=[])
_SHAPE = re.compile(
    r"(?P<prefix>[^0-9#.,]*)(?P<whole>[0-9#,]*)(?P<point>\.(?P<fraction>[0-9#,]*))?(?:e(?P<exponent>[0-9]+))?"
    r"(?P<suffix>[^0-9#.,]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Grouping signs of the whole part of a picture, each with the count of digits to its right."""

    marks: tuple[tuple[int, str], ...]
    distance: int  # where they go on to the left: of one kind, at equal distances as far as the picture has digits

    @staticmethod
    def of(pattern: str, signs: str) -> Grouping:
        """The grouping of a pattern of digits and these signs."""
        marks: list[tuple[int, str]] = []
        digits = 0
        for sign in reversed(pattern):
            if sign in signs:
                marks.append((digits, sign))
            else:
                digits += 1
        size = marks[0][0] if marks else 0
        regular = size and marks == [(place, marks[0][1]) for place in range(size, max(digits, size + 1), size)]
        return Grouping(tuple(marks), size if regular else 0)

    def applied(self, digits: str) -> str:
        """The digits with the signs between them."""
        marks = self.marks
        if self.distance:
            marks = tuple((place, marks[0][1]) for place in range(self.distance, len(digits), self.distance))
        text, end = "", len(digits)
        for place, sign in marks:
            if place < len(digits):
                text = sign + digits[len(digits) - place : end] + text
                end = len(digits) - place
        return digits[:end] + text


@dataclass(frozen=True, slots=True)
class Picture:
    """One half of a picture, taken apart."""

    prefix: str
    suffix: str
    scale: int  # 2 with a percent sign, 3 with per mille
    grouping: Grouping
    fraction_groups: tuple[int, ...]  # grouping signs behind the point, as counts of digits to their left
    least_whole: int
    least_fraction: int
    most_fraction: int
    factor: int  # digits of a mantissa before the point
    exponent: int  # least digits of the exponent; 0 without one


def _fault(picture: str, what: str) -> XQueryError:
    return XQueryError("FODF1310", f"{picture!r} is not a picture of a number: {what}")


def _parsed(text: str, picture: str) -> Picture:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise _fault(picture, "digits, one point, grouping signs and an exponent stand together")
    prefix, whole, fraction, suffix = match["prefix"], match["whole"], match["fraction"] or "", match["suffix"]
    signs = prefix + suffix
    if signs.count("%") + signs.count("‰") > (match["exponent"] is None):
        raise _fault(picture, "it has more than one sign of percent or per mille, or one beside an exponent")
    if not re.search("[0-9#]", whole + fraction):
        raise _fault(picture, "it has no digit")
    if re.search("[0-9],*#|[0-9].*#", whole) or re.search("#.*[0-9]", fraction):
        raise _fault(picture, "# stands outside of the digits, never between")
    joined = f"{whole}{match['point'] or ''}"
    if re.search(r",,|,\.|\.,", joined) or whole.endswith(",") or (fraction.endswith(",") and match["exponent"]):
        raise _fault(picture, "a grouping sign stands between digits")
    return _counted(prefix, suffix, whole, fraction, match["exponent"])


def _counted(prefix: str, suffix: str, whole: str, fraction: str, exponent: str | None) -> Picture:
    least_whole, least_fraction = _digits(whole), _digits(fraction)
    most_fraction, factor = len(fraction.replace(",", "")), least_whole
    if not least_whole and not most_fraction:
        if exponent is None:
            least_whole = 1
        else:
            least_fraction = most_fraction = 1
    if exponent is not None and not least_whole and "#" in whole:
        least_whole = 1
    if not least_whole and not least_fraction:
        least_fraction = 1
    signs = prefix + suffix
    return Picture(
        prefix,
        suffix,
        2 if "%" in signs else 3 if "‰" in signs else 0,
        Grouping.of(whole, ","),
        tuple(len(fraction[:at].replace(",", "")) for at, sign in enumerate(fraction) if sign == ","),
        least_whole,
        least_fraction,
        max(most_fraction, least_fraction),
        factor,
        len(exponent or ""),
    )


def _digits(text: str) -> int:
    return sum(sign in "0123456789" for sign in text)


@lru_cache(maxsize=256)
def _pictures(picture: str) -> tuple[Picture, ...]:
    halves = picture.split(";")
    if len(halves) > 2:
        raise _fault(picture, "it has more than two parts")
    return tuple(_parsed(half, picture) for half in halves)


def format_number(value: Any, picture: str) -> str:
    """The number as the picture says. Raises FODF1310 for pictures that mean nothing."""
    parts = _pictures(picture)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    negative = value < 0 or (isinstance(value, float) and math.copysign(1, value) < 0)
    part = parts[-1] if negative else parts[0]
    sign = "-" if negative and len(parts) == 1 else ""
    if isinstance(value, float) and math.isinf(value):
        return f"{sign}{part.prefix}Infinity{part.suffix}"
    exact = Decimal(shortest(value)) if isinstance(value, float) else Decimal(value)
    return f"{sign}{part.prefix}{_text(exact.copy_abs(), part)}{part.suffix}"


def _text(value: Decimal, part: Picture) -> str:
    value, power = EXACT.scaleb(value, part.scale), 0
    if part.exponent and value:
        power = value.adjusted() + 1 - part.factor
        value = EXACT.scaleb(value, -power)
    value = value.quantize(EXACT.scaleb(Decimal(1), -part.most_fraction), ROUND_HALF_EVEN, _ROUNDING)
    before, _, after = format(value, "f").partition(".")
    before = before.lstrip("0").rjust(part.least_whole, "0")
    after = after.rstrip("0").ljust(part.least_fraction, "0")
    text = part.grouping.applied(before)
    if after:
        text += "." + _grouped_fraction(after, part.fraction_groups)
    return f"{text}e{'-' * (power < 0)}{abs(power):0{part.exponent}}" if part.exponent else text


def _grouped_fraction(digits: str, places: tuple[int, ...]) -> str:
    cuts = [0, *(place for place in places if place < len(digits)), len(digits)]
    return ",".join(digits[start:end] for start, end in pairwise(cuts))
