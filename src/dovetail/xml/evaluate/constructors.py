"""Constructors: elements are built in place, parent before content, so that nested ones are never copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import Compiled, Frame, Items, Run, Scope, at_place, compile_expr, compiles, located
from dovetail.xml.syntax.tree import XMLNS, Computed, DirectAttribute, DirectElement, Expr, QName
from dovetail.xml.xdm.atomic import STRINGS, AnyURI
from dovetail.xml.xdm.markup import (
    Namespaces,
    add_content,
    add_text,
    is_ncname,
    new_attribute,
    new_comment,
    new_document,
    new_element,
    new_instruction,
    new_text,
    set_attribute,
    text_of,
)
from dovetail.xml.xdm.nodes import clark, new_tree
from dovetail.xml.xdm.values import atom, atomise, type_name

Build = Callable[[Any, Frame], Any]


def _builder(expr: Expr, scope: Scope) -> Build | None:
    """The function that builds an element at the end of a parent; None for other expressions."""
    if isinstance(expr, DirectElement):
        return _direct(expr, scope)
    return _computed(expr, scope) if isinstance(expr, Computed) and expr.kind == "element" else None


def _detached(build: Build, scope: Scope) -> Compiled:
    base = scope.static.base_uri
    return Compiled(lambda frame: [build(new_tree(base=base), frame)])


@compiles(DirectElement)
def _direct_element(expr: DirectElement, scope: Scope) -> Compiled:
    return _detached(_direct(expr, scope), scope)


@compiles(Computed)
def _computed_node(expr: Computed, scope: Scope) -> Compiled:
    if expr.kind == "element":
        return _detached(_computed(expr, scope), scope)
    return _KINDS[expr.kind](expr, scope, compile_expr(expr.content, scope).run)


def _direct(expr: DirectElement, scope: Scope) -> Build:
    name = expr.name
    declared: Namespaces = {prefix or None: uri for prefix, uri in expr.namespaces}
    declared |= {part.name.prefix: part.name.uri for part in expr.attributes if part.name.prefix not in ("", "xml")}
    attributes = [(clark(part.name.uri, part.name.local), _value(part, scope)) for part in expr.attributes]
    content = [_part(part, scope) for part in expr.content]

    def build(parent: Any, frame: Frame) -> Any:
        try:
            element = new_element(parent, name.prefix, name.uri, name.local, declared)
            for key, value in attributes:
                set_attribute(element, key, value(frame))
            for part in content:
                element = part(element, frame)
        except XQueryError as error:
            raise located(error, expr) from None
        return element

    return build


def _value(attribute: DirectAttribute, scope: Scope) -> Callable[[Frame], str]:
    """The text of an attribute: enclosed sequences are their values with spaces between."""
    parts = [part if isinstance(part, str) else compile_expr(part, scope).run for part in attribute.parts]
    if all(isinstance(part, str) for part in parts):
        text = "".join(map(str, parts))
        return lambda frame: text
    return lambda frame: "".join([part if isinstance(part, str) else joined(part(frame)) for part in parts])


def joined(items: Items) -> str:
    """The values of a sequence as text with spaces between."""
    return " ".join([text_of(value) for value in atomise(items)])


def _part(part: str | Expr, scope: Scope) -> Callable[[Any, Frame], Any]:
    """The function that adds a piece of content to an element and returns that element, or its replacement."""
    if isinstance(part, str):
        text = part
        return _adding(lambda parent, frame: add_text(parent, text))
    build = _builder(part, scope)
    if build is not None:
        return _adding(build)
    run = compile_expr(part, scope).run
    return lambda parent, frame: add_content(parent, run(frame))


def _adding(add: Callable[..., Any]) -> Callable[[Any, Frame], Any]:
    def part(parent: Any, frame: Frame) -> Any:
        add(parent, frame)
        return parent

    return part


# --- computed constructors


def _name(expr: Computed, scope: Scope) -> Callable[[Frame], QName]:
    fixed, namespaces, element = expr.name, dict(expr.namespaces), expr.kind == "element"
    if isinstance(fixed, QName):
        return lambda frame: fixed
    run = compile_expr(fixed, scope).run
    return lambda frame: _named(atom(run(frame), "the name of a constructor"), namespaces, element)


def _named(value: Any, namespaces: dict[str, str], element: bool) -> QName:
    if type(value) is QName:
        return value
    if type(value) not in STRINGS or type(value) is AnyURI:
        given = "nothing" if value is None else type_name(value)
        raise XQueryError("XPTY0004", f"the name of a constructor is a QName or a string, given {given}")
    text = value.strip()
    if text.startswith("Q{") and "}" in text:
        uri, _, local = text[2:].partition("}")
        return QName(uri, local)
    prefix, colon, local = text.partition(":")
    if not is_ncname(prefix) or (colon and not is_ncname(local)):
        raise XQueryError("XQDY0074", f"{text!r} is not a name")
    if not colon:
        return QName(namespaces.get("", "") if element else "", text)
    if prefix not in namespaces:
        raise XQueryError("XQDY0074", f"the prefix {prefix!r} is not declared")
    return QName(namespaces[prefix], local, prefix)


def _computed(expr: Computed, scope: Scope) -> Build:
    name, content = _name(expr, scope), _part(expr.content, scope)

    def build(parent: Any, frame: Frame) -> Any:
        try:
            resolved = name(frame)
            if resolved.uri == XMLNS or resolved.prefix == "xmlns":
                raise XQueryError("XQDY0096", "an element cannot be in the namespace of xmlns")
            element = new_element(parent, resolved.prefix, resolved.uri, resolved.local, {})
            return content(element, frame)
        except XQueryError as error:
            raise located(error, expr) from None

    return build


def _attribute(expr: Computed, scope: Scope, content: Run) -> Compiled:
    name = _name(expr, scope)

    def attribute(frame: Frame) -> Any:
        resolved = name(frame)
        if resolved.uri == XMLNS or (not resolved.uri and resolved.local == "xmlns"):
            raise XQueryError("XQDY0044", "an attribute cannot declare a namespace")
        prefix = resolved.prefix or ("ns0" if resolved.uri else "")
        return new_attribute(prefix, resolved.uri, resolved.local, joined(content(frame)))

    return _made(expr, attribute)


def _made(expr: Computed, make: Callable[[Frame], Any]) -> Compiled:
    """The node that `make` gives, none for None; its errors say where the constructor stands."""

    return Compiled(at_place(expr, lambda frame: [] if (node := make(frame)) is None else [node]))


def _text(expr: Computed, scope: Scope, content: Run) -> Compiled:
    return _made(expr, lambda frame: new_text(joined(items)) if (items := content(frame)) else None)


def _comment(expr: Computed, scope: Scope, content: Run) -> Compiled:
    return _made(expr, lambda frame: new_comment(joined(content(frame))))


def _instruction(expr: Computed, scope: Scope, content: Run) -> Compiled:
    target = expr.name
    name: Run = (lambda frame: [target]) if isinstance(target, str) else compile_expr(target, scope).run

    def instruction(frame: Frame) -> Any:
        value = atom(name(frame), "the name of a processing instruction")
        if type(value) not in STRINGS or type(value) is AnyURI:
            raise XQueryError("XPTY0004", "the name of a processing instruction is a string")
        return new_instruction(value.strip(), joined(content(frame)))

    return _made(expr, instruction)


def _document(expr: Computed, scope: Scope, content: Run) -> Compiled:
    return _made(expr, lambda frame: new_document(content(frame), scope.static.base_uri))


_KINDS: dict[str, Callable[[Computed, Scope, Run], Compiled]] = {
    "attribute": _attribute,
    "text": _text,
    "comment": _comment,
    "processing-instruction": _instruction,
    "document": _document,
}
