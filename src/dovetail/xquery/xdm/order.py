"""Document order: nodes sorted and without duplicates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lxml import etree

from dovetail.xquery.xdm.nodes import Attribute, Document, Element, Node, Text, holder_of

_FEW = 16  # below this many nodes, their paths from the root cost less than a walk over the tree
Key = tuple[Any, ...]


def path_key(node: Any) -> Key:
    """A key that sorts nodes of all trees in document order: tree, then places on the way down from the root."""
    places: list[tuple[int, int]] = []
    if type(node) is Attribute:
        places.append((0, list(node.owner.keys()).index(node.key)))
    elif type(node) is Text and not node.tail:
        places.append((1, 0))
    element = node.holder if type(node) is Document else node.owner if isinstance(node, Node) else node
    shift = 3 if type(node) is Text and node.tail else 2
    while (above := element.getparent()) is not None:
        places.append((2 * above.index(element) + shift, 0))
        element, shift = above, 2
    places.append((int(element.get("n")), 0))
    return tuple(reversed(places))


def in_document_order(nodes: Iterable[Any]) -> list[Any]:
    """The nodes in document order, each once."""
    unique = list(dict.fromkeys(nodes))
    if len(unique) < 2:
        return unique
    if len(unique) <= _FEW:
        return sorted(unique, key=path_key)
    return _by_walk(unique)


def _by_walk(nodes: list[Any]) -> list[Any]:
    trees: dict[Any, list[Any]] = {}
    for node in nodes:
        trees.setdefault(holder_of(node), []).append(node)
    ordered: list[Any] = []
    for holder in sorted(trees, key=lambda holder: int(holder.get("n"))):
        ordered += _within(holder, trees[holder])
    return ordered


def _within(holder: Any, nodes: list[Any]) -> list[Any]:
    """Numbers the wanted elements of one tree where they start and end; a text after an element comes at its end."""
    wanted: dict[Any, list[Any]] = {}
    for node in nodes:
        element = node.holder if type(node) is Document else node.owner if isinstance(node, Node) else node
        wanted.setdefault(element, []).append(node)
    keys: list[tuple[Key, Any]] = []
    for number, (event, element) in enumerate(etree.iterwalk(holder, events=("start", "end", "comment", "pi"))):
        for node in wanted.get(element, ()):
            late = type(node) is Text and node.tail
            if type(element) is not Element or (event == "end") == late:
                keys.append(((number, *_inner(node)), node))
    return [node for _, node in sorted(keys, key=lambda pair: pair[0])]


def _inner(node: Any) -> Key:
    if type(node) is Attribute:
        return 1, list(node.owner.keys()).index(node.key)
    return (2, 0) if type(node) is Text else (0, 0)
