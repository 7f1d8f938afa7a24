"""Numbers by a picture such as `#,##0.00`, for `format-number`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import pairwise
from typing import Any

from dovetail.errors import XQueryError

_DIGIT = "0123456789"
_CONTEXT = Context(prec=20_000)


@dataclass(frozen=True, slots=True)
class Picture:
    """One half of a picture, taken apart."""

    prefix: str
    suffix: str
    whole: str  # digits and grouping signs before the point
    fraction: str
    scale: int  # 2 with a percent sign, 3 with per mille


def _parsed(text: str, whole_picture: str) -> Picture:
    match = re.fullmatch(r"([^0-9#.,]*)([0-9#,]*)(?:\.([0-9#,]*))?([^0-9#.,]*)", text)
    if match is None or not (match[2] or match[3]) or not re.search("[0-9#]", text):
        raise XQueryError("FODF1310", f"{whole_picture!r} is not a picture of a number")
    prefix, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    if re.search("[0-9].*#", whole) or re.search("#.*[0-9]", fraction) or ",," in whole or whole.endswith(","):
        raise XQueryError("FODF1310", f"{whole_picture!r}: # stands outside of the digits 0, never between")
    signs = prefix + suffix
    if "e" in signs or "E" in signs:
        raise XQueryError("FODF1310", f"{whole_picture!r}: exponents are not supported")
    return Picture(prefix, suffix, whole, fraction, 2 if "%" in signs else 3 if "‰" in signs else 0)


def format_number(value: Any, picture: str) -> str:
    """The number as the picture says. Raises FODF1310 for pictures that mean nothing."""
    halves = picture.split(";")
    if len(halves) > 2:
        raise XQueryError("FODF1310", f"{picture!r} has more than two parts")
    parts = [_parsed(half, picture) for half in halves]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    negative = value < 0 or (isinstance(value, float) and math.copysign(1, value) < 0)
    part = parts[-1] if negative else parts[0]
    sign = "-" if negative and len(parts) == 1 else ""
    if isinstance(value, float) and math.isinf(value):
        return f"{sign}{part.prefix}Infinity{part.suffix}"
    exact = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    return f"{sign}{part.prefix}{_digits(abs(exact), part)}{part.suffix}"


def _digits(value: Decimal, part: Picture) -> str:
    fraction = part.fraction.replace(",", "")
    whole = part.whole.replace(",", "")
    value = value.scaleb(part.scale, _CONTEXT).quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_EVEN, _CONTEXT)
    text = format(value, "f")
    before, _, after = text.partition(".")
    least = sum(sign in _DIGIT for sign in whole)
    before = before.lstrip("0").rjust(least, "0")
    needed = sum(sign in _DIGIT for sign in fraction)
    after = after[:needed] + after[needed:].rstrip("0")
    if (not before and not after) or (not before and least == 0 and not fraction):
        before = "0"
    return _grouped(before, part.whole) + (f".{after}" if after else "")


def _grouped(digits: str, pattern: str) -> str:
    """Grouping signs where the picture has them; at equal distances they go on to the left."""
    places = sorted({len(pattern[at + 1 :].replace(",", "")) for at, sign in enumerate(pattern) if sign == ","})
    if not places:
        return digits
    size = places[0]
    regular = all(place == size * (at + 1) for at, place in enumerate(places))
    wanted = range(size, len(digits), size) if regular else [place for place in places if place < len(digits)]
    cuts = [0, *(len(digits) - place for place in sorted(wanted, reverse=True)), len(digits)]
    return ",".join(digits[start:end] for start, end in pairwise(cuts))
