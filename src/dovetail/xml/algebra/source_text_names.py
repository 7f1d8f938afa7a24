"""Names, node tests and types as query text."""

from __future__ import annotations

from dovetail.xml.syntax.names import FN, XS, AnyItem, AtomicType, KindTest, NameTest, QName, SequenceType


def name_text(name: QName) -> str:
    """A function's or a type's name: without prefix in the namespace of functions, `xs:` for types."""
    if name.uri in (FN, ""):
        return name.local
    return f"xs:{name.local}" if name.uri == XS else f"{name.prefix}:{name.local}" if name.prefix else _braced(name)


def _braced(name: QName) -> str:
    return f"Q{{{name.uri}}}{name.local}"


def variable_text(name: QName) -> str:
    """`$name`."""
    return f"${name.local}" if not name.uri else f"${name}" if name.prefix else f"${_braced(name)}"


def test_text(test: NameTest | KindTest) -> str:
    """`book`, `*`, `p:book`, `*:book`, `Q{uri}book`, `text()`, `element(book)`."""
    if isinstance(test, KindTest):
        inner = (test_text(part) for part in (test.name, test.inner) if part is not None)
        return f"{test.kind}({', '.join(inner)})"
    local = "*" if test.local is None else test.local
    if test.uri is None:
        return "*" if test.local is None else f"*:{local}"
    if test.prefix:
        return f"{test.prefix}:{local}"
    return f"Q{{{test.uri}}}{local}" if test.uri or test.local is None else local


def type_text(kind: SequenceType) -> str:
    """`xs:integer?`, `element(book)*`, `item()`, `empty-sequence()`."""
    match kind.item:
        case None:
            return "empty-sequence()"
        case AtomicType(name):
            return name_text(name) + kind.occurrence
        case AnyItem():
            return f"item(){kind.occurrence}"
    return test_text(kind.item) + kind.occurrence
