"""Axes and node tests: for each pair a function from one node to a list of nodes, in the order of the axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.xml.syntax.tree import Axis, KindTest, NameTest
from dovetail.xml.xdm.nodes import (
    KINDS,
    Attribute,
    Document,
    Element,
    Instruction,
    Text,
    parent_of,
    split_name,
    visible,
)

Step = Callable[[Any], list[Any]]
Matches = Callable[[Any], bool]
REVERSE = frozenset(("parent", "ancestor", "ancestor-or-self", "preceding-sibling", "preceding"))


def tag_of(test: NameTest) -> str:
    """The test as lxml's own filter of elements."""
    if test.uri is None:
        return "*" if test.local is None else f"{{*}}{test.local}"
    local = test.local or "*"
    return f"{{{test.uri}}}{local}" if test.uri or test.local is None else local


def name_matches(test: NameTest, uri: str, local: str) -> bool:
    """Whether a name passes the test."""
    return (test.uri is None or test.uri == uri) and (test.local is None or test.local == local)


# --- axes over all nodes


def _below(node: Any) -> Any:
    """The lxml element whose children are a node's children, or None."""
    if type(node) is Element:
        return node
    return node.holder if type(node) is Document else None


def children(node: Any) -> Iterator[Any]:
    """All children."""
    element = _below(node)
    if element is None:
        return
    if element.text:
        yield Text(element, False)
    for child in element:
        yield child
        if child.tail:
            yield Text(child, True)


def descendants(node: Any) -> Iterator[Any]:
    """All descendants in document order."""
    pending = [children(node)]
    while pending:
        for child in pending[-1]:
            yield child
            if type(child) is Element:
                pending.append(children(child))
                break
        else:
            pending.pop()


def attributes(node: Any) -> Iterator[Any]:
    """All attributes."""
    if type(node) is Element:
        for key in node.keys():  # noqa: SIM118  (lxml: an element iterates over its children)
            yield Attribute(node, key)


def ancestors(node: Any) -> Iterator[Any]:
    """Parent, its parent and so on."""
    while (node := parent_of(node)) is not None:
        yield node


def following_siblings(node: Any) -> Iterator[Any]:
    """The nodes after the node below the same parent."""
    if type(node) is Attribute or parent_of(node) is None:
        return
    if type(node) is Text:
        rest = node.owner.itersiblings() if node.tail else node.owner.iterchildren()
    else:
        rest = node.itersiblings()
        if node.tail:
            yield Text(node, True)
    for sibling in rest:
        yield sibling
        if sibling.tail:
            yield Text(sibling, True)


def preceding_siblings(node: Any) -> Iterator[Any]:
    """The nodes before the node below the same parent, nearest first."""
    if type(node) is Attribute or parent_of(node) is None or (type(node) is Text and not node.tail):
        return
    first = node.owner if type(node) is Text else node
    if type(node) is Text:
        yield first
    for sibling in first.itersiblings(preceding=True):
        if sibling.tail:
            yield Text(sibling, True)
        yield sibling
    above = first.getparent()
    if above.text:
        yield Text(above, False)


def following(node: Any) -> Iterator[Any]:
    """Everything after the node that is not inside it."""
    if type(node) is Attribute:
        owner = visible(node.owner)
        if owner is not None:
            yield from descendants(owner)
            yield from following(owner)
        return
    for place in (node, *ancestors(node)):
        for sibling in following_siblings(place):
            yield sibling
            yield from descendants(sibling)


def preceding(node: Any) -> Iterator[Any]:
    """Everything before the node that does not contain it, nearest first."""
    start = node
    if type(node) is Attribute:
        start = visible(node.owner)
        if start is None:
            return
    for place in (start, *ancestors(start)):
        for sibling in preceding_siblings(place):
            yield from reversed(list(descendants(sibling)))
            yield sibling


def _itself(node: Any) -> Iterator[Any]:
    yield node


def _parent(node: Any) -> Iterator[Any]:
    above = parent_of(node)
    if above is not None:
        yield above


def _or_self(axis: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def both(node: Any) -> Iterator[Any]:
        yield node
        yield from axis(node)

    return both


AXES: dict[Axis, Callable[[Any], Iterator[Any]]] = {
    "child": children,
    "attribute": attributes,
    "self": _itself,
    "descendant": descendants,
    "descendant-or-self": _or_self(descendants),
    "parent": _parent,
    "ancestor": ancestors,
    "ancestor-or-self": _or_self(ancestors),
    "following-sibling": following_siblings,
    "preceding-sibling": preceding_siblings,
    "following": following,
    "preceding": preceding,
}


# --- tests


def matcher(test: NameTest | KindTest, axis: Axis = "child") -> Matches:
    """Whether a node passes a test; a name alone means attributes on their axis and elements elsewhere."""
    if isinstance(test, NameTest):
        return _named(Attribute if axis == "attribute" else Element, test)
    if test.kind == "node":
        return lambda node: True
    kind = _CLASSES.get(test.kind)
    if kind is None:
        return lambda node: False
    if test.kind == "processing-instruction" and test.name is not None:
        target = test.name.local
        return lambda node: type(node) is Instruction and node.target == target
    if test.inner is not None:
        inner = matcher(test.inner)
        return lambda node: (
            type(node) is Document and [inner(child) for child in node.holder.iterchildren("*")] == [True]
        )
    return _named(kind, test.name) if test.name is not None else lambda node: type(node) is kind


_CLASSES = {name: kind for kind, name in KINDS.items()}


def _named(kind: Any, test: NameTest) -> Matches:
    if test.uri is None and test.local is None:
        return lambda node: type(node) is kind
    if kind is Attribute:
        return lambda node: type(node) is kind and name_matches(test, *split_name(node.key))
    if test.uri is not None and test.local is not None:
        tag = tag_of(test)
        return lambda node: type(node) is Element and bool(node.tag == tag)
    return lambda node: type(node) is kind and name_matches(test, *split_name(node.tag))


# --- steps


def step(axis: Axis, test: NameTest | KindTest) -> Step:
    """The nodes that one step finds from one node."""
    fast = _fast(axis, test)
    if fast is not None:
        return fast
    nodes, matches = AXES[axis], matcher(test, axis)
    if isinstance(test, KindTest) and test.kind == "node":
        return lambda node: list(nodes(node))
    return lambda node: [found for found in nodes(node) if matches(found)]


def _fast(axis: Axis, test: NameTest | KindTest) -> Step | None:
    """Steps that lxml takes at its own speed."""
    if isinstance(test, KindTest) and test.kind == "element":
        test = test.name or NameTest(None, None)
    if not isinstance(test, NameTest):
        return None
    if axis in ("child", "descendant"):
        return _elements(Element.iterchildren if axis == "child" else Element.iterdescendants, tag_of(test))
    if axis == "attribute" and test.uri is not None and test.local is not None:
        return _attribute(tag_of(test))
    return None


def _elements(iterate: Callable[[Any, str], Iterator[Any]], tag: str) -> Step:
    def run(node: Any) -> list[Any]:
        if type(node) is Element:
            return list(iterate(node, tag))
        return list(iterate(node.holder, tag)) if type(node) is Document else []

    return run


def _attribute(key: str) -> Step:
    def run(node: Any) -> list[Any]:
        return [Attribute(node, key)] if type(node) is Element and key in node.attrib else []

    return run
