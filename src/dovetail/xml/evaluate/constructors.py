"""Constructors: elements are built in place, parent before content, so that nested ones are never copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import Compiled, Frame, Items, Run, Scope, compile_expr, compiles, located
from dovetail.xml.syntax.names import XMLNS, QName
from dovetail.xml.syntax.tree import (
    ComputedAttribute,
    ComputedComment,
    ComputedDocument,
    ComputedElement,
    ComputedInstruction,
    ComputedText,
    DirectAttribute,
    DirectElement,
    Expr,
)
from dovetail.xml.xdm.atomic import STRINGS, AnyURI, QNameValue
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
    """What builds an element at the end of a parent; None for other expressions."""
    if isinstance(expr, DirectElement):
        return _direct(expr, scope)
    return _computed(expr, scope) if isinstance(expr, ComputedElement) else None


def _detached(build: Build, scope: Scope) -> Compiled:
    base = scope.static.base_uri
    return Compiled(lambda frame: [build(new_tree(base=base), frame)])


@compiles(DirectElement)
def _direct_element(expr: DirectElement, scope: Scope) -> Compiled:
    return _detached(_direct(expr, scope), scope)


@compiles(ComputedElement)
def _computed_element(expr: ComputedElement, scope: Scope) -> Compiled:
    return _detached(_computed(expr, scope), scope)


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
    """What adds a piece of content to an element and gives that element, or the one in its place."""
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


def _name(name: QName | Expr, scope: Scope, namespaces: dict[str, str], element: bool) -> Callable[[Frame], QName]:
    if isinstance(name, QName):
        fixed = name
        return lambda frame: fixed
    run = compile_expr(name, scope).run
    return lambda frame: _named(atom(run(frame), "the name of a constructor"), namespaces, element)


def _named(value: Any, namespaces: dict[str, str], element: bool) -> QName:
    if type(value) is QNameValue:
        return QName(value.uri, value.local, value.prefix)
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


def _computed(expr: ComputedElement, scope: Scope) -> Build:
    name = _name(expr.name, scope, dict(expr.namespaces), element=True)
    content = None if expr.content is None else _part(expr.content, scope)

    def build(parent: Any, frame: Frame) -> Any:
        try:
            resolved = name(frame)
            if resolved.uri == XMLNS or resolved.prefix == "xmlns":
                raise XQueryError("XQDY0096", "an element cannot be in the namespace of xmlns")
            element = new_element(parent, resolved.prefix, resolved.uri, resolved.local, {})
            if content is not None:
                element = content(element, frame)
        except XQueryError as error:
            raise located(error, expr) from None
        return element

    return build


@compiles(ComputedAttribute)
def _attribute(expr: ComputedAttribute, scope: Scope) -> Compiled:
    name, content = _name(expr.name, scope, dict(expr.namespaces), element=False), _content(expr.content, scope)

    def run(frame: Frame) -> Items:
        try:
            resolved = name(frame)
            if resolved.uri == XMLNS or (not resolved.uri and resolved.local == "xmlns"):
                raise XQueryError("XQDY0044", "an attribute cannot declare a namespace")
            prefix = resolved.prefix or ("ns0" if resolved.uri else "")
            return [new_attribute(prefix, resolved.uri, resolved.local, joined(content(frame)))]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)


def _content(expr: Expr | None, scope: Scope) -> Run:
    return (lambda frame: []) if expr is None else compile_expr(expr, scope).run


def _simple(expr: ComputedText | ComputedComment, scope: Scope, make: Callable[[str], Any], empty: bool) -> Compiled:
    content = _content(expr.content, scope)

    def run(frame: Frame) -> Items:
        items = content(frame)
        try:
            return [make(joined(items))] if items or empty else []
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)


@compiles(ComputedText)
def _text(expr: ComputedText, scope: Scope) -> Compiled:
    return _simple(expr, scope, new_text, empty=False)


@compiles(ComputedComment)
def _comment(expr: ComputedComment, scope: Scope) -> Compiled:
    return _simple(expr, scope, new_comment, empty=True)


@compiles(ComputedInstruction)
def _instruction(expr: ComputedInstruction, scope: Scope) -> Compiled:
    target = expr.target
    name: Run = (lambda frame: [target]) if isinstance(target, str) else compile_expr(target, scope).run
    content = _content(expr.content, scope)

    def run(frame: Frame) -> Items:
        try:
            value = atom(name(frame), "the name of a processing instruction")
            if type(value) not in STRINGS or type(value) is AnyURI:
                raise XQueryError("XPTY0004", "the name of a processing instruction is a string")
            return [new_instruction(value.strip(), joined(content(frame)))]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)


@compiles(ComputedDocument)
def _document(expr: ComputedDocument, scope: Scope) -> Compiled:
    content = _content(expr.content, scope)

    def run(frame: Frame) -> Items:
        try:
            return [new_document(content(frame), scope.static.base_uri)]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)
