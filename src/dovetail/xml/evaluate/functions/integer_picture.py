"""Integers by a picture such as `#,##0`, `i` or `Ww;o`, for `format-integer` and parts of dates; words are English."""

from __future__ import annotations

import re
import unicodedata

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.functions.picture import Grouping

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
    """The integer as the picture says. Raises FODF1310 for pictures that mean nothing."""
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
    zero = zeros.pop()
    return "".join(chr(zero + int(sign)) if sign in "0123456789" else sign for sign in text) if zero != 48 else text


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
