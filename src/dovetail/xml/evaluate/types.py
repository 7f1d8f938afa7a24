"""Sequence types: what matches them, and how arguments are converted to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.axes import matcher as node_matcher
from dovetail.xml.evaluate.compiler import (
    Compiled,
    Frame,
    Items,
    Scope,
    compile_expr,
    compiles,
    errors_at,
    located,
    of_test,
)
from dovetail.xml.syntax.tree import (
    XS,
    AnyItem,
    AtomicType,
    CastableAs,
    CastAs,
    Clause,
    Expr,
    InstanceOf,
    KindTest,
    QName,
    SequenceType,
    TreatAs,
)
from dovetail.xml.xdm.atomic import (
    ANCESTORS,
    NUMBERS,
    PYTHON_TYPES,
    STRINGS,
    AnyURI,
    Float,
    QNameValue,
    UntypedAtomic,
    to_double,
)
from dovetail.xml.xdm.markup import is_ncname
from dovetail.xml.xdm.nodes import is_node
from dovetail.xml.xdm.values import atom, atomise, cast, type_name

Convert = Callable[[Items], Items]
_LIMITS = {"": (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}
_ABSTRACT = frozenset(("anyAtomicType", "NOTATION", "anySimpleType"))


def atomic_name(name: QName) -> str:
    """The local name of a known atomic type. Raises XPST0051."""
    if name.uri == XS and (name.local in PYTHON_TYPES or name.local in ("anyAtomicType", "numeric")):
        return name.local
    raise XQueryError("XPST0051", f"{name} is not the name of an atomic type")


def written(kind: SequenceType) -> str:
    """A type as a query writes it."""
    item = kind.item
    if item is None:
        return "empty-sequence()"
    text = (
        str(item.name) if isinstance(item, AtomicType) else "item()" if isinstance(item, AnyItem) else f"{item.kind}()"
    )
    return text + kind.occurrence


def _item_matcher(item: AtomicType | KindTest | AnyItem) -> Callable[[Any], bool]:
    if isinstance(item, AnyItem):
        return lambda value: True
    if isinstance(item, KindTest):
        matches = node_matcher(item)
        return lambda value: is_node(value) and matches(value)
    name = atomic_name(item.name)
    if name == "numeric":
        return lambda value: type(value) in NUMBERS
    return lambda value: not is_node(value) and name in ANCESTORS[type(value)]


def matcher(kind: SequenceType) -> Callable[[Items], bool]:
    """Whether a sequence is of the type, without any conversion."""
    if kind.item is None:
        return lambda items: not items
    low, high = _LIMITS[kind.occurrence]
    matches = _item_matcher(kind.item)
    return lambda items: low <= len(items) <= (len(items) if high is None else high) and all(map(matches, items))


def mismatch(items: Items, expected: str, what: str) -> XQueryError:
    """The error of a sequence that is not of its type."""
    given = type_name(items[0]) if len(items) == 1 else f"a sequence of {len(items)} items" if items else "nothing"
    return XQueryError("XPTY0004", f"{what} must be {expected}, given {given}")


def checked(kind: SequenceType | None, what: str, place: Expr | Clause) -> Convert | None:
    """The check of a declared type of a variable, None without one; no conversion takes place."""
    if kind is None:
        return None
    with errors_at(place):
        matches = matcher(kind)

    def check(items: Items) -> Items:
        if not matches(items):
            raise located(mismatch(items, written(kind), what), place)
        return items

    return check


def converter(kind: SequenceType, what: str) -> Convert:
    """The conversion of arguments and results: atomised, untyped values cast, numbers promoted, then checked."""
    matches, expected = matcher(kind), written(kind)

    def check(items: Items) -> Items:
        if not matches(items):
            raise mismatch(items, expected, what)
        return items

    if not isinstance(kind.item, AtomicType):
        return check
    convert = value_converter(atomic_name(kind.item.name))
    return lambda items: check([convert(value) for value in atomise(items)])


def value_converter(target: str) -> Callable[[Any], Any]:
    """The conversion of one typed value to an atomic type; what does not fit is left as it is."""
    if target == "anyAtomicType":
        return lambda value: value
    untyped = "double" if target == "numeric" else target

    def convert(value: Any) -> Any:
        kind = type(value)
        if kind is UntypedAtomic:
            return cast(value, untyped)
        if target == "double" and kind in NUMBERS:
            return to_double(value)
        if target == "float" and kind in NUMBERS and kind is not float:
            return Float(to_double(value))
        return str(value) if target == "string" and kind is AnyURI else value

    return convert


# --- expressions with types


@compiles(InstanceOf)
def _instance_of(expr: InstanceOf, scope: Scope) -> Compiled:
    run = compile_expr(expr.operand, scope).run
    with errors_at(expr):
        matches = matcher(expr.type)
    return of_test(lambda frame: matches(run(frame)))


@compiles(TreatAs)
def _treat(expr: TreatAs, scope: Scope) -> Compiled:
    inner = compile_expr(expr.operand, scope)
    with errors_at(expr):
        matches = matcher(expr.type)

    def run(frame: Frame) -> Items:
        items = inner.run(frame)
        if not matches(items):
            error = mismatch(items, written(expr.type), "the operand of treat as")
            raise located(XQueryError("XPDY0050", str(error).removeprefix("[XPTY0004] ")), expr)
        return items

    return Compiled(run, ordered=inner.ordered)


def _target(expr: CastAs | CastableAs) -> str:
    if expr.type.uri == XS and expr.type.local in _ABSTRACT:
        raise located(XQueryError("XPST0080", f"nothing can be cast to {expr.type}"), expr)
    try:
        return atomic_name(expr.type)
    except XQueryError as error:
        raise located(XQueryError("XQST0052", str(error).removeprefix("[XPST0051] ")), expr) from None


def cast_to(target: str, namespaces: tuple[tuple[str, str], ...] = ()) -> Callable[[Any], Any]:
    """The cast of one typed value; the namespaces say what prefixes of names mean."""
    if target == "QName":
        prefixes = dict(namespaces)
        return lambda value: _qname(value, prefixes)
    return lambda value: cast(value, target)


def _qname(value: Any, namespaces: dict[str, str]) -> QNameValue:
    if type(value) is QNameValue:
        return value
    if type(value) not in STRINGS or type(value) is AnyURI:
        raise XQueryError("XPTY0004", f"{type_name(value)} cannot be cast to xs:QName")
    prefix, colon, local = value.strip(" \t\n\r").partition(":")
    if not is_ncname(prefix) or (colon and not is_ncname(local)):
        raise XQueryError("FORG0001", f"{value!r} is not a valid xs:QName")
    if not colon:
        return QNameValue(namespaces.get("", ""), prefix)
    if not namespaces.get(prefix):
        raise XQueryError("FONS0004", f"the prefix {prefix!r} is not declared")
    return QNameValue(namespaces[prefix], local, prefix)


@compiles(CastAs)
def _cast(expr: CastAs, scope: Scope) -> Compiled:
    run, convert = compile_expr(expr.operand, scope).run, cast_to(_target(expr), expr.namespaces)

    def cast_items(frame: Frame) -> Items:
        try:
            value = atom(run(frame), "the operand of cast as")
            if value is None and not expr.optional:
                raise XQueryError("XPTY0004", f"nothing cannot be cast to {expr.type}; write {expr.type}? to allow it")
            return [] if value is None else [convert(value)]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(cast_items)


@compiles(CastableAs)
def _castable(expr: CastableAs, scope: Scope) -> Compiled:
    run, convert = compile_expr(expr.operand, scope).run, cast_to(_target(expr), expr.namespaces)

    def test(frame: Frame) -> bool:
        values = atomise(run(frame))
        if len(values) != 1:
            return not values and expr.optional
        try:
            convert(values[0])
        except XQueryError:
            return False
        return True

    return of_test(test)
