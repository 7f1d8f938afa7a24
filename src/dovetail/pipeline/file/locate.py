"""Where things stand in a TOML file: the line of every key. `tomllib` gives values without places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

KeyPath = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r]|#[^\n]*)*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]\}\n#]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of every table and key by its path; elements of arrays are numbered from 0.

    The text must be valid TOML: `tomllib` has read it before. A table that is only implied has the line of the first
    table that implies it.

    >>> key_lines('[source.a]\\ntype = "csv"\\n')
    {('source',): 1, ('source', 'a'): 1, ('source', 'a', 'type'): 2}
    """
    return _Scanner(text).scan()


def nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of the path or, if it is not there, of what is nearest above it; 1 if nothing is."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text, self._at = text.replace("\r\n", "\n"), 0
        self._lines: dict[KeyPath, int] = {}
        self._arrays: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_SPACE)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_SPACE)
        return self._lines

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _mark(self, path: KeyPath, line: int) -> None:
        for n in range(1, len(path) + 1):
            self._lines.setdefault(path[:n], line)

    def _header(self) -> KeyPath:
        line, many = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        names = self._dotted()
        self._at += 2 if many else 1
        path: KeyPath = ()
        for n, name in enumerate(names):
            path = (*path, name)
            if many and n == len(names) - 1:
                self._arrays[path] = self._arrays.get(path, -1) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path])
        self._mark(path, line)
        self._lines[path] = line
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = (*table, *self._dotted())
        self._mark(path, line)
        self._at += 1  # the equals sign, at which a dotted key ends
        self._skip(_BLANK)
        self._value(path)

    def _dotted(self) -> list[str]:
        names = []
        while True:
            self._skip(_BLANK)
            names.append(self._name())
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _name(self) -> str:
        if self._text[self._at] in "\"'":
            return self._string()
        found = _BARE.match(self._text, self._at)
        if found is None:
            raise ValueError(f"line {self._line()}: this is no TOML key")
        self._at = found.end()
        return found[0]

    def _value(self, path: KeyPath) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline(path)
        else:
            self._skip(_SCALAR)

    def _string(self) -> str:
        quote = self._text[self._at]
        mark = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        start = self._at + len(mark)
        end = start
        while not self._text.startswith(mark, end):
            end += 2 if quote == '"' and self._text[end] == "\\" else 1
        if len(mark) == 3:  # up to two quotes may stand before the closing three
            while self._text.startswith(quote, end + 3):
                end += 1
        self._at = end + len(mark)
        return _unescaped(self._text[start:end]) if quote == '"' else self._text[start:end]

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_SPACE)
        n = 0
        while self._text[self._at] != "]":
            self._lines[(*path, n)] = self._line()
            self._value((*path, n))
            self._separator()
            n += 1
        self._at += 1

    def _inline(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_SPACE)
        while self._text[self._at] != "}":
            self._pair(path)
            self._separator()
        self._at += 1

    def _separator(self) -> None:
        self._skip(_SPACE)
        if self._text[self._at] == ",":
            self._at += 1
        self._skip(_SPACE)


def _unescaped(text: str) -> str:
    import tomllib

    return str(tomllib.loads(f'k = "{text}"')["k"]) if "\\" in text and "\n" not in text else text


def value_at(data: Mapping[str, Any], path: KeyPath) -> Any:
    """What stands at the path; KeyError or IndexError if nothing does."""
    found: Any = data
    for part in path:
        found = found[part]
    return found
