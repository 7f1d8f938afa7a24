"""Query text to tokens, on demand: what `<` or `{` means depends on where the parser stands.

The parser looks at tokens one at a time; inside direct constructors it reads characters from `offset` itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from dovetail.errors import XQueryError

NAME_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
NAME_CHAR = NAME_START + "\\-.0-9\u00b7\u0300-\u036f\u203f-\u2040"
NCNAME = f"[{NAME_START}][{NAME_CHAR}]*"
QNAME = re.compile(f"(?:({NCNAME}):)?({NCNAME})")

_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<double>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+)",
            r"(?P<decimal>\d+\.\d*|\.\d+)",
            r"(?P<integer>\d+)",
            r"(?P<string>\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*')",
            rf"(?P<braced>Q\{{[^{{}}]*\}}(?:{NCNAME}|\*))",
            rf"(?P<wildcard>\*:{NCNAME}|{NCNAME}:\*)",
            rf"(?P<name>{NCNAME}(?::{NCNAME})?)",
            r"(?P<symbol>\(#|::|:=|<<|>>|<=|>=|!=|\|\||//|\.\.|=>|[-+*/|=<>!?$@.,:;()\[\]{}#%])",
        )
    )
)
_SPACE = re.compile(r"[ \t\r\n]+")
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d+)|#x([0-9a-fA-F]+));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_NUMBERS = frozenset(("double", "decimal", "integer"))


@dataclass(frozen=True, slots=True)
class Token:
    """A token and where it stands; the kind of a symbol is the symbol itself."""

    kind: str
    text: str
    start: int
    end: int


class Lexer:
    """Tokens of a text from `offset` on."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.offset = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self._ahead: list[Token] = []

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def error(self, code: str, message: str, offset: int | None = None) -> XQueryError:
        """An error with its place, to be raised."""
        return XQueryError(code, message, *self.place(self.offset if offset is None else offset))

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one further on, without taking it."""
        while len(self._ahead) <= ahead:
            self._ahead.append(self._scan(self._ahead[-1].end if self._ahead else self.offset))
        return self._ahead[ahead]

    def take(self) -> Token:
        """The next token; the text goes on after it."""
        token = self.peek()
        del self._ahead[0]
        self.offset = token.end
        return token

    def move(self, offset: int) -> None:
        """Goes on reading at another place: used by the parser of direct constructors."""
        self.offset = offset
        self._ahead.clear()

    def _scan(self, offset: int) -> Token:
        start = self.skip(offset)
        if start >= len(self.text):
            return Token("end", "", start, start)
        match = _TOKEN.match(self.text, start)
        if match is None:
            if self.text[start] in "'\"":
                raise self.error("XPST0003", "a string literal is not closed", start)
            raise self.error("XPST0003", f"unexpected character {self.text[start]!r}", start)
        kind = match.lastgroup or ""
        if kind in _NUMBERS and re.match(f"[{NAME_START}]", self.text[match.end() : match.end() + 1]):
            raise self.error("XPST0003", f"a number is followed directly by {self.text[match.end()]!r}", match.end())
        return Token(match.group() if kind == "symbol" else kind, match.group(), start, match.end())

    def skip(self, offset: int) -> int:
        """The first offset from here on that is neither white space nor comment; comments nest."""
        while True:
            space = _SPACE.match(self.text, offset)
            if space is not None:
                offset = space.end()
            if not self.text.startswith("(:", offset):
                return offset
            offset = self._skip_comment(offset)

    def _skip_comment(self, start: int) -> int:
        depth, offset = 0, start
        for match in re.compile(r"\(:|:\)").finditer(self.text, start):
            if match.start() < offset:
                continue
            depth += 1 if match.group() == "(:" else -1
            offset = match.end()
            if depth == 0:
                return offset
        raise self.error("XPST0003", "a comment is not closed", start)

    def unescape(self, text: str, offset: int) -> str:
        """The text with entity and character references replaced; anything else after & is an error."""
        if "&" not in text:
            return text
        position, parts = 0, []
        while (found := text.find("&", position)) >= 0:
            match = _ENTITY.match(text, found)
            if match is None:
                raise self.error(
                    "XPST0003", f"{text[found : found + 10]!r} is not a predefined reference", offset + found
                )
            parts += [text[position:found], self._reference(match, offset + found)]
            position = match.end()
        return "".join([*parts, text[position:]])

    def _reference(self, match: re.Match[str], offset: int) -> str:
        name, decimal, hexadecimal = match.groups()
        if name:
            return _ENTITIES[name]
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if not is_xml_character(code):
            raise self.error("XQST0090", f"{match.group()} is not a character of XML", offset)
        return chr(code)


def is_xml_character(code: int) -> bool:
    """Whether XML 1.0 allows the character."""
    return code in (9, 10, 13) or 32 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
