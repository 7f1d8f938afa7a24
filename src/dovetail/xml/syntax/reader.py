"""Query text to tokens, names and types.

Tokens are read on demand: the meaning of `<` or `{` depends on the state of the parser. Inside direct constructors it
reads characters from `offset` itself. A `Reader` also knows the namespaces in scope.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast, get_args

from dovetail.errors import XQueryError
from dovetail.xml.syntax.tree import (
    ERR,
    FN,
    LOCAL,
    XML,
    XS,
    Expr,
    ItemType,
    KindTest,
    NameTest,
    NodeKind,
    QName,
    Sequence,
    SequenceType,
)

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
        """Take the next token."""
        token = self.peek()
        del self._ahead[0]
        self.offset = token.end
        return token

    def move(self, offset: int) -> None:
        """Continues reading at another place: used by the parser of direct constructors."""
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


Node = TypeVar("Node", bound=Expr)
MAX_DEPTH = 100
_PREDECLARED = {"xml": XML, "xs": XS, "fn": FN, "local": LOCAL, "err": ERR, "xsi": f"{XS}-instance"}
KIND_TESTS = frozenset((*get_args(NodeKind), "schema-element", "schema-attribute"))


class Reader:
    """The tokens of one text and the static context around the current place.

    The functions that parse parts of the grammar read from it. `single` is the one that reads any single expression.
    """

    def __init__(self, text: str, single: Callable[[Reader], Expr]) -> None:
        self._single = single
        self.lexer = Lexer(text)
        self.namespaces = dict(_PREDECLARED)
        self.element_namespace = ""
        self.function_namespace = FN
        self.empty_greatest = False
        self.depth = 0
        self.preserve_space = False

    def expr(self) -> Expr:
        """Expressions separated by commas."""
        start = self.lexer.peek().start
        items = [self.single()]
        while self.takes(","):
            items.append(self.single())
        return items[0] if len(items) == 1 else self.at(start, Sequence(tuple(items)))

    def single(self) -> Expr:
        """One expression. Expressions nest to a fixed depth, so that no query can exhaust the stack."""
        self.deeper()
        found = self._single(self)
        self.depth -= 1
        return found

    def enclosed(self) -> Expr:
        """`{ expr }`; `{ }` is the empty sequence."""
        start = self.expect("{").start
        if self.takes("}"):
            return self.at(start, Sequence(()))
        inner = self.expr()
        self.expect("}")
        return inner

    def deeper(self) -> None:
        """Counts a level of nesting, so that no query can exhaust the stack."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.unsupported(f"expressions nested deeper than {MAX_DEPTH} are")

    # --- tokens

    def sees(self, *kinds: str) -> bool:
        """Whether the next tokens are these symbols or keywords, in turn."""
        return all(_matches(self.lexer.peek(ahead), kind) for ahead, kind in enumerate(kinds))

    def takes(self, *kinds: str) -> bool:
        """Takes the tokens if they are the next ones."""
        if not self.sees(*kinds):
            return False
        for _ in kinds:
            self.lexer.take()
        return True

    def expect(self, kind: str) -> Token:
        """Takes a token that must be there."""
        if not self.sees(kind):
            raise self.unexpected(f"{kind!r} expected")
        return self.lexer.take()

    def unexpected(self, wanted: str) -> XQueryError:
        """The error of a token that is not allowed here."""
        token = self.lexer.peek()
        found = "the end of the query" if token.kind == "end" else repr(token.text)
        return self.lexer.error("XPST0003", f"{wanted}, found {found}", token.start)

    def unsupported(self, what: str, code: str = "XPST0003") -> XQueryError:
        """The error of a part of the language that Dovetail does not have."""
        return self.lexer.error(code, f"{what} not supported", self.lexer.peek().start)

    def at(self, offset: int, node: Node) -> Node:
        """The new node with its place in the text filled in."""
        line, column = self.lexer.place(offset)
        object.__setattr__(node, "line", line)  # a frozen node that was made just now
        object.__setattr__(node, "column", column)
        return node

    def string(self) -> str:
        """A string literal, its quotes and references resolved."""
        token = self.lexer.peek()
        if token.kind != "string":
            raise self.unexpected("a string literal expected")
        self.lexer.take()
        quote = token.text[0]
        return self.lexer.unescape(token.text[1:-1].replace(quote * 2, quote), token.start + 1)

    # --- names

    def prefixes(self) -> tuple[tuple[str, str], ...]:
        """The namespaces of prefixes here; "" is the default namespace of elements."""
        return (*self.namespaces.items(), ("", self.element_namespace))

    def prefixes_for(self, kind: QName) -> tuple[tuple[str, str], ...]:
        """The prefixes that a cast to a type needs: those in scope if it makes names."""
        return self.prefixes() if kind == QName(XS, "QName") else ()

    def uri_of(self, prefix: str, offset: int) -> str:
        """The namespace that a prefix stands for here."""
        uri = self.namespaces.get(prefix)
        if not uri:
            raise self.lexer.error("XPST0081", f"prefix {prefix!r} is not declared", offset)
        return uri

    def resolve(self, text: str, default: str, offset: int) -> QName:
        """A name as written to a name with its namespace."""
        if text.startswith("Q{"):
            uri, _, local = text[2:].partition("}")
            return QName(" ".join(self.lexer.unescape(uri, offset).split()), local)
        prefix, colon, local = text.partition(":")
        return QName(self.uri_of(prefix, offset), local, prefix) if colon else QName(default, text)

    def name(self, default: str = "") -> QName:
        """A name; without prefix it is in the namespace `default`."""
        token = self.lexer.peek()
        if token.kind not in ("name", "braced") or token.text.endswith("*"):
            raise self.unexpected("a name expected")
        self.lexer.take()
        return self.resolve(token.text, default, token.start)

    def variable(self) -> QName:
        """`$name`."""
        self.expect("$")
        return self.name()

    def name_test(self, default: str) -> NameTest:
        """A name or wildcard: `a`, `p:a`, `*`, `p:*`, `*:a`, `Q{uri}*`."""
        token = self.lexer.peek()
        if self.takes("*"):
            return NameTest(None, None)
        if token.kind not in ("name", "braced", "wildcard"):
            raise self.unexpected("a name or wildcard expected")
        self.lexer.take()
        if token.text.startswith("*:"):
            return NameTest(None, token.text[2:])
        name = self.resolve(token.text, default, token.start)
        return NameTest(name.uri, None if name.local == "*" else name.local, name.prefix)

    # --- types: what may follow `as`, `instance of`, `cast as`; and the tests by kind of steps

    def sequence_type(self) -> SequenceType:
        """`item-type occurrence`, or `empty-sequence()`."""
        if self.takes("empty-sequence", "("):
            self.expect(")")
            return SequenceType(None)
        item = self.item_type()
        for sign in ("?", "*", "+"):
            if self.takes(sign):
                return SequenceType(item, sign)
        return SequenceType(item)

    def item_type(self) -> ItemType:
        """`item()`, a kind test or the name of an atomic type."""
        if self.sees("("):
            raise self.unsupported("parenthesised item types are")
        token = self.lexer.peek()
        if token.kind != "name" or self.lexer.peek(1).kind != "(":
            return self.atomic_name()
        if self.takes("item", "("):
            self.expect(")")
            return "item()"
        if token.text in KIND_TESTS:
            return self.kind_test()
        raise self.unsupported(f"the item type {token.text}() is")

    def atomic_name(self) -> QName:
        """The name of an atomic type; whether it exists is checked when the query is compiled."""
        return self.name(self.element_namespace)

    def optional_type(self) -> SequenceType | None:
        """`as type`, if it is there."""
        return self.sequence_type() if self.takes("as") else None

    def single_type(self) -> tuple[QName, bool]:
        """`type` or `type?` of a cast."""
        name = self.atomic_name()
        return name, self.takes("?")

    def kind_test(self) -> KindTest:
        """`text()`, `element(name, type)` and the like."""
        kind = self.lexer.peek().text
        if kind.startswith("schema-"):
            raise self.unsupported(f"{kind}() is", "XPST0008")
        self.lexer.take()
        self.expect("(")
        name, inner = None, None
        if not self.sees(")"):
            name, inner = self._kind_argument(kind)
        self.expect(")")
        return KindTest(cast("NodeKind", kind), name, inner)

    def _kind_argument(self, kind: str) -> tuple[NameTest | None, KindTest | None]:
        if kind == "document-node":
            if not self.sees("element", "("):
                raise self.unexpected("element() expected")
            return None, self.kind_test()
        if kind == "processing-instruction":
            text = self.string().strip() if self.sees("string") else self.name().local
            return NameTest("", text), None
        if kind not in ("element", "attribute"):
            raise self.unexpected("')' expected")
        name = NameTest(None, None) if self.takes("*") else self._named(kind)
        if self.takes(","):
            self._type_of_kind(kind)
        return name, None

    def _named(self, kind: str) -> NameTest:
        name = self.name(self.element_namespace if kind == "element" else "")
        return NameTest(name.uri, name.local, name.prefix)

    def _type_of_kind(self, kind: str) -> None:
        """Trees are untyped: the types that every element or attribute has are true, others need a schema."""
        allowed = ("anyType", "untyped") if kind == "element" else ("anySimpleType", "anyAtomicType", "untypedAtomic")
        name = self.atomic_name()
        if name.uri != XS or name.local not in allowed:
            raise self.unsupported(f"{kind}() with the type {name} is", "XPST0008")
        if kind == "element":
            self.takes("?")


def _matches(token: Token, kind: str) -> bool:
    if token.kind in ("name", kind):
        return token.text == kind or token.kind == kind
    return False
