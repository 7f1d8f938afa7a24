"""New nodes: elements with their content copied in, and nodes without parent."""

from __future__ import annotations

import copy
import re
from typing import Any

from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xquery.syntax.lexer import NCNAME
from dovetail.xquery.xdm.nodes import (
    DOCUMENT,
    FRAGMENT,
    Attribute,
    Document,
    Element,
    Text,
    clark,
    is_node,
    new_tree,
    prefix_for,
    split_name,
)
from dovetail.xquery.xdm.serialise import text_of

_NAME = re.compile(NCNAME)
Namespaces = dict[str | None, str]


def new_element(parent: Any, prefix: str, uri: str, local: str, declared: Namespaces) -> Any:
    """An element at the end of a parent, with its own namespace and the declared ones in scope."""
    known = parent.nsmap
    needed = {name: space for name, space in declared.items() if known.get(name) != space and (space or name is None)}
    if known.get(prefix or None, "") != uri:
        needed[prefix or None] = uri
    if needed.get(None) == "" and not known.get(None):
        del needed[None]
    return _below(parent, clark(uri, local), needed)


def _below(parent: Any, tag: str, namespaces: Namespaces) -> Any:
    try:
        return etree.SubElement(parent, tag, nsmap=namespaces or None)
    except ValueError as error:
        raise XQueryError("XQST0046", f"not a name or namespace of XML: {error}") from None


def add_text(parent: Any, text: str) -> None:
    """Text at the end of a parent, merged with the text before it."""
    if not text:
        return
    try:
        if len(parent):
            last = parent[-1]
            last.tail = (last.tail or "") + text
        else:
            parent.text = (parent.text or "") + text
    except ValueError:
        raise XQueryError("FOCH0001", f"{text!r} holds characters that XML does not allow") from None


def add_content(parent: Any, items: list[Any]) -> None:
    """The items of one enclosed expression: nodes are copied, neighbouring atomic values are text with spaces."""
    atoms: list[str] = []
    for item in items:
        if not is_node(item):
            atoms.append(text_of(item))
            continue
        if atoms:
            add_text(parent, " ".join(atoms))
            atoms = []
        add_node(parent, item)
    if atoms:
        add_text(parent, " ".join(atoms))


def add_node(parent: Any, node: Any) -> None:
    """A copy of a node at the end of a parent; of a document, its children."""
    kind = type(node)
    if kind is Text:
        add_text(parent, node.value)
    elif kind is Attribute:
        add_attribute(parent, node)
    elif kind is Document:
        add_text(parent, node.holder.text or "")
        for child in node.holder:
            copy_into(parent, child)
            if child.tail:
                add_text(parent, child.tail)
    else:
        copy_into(parent, node)


def add_attribute(parent: Any, node: Attribute) -> None:
    """A copy of an attribute; it must come before all other content, and once only."""
    uri, _ = split_name(node.key)
    if parent.tag == DOCUMENT and parent.getparent() is None:
        raise XQueryError("XPTY0004", "a document node cannot have attributes")
    if len(parent) or parent.text:
        raise XQueryError("XQTY0024", "an attribute comes after other content of its element")
    if node.key in parent.attrib:
        raise XQueryError("XQDY0025", f"the attribute {split_name(node.key)[1]} is given twice")
    declare(parent, prefix_for(node.owner, uri), uri)
    parent.set(node.key, node.value)


def declare(element: Any, prefix: str, uri: str) -> None:
    """Makes a prefix known in an element that exists already."""
    if uri and prefix not in ("", "xml") and element.nsmap.get(prefix) != uri and prefix not in element.nsmap:
        keep = [name for name in element.nsmap if name]
        etree.cleanup_namespaces(element, top_nsmap={prefix: uri}, keep_ns_prefixes=[*keep, prefix])


def copy_into(parent: Any, node: Any) -> Any:
    """A copy of an element, comment or instruction at the end of a parent."""
    if type(node) is not Element or not (node.nsmap or parent.nsmap):
        new = copy.deepcopy(node)
        new.tail = None
        parent.append(new)
        return new
    return _copy_with_namespaces(parent, node)


def _copy_with_namespaces(parent: Any, node: Any) -> Any:
    known, wanted = parent.nsmap, node.nsmap
    needed = {prefix: uri for prefix, uri in wanted.items() if known.get(prefix) != uri}
    if None not in wanted and known.get(None):
        needed[None] = ""
    new = etree.SubElement(parent, node.tag, dict(node.attrib), nsmap=needed or None)
    new.text = node.text
    for child in node:
        copied = _copy_with_namespaces(new, child) if type(child) is Element else copy_into(new, child)
        copied.tail = child.tail
    return new


# --- nodes without parent


def new_attribute(prefix: str, uri: str, local: str, value: str) -> Attribute:
    """An attribute that belongs to no element yet."""
    holder = new_tree()
    carrier = _below(holder, FRAGMENT, {prefix: uri} if prefix and uri else {})
    _set(carrier, clark(uri, local), value)
    return Attribute(carrier, clark(uri, local))


def _set(element: Any, key: str, value: str) -> None:
    try:
        element.set(key, value)
    except ValueError:
        raise XQueryError("FOCH0001", f"{value!r} holds characters that XML does not allow") from None


def set_attribute(element: Any, key: str, value: str) -> None:
    """An attribute of an element under construction."""
    _set(element, key, value)


def new_text(value: str) -> Text:
    """A text node without parent."""
    holder = new_tree()
    holder.text = value
    return Text(holder, tail=False)


def new_comment(value: str) -> Any:
    """A comment without parent. Raises XQDY0072 for text that would end it."""
    if "--" in value or value.endswith("-"):
        raise XQueryError("XQDY0072", "a comment cannot hold -- or end with -")
    holder = new_tree()
    holder.append(etree.Comment(value))
    return holder[0]


def new_instruction(target: str, value: str) -> Any:
    """A processing instruction without parent."""
    if not _NAME.fullmatch(target):
        raise XQueryError("XQDY0041", f"{target!r} is not a name of a processing instruction")
    if target.lower() == "xml":
        raise XQueryError("XQDY0064", "a processing instruction cannot be called xml")
    if "?>" in value:
        raise XQueryError("XQDY0026", "a processing instruction cannot hold ?>")
    holder = new_tree()
    content = value.lstrip()
    # lxml writes a space behind a target that was given an empty content, but not behind one that was read without
    made = etree.ProcessingInstruction(target, content) if content else etree.fromstring(f"<a><?{target}?></a>")[0]
    holder.append(made)
    return holder[0]


def new_document(items: list[Any]) -> Document:
    """A document with copies of the items as its content."""
    holder = new_tree(DOCUMENT)
    add_content(holder, items)
    return Document(holder)


def is_ncname(text: str) -> bool:
    """Whether the text is a name without colon."""
    return _NAME.fullmatch(text) is not None
