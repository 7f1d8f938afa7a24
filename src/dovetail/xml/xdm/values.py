"""Atomisation, effective boolean values, and sequences that must hold one item at most."""

from __future__ import annotations

import math
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.xdm.atomic import NUMBERS, STRINGS, TYPE_NAMES, UntypedAtomic
from dovetail.xml.xdm.nodes import Attribute, Comment, Document, Element, Instruction, Text, is_node, kind_of
from dovetail.xml.xdm.nodes import string_value as node_text
from dovetail.xml.xdm.serialise import text_of

_UNTYPED = frozenset((Element, Attribute, Text, Document))
_TYPED = frozenset((Comment, Instruction))


def atomise(items: list[Any]) -> list[Any]:
    """The typed values of items: trees have no schema, so text is untyped; comments are strings."""
    return [
        UntypedAtomic(node_text(item))
        if (kind := type(item)) in _UNTYPED
        else node_text(item)
        if kind in _TYPED
        else item
        for item in items
    ]


def atom(items: list[Any], what: str = "an operand") -> Any:
    """The one typed value of a sequence, or None if it is empty. More than one item raises XPTY0004."""
    if not items:
        return None
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"{what} is a sequence of {len(items)} items; one is allowed")
    item = items[0]
    kind = type(item)
    if kind is Element:
        return UntypedAtomic((item.text or "") if len(item) == 0 else "".join(item.itertext()))
    return atomise(items)[0]


def string_of(item: Any) -> str:
    """The string value of any item."""
    return node_text(item) if is_node(item) else text_of(item)


def type_name(item: Any) -> str:
    """What an item is, for messages."""
    return f"{kind_of(item)}()" if is_node(item) else f"xs:{TYPE_NAMES[type(item)]}"


def boolean(items: list[Any]) -> bool:
    """The effective boolean value. Raises FORG0006 where a sequence has none."""
    if not items:
        return False
    first = items[0]
    kind = type(first)
    if kind is bool and len(items) == 1:
        return first  # type: ignore[no-any-return]  # the exact type was asked
    if is_node(first):
        return True
    if len(items) == 1:
        if kind in STRINGS:
            return bool(first != "")
        if kind in NUMBERS:
            return not (first == 0 or (isinstance(first, float) and math.isnan(first)))
    given = (
        type_name(first) if len(items) == 1 else f"a sequence of {len(items)} items that starts with an atomic value"
    )
    raise XQueryError("FORG0006", f"{given} has no effective boolean value")
