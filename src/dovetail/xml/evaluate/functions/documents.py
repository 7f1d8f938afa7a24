"""Documents from outside and from text."""

from __future__ import annotations

from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.context import Environment
from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.nodes import Attribute, is_node
from dovetail.xml.xdm.parse import parse_xml
from dovetail.xml.xdm.serialise import escaped, serialise


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
        raise fail("XPST0017", "options of serialize() are not supported")
    text, after_atom = "", False
    for item in items:
        if type(item) is Attribute:
            raise fail("SENR0001", "an attribute cannot be serialised without its element")
        atom = not is_node(item)
        text += " " * (atom and after_atom) + (escaped(serialise(item)) if atom else serialise(item))
        after_atom = atom
    return text


@function("current-dateTime", env=True)
def _current(environment: Environment) -> Any:
    return environment.context.now
