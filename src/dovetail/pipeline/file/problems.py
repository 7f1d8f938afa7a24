"""Collects the problems of a pipeline file, each with its line; finds the lines of keys in TOML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.errors import PlanError
from dovetail.request import nearest

KeyPath = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r]|#[^\n]*)*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]\}\n#]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of every table and key by its path; elements of arrays are numbered from 0.

    `tomllib` gives values without lines. The text must be valid TOML. An implied table has the line of the first table
    that implies it.

    >>> key_lines('[source.a]\\ntype = "csv"\\n')
    {('source',): 1, ('source', 'a'): 1, ('source', 'a', 'type'): 2}
    """
    return _Scanner(text).scan()


def nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of a path, or of its nearest parent that the file has; 1 if there is none."""
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


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem: its line, and a sentence that says what is wrong, what is allowed and what to do."""

    line: int
    text: str
    step: str | None = None

    def shown(self, file: str) -> str:
        """The problem as a compiler prints it: file, line, text."""
        return f"{file}:{self.line}: {self.text}"


class PipelineError(PlanError):
    """A pipeline that cannot run as it is written; the message has one line for each problem."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.shown(file) for problem in problems))
        self.file, self.problems = file, tuple(problems)


@dataclass(slots=True)
class Problems:
    """The problems found so far, each once."""

    lines: dict[KeyPath, int]
    found: list[Problem] = field(default_factory=list)

    def add(self, path: KeyPath, what: str, allowed: str = "", remedy: str = "") -> None:
        """Add a problem at the line of this key, or of the table that should have it."""
        text = "; ".join(part for part in (what, allowed, remedy) if part)
        self.at(nearest_line(self.lines, path), text, str(path[1]) if len(path) > 1 else None)

    def at(self, line: int, text: str, step: str | None = None) -> None:
        """Add a problem at a line."""
        sentence = " ".join(text.split()).rstrip(".")
        problem = Problem(line, sentence if sentence.endswith("?") else f"{sentence}.", step)
        if problem not in self.found:
            self.found.append(problem)

    def sorted(self) -> list[Problem]:
        """All of them, by line."""
        return sorted(self.found, key=lambda problem: problem.line)

    def of(self, step: str) -> bool:
        """Whether a step has problems."""
        return any(problem.step == step for problem in self.found)


def meant(given: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the nearest known one, or nothing."""
    near = nearest(given, known)
    return "" if near is None else f"did you mean {near!r}?"


def listed(names: Iterable[str]) -> str:
    """Names separated by commas, or "none"."""
    return ", ".join(names) or "none"
