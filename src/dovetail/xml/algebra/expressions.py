"""Expressions of a plan: variables, constants, calls, and pieces of the query that have no form of their own.

A call is scalar in ASSIGN, SELECT and JOIN, unnesting in UNNEST, aggregate in AGGREGATE: the place says which. Over a
sequence, a step (`child`, `attribute` ...) is the concatenation of its answers for each item, in the order of the
items; nothing is sorted unless the plan says so.
Reference: Carman 2020, 7.3; docs/algorithms/xquery.md, 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from dovetail.errors import PlanError
from dovetail.xml.syntax.tree import AXES, SYMBOLS, KindTest, NameTest
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


class Place(NamedTuple):
    """Line and column in the query, both from 1."""

    line: int = 0
    column: int = 0


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function of the algebra or of XQuery applied to arguments; `place` is its line and column in the query."""

    name: str
    arguments: tuple[Expression, ...] = ()
    place: Place = field(default=NOWHERE, compare=False, repr=False)

    @property
    def line(self) -> int:
        """The line in the query, 0 if it has none."""
        return self.place[0]

    @property
    def column(self) -> int:
        """The column in the query."""
        return self.place[1]


@dataclass(frozen=True, slots=True)
class Evaluate(Expression):
    """A piece of the query without a form of its own in the algebra, for the evaluator.

    `bindings` are the free variables of the piece (by the name used in it, "." for the context item). `upward` says
    that it may access ancestors of its nodes (parent axis, root() ...), so that they cannot be cut out of their
    documents. `identity` says that it may depend on the identity of nodes.
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
    """Every part replaced by the result of `change`, from the inside out."""
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


STEPS = AXES
"""Steps, called by their axis: `child($$4, "book")`. Each has a scalar and an unnesting form."""

DOWNWARD = ("child", "attribute", "self", "descendant", "descendant-or-self")
"""Steps that stay inside the subtree of the node they start from."""

AGGREGATES = ("avg", "count", "max", "min", "sum")
"""Functions over a whole sequence that also exist as aggregate expressions."""

SORT_DISTINCT = "sort-distinct-nodes-asc-or-atomics"
SORT = "sort-nodes-asc-or-atomics"
DISTINCT = "distinct-nodes-or-atomics"
SEQUENCE = "sequence"
"""`sequence(a, b)` is the sequence constructor (a, b)."""

INTERNAL = frozenset(
    (
        *STEPS, *SYMBOLS, SORT_DISTINCT, SORT, DISTINCT, SEQUENCE, "treat", "promote", "iterate", "create_sequence",
        "evaluate",
    )
)  # fmt: skip
"""Names of the algebra that are no functions of XQuery: a query that calls one of them means another function."""


def test_name(test: NameTest | KindTest) -> Expression:
    """A node test as an argument of a step: "book", "*", "*:book", "Q{uri}book", text(), element("book")."""
    if isinstance(test, NameTest):
        return Constant(written_name(test))
    inner = tuple(test_name(part) for part in (test.name, test.inner) if part is not None)
    return Call(test.kind, inner)


def written_name(test: NameTest) -> str:
    """A name or wildcard without prefix: the namespace, if it is not the empty one, stands in braces."""
    local = "*" if test.local is None else test.local
    if test.uri is None:
        return "*" if test.local is None else f"*:{local}"
    return f"Q{{{test.uri}}}{local}" if test.uri else local if test.local is not None else "Q{}*"


def node_test(expression: Expression) -> NameTest | KindTest:
    """The node test that `test_name` wrote."""
    if isinstance(expression, Constant) and isinstance(expression.value, str):
        return _name_test(expression.value)
    if not isinstance(expression, Call):
        raise PlanError(f"{expression} is no node test.")
    inner = [node_test(part) for part in expression.arguments]
    names = [part for part in inner if isinstance(part, NameTest)]
    kinds = [part for part in inner if isinstance(part, KindTest)]
    return KindTest(
        expression.name,  # type: ignore[arg-type]  # written from a KindTest
        names[0] if names else None,
        kinds[0] if kinds else None,
    )


def _name_test(text: str) -> NameTest:
    if text == "*":
        return NameTest(None, None)
    if text.startswith("*:"):
        return NameTest(None, text[2:])
    uri, local = text[2:].rsplit("}", 1) if text.startswith("Q{") else ("", text)
    return NameTest(uri, None if local == "*" else local)


def is_step(expression: Expression) -> bool:
    """Whether the expression is a step: `axis(nodes, test)`."""
    return is_call(expression, *STEPS)


def base_of_steps(expression: Expression) -> Expression:
    """The start of a chain of steps: $$2 of child(child($$2, "a"), "b")."""
    while isinstance(expression, Call) and expression.name in STEPS:
        expression = expression.arguments[0]
    return expression


def constant_type(value: str | bool | int | Decimal | float) -> str:
    """The atomic type of a literal."""
    names: dict[type, str] = {str: "string", bool: "boolean", int: "integer", Decimal: "decimal", float: "double"}
    return names[type(value)]
