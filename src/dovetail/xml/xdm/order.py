"""Document order: nodes sorted and without duplicates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from dovetail.xml.xdm.nodes import Attribute, Document, Node, Text

Key = tuple[Any, ...]
_MANY = 32  # children before this place are counted each time, places in longer lists are remembered
_REMEMBERED = 16  # lists of places; each keeps its tree in memory until others push it out
_places: OrderedDict[Any, dict[Any, int]] = OrderedDict()


def _place(parent: Any, element: Any) -> int:
    """The number of a child among its siblings."""
    known = _places.get(parent)
    if known is not None:
        return known[element]
    place: int = parent.index(element)
    if place > _MANY:
        _places[parent] = {child: at for at, child in enumerate(parent)}
        if len(_places) > _REMEMBERED:
            _places.popitem(last=False)
    return place


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
        places.append((2 * _place(above, element) + shift, 0))
        element, shift = above, 2
    places.append((int(element.get("n")), 0))
    return tuple(reversed(places))


def in_document_order(nodes: Iterable[Any]) -> list[Any]:
    """The nodes in document order, each once."""
    unique = list(dict.fromkeys(nodes))
    return sorted(unique, key=path_key) if len(unique) > 1 else unique
