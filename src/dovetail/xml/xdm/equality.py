"""Deep equality of sequences."""

from __future__ import annotations

from typing import Any

from dovetail.xml.xdm.compare import same
from dovetail.xml.xdm.nodes import Attribute, Document, Element, Instruction, is_node, string_value


def deep_equal(left: list[Any], right: list[Any]) -> bool:
    """Whether two sequences have equal values and nodes that look the same, one by one; NaN equals NaN."""
    return len(left) == len(right) and all(map(_items_equal, left, right))


def _items_equal(left: Any, right: Any) -> bool:
    if is_node(left) != is_node(right):
        return False
    if is_node(left):
        return _nodes_equal(left, right)
    return same(left, right)


def _nodes_equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if type(left) is Element:
        same = left.tag == right.tag and dict(left.attrib) == dict(right.attrib)
        return same and _content_equal(left, right)
    if type(left) is Document:
        return _content_equal(left.holder, right.holder)
    if type(left) is Attribute and left.key != right.key:
        return False
    if type(left) is Instruction and left.target != right.target:
        return False
    return string_value(left) == string_value(right)


def _content_equal(left: Any, right: Any) -> bool:
    first, second = _content(left), _content(right)
    if len(first) != len(second):
        return False
    return all(
        one == other if isinstance(one, str) or isinstance(other, str) else _nodes_equal(one, other)
        for one, other in zip(first, second, strict=True)
    )


def _content(element: Any) -> list[Any]:
    """Texts and elements in turn; comments and instructions do not count."""
    content: list[Any] = [element.text or ""]
    for child in element:
        content += [child, child.tail or ""] if type(child) is Element else [child.tail or ""]
    return [part for part in content if not isinstance(part, str) or part]
