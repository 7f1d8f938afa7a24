"""What an expression becomes when it is compiled, and the scope it is compiled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import XQueryError
from dovetail.xml.syntax.names import QName
from dovetail.xml.syntax.tree import Clause, Expr
from dovetail.xml.xdm.values import boolean

if TYPE_CHECKING:
    from dovetail.xml.evaluate.static import Static

Items = list[Any]
Frame = list[Any]
Run = Callable[[Frame], Items]
Test = Callable[[Frame], bool]


@dataclass(slots=True)
class Plan:
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


def of_test(test: Test) -> Plan:
    """The plan of an expression that always gives one boolean."""
    return Plan(lambda frame: [test(frame)], test)


@dataclass(slots=True)
class Slots:
    """How many places a frame needs: place 0 holds the environment, the others variables and focuses."""

    used: int = 1

    def take(self, count: int = 1) -> int:
        """The first of so many new places."""
        first = self.used
        self.used += count
        return first


@dataclass(frozen=True, slots=True)
class Scope:
    """Names in scope at a place of the query, each with its place in the frame."""

    static: Static
    slots: Slots
    variables: dict[QName, int] = field(default_factory=dict)
    focus: int | None = None  # item, position and size stand at focus, focus + 1, focus + 2
    repeated: bool = False  # whether the place may be evaluated more than once in a run

    def bind(self, name: QName) -> tuple[Scope, int]:
        """A scope with one more variable."""
        slot = self.slots.take()
        return replace(self, variables={**self.variables, name: slot}), slot

    def focused(self) -> tuple[Scope, int]:
        """A scope with a focus of its own."""
        focus = self.slots.take(3)
        return replace(self, focus=focus, repeated=True), focus

    def looped(self) -> Scope:
        """The scope of something evaluated many times."""
        return self if self.repeated else replace(self, repeated=True)


def located(error: XQueryError, place: Expr | Clause) -> XQueryError:
    """The error with the place of an expression, if it has none yet."""
    if not error.line and place.line:
        message = str(error).removeprefix(f"[{error.code}] ")
        error.args = (f"[{error.code}] {message} (line {place.line}, column {place.column})",)
        error.line, error.column = place.line, place.column
    return error
