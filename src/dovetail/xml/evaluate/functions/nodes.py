"""Functions on nodes and their names, and on documents."""

from __future__ import annotations

from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.calls import function
from dovetail.xml.evaluate.compiler import Environment
from dovetail.xml.syntax.tree import XML
from dovetail.xml.xdm.atomic import PYTHON_TYPES, AnyURI, QNameValue
from dovetail.xml.xdm.markup import escaped, is_ncname, parse_xml, serialise
from dovetail.xml.xdm.nodes import (
    Attribute,
    Document,
    Element,
    base_uri,
    in_document_order,
    is_node,
    name_of,
    parent_of,
    path_key,
    root_of,
)

_NCNAME = PYTHON_TYPES["NCName"]


@function("name", "node?", focus=True)
def _name(node: Any) -> str:
    found = None if node is None else name_of(node)
    if found is None:
        return ""
    return f"{found[0]}:{found[2]}" if found[0] else found[2]


@function("local-name", "node?", focus=True)
def _local_name(node: Any) -> str:
    found = None if node is None else name_of(node)
    return found[2] if found else ""


@function("namespace-uri", "node?", focus=True)
def _namespace_uri(node: Any) -> AnyURI:
    found = None if node is None else name_of(node)
    return AnyURI(found[1] if found else "")


@function("node-name", "node?", focus=True)
def _node_name(node: Any) -> QNameValue | None:
    found = None if node is None else name_of(node)
    return QNameValue(found[1], found[2], found[0]) if found else None


@function("root", "node?", focus=True)
def _root(node: Any) -> Any:
    return None if node is None else root_of(node)


@function("base-uri", "node?", focus=True)
def _base_uri(node: Any) -> AnyURI | None:
    if node is None:
        return None
    uri = base_uri(node)
    return None if uri is None else AnyURI(uri)


@function("document-uri", "node?", focus=True)
def _document_uri(node: Any) -> AnyURI | None:
    uri = node.holder.get("uri") if type(node) is Document else None
    return None if uri is None else AnyURI(uri)


@function("has-children", "node?", focus=True)
def _has_children(node: Any) -> bool:
    element = node.holder if type(node) is Document else node
    return (type(node) is Document or type(node) is Element) and (len(element) > 0 or bool(element.text))


@function("innermost", "node*")
def _innermost(nodes: list[Any]) -> list[Any]:
    outer = {above for node in nodes for above in _above(node)}
    return in_document_order(node for node in nodes if node not in outer)


@function("outermost", "node*")
def _outermost(nodes: list[Any]) -> list[Any]:
    given = set(nodes)
    return in_document_order(node for node in nodes if not any(above in given for above in _above(node)))


def _above(node: Any) -> list[Any]:
    found = []
    while (node := parent_of(node)) is not None:
        found.append(node)
    return found


@function("generate-id", "node?", focus=True)
def _generate_id(node: Any) -> str:
    return "" if node is None else "d" + "e".join(str(part) for pair in path_key(node) for part in pair)


@function("QName", "string?", "string")
def _qname(uri: str | None, name: str) -> QNameValue:
    prefix, colon, local = name.partition(":")
    if not is_ncname(prefix) or (colon and not is_ncname(local)) or (colon and not uri):
        raise XQueryError("FOCA0002", f"{name!r} is not a name for the namespace {uri!r}")
    return QNameValue(uri or "", local, prefix) if colon else QNameValue(uri or "", prefix)


@function("local-name-from-QName", "QName?")
def _local_of(name: QNameValue | None) -> Any:
    return None if name is None else _NCNAME(name.local)


@function("namespace-uri-from-QName", "QName?")
def _uri_of(name: QNameValue | None) -> AnyURI | None:
    return None if name is None else AnyURI(name.uri)


@function("prefix-from-QName", "QName?")
def _prefix_of(name: QNameValue | None) -> Any:
    return _NCNAME(name.prefix) if name is not None and name.prefix else None


@function("in-scope-prefixes", "element")
def _in_scope(node: Any) -> list[str]:
    return ["xml", *(prefix or "" for prefix, uri in node.nsmap.items() if uri)]


@function("namespace-uri-for-prefix", "string?", "element")
def _uri_for(prefix: str | None, node: Any) -> AnyURI | None:
    if prefix == "xml":
        return AnyURI(XML)
    uri = node.nsmap.get(prefix or None)
    return AnyURI(uri) if uri else None


@function("doc", "string?", env=True)
def _doc(environment: Environment, uri: str | None) -> Any:
    return None if uri is None else environment.doc(uri)


@function("doc-available", "string?", env=True)
def _doc_available(environment: Environment, uri: str | None) -> bool:
    if uri is None:
        return False
    try:
        environment.doc(uri)
    except XQueryError:
        return False
    return True


@function("parse-xml", "string?")
def _parse_xml(text: str | None) -> Any:
    return None if text is None else parse_xml(text)


@function("serialize", "item*", "item?", optional=1)
def _serialize(items: list[Any], *options: Any) -> str:
    if options and options[0] is not None:
        raise XQueryError("XPST0017", "options of serialize() are not supported")
    text, after_atom = "", False
    for item in items:
        if type(item) is Attribute:
            raise XQueryError("SENR0001", "an attribute cannot be serialised without its element")
        atom = not is_node(item)
        text += " " * (atom and after_atom) + (escaped(serialise(item)) if atom else serialise(item))
        after_atom = atom
    return text


@function("current-dateTime", env=True)
def _current(environment: Environment) -> Any:
    return environment.context.now
