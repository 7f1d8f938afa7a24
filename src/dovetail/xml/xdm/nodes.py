"""Nodes over lxml trees, their document order and base URIs.

Elements, comments and processing instructions are lxml's own objects; a text, an attribute and a document are small
values that point to one. Every tree hangs below a hidden root element, so that a document can have text or several
elements at its top and a lone attribute has somewhere to live. Two nodes are the same node if they are equal.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from lxml import etree

_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def resolved(reference: str, base: str) -> str:
    """The reference relative to a base; without one that has a path it stays as it is."""
    scheme, place, path, query, fragment = _split(reference)
    over, place_above, path_above, query_above, _ = _split(base)
    if scheme is not None or (over is not None and place_above is None and not path_above.startswith("/")):
        return reference
    if place is None:
        place = place_above
        if not path:
            path, query = path_above, query_above if query is None else query
        elif not path.startswith("/"):
            start = path_above.rpartition("/")[0] + "/" if "/" in path_above else "/" if place_above else ""
            path = start + path
    text = "" if over is None else f"{over}:"
    text += "" if place is None else f"//{place}"
    text += _without_dots(path)
    return text + ("" if query is None else f"?{query}") + ("" if fragment is None else f"#{fragment}")


def _split(text: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    match = _PARTS.fullmatch(text)
    assert match is not None  # noqa: S101  (the pattern matches every text)
    return match[1], match[2], match[3], match[4], match[5]


def _without_dots(path: str) -> str:
    """The path without the steps `.` and `..`."""
    steps = path.split("/")
    kept: list[str] = []
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        if step == "..":
            if kept and kept != [""] and kept[-1] != "..":
                kept.pop()
            elif not path.startswith("/"):
                kept.append("..")
            kept += [""] if last else []
        elif step != ".":
            kept.append(step)
        elif last:
            kept.append("")
    return "/".join(kept)


Element: Final[Any] = etree._Element  # lxml exports its node classes under these names only
Comment: Final[Any] = etree._Comment
Instruction: Final[Any] = etree._ProcessingInstruction

# Names that no document has, and without namespace: one would be in scope in the whole tree.
DOCUMENT = "\ufdf0document"
FRAGMENT = "\ufdf0fragment"
_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_trees = count(1)


class Node:
    """A node that lxml has no object for: documents, attributes and texts."""

    __slots__ = ()
    owner: Any


@dataclass(slots=True, unsafe_hash=True)
class Document(Node):
    """A document node: the hidden root of its tree."""

    holder: Any


@dataclass(slots=True, unsafe_hash=True)
class Attribute(Node):
    """An attribute of an element; `key` is its name as lxml writes it, {namespace}local."""

    owner: Any
    key: str

    @property
    def value(self) -> str:
        """Its text."""
        return self.owner.get(self.key)  # type: ignore[no-any-return]  # lxml ships no types


@dataclass(slots=True, unsafe_hash=True)
class Text(Node):
    """A text node: the text at the start of `owner`, or the one that follows it (`tail`)."""

    owner: Any
    tail: bool

    @property
    def value(self) -> str:
        """Its text."""
        return (self.owner.tail if self.tail else self.owner.text) or ""


NODES: Final[Any] = (Element, Node)


def is_node(item: Any) -> bool:
    """Whether the item is a node, not an atomic value."""
    return isinstance(item, NODES)


def new_tree(tag: str = FRAGMENT, uri: str | None = None, base: str | None = None) -> Any:
    """The hidden root of a new tree; later trees follow earlier ones in document order."""
    holder = etree.Element(tag)
    holder.set("n", str(next(_trees)))
    if uri is not None:
        holder.set("uri", uri)
    if base:
        holder.set("base", base)
    return holder


def adopt(root: Any, uri: str | None = None) -> Document:
    """A document made of an lxml element that was parsed elsewhere, with the nodes beside it."""
    holder = new_tree(DOCUMENT, uri)
    beside = [*reversed(list(root.itersiblings(preceding=True))), root, *root.itersiblings()]
    for node in beside:
        node.tail = None
        holder.append(node)
    return Document(holder)


def holder_of(node: Any) -> Any:
    """The hidden root of a node's tree."""
    element = node.holder if type(node) is Document else node.owner if isinstance(node, Node) else node
    while (above := element.getparent()) is not None:
        element = above
    return element


