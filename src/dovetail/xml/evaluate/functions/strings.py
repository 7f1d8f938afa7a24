"""Functions on strings, with regular expressions among them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.calls import function
from dovetail.xml.syntax.reader import is_xml_character
from dovetail.xml.xdm.atomic import rounded
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.regex import compiled

function("concat", "anyAtomicType?", "anyAtomicType?", variadic=True)(
    lambda *values: "".join(["" if value is None else text_of(value) for value in values])
)
function("string-join", "anyAtomicType*", "string", optional=1)(
    lambda values, separator="": separator.join(map(text_of, values))
)


@function("substring", "string?", "double", "double", optional=1)
def _substring(text: str | None, start: float, length: float | None = None) -> str:
    if not text or math.isnan(start):
        return ""
    first = rounded(start, 0)
    last = math.inf if length is None else first + rounded(length, 0)
    if math.isnan(last):
        return ""
    begin = 0 if first <= 1 else len(text) if first > len(text) else int(first) - 1
    end = len(text) if last > len(text) else max(0, int(last) - 1) if last > 0 else 0
    return text[begin:end]


function("string-length", "string?", focus=True)(lambda text: len(text or ""))
function("normalize-space", "string?", focus=True)(lambda text: " ".join(_words(text)))
function("upper-case", "string?")(lambda text: (text or "").upper())
function("lower-case", "string?")(lambda text: (text or "").lower())
function("string-to-codepoints", "string?")(lambda text: list(map(ord, text or "")))
function("encode-for-uri", "string?")(lambda text: quote(text or "", safe="~"))
function("iri-to-uri", "string?")(lambda text: quote(text or "", safe="!#$%&'()*+,/:;=?@[]~"))
function("escape-html-uri", "string?")(
    lambda text: "".join(sign if " " <= sign <= "~" else quote(sign) for sign in text or "")
)
function("codepoint-equal", "string?", "string?")(
    lambda left, right: None if left is None or right is None else str(left) == str(right)
)


def _of_two(name: str, call: Callable[[str, str], Any]) -> None:
    """A function of two texts, where nothing is the empty text."""
    function(name, "string?", "string?", collation="string")(lambda text, part: call(text or "", part or ""))


_of_two("contains", lambda text, part: part in text)
_of_two("starts-with", str.startswith)
_of_two("ends-with", str.endswith)
_of_two("substring-before", lambda text, part: text.partition(part)[0] if part and part in text else "")
_of_two("substring-after", lambda text, part: text.partition(part)[2] if part else text)


def _words(text: str | None) -> list[str]:
    """The parts of a text between white space."""
    return [part for part in re.split("[ \t\n\r]+", text or "") if part]


@function("normalize-unicode", "string?", "string", optional=1)
def _normalize_unicode(text: str | None, form: str = "NFC") -> str:
    name = form.strip().upper()
    if name == "":
        return text or ""
    if name in ("NFC", "NFD", "NFKC", "NFKD"):
        return unicodedata.normalize(name, text or "")  # type: ignore[arg-type]  # one of the four
    raise XQueryError("FOCH0003", f"{form!r} is not a supported normalization form")


@function("translate", "string?", "string", "string")
def _translate(text: str | None, source: str, target: str) -> str:
    table: dict[int, str | None] = {}
    for at, sign in enumerate(source):
        table.setdefault(ord(sign), target[at] if at < len(target) else None)
    return (text or "").translate(table)


function("contains-token", "string*", "string", collation="string")(
    lambda texts, token: any(token.strip(" \t\n\r") in _words(text) for text in texts)
)


@function("compare", "string?", "string?", collation="string")
def _compare(left: str | None, right: str | None) -> int | None:
    if left is None or right is None:
        return None
    return (left > right) - (left < right)


@function("codepoints-to-string", "integer*")
def _from_codepoints(codes: list[int]) -> str:
    for code in codes:
        if not is_xml_character(code):
            raise XQueryError("FOCH0001", f"{code} is not the number of a character that XML allows")
    return "".join(map(chr, codes))


def _pattern(pattern: str, flags: str) -> re.Pattern[str]:
    """The pattern, which must not match the empty text."""
    found = compiled(pattern, flags)
    if found.search("") is not None:
        raise XQueryError("FORX0003", f"the pattern {pattern!r} matches the empty string")
    return found


function("matches", "string?", "string", "string", optional=1)(
    lambda text, pattern, flags="": compiled(pattern, flags).search(text or "") is not None
)


@function("replace", "string?", "string", "string", "string", optional=1)
def _replace(text: str | None, pattern: str, replacement: str, flags: str = "") -> str:
    found = _pattern(pattern, flags)
    if "q" in flags:
        return found.sub(lambda match: replacement, text or "")
    parts = _template(replacement, found.groups)
    return found.sub(lambda match: "".join(_filled(part, match) for part in parts), text or "")


def _filled(part: str | int, match: re.Match[str]) -> str:
    return part if isinstance(part, str) else (match[part] or "") if part <= match.re.groups else ""


def _template(text: str, groups: int) -> list[str | int]:
    """Text and numbers of groups: `$1`, with `\\$` and `\\\\` for the signs themselves."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        here, behind = text[at], text[at + 1 : at + 2]
        if here == "\\":
            if behind not in ("\\", "$"):
                raise XQueryError("FORX0004", f"{text!r}: a backslash stands before $ or another backslash only")
            parts.append(behind)
            at += 2
        elif here == "$":
            digits = re.match("[0-9]+", text[at + 1 :])
            if digits is None:
                raise XQueryError("FORX0004", f"{text!r}: $ must be followed by the number of a group")
            number = digits[0]
            while len(number) > 1 and int(number) > groups:
                number = number[:-1]
            parts.append(int(number))
            at += 1 + len(number)
        else:
            parts.append(here)
            at += 1
    return parts


@function("tokenize", "string?", "string", "string", optional=2)
def _tokenize(text: str | None, pattern: str | None = None, flags: str = "") -> list[str]:
    if pattern is None:
        return _words(text)
    found = _pattern(pattern, flags)
    if not text:
        return []
    tokens, start = [], 0
    for match in found.finditer(text):
        tokens.append(text[start : match.start()])
        start = match.end()
    return [*tokens, text[start:]]
