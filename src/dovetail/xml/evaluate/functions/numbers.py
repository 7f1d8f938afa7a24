"""Functions on numbers, and numbers by a picture such as `#,##0.00`, `i` or `Ww;o`; words are English."""

from __future__ import annotations

import decimal
import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.calls import function, present
from dovetail.xml.xdm.atomic import INTEGERS, Float, rounded, shortest
from dovetail.xml.xdm.temporal import EXACT

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
    distance: int  # the distance at which they repeat to the left, if they are of one kind and at equal distances

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
    """The number formatted by the picture. Raises FODF1310 for invalid pictures."""
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


_MODIFIER = re.compile(r"([co](\(.+\))?)?[at]?", re.DOTALL)
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
          (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_UNITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve",
          "Thirteen", "Fourteen", "Fifteen", "Sixteen", "Seventeen", "Eighteen", "Nineteen")  # fmt: skip
_TENS = ("", "", "Twenty", "Thirty", "Forty", "Fifty", "Sixty", "Seventy", "Eighty", "Ninety")
_SIZES = ((10**12, "Trillion"), (10**9, "Billion"), (10**6, "Million"), (1000, "Thousand"), (100, "Hundred"))
_ORDINALS = {"One": "First", "Two": "Second", "Three": "Third", "Five": "Fifth", "Eight": "Eighth", "Nine": "Ninth",
             "Twelve": "Twelfth"}  # fmt: skip


def format_integer(value: int, picture: str) -> str:
    """The integer formatted by the picture. Raises FODF1310 for invalid pictures."""
    token, semicolon, modifier = picture.rpartition(";")
    if not semicolon:
        token, modifier = picture, ""
    if not token or not _MODIFIER.fullmatch(modifier):
        raise XQueryError("FODF1310", f"{picture!r} is not a picture of an integer")
    text = numbered(abs(value), token, ordinal=modifier.startswith("o"))
    return f"-{text}" if value < 0 else text


def numbered(value: int, token: str, ordinal: bool) -> str:
    """A number that is not negative, by the first part of a picture."""
    if any(unicodedata.category(sign) == "Nd" for sign in token):
        return _decimal(value, token) + (ordinal_suffix(value) if ordinal else "")
    if token in ("w", "W", "Ww"):
        return cased(_ordinal_words(value) if ordinal else _words(value), token)
    if token in ("a", "A") and value:
        return cased(_letters(value), token)
    if token in ("i", "I") and 0 < value < 10_000:
        return cased(_roman(value), token)
    return str(value) + (ordinal_suffix(value) if ordinal and token not in ("a", "A", "i", "I") else "")


def cased(text: str, token: str) -> str:
    """A name or word in the case of the letters that ask for it: `n`, `N`, `Nn`."""
    return text.lower() if token.islower() else text.upper() if token.isupper() else text


def _decimal(value: int, token: str) -> str:
    digits = [sign for sign in token if unicodedata.category(sign) == "Nd"]
    zeros = {ord(sign) - unicodedata.decimal(sign) for sign in digits}
    signs = "".join(sign for sign in token if sign != "#" and sign not in digits)
    pattern = "".join("0" if sign in digits else sign for sign in token)
    good = len(zeros) == 1 and all(unicodedata.category(sign)[0] not in "LN" for sign in signs)
    between = re.escape(signs) and f"[{re.escape(signs)}]"
    if (
        not good
        or re.search("0.*#", pattern)
        or (between and re.search(f"^{between}|{between}$|{between * 2}", pattern))
    ):
        raise XQueryError("FODF1310", f"{token!r} is not a pattern of digits")
    text = Grouping.of(pattern, signs).applied(f"{value:0{len(digits)}}")
    return in_script(text, digits[0])


def in_script(text: str, digit: str) -> str:
    """The text with its digits in the script of a digit."""
    zero = ord(digit) - unicodedata.decimal(digit)
    return text if zero == ord("0") else text.translate({ord("0") + n: zero + n for n in range(10)})


def ordinal_suffix(number: int) -> str:
    """`st`, `nd`, `rd` or `th`."""
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _words(value: int) -> str:
    for size, name in _SIZES:
        if value >= size:
            count, rest = divmod(value, size)
            between = " and " if rest and rest < 100 else " "
            return f"{_words(count)} {name}" + (f"{between}{_words(rest)}" if rest else "")
    if value < 20:
        return _UNITS[value]
    return _TENS[value // 10] + (f"-{_UNITS[value % 10]}" if value % 10 else "")


def _ordinal_words(value: int) -> str:
    words = _words(value)
    last = re.split("[ -]", words)[-1]
    ordinal = _ORDINALS.get(last) or (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return words.removesuffix(last) + ordinal


def _letters(value: int) -> str:
    text = ""
    while value:
        value, digit = divmod(value - 1, 26)
        text = chr(97 + digit) + text
    return text


def _roman(value: int) -> str:
    text = ""
    for size, sign in _ROMAN:
        count, value = divmod(value, size)
        text += sign * count
    return text


def _like(value: Any, result: float) -> Any:
    return Float(result) if type(value) is Float else result


@function("abs", "numeric?")
@present
def _abs(value: Any) -> Any:
    if type(value) in INTEGERS:
        return abs(int(value))
    return _like(value, math.fabs(value)) if isinstance(value, float) else value.copy_abs()


def _integral(value: Any, rounding: str) -> Any:
    if value is None or type(value) in INTEGERS:
        return value
    if isinstance(value, float):
        if not math.isfinite(value) or value == 0:
            return value
        whole = math.floor(value) if rounding == decimal.ROUND_FLOOR else math.ceil(value)
        return _like(value, math.copysign(float(whole), value))
    return value.to_integral_value(rounding=rounding)


function("floor", "numeric?")(lambda value: _integral(value, decimal.ROUND_FLOOR))
function("ceiling", "numeric?")(lambda value: _integral(value, decimal.ROUND_CEILING))
function("round", "numeric?", "integer", optional=1)(present(lambda value, digits=0: rounded(value, digits)))
function("round-half-to-even", "numeric?", "integer", optional=1)(
    present(lambda value, digits=0: rounded(value, digits, half_even=True))
)
function("format-integer", "integer?", "string", "string?", optional=1)(
    lambda value, picture, *_: "" if value is None else format_integer(value, picture)
)


@function("format-number", "numeric?", "string", "string?", optional=1)
def _format_number(value: Any, picture: str, name: str | None = None) -> str:
    if name is not None:
        raise XQueryError("FODF1280", f"the decimal format {name!r} is not declared")
    return format_number(math.nan if value is None else value, picture)
