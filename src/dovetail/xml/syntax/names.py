"""Names and types as a query writes them: the leaves of the tree that are no expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf

FN = "http://www.w3.org/2005/xpath-functions"
XS = "http://www.w3.org/2001/XMLSchema"
XML = "http://www.w3.org/XML/1998/namespace"
XMLNS = "http://www.w3.org/2000/xmlns/"
LOCAL = "http://www.w3.org/2005/xquery-local-functions"
ERR = "http://www.w3.org/2005/xqt-errors"

Axis = OneOf[
    "child", "attribute", "self", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self",
    "following-sibling", "preceding-sibling", "following", "preceding",
]  # fmt: skip
NodeKind = OneOf[
    "node", "element", "attribute", "text", "comment", "processing-instruction", "document-node", "namespace-node"
]


@dataclass(frozen=True, slots=True)
class QName:
    """A resolved name; `uri` is "" for a name in no namespace."""

    uri: str
    local: str
    prefix: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.prefix}:{self.local}" if self.prefix else self.local


@dataclass(frozen=True, slots=True)
class NameTest:
    """A name or wildcard of a step: None stands for `*`."""

    uri: str | None
    local: str | None
    prefix: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class KindTest:
    """`node()`, `text()`, `element(name)` ...; `name` also holds the target of processing-instruction(target)."""

    kind: NodeKind
    name: NameTest | None = None
    inner: KindTest | None = None  # document-node(element(name))


@dataclass(frozen=True, slots=True)
class AtomicType:
    """`xs:integer` and the like, as an item type or the target of a cast."""

    name: QName


@dataclass(frozen=True, slots=True)
class AnyItem:
    """`item()`."""


@dataclass(frozen=True, slots=True)
class SequenceType:
    """An item type with `"" ? * +`; item None is `empty-sequence()`."""

    item: AtomicType | KindTest | AnyItem | None
    occurrence: OneOf["", "?", "*", "+"] = ""
