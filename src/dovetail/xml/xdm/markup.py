"""XML text to nodes and nodes to text, and nodes that a query constructs.

External entities are not fetched, and entities are not expanded. Text is written by the xml output method, without
XML declaration.
"""

from __future__ import annotations

import copy
import re
from decimal import Decimal
from typing import Any

from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xml.syntax.reader import NCNAME
from dovetail.xml.xdm.atomic import double_text
from dovetail.xml.xdm.nodes import (
    DOCUMENT,
    FRAGMENT,
    Attribute,
    Document,
    Element,
    Text,
    adopt,
    clark,
    is_node,
    name_of,
    new_tree,
    prefix_of,
    split_name,
)
from dovetail.xml.xdm.temporal import MAX_DIGITS, plain

_CONTROLS = re.compile("[\x7f-\x9f\u2028]")  # XML 1.1 treats some of them as line ends
_ESCAPED = re.compile("[&<>\r\x7f-\x9f\u2028]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def text_of(value: Any) -> str:
    """An atomic value as a string, as `string()` gives it."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # the exact type was asked
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if kind is Decimal:
        return plain(value)
    if isinstance(value, int) and value.bit_length() > MAX_DIGITS:
        return plain(Decimal(value))
    return str.__str__(value) if isinstance(value, str) else str(value)


def serialise(item: Any) -> str:
    """One item as text: markup for nodes, the string value for atomic values."""
    if not is_node(item):
        return text_of(item)
    if isinstance(item, Document):
        parts = [escaped(item.holder.text or "")]
        return "".join(parts + [_markup(child, with_tail=True) for child in item.holder])
    if isinstance(item, Text):
        return escaped(item.value)
    if isinstance(item, Attribute):
        return f'{_qualified(item)}="{escaped(item.value, quotes=True)}"'
    return _markup(item, with_tail=False)


def _markup(element: Any, with_tail: bool) -> str:
    text: str = etree.tostring(element, encoding="unicode", with_tail=with_tail)
    if text.isascii() and "\x7f" not in text:
        return text
    return _CONTROLS.sub(lambda match: f"&#{ord(match[0])};", text)


def _qualified(attribute: Attribute) -> str:
    name = name_of(attribute)
    prefix, _, local = name if name else ("", "", attribute.key)
    return f"{prefix}:{local}" if prefix else local


def escaped(text: str, quotes: bool = False) -> str:
    """Text with the characters escaped that markup needs."""
    text = _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"&#{ord(match[0])};", text)
    if quotes:
        text = text.replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return text


def parser() -> Any:
    """A new parser that takes nodes of any size, for texts that have no document type or a checked one."""
    # Without collected IDs, xml:id is an attribute like others, as in a scan; but external DTDs would be loaded.
    return etree.XMLParser(huge_tree=True, collect_ids=False, **_SAFE)


_SAFE: dict[str, bool] = {
    "resolve_entities": False,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "no_network": True,
    "remove_blank_text": False,
    "strip_cdata": True,
}
_BLOCK = 1 << 12
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")
_LIKE_ASCII = (b"utf-8", b"us-ascii", b"iso-8859-1")
"""Encodings in which a document type starts with the bytes `<!DOCTYPE`; there are others in which it does."""


def parse_xml(data: bytes | str, uri: str | None = None) -> Document:
    """The document of an XML text. Raises FODC0006 if it is malformed or has a forbidden declaration."""
    source, name = data.encode() if isinstance(data, str) else data, uri or "the given text"
    try:
        if not _surely_declares_nothing(source):
            _check_document_type(source, name)
        root = etree.fromstring(source, parser())
    except etree.XMLSyntaxError as error:
        raise malformed(name, error) from None
    return adopt(root, uri)


def _surely_declares_nothing(source: bytes) -> bool:
    head = source[: source.find(b"?>")] if source.startswith(b"<?xml") else b""
    encoding = _ENCODING.search(head)
    like_ascii = source.startswith(b"<") and (encoding is None or encoding[1].lower() in _LIKE_ASCII)
    return like_ascii and b"<!DOCTYPE" not in source


def _check_document_type(source: bytes, name: str) -> None:
    """Reads up to the root with all limits on, so that nothing is loaded or expanded by a parser that has none."""
    start = etree.XMLPullParser(events=("start",), huge_tree=False, recover=True, **_SAFE)
    for at in range(0, len(source), _BLOCK):
        start.feed(source[at : at + _BLOCK])
        for _, root in start.read_events():
            check_declarations(root.getroottree(), name)
            return
    check_declarations(etree.fromstring(source, etree.XMLParser(huge_tree=False, **_SAFE)).getroottree(), name)


def malformed(name: str, error: Any) -> XQueryError:
    """The error of a file that is not well-formed, with the file, line and column."""
    line, column = error.position
    return XQueryError("FODC0006", f"{name}, line {line}, column {column}: {error.msg}")


def check_declarations(tree: Any, name: str) -> None:
    """Refuses documents that declare entities or need an outside DTD: both change what the document says."""
    dtd = tree.docinfo.internalDTD
    if dtd is None:
        return
    if dtd.system_url or dtd.external_id:
        raise XQueryError(
            "FODC0006", f"{name} names the external DTD {dtd.system_url!r}; DTDs are never fetched. Remove the DOCTYPE."
        )
    entity = next(dtd.iterentities(), None)
    if entity is not None:
        raise XQueryError(
            "FODC0006",
            f"{name} declares the entity {entity.name!r}; entities are never expanded. Replace it by its text.",
        )


_NAME = re.compile(NCNAME)
_DECLARATION = re.compile(rb'[ \n]xmlns(:[^ =]+)?="([^"]*)"')
_COPYING = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)  # reads what was written here
Namespaces = dict[str | None, str]


def new_element(parent: Any, prefix: str, uri: str, local: str, declared: Namespaces) -> Any:
    """An element at the end of a parent, with its own namespace and the declared ones in scope."""
    return _below(parent, prefix, clark(uri, local), declared)


def _below(parent: Any, prefix: str | None, tag: str, namespaces: Namespaces) -> Any:
    """An element at the end of a parent, its name written with the prefix, the namespaces in scope."""
    known, uri, own = parent.nsmap, split_name(tag)[0], prefix or None
    needed = {
        name: space
        for name, space in namespaces.items()
        if name != own and known.get(name) != space and (space or name is None)
    }
    if uri or known.get(None):
        needed = {own: uri} | needed  # first: of several prefixes of one namespace lxml takes the first for the name
    if needed.get(None) == "" and not known.get(None):
        del needed[None]
    try:
        return etree.SubElement(parent, tag, nsmap=needed or None)
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


def add_content(parent: Any, items: list[Any]) -> Any:
    """The items of one enclosed expression: nodes are copied, neighbouring atomic values are text with spaces.

    Gives the parent: a new element in its place where an attribute brought a prefix that it had to declare.
    """
    atoms: list[str] = []
    for item in items:
        if not is_node(item):
            atoms.append(text_of(item))
            continue
        if atoms:
            add_text(parent, " ".join(atoms))
            atoms = []
        if type(item) is Attribute:
            parent = add_attribute(parent, item)
        else:
            add_node(parent, item)
    if atoms:
        add_text(parent, " ".join(atoms))
    return parent


def add_node(parent: Any, node: Any) -> None:
    """A copy of a node at the end of a parent; of a document, its children."""
    kind = type(node)
    if kind is Text:
        add_text(parent, node.value)
    elif kind is Document:
        add_text(parent, node.holder.text or "")
        for child in node.holder:
            copy_into(parent, child)
            if child.tail:
                add_text(parent, child.tail)
    else:
        copy_into(parent, node)


def add_attribute(parent: Any, node: Attribute) -> Any:
    """A copy of an attribute; it must come before all other content, and once only. Gives the parent, or a new one."""
    if parent.tag == DOCUMENT and parent.getparent() is None:
        raise XQueryError("XPTY0004", "a document node cannot have attributes")
    if len(parent) or parent.text:
        raise XQueryError("XQTY0024", "an attribute comes after other content of its element")
    if node.key in parent.attrib:
        raise XQueryError("XQDY0025", f"the attribute {split_name(node.key)[1]} is given twice")
    parent = _declaring(parent, prefix_of(node), split_name(node.key)[0])
    parent.set(node.key, node.value)
    return parent


def _declaring(element: Any, prefix: str, uri: str) -> Any:
    """The element, or one in its place that declares the prefix. It has attributes only; lxml cannot add a prefix."""
    if prefix in ("", "xml") or prefix in element.nsmap:
        return element
    parent = element.getparent()
    parent.remove(element)
    new = _below(parent, element.prefix, element.tag, {prefix: uri, **element.nsmap})
    for key, value in element.attrib.items():
        new.set(key, value)
    return new


def copy_into(parent: Any, node: Any) -> Any:
    """A copy of an element, comment or instruction at the end of a parent."""
    if type(node) is Element and parent.nsmap:
        return _copy_with_namespaces(parent, node)
    written = etree.tostring(node, encoding="utf-8", with_tail=False) if type(node) is Element else b""
    if b"xmlns" not in written:
        new = copy.deepcopy(node)
        new.tail = None
    elif _has_synonyms(written) and any(map(_adds_synonym, node.iterdescendants("*"))):
        return _copy_with_namespaces(parent, node)
    else:  # lxml's own copies lose namespaces that no name uses
        new = etree.fromstring(written, _COPYING)
    parent.append(new)
    return new


def _has_synonyms(written: bytes) -> bool:
    """Whether a namespace has two prefixes somewhere in the markup."""
    declared = set(_DECLARATION.findall(written))
    return len({uri for _, uri in declared}) < len(declared)


def _adds_synonym(element: Any) -> bool:
    """Whether an element has a prefix for a namespace that has another one above it, which lxml's moves drop."""
    outer = element.getparent().nsmap
    return any(outer.get(prefix) != uri and uri in outer.values() for prefix, uri in element.nsmap.items())


def _copy_with_namespaces(parent: Any, node: Any) -> Any:
    new = _below(parent, node.prefix, node.tag, {None: "", **node.nsmap})
    for key, value in node.attrib.items():
        new.set(key, value)
    new.text = node.text
    for child in node:
        copied = _copy_with_namespaces(new, child) if type(child) is Element else copy_into(new, child)
        copied.tail = child.tail
    return new


# --- nodes without parent


def new_attribute(prefix: str, uri: str, local: str, value: str) -> Attribute:
    """An attribute that belongs to no element yet."""
    holder = new_tree()
    element = _below(holder, "", FRAGMENT, {prefix: uri} if prefix and uri else {})
    _set(element, clark(uri, local), value)
    return Attribute(element, clark(uri, local))


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


def new_document(items: list[Any], base: str | None = None) -> Document:
    """A document with copies of the items as its content."""
    holder = new_tree(DOCUMENT, base=base)
    add_content(holder, items)
    return Document(holder)


def is_ncname(text: str) -> bool:
    """Whether the text is a name without colon."""
    return _NAME.fullmatch(text) is not None
