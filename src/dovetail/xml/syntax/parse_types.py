"""Sequence types, kind tests and single types."""

from __future__ import annotations

from typing import cast

from dovetail.xml.syntax.names import XS, AnyItem, AtomicType, KindTest, NameTest, NodeKind, QName, SequenceType
from dovetail.xml.syntax.reader import Reader

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


class TypeParser(Reader):
    """Everything that may follow `as`, `instance of`, `cast as`; and the tests by kind of steps."""

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
