"""Expressions to closures: one function for each kind of node, found by its type, and the context it runs in.

Both the syntax tree of a query and the expressions of a plan are compiled to closures over one frame: there is one
evaluator. Modules that compile some kind of node register it by `compiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dovetail.errors import XQueryError
from dovetail.xml.syntax.tree import QName
from dovetail.xml.xdm.nodes import Document
from dovetail.xml.xdm.temporal import DateTime
from dovetail.xml.xdm.values import boolean

if TYPE_CHECKING:
    from dovetail.xml.evaluate.calls import Static


Items = list[Any]
Frame = list[Any]
Run = Callable[[Frame], Items]
Test = Callable[[Frame], bool]


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
        """The effective boolean value, however it is best found."""
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
    """What an expression compiles to that always gives one boolean."""
    return Compiled(lambda frame: [test(frame)], test)


@dataclass(slots=True)
class Slots:
    """How many places a frame needs: place 0 holds the environment, the others variables and focuses.

    `loops` counts the clauses that hold a part of the C stack while what stands before them is computed.
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


class Placed(Protocol):
    """Anything that stands somewhere in the query; line 0 if it stands nowhere."""

    @property
    def line(self) -> int:
        """The line, from 1."""

    @property
    def column(self) -> int:
        """The column, from 1."""


def located(error: XQueryError, place: Placed) -> XQueryError:
    """The error with the place of an expression, if it has none yet."""
    if not error.line and place.line:
        message = str(error).removeprefix(f"[{error.code}] ")
        error.args = (f"[{error.code}] {message} (line {place.line}, column {place.column})",)
        error.line, error.column = place.line, place.column
    return error


@contextmanager
def errors_at(place: Placed) -> Iterator[None]:
    """Gives errors of the block the place of an expression: for what is compiled, which need not be fast."""
    try:
        yield
    except XQueryError as error:
        raise located(error, place) from None


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


@dataclass(frozen=True, slots=True)
class Context:
    """The dynamic context of a run; `variables` are external ones by name, `item` is the context item."""

    variables: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    documents: Documents = field(default_factory=NoDocuments)
    item: Any = None
    now: DateTime = field(default_factory=_now)


class Environment:
    """The state of one run: documents seen so far, global variables, depth of calls."""

    __slots__ = ("_collections", "_documents", "context", "depth", "globals")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.globals: dict[QName, list[Any]] = {}
        self.depth = 0
        self._documents: dict[str, Document] = {}
        self._collections: dict[str | None, list[Document]] = {}

    def frame(self, size: int) -> list[Any]:
        """A frame for one expression: places 1 to 3 hold the context item of the query, its position and the size."""
        frame: list[Any] = [None] * size
        frame[0] = self
        if self.context.item is not None:
            frame[1:4] = self.context.item, 1, 1
        return frame

    def doc(self, uri: str) -> Document:
        """A document; the same node each time it is asked for."""
        found = self._documents.get(uri)
        if found is None:
            found = self._documents[uri] = self.context.documents.doc(uri)
        return found

    def collection(self, uri: str | None) -> list[Document]:
        """The documents of a collection; the same nodes each time."""
        found = self._collections.get(uri)
        if found is None:
            found = self._collections[uri] = list(self.context.documents.collection(uri))
        return found

    def stream_collection(self, uri: str | None) -> Iterator[Document]:
        """The documents of a collection that the query reads once: none is kept."""
        return iter(self.context.documents.collection(uri))