def root_of(node: Any) -> Any:
    """The topmost node: the document, or the node without parent."""
    holder = holder_of(node)
    if holder.tag == DOCUMENT:
        return Document(holder)
    while (above := parent_of(node)) is not None:
        node = above
    return node


def base_uri(node: Any) -> str | None:
    """The address that relative ones in a node are resolved by: its tree's, changed by `xml:base`.

    A text, attribute, comment or instruction has that of its parent, without one none.
    """
    steps: list[str] = []
    top = None
    while node is not None:
        top, node = node, parent_of(node)
        if type(top) is Element and top.get(_BASE) is not None:
            steps.append(" ".join(top.get(_BASE).split()))
    if type(top) is not Element and type(top) is not Document:
        return None
    holder = holder_of(top)
    found = holder.get("uri") or holder.get("base")
    for step in reversed(steps):
        found = step if found is None else resolved(step, found)
    return found  # type: ignore[no-any-return]  # lxml ships no types


def parent_of(node: Any) -> Any:
    """The parent, or None."""
    if type(node) is Document:
        return None
    if type(node) is Attribute or (type(node) is Text and not node.tail):
        above = node.owner
    else:
        above = (node.owner if type(node) is Text else node).getparent()
    return visible(above)


def visible(element: Any) -> Any:
    """The node that an lxml element stands for: the hidden root is the document, or nothing."""
    if element.getparent() is None or element.tag == FRAGMENT:
        return Document(element) if element.tag == DOCUMENT else None
    return element


def string_value(node: Any) -> str:
    """All text of a node."""
    kind = type(node)
    if kind is Element:
        return (node.text or "") if len(node) == 0 else "".join(node.itertext())
    if kind is Document:
        return "".join(node.holder.itertext())
    if kind is Comment or kind is Instruction:
        return node.text or ""
    return node.value  # type: ignore[no-any-return]  # a text or an attribute


KINDS: dict[type, str] = {
    Element: "element",
    Attribute: "attribute",
    Text: "text",
    Comment: "comment",
    Instruction: "processing-instruction",
    Document: "document-node",
}
"""The kinds of nodes, as kind tests name them."""


def split_name(key: str) -> tuple[str, str]:
    """Namespace and local name of a name as lxml writes it."""
    if key[0] == "{":
        uri, _, local = key[1:].rpartition("}")
        return uri, local
    return "", key


def clark(uri: str, local: str) -> str:
    """A name as lxml writes it."""
    return f"{{{uri}}}{local}" if uri else local


def name_of(node: Any) -> tuple[str, str, str] | None:
    """Prefix, namespace and local name; None for nodes without name."""
    kind = type(node)
    if kind is Element:
        return (node.prefix or "", *split_name(node.tag))
    if kind is Attribute:
        uri, local = split_name(node.key)
        return prefix_of(node), uri, local
    if kind is Instruction:
        return "", "", node.target
    return None


def prefix_of(attribute: Attribute) -> str:
    """The prefix of an attribute's name."""
    uri, local = split_name(attribute.key)
    if not uri:
        return ""
    if uri == "http://www.w3.org/XML/1998/namespace":
        return "xml"
    known = [prefix for prefix, known in attribute.owner.nsmap.items() if known == uri and prefix]
    if len(known) < 2:
        return known[0] if known else ""
    written: str = attribute.owner.xpath(
        "name(@*[namespace-uri() = $uri and local-name() = $local])", uri=uri, local=local
    )
    return written.partition(":")[0]


Key = tuple[Any, ...]
_MANY = 32  # children before this place are counted each time, places in longer lists are cached
_REMEMBERED = 16  # cached lists of places; each keeps its tree in memory until it is evicted
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
