"""Values of variables between tasks: texts and elements as strings, whatever else as pickled items.

A node that crosses is a copy without its surroundings, so only values that nobody asks for either may cross.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
from lxml import etree

from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.nodes import (
    DOCUMENT,
    Attribute,
    Comment,
    Document,
    Instruction,
    Text,
    is_node,
    new_tree,
    string_value,
)
from dovetail.xml.xdm.parse import parser
from dovetail.xml.xdm.serialise import serialise
from dovetail.xml.xdm.values import atomise

Items = list[Any]
Form = Literal["texts", "nodes", "items"]
"""How a value travels: untyped texts, elements as markup, or anything."""

ARROW: dict[Form, pa.DataType] = {"texts": pa.list_(pa.string()), "nodes": pa.list_(pa.string()), "items": pa.binary()}

KEY_TYPES: dict[bool, pa.DataType] = {False: pa.string(), True: pa.list_(pa.string())}
"""Columns of keys: of one item at most, or of any number of them."""


def element_of(markup: str) -> Any:
    """An element without document, made of its markup."""
    holder = new_tree()
    holder.append(etree.fromstring(markup.encode(), parser()))
    return holder[0]


def encoded(form: Form, items: Items) -> Any:
    """A value as a cell of its column."""
    if form == "texts":
        return [str(item) for item in atomise(items)]
    if form == "nodes":
        return [serialise(item) for item in items]
    return pickle.dumps([_packed(item) if is_node(item) else item for item in items], protocol=5)


def decoded(form: Form, cell: Any) -> Items:
    """The value that `encoded` wrote."""
    if form == "texts":
        return [UntypedAtomic(text) for text in cell]
    if form == "nodes":
        return [element_of(markup) for markup in cell]
    found = pickle.loads(cell)  # noqa: S301  (written by a task of the same query)
    return [item.node() if type(item) is _Packed else item for item in found]


class _Packed:
    """A node on its way."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, parts: tuple[str, ...]) -> None:
        self.kind, self.parts = kind, parts

    def node(self) -> Any:
        return _MAKE[self.kind](*self.parts)


def _packed(node: Any) -> _Packed:
    kind = type(node)
    if kind is Attribute:
        return _Packed("attribute", (node.key, node.value))
    if kind is Text:
        return _Packed("text", (node.value,))
    if kind is Comment:
        return _Packed("comment", (string_value(node),))
    if kind is Instruction:
        return _Packed("instruction", (node.target, string_value(node)))
    if kind is Document:
        return _Packed("document", (serialise(node), node.holder.get("uri") or ""))
    return _Packed("element", (serialise(node),))


def _attribute(key: str, value: str) -> Attribute:
    holder = new_tree()
    holder.set(key, value)
    return Attribute(holder, key)


def _text(value: str) -> Text:
    holder = new_tree()
    holder.text = value
    return Text(holder, tail=False)


def _beside(node: Any) -> Any:
    new_tree().append(node)
    return node


def _document(markup: str, uri: str) -> Document:
    holder = new_tree(DOCUMENT, uri or None)
    inside = etree.fromstring(f"<d>{markup}</d>".encode(), parser())
    holder.text = inside.text
    holder.extend(list(inside))
    return Document(holder)


_MAKE: dict[str, Callable[..., Any]] = {
    "attribute": _attribute,
    "text": _text,
    "comment": lambda text: _beside(etree.Comment(text)),
    "instruction": lambda target, text: _beside(etree.ProcessingInstruction(target, text)),
    "document": _document,
    "element": element_of,
}

__all__ = ["ARROW", "KEY_TYPES", "Form", "Items", "decoded", "element_of", "encoded"]
