"""Reader of a query text: tokens, places, the namespaces in scope, names and types; and room for nested queries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from dovetail.errors import XQueryError
from dovetail.xml.syntax.lexer import Lexer, Token
from dovetail.xml.syntax.names import (
    ERR,
    FN,
    LOCAL,
    XML,
    XS,
    AnyItem,
    AtomicType,
    KindTest,
    NameTest,
    NodeKind,
    QName,
    SequenceType,
)
from dovetail.xml.syntax.tree import Clause, Expr, Sequence

Node = TypeVar("Node", bound=Expr | Clause)
MAX_DEPTH = 100
_CALLS = 60_000  # calls between Python functions use no C stack, so this many are safe
_PREDECLARED = {"xml": XML, "xs": XS, "fn": FN, "local": LOCAL, "err": ERR, "xsi": f"{XS}-instance"}
KIND_TESTS = frozenset(
    (
        "node",
        "text",
        "comment",
        "element",
        "attribute",
        "processing-instruction",
        "document-node",
        "namespace-node",
        "schema-element",
        "schema-attribute",
    )
)


@contextmanager
def deep_stack() -> Iterator[None]:
    """Raises the limit of nested calls inside the block: parsing and evaluation are nested Python calls."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _CALLS))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


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

    def deeper(self, by: int = 1) -> None:
        """Counts a level of nesting, so that no query can exhaust the stack."""
        self.depth += by
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
        """The error of a token that cannot stand here."""
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
        """What prefixes mean here; "" is the default namespace of elements."""
        return (*self.namespaces.items(), ("", self.element_namespace))

    def prefixes_for(self, kind: QName) -> tuple[tuple[str, str], ...]:
        """What a cast to a type must know of its place: prefixes, where it makes names."""
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

    def item_type(self) -> AtomicType | KindTest | AnyItem:
        """`item()`, a kind test or the name of an atomic type."""
        if self.sees("("):
            raise self.unsupported("parenthesised item types are")
        token = self.lexer.peek()
        if token.kind != "name" or self.lexer.peek(1).kind != "(":
            return AtomicType(self.atomic_name())
        if self.takes("item", "("):
            self.expect(")")
            return AnyItem()
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
