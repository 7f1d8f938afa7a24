"""Expressions to closures: one function for each kind of node, found by its type, and the context it runs in.

Both the syntax tree of a query and the expressions of a plan are compiled to closures over one frame: there is one
evaluator. Modules that compile some kind of node register it by `compiles`. Sequence types are here too: matching,
conversion of arguments, and the expressions that name them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import Call, Place
from dovetail.xml.algebra.printer import type_text
from dovetail.xml.evaluate.axes import matcher as node_matcher
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import XS, Expr, ItemType, KindTest, NodeKind, QName, SequenceType
from dovetail.xml.xdm.atomic import ANCESTORS, NUMBERS, PYTHON_TYPES, STRINGS, AnyURI, Float, UntypedAtomic, to_double
from dovetail.xml.xdm.markup import is_ncname
from dovetail.xml.xdm.nodes import Document, is_node
from dovetail.xml.xdm.temporal import DateTime
from dovetail.xml.xdm.values import atom, atomise, boolean, cast, type_name

if TYPE_CHECKING:
    from dovetail.xml.evaluate.calls import Static

Items = list[Any]
Frame = list[Any]
Run = Callable[[Frame], Items]
Test = Callable[[Frame], bool]
Result = TypeVar("Result")


@dataclass(slots=True)
class Compiled:
    """A compiled expression.

    `run` gives all items. `test` gives the effective boolean value without building a sequence; where it is set, the
    expression gives one boolean or nothing. `stream` gives the items one by one where that saves memory.
    """

    run: Run
    test: Test | None = None
    stream: Callable[[Frame], Iterator[Any]] | None = None
    ordered: bool = False  # nodes in document order, each once, none inside another

    def truth(self) -> Test:
        """The effective boolean value, by the fastest way."""
        if self.test is not None:
            return self.test
        run = self.run
        return lambda frame: boolean(run(frame))

    def each(self) -> Callable[[Frame], Iterator[Any]]:
        """The items one by one."""
        if self.stream is not None:
            return self.stream
        run = self.run
        return lambda frame: iter(run(frame))


def of_test(test: Test) -> Compiled:
    """The compiled form of an expression that always returns one boolean."""
    return Compiled(lambda frame: [test(frame)], test)


@dataclass(slots=True)
class Slots:
    """How many places a frame needs: place 0 holds the context, the others variables and focuses.

    `loops` counts the clauses that hold a part of the C stack while the clauses before them are computed.
    """

    used: int = 1
    loops: int = 0

    def take(self, count: int = 1) -> int:
        """The first of `count` new places."""
        first = self.used
        self.used += count
        return first


@dataclass(frozen=True, slots=True)
class Scope:
    """Variables in scope, by name in a query and by number in a plan, each with its place in the frame."""

    static: Static
    slots: Slots
    variables: dict[Hashable, int] = field(default_factory=dict)
    focus: int | None = None  # item, position and size stand at focus, focus + 1, focus + 2

    def bind(self, name: Hashable) -> tuple[Scope, int]:
        """A scope with one more variable."""
        slot = self.slots.take()
        return replace(self, variables={**self.variables, name: slot}), slot

    def focused(self) -> tuple[Scope, int]:
        """A scope with a focus of its own."""
        focus = self.slots.take(3)
        return replace(self, focus=focus), focus


Placed = Expr | Call | Place
"""Anything with a place in the query; line 0 if it has none."""


def located(error: XQueryError, place: Placed) -> XQueryError:
    """The error with the place of an expression, if it has none yet."""
    if not error.line and place.line:
        message = str(error).removeprefix(f"[{error.code}] ")
        error.args = (f"[{error.code}] {message} (line {place.line}, column {place.column})",)
        error.line, error.column = place.line, place.column
    return error


@contextmanager
def errors_at(place: Placed) -> Iterator[None]:
    """Adds the place of an expression to errors of the block; for compilation, which need not be fast."""
    try:
        yield
    except XQueryError as error:
        raise located(error, place) from None


def at_place(place: Placed, run: Callable[[Frame], Result]) -> Callable[[Frame], Result]:
    """The same with the place of an expression in its errors; what runs most often does this itself, without a call."""

    def placed(frame: Frame) -> Result:
        try:
            return run(frame)
        except XQueryError as error:
            raise located(error, place) from None

    return placed


_COMPILERS: dict[type, Callable[[Any, Scope], Compiled]] = {}
Function = TypeVar("Function", bound=Callable[[Any, Scope], Compiled])


def compiles(kind: type) -> Callable[[Function], Function]:
    """Registers the function that compiles nodes of a type."""

    def register(function: Function) -> Function:
        _COMPILERS[kind] = function
        return function

    return register


def compile_expr(expr: Any, scope: Scope) -> Compiled:
    """An expression of a query or of a plan, compiled. Raises static errors of the names and types in it."""
    return _COMPILERS[type(expr)](expr, scope)


MAX_CALLS = 1200  # how deep declared functions may call each other


class Documents(Protocol):
    """Where `doc` and `collection` find their documents. Unknown addresses raise FODC0002."""

    def doc(self, uri: str) -> Document:
        """One document."""

    def collection(self, uri: str | None) -> Iterable[Document]:
        """The documents of a collection, or of the default one."""


class NoDocuments:
    """No document is available."""

    def doc(self, uri: str) -> Document:
        """Always FODC0002."""
        raise XQueryError("FODC0002", f"there is no document {uri!r}")

    def collection(self, uri: str | None) -> Iterable[Document]:
        """Always FODC0002."""
        raise XQueryError("FODC0002", f"there is no collection {uri!r}" if uri else "there is no default collection")


def _now() -> DateTime:
    now = datetime.now(UTC)
    second = Decimal(now.second) + Decimal(now.microsecond // 1000) / 1000
    return DateTime(now.year, now.month, now.day, now.hour, now.minute, second, 0)


@dataclass(slots=True, eq=False)
class Context:
    """The dynamic context of one run, and its state: documents seen so far, global variables, depth of calls.

    `variables` are external ones by name, `item` is the context item.
    """

    variables: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    documents: Documents = field(default_factory=NoDocuments)
    item: Any = None
    now: DateTime = field(default_factory=_now)
    globals: dict[QName, Items] = field(default_factory=dict, init=False)
    depth: int = field(default=0, init=False)
    _documents: dict[str, Document] = field(default_factory=dict, init=False)
    _collections: dict[str | None, list[Document]] = field(default_factory=dict, init=False)

    def frame(self, size: int) -> list[Any]:
        """A frame for one expression: places 1 to 3 hold the context item of the query, its position and the size."""
        frame: list[Any] = [None] * size
        frame[0] = self
        if self.item is not None:
            frame[1:4] = self.item, 1, 1
        return frame

    def doc(self, uri: str) -> Document:
        """A document; the same node each time it is asked for."""
        found = self._documents.get(uri)
        if found is None:
            found = self._documents[uri] = self.documents.doc(uri)
        return found

    def collection(self, uri: str | None) -> list[Document]:
        """The documents of a collection; the same nodes each time."""
        found = self._collections.get(uri)
        if found is None:
            found = self._collections[uri] = list(self.documents.collection(uri))
        return found

    def stream_collection(self, uri: str | None) -> Iterator[Document]:
        """The documents of a collection that the query reads once; none is cached."""
        return iter(self.documents.collection(uri))


Convert = Callable[[Items], Items]
_LIMITS = {"": (1, 1), "?": (0, 1), "*": (0, sys.maxsize), "+": (1, sys.maxsize)}
_NODE_TESTS = get_args(NodeKind)
_ABSTRACT = frozenset(("anyAtomicType", "NOTATION", "anySimpleType"))


def atomic_name(name: QName) -> str:
    """The local name of a known atomic type. Raises XPST0051."""
    if name.uri == XS and (name.local in PYTHON_TYPES or name.local in ("anyAtomicType", "numeric")):
        return name.local
    raise XQueryError("XPST0051", f"{name} is not the name of an atomic type")


def _item_matcher(item: ItemType) -> Callable[[Any], bool]:
    if isinstance(item, str):
        return lambda value: True
    if isinstance(item, KindTest):
        matches = node_matcher(item)
        return lambda value: is_node(value) and matches(value)
    fits = _atomic_matcher(atomic_name(item))
    return lambda value: not is_node(value) and fits(value)


def _atomic_matcher(name: str) -> Callable[[Any], bool]:
    """Whether an atomic value is of the type."""
    if name == "anyAtomicType":
        return lambda value: True
    if name == "numeric":
        return lambda value: type(value) in NUMBERS
    return lambda value: name in ANCESTORS[type(value)]


def matcher(kind: SequenceType) -> Callable[[Items], bool]:
    """Whether a sequence is of the type, without any conversion."""
    if kind.item is None:
        return lambda items: not items
    low, high = _LIMITS[kind.occurrence]
    matches = _item_matcher(kind.item)
    return lambda items: low <= len(items) <= high and all(map(matches, items))


def mismatch(items: Items, expected: SequenceType, what: str) -> XQueryError:
    """The error of a sequence that is not of its type."""
    given = type_name(items[0]) if len(items) == 1 else f"a sequence of {len(items)} items" if items else "nothing"
    return XQueryError("XPTY0004", f"{what} must be {type_text(expected)}, given {given}")


def checked(kind: SequenceType | None, what: str, place: Expr) -> Convert | None:
    """The check of a declared type of a variable, None without one; no conversion takes place."""
    if kind is None:
        return None
    with errors_at(place):
        matches = matcher(kind)

    def check(items: Items) -> Items:
        if not matches(items):
            raise located(mismatch(items, kind, what), place)
        return items

    return check


def converter(kind: SequenceType, what: str) -> Convert:
    """The conversion of arguments and results: atomised, untyped values cast, numbers promoted, then checked."""
    matches = matcher(kind)

    def check(items: Items) -> Items:
        if not matches(items):
            raise mismatch(items, kind, what)
        return items

    if not isinstance(kind.item, QName):
        return check
    name = atomic_name(kind.item)
    convert, fits, (low, high) = value_converter(name), _atomic_matcher(name), _LIMITS[kind.occurrence]

    def converted(items: Items) -> Items:
        if not low <= len(items) <= high:
            raise mismatch(items, kind, what)
        values = [convert(value) for value in atomise(items)]
        if not all(map(fits, values)):
            raise mismatch(values, kind, what)
        return values

    return converted


def parameter(kind: str, what: str) -> Callable[[Items], Any]:
    """The conversion of an argument of a library function: `string*` to a list, `string?` to one value or None."""
    name: Any = kind.rstrip("?*+")
    occurrence: Any = kind.removeprefix(name)
    nodes = KindTest(name) if name in _NODE_TESTS else QName(XS, name, "xs")
    item: ItemType = "item()" if name == "item" else nodes
    convert = converter(SequenceType(item, occurrence), what)
    if kind.endswith(("*", "+")):
        return (lambda items: items) if kind == "item*" else convert
    if not isinstance(item, QName):
        return lambda items: found[0] if (found := convert(items)) else None
    change, fits = value_converter(name), _atomic_matcher(name)

    def one(items: Items) -> Any:
        if len(items) == 1 and fits(value := change(atomise(items)[0])):
            return value
        return next(iter(convert(items)), None)

    return one


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


@compiles(tree.InstanceOf)
def _instance_of(expr: tree.InstanceOf, scope: Scope) -> Compiled:
    run = compile_expr(expr.operand, scope).run
    with errors_at(expr):
        matches = matcher(expr.type)
    return of_test(lambda frame: matches(run(frame)))


@compiles(tree.TreatAs)
def _treat(expr: tree.TreatAs, scope: Scope) -> Compiled:
    inner = compile_expr(expr.operand, scope)
    with errors_at(expr):
        matches = matcher(expr.type)

    def run(frame: Frame) -> Items:
        items = inner.run(frame)
        if not matches(items):
            error = mismatch(items, expr.type, "the operand of treat as")
            raise located(XQueryError("XPDY0050", str(error).removeprefix("[XPTY0004] ")), expr)
        return items

    return Compiled(run, ordered=inner.ordered)


def _target(expr: tree.CastAs | tree.CastableAs) -> str:
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


def _qname(value: Any, namespaces: dict[str, str]) -> QName:
    if type(value) is QName:
        return value
    if type(value) not in STRINGS or type(value) is AnyURI:
        raise XQueryError("XPTY0004", f"{type_name(value)} cannot be cast to xs:QName")
    prefix, colon, local = value.strip(" \t\n\r").partition(":")
    if not is_ncname(prefix) or (colon and not is_ncname(local)):
        raise XQueryError("FORG0001", f"{value!r} is not a valid xs:QName")
    if not colon:
        return QName(namespaces.get("", ""), prefix)
    if not namespaces.get(prefix):
        raise XQueryError("FONS0004", f"the prefix {prefix!r} is not declared")
    return QName(namespaces[prefix], local, prefix)


@compiles(tree.CastAs)
def _cast(expr: tree.CastAs, scope: Scope) -> Compiled:
    run, convert = compile_expr(expr.operand, scope).run, cast_to(_target(expr), expr.namespaces)

    def cast_items(frame: Frame) -> Items:
        value = atom(run(frame), "the operand of cast as")
        if value is None and not expr.optional:
            raise XQueryError("XPTY0004", f"nothing cannot be cast to {expr.type}; write {expr.type}? to allow it")
        return [] if value is None else [convert(value)]

    return Compiled(at_place(expr, cast_items))


@compiles(tree.CastableAs)
def _castable(expr: tree.CastableAs, scope: Scope) -> Compiled:
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
