"""Functions with regular expressions."""

from __future__ import annotations

import re

from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.regex import compiled


def _pattern(pattern: str, flags: str, allow_empty: bool = True) -> re.Pattern[str]:
    found = compiled(pattern, flags)
    if not allow_empty and found.search("") is not None:
        raise fail("FORX0003", f"the pattern {pattern!r} matches the empty string")
    return found


@function("matches", "string?", "string", "string", optional=1)
def _matches(text: str | None, pattern: str, flags: str = "") -> bool:
    return _pattern(pattern, flags).search(text or "") is not None


@function("replace", "string?", "string", "string", "string", optional=1)
def _replace(text: str | None, pattern: str, replacement: str, flags: str = "") -> str:
    found = _pattern(pattern, flags, allow_empty=False)
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
                raise fail("FORX0004", f"{text!r}: a backslash stands before $ or another backslash only")
            parts.append(behind)
            at += 2
        elif here == "$":
            digits = re.match("[0-9]+", text[at + 1 :])
            if digits is None:
                raise fail("FORX0004", f"{text!r}: $ must be followed by the number of a group")
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
        return [part for part in re.split("[ \t\n\r]+", text or "") if part]
    found = _pattern(pattern, flags, allow_empty=False)
    if not text:
        return []
    tokens, start = [], 0
    for match in found.finditer(text):
        tokens.append(text[start : match.start()])
        start = match.end()
    return [*tokens, text[start:]]
