"""Functions on sequences and on nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cmp_to_key
from operator import gt, itemgetter, lt, not_
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.axes import ancestors
from dovetail.xml.evaluate.calls import function, present
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.evaluate.control import RaisedError
from dovetail.xml.evaluate.flwor import ordering
from dovetail.xml.syntax.tree import ERR, XML, QName
from dovetail.xml.xdm.atomic import (
    INTEGERS,
    NUMBERS,
    PRIMITIVES,
    PYTHON_TYPES,
    AnyURI,
    UntypedAtomic,
    promoted,
    rounded,
)
from dovetail.xml.xdm.markup import escaped, is_ncname, parse_xml, serialise
from dovetail.xml.xdm.nodes import (
    Attribute,
    Document,
    Element,
    base_uri,
    in_document_order,
    is_node,
    name_of,
    path_key,
    root_of,
)
from dovetail.xml.xdm.operators import arithmetic, comparable, deep_equal, distinct, same
from dovetail.xml.xdm.temporal import EXACT, DayTimeDuration, YearMonthDuration
from dovetail.xml.xdm.values import atomise, cast, string_of, type_name, untyped_to_double

_ASCENDING = ordering()
_ADDABLE = (YearMonthDuration, DayTimeDuration)


def _addable(values: list[Any], name: str) -> list[Any]:
    numbers = [untyped_to_double(value) for value in values]
    if all(type(value) in NUMBERS for value in numbers):
        return numbers
    for kind in _ADDABLE:
        if all(type(value) is kind for value in numbers):
            return numbers
    bad = next((value for value in numbers if type(value) not in NUMBERS), numbers[0])
    raise XQueryError("FORG0006", f"{name}() needs numbers or durations of one kind, given {type_name(bad)}")


def _total(values: list[Any]) -> Any:
    kinds = set(map(type, values))
    if kinds <= INTEGERS:
        return sum(map(int, values))
    if kinds == {float}:
        total = values[0]
        for value in values[1:]:
            total += value
        return total
    if kinds == {Decimal}:
        total = values[0]
        for value in values[1:]:
            total = EXACT.add(total, value)
        return total
    result = values[0]
    for value in values[1:]:
        result = arithmetic("+", result, value)
    return result


@function("sum", "anyAtomicType*", "anyAtomicType?", optional=1)
def _sum(values: list[Any], *zero: Any) -> Any:
    if not values:
        return zero[0] if zero else 0
    return _total(_addable(values, "sum"))


@function("avg", "anyAtomicType*")
def _avg(values: list[Any]) -> Any:
    return arithmetic("div", _total(_addable(values, "avg")), len(values)) if values else None


function("max", "anyAtomicType*", collation="string")(lambda values: _extreme(values, "max", gt))
function("min", "anyAtomicType*", collation="string")(lambda values: _extreme(values, "min", lt))


def _extreme(values: list[Any], name: str, better: Callable[[Any, Any], bool]) -> Any:
    if not values:
        return None
    if all(type(value) is UntypedAtomic for value in values):
        doubles = list(map(untyped_to_double, values))
        if any(value != value for value in doubles):
            return math.nan
        return max(doubles) if name == "max" else min(doubles)
    ordered = [str(value) if type(value) is AnyURI else untyped_to_double(value) for value in values]
    best = _orderable(ordered[0], name)
    for value in ordered[1:]:
        if PRIMITIVES[type(value)] != PRIMITIVES[type(best)] and not {type(value), type(best)} <= NUMBERS:
            raise XQueryError("FORG0006", f"{name}() cannot compare {type_name(value)} with {type_name(best)}")
        best = _pick(best, value, better)
    return _widest(best, ordered)


def _orderable(value: Any, name: str) -> Any:
    unordered = {"QName", "duration", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay"}
    if PRIMITIVES[type(value)] in unordered:
        raise XQueryError("FORG0006", f"{name}() of {type_name(value)}: such values have no order")
    return value


def _pick(best: Any, value: Any, better: Callable[[Any, Any], bool]) -> Any:
    if isinstance(best, float) and best != best:
        return best
    if isinstance(value, float) and value != value:
        return value
    first, second = comparable(value, best, "lt")
    return value if better(first, second) else best


def _widest(best: Any, values: list[Any]) -> Any:
    """Among numbers the result has the type that all of them can be promoted to."""
    if type(best) not in NUMBERS:
        return best
    result = best
    for kind in {type(value) for value in values}:
        if PRIMITIVES[kind] in ("double", "float"):
            result = promoted(result, kind(0))[0]
    return result


function("exists", "item*")(bool)
function("empty", "item*")(not_)
function("head", "item*")(lambda items: items[:1])
function("tail", "item*")(lambda items: items[1:])
function("reverse", "item*")(lambda items: items[::-1])
function("trace", "item*", "string", optional=1)(lambda items, *_: items)
function("data", "item*", focus=True)(atomise)
function("string", "item?", focus=True)(lambda item: "" if item is None else string_of(item))
function("true")(lambda: True)
function("false")(lambda: False)
function("distinct-values", "anyAtomicType*", collation="string")(distinct)
function("deep-equal", "item*", "item*", collation="string")(deep_equal)


@function("insert-before", "item*", "integer", "item*")
def _insert(items: list[Any], position: int, more: list[Any]) -> list[Any]:
    at = max(position, 1) - 1
    return [*items[:at], *more, *items[at:]]


function("remove", "item*", "integer")(
    lambda items, position: [item for at, item in enumerate(items, 1) if at != position]
)


@function("subsequence", "item*", "double", "double", optional=1)
def _subsequence(items: list[Any], start: float, length: float = math.inf) -> list[Any]:
    first = rounded(start, 0)
    last = math.inf if length == math.inf and first == -math.inf else first + rounded(length, 0)
    if length == math.inf and math.isfinite(first):
        last = math.inf
    return [item for at, item in enumerate(items, 1) if first <= at < last]


function("index-of", "anyAtomicType*", "anyAtomicType", collation="string")(
    lambda values, wanted: [at for at, value in enumerate(values, 1) if same(value, wanted) and value == value]
)  # NaN equals nothing


@function("sort", "item*", collation="string?")
def _sort(items: list[Any]) -> list[Any]:
    keys = (str(value) if type(value) is UntypedAtomic else value for value in atomise(items))
    by_key = cmp_to_key(_ASCENDING)
    keyed = sorted(zip(map(by_key, keys), items, strict=True), key=itemgetter(0))
    return [item for _, item in keyed]


def _counted(name: str, code: str, least: int, most: float, given: str) -> None:
    @function(name, "item*")
    def check(items: list[Any]) -> list[Any]:
        if not least <= len(items) <= most:
            raise XQueryError(code, f"{name}() was given {given.format(len(items))}")
        return items


_counted("zero-or-one", "FORG0003", 0, 1, "{} items")
_counted("one-or-more", "FORG0004", 1, math.inf, "nothing")
_counted("exactly-one", "FORG0005", 1, 1, "{} items")


@function("number", "anyAtomicType?", focus=True)
def _number(value: Any) -> Any:
    try:
        return math.nan if value is None else cast(value, "double")
    except XQueryError:
        return math.nan


@function("error", "QName?", "string", "item*", optional=3)
def _error(code: QName | None = None, message: str = "", items: list[Any] | None = None) -> None:
    raise RaisedError(code or QName(ERR, "FOER0000", "err"), message, items or [])


_NCNAME = PYTHON_TYPES["NCName"]


def _named(name: str, read: Callable[[str, str, str], Any], unnamed: Any) -> None:
    """A function of the prefix, namespace and local name of a node, and its value for nodes without name."""

    @function(name, "node?", focus=True)
    def of_node(node: Any) -> Any:
        found = None if node is None else name_of(node)
        return unnamed if found is None else read(*found)


_named("name", lambda prefix, uri, local: f"{prefix}:{local}" if prefix else local, "")
_named("local-name", lambda prefix, uri, local: local, "")
_named("namespace-uri", lambda prefix, uri, local: AnyURI(uri), AnyURI(""))
_named("node-name", lambda prefix, uri, local: QName(uri, local, prefix), None)
function("root", "node?", focus=True)(present(root_of))
function("base-uri", "node?", focus=True)(present(lambda node: _uri(base_uri(node))))
function("document-uri", "node?", focus=True)(
    lambda node: _uri(node.holder.get("uri")) if type(node) is Document else None
)
function("generate-id", "node?", focus=True)(
    lambda node: "" if node is None else "d" + "e".join(str(part) for pair in path_key(node) for part in pair)
)


def _uri(text: str | None) -> AnyURI | None:
    return None if text is None else AnyURI(text)


@function("has-children", "node?", focus=True)
def _has_children(node: Any) -> bool:
    element = node.holder if type(node) is Document else node
    return (type(node) is Document or type(node) is Element) and (len(element) > 0 or bool(element.text))


@function("innermost", "node*")
def _innermost(nodes: list[Any]) -> list[Any]:
    outer = {above for node in nodes for above in ancestors(node)}
    return in_document_order(node for node in nodes if node not in outer)


@function("outermost", "node*")
def _outermost(nodes: list[Any]) -> list[Any]:
    given = set(nodes)
    return in_document_order(node for node in nodes if not any(above in given for above in ancestors(node)))


@function("QName", "string?", "string")
def _qname(uri: str | None, name: str) -> QName:
    prefix, colon, local = name.partition(":")
    if not is_ncname(prefix) or (colon and not is_ncname(local)) or (colon and not uri):
        raise XQueryError("FOCA0002", f"{name!r} is not a name for the namespace {uri!r}")
    return QName(uri or "", local, prefix) if colon else QName(uri or "", prefix)


function("local-name-from-QName", "QName?")(present(lambda name: _NCNAME(name.local)))
function("namespace-uri-from-QName", "QName?")(present(lambda name: AnyURI(name.uri)))
function("prefix-from-QName", "QName?")(present(lambda name: _NCNAME(name.prefix) if name.prefix else None))
function("in-scope-prefixes", "element")(
    lambda node: ["xml", *(prefix or "" for prefix, uri in node.nsmap.items() if uri)]
)


@function("namespace-uri-for-prefix", "string?", "element")
def _uri_for(prefix: str | None, node: Any) -> AnyURI | None:
    if prefix == "xml":
        return AnyURI(XML)
    uri = node.nsmap.get(prefix or None)
    return AnyURI(uri) if uri else None


@function("doc-available", "string?", env=True)
def _doc_available(context: Context, uri: str | None) -> bool:
    try:
        return uri is not None and context.doc(uri) is not None
    except XQueryError:
        return False


function("parse-xml", "string?")(present(parse_xml))
function("doc", "string?", env=True)(lambda context, uri: None if uri is None else context.doc(uri))
function("current-dateTime", env=True)(lambda context: context.now)


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
