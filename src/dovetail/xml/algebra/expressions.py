"""Expressions of a plan: variables, constants, calls, and pieces of the query that only the evaluator can compute.

A call is scalar in ASSIGN, SELECT and JOIN, unnesting in UNNEST, aggregate in AGGREGATE: the place says which,
`functions` says which calls may stand there. Over a sequence, a step (`child`, `attribute` ...) is the concatenation
of its answers for each item, in the order of the items; nothing is sorted unless the plan says so.
Reference: Carman 2020, 7.3; docs/algorithms/xquery.md, 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from dovetail.errors import PlanError
from dovetail.xml.syntax.tree import Expr as Tree


@dataclass(frozen=True, slots=True)
class Expression:
    """Anything that has a value for a tuple."""


@dataclass(frozen=True, slots=True, order=True)
class Variable(Expression):
    """A field of a tuple, written $$number. A plan defines each variable once."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise PlanError(f"variable number {self.number} is negative; variables count from 0.")

    def __str__(self) -> str:
        return f"$${self.number}"


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A literal: str, bool, int (xs:integer), Decimal (xs:decimal) or float (xs:double)."""

    value: str | bool | int | Decimal | float

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Constant) and type(self.value) is type(other.value)
        return same and self.value == other.value  # type: ignore[attr-defined]  # `same` says that it is a Constant

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """A bare word as an argument: the type of `treat` and `promote`."""

    text: str


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function of the algebra or of XQuery applied to arguments; `place` is its line and column in the query."""

    name: str
    arguments: tuple[Expression, ...] = ()
    place: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Evaluate(Expression):
    """A piece of the query without a form of its own in the algebra, for the evaluator.

    `bindings` give the free variables of the piece (by the name that stands in it, "." for the context item). `upward`
    says that it may look above the nodes it is given (parent axis, root() ...), so that they cannot be cut out of their
    documents. `identity` says that it may ask which node is which.
    """

    tree: Tree
    bindings: tuple[tuple[str, Expression], ...] = ()
    upward: bool = field(default=False, compare=False)
    identity: bool = field(default=False, compare=False)


def call(name: str, *arguments: Expression) -> Call:
    """`Call` without the tuple."""
    return Call(name, arguments)


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside."""
    if isinstance(expression, Call):
        return expression.arguments
    if isinstance(expression, Evaluate):
        return tuple(value for _, value in expression.bindings)
    return ()


def with_children(expression: Expression, new: tuple[Expression, ...]) -> Expression:
    """The same expression around other ones."""
    if isinstance(expression, Call):
        return Call(expression.name, new, expression.place)
    if isinstance(expression, Evaluate):
        names = (name for name, _ in expression.bindings)
        return replace(expression, bindings=tuple(zip(names, new, strict=True)))
    return expression


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Every part replaced by what `change` says, from the inside out."""
    inner = children(expression)
    new = tuple(rebuilt(part, change) for part in inner)
    return change(
        expression if all(a is b for a, b in zip(inner, new, strict=True)) else with_children(expression, new)
    )


def parts(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it."""
    waiting = [expression]
    while waiting:
        yield (part := waiting.pop())
        waiting.extend(reversed(children(part)))


def variables(expression: Expression) -> Iterator[Variable]:
    """Every use of a variable, as often as it is used."""
    return (part for part in parts(expression) if isinstance(part, Variable))


def substituted(expression: Expression, values: Mapping[Variable, Expression]) -> Expression:
    """Variables replaced by expressions."""
    return rebuilt(expression, lambda part: values.get(part, part) if isinstance(part, Variable) else part)


def is_call(expression: Expression, *names: str) -> bool:
    """Whether the expression is a call of one of these functions."""
    return isinstance(expression, Call) and expression.name in names
