"""What the functions of the algebra are: steps, aggregates, comparisons; and how a node test is written."""

from __future__ import annotations

from decimal import Decimal

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Constant, Expression, is_call
from dovetail.xml.syntax.names import KindTest, NameTest

STEPS = (
    "child", "attribute", "self", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self",
    "following-sibling", "preceding-sibling", "following", "preceding",
)  # fmt: skip
"""Steps, called by their axis: `child($$4, "book")`. Each has a scalar and an unnesting form."""

DOWNWARD = ("child", "attribute", "self", "descendant", "descendant-or-self")
"""Steps that stay inside the subtree of the node they start from."""

AGGREGATES = ("avg", "count", "max", "min", "sum")
"""Functions over a whole sequence that also exist as aggregate expressions."""

VALUE = {op: f"value-{op}" for op in ("eq", "ne", "lt", "le", "gt", "ge")}
GENERAL = {
    "=": "general-eq",
    "!=": "general-ne",
    "<": "general-lt",
    "<=": "general-le",
    ">": "general-gt",
    ">=": "general-ge",
}
NODE = {"is": "node-is", "<<": "node-before", ">>": "node-after"}
ARITHMETIC = {
    "+": "add", "-": "subtract", "*": "multiply", "div": "divide", "idiv": "integer-divide", "mod": "mod",
}  # fmt: skip
SETS = {"union": "union", "intersect": "intersect", "except": "except"}

SORT_DISTINCT = "sort-distinct-nodes-asc-or-atomics"
SORT = "sort-nodes-asc-or-atomics"
DISTINCT = "distinct-nodes-or-atomics"
SEQUENCE = "sequence"
"""`sequence(a, b)` is the sequence constructor (a, b)."""

INTERNAL = frozenset(
    (
        *STEPS, *VALUE.values(), *GENERAL.values(), *NODE.values(), *ARITHMETIC.values(), *SETS, SORT_DISTINCT, SORT,
        DISTINCT, SEQUENCE, "and", "or", "to", "minus", "plus", "string-concat", "treat", "promote", "iterate",
        "create_sequence", "evaluate",
    )
)  # fmt: skip
"""Names of the algebra that are no functions of XQuery: a query that calls one of them calls something else."""


def test_name(test: NameTest | KindTest) -> Expression:
    """A node test as an argument of a step: "book", "*", "*:book", "Q{uri}book", text(), element("book")."""
    if isinstance(test, NameTest):
        return Constant(_name(test))
    inner = tuple(test_name(part) for part in (test.name, test.inner) if part is not None)
    return Call(test.kind, inner)


def _name(test: NameTest) -> str:
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
    """What a chain of steps starts from: $$2 of child(child($$2, "a"), "b")."""
    while isinstance(expression, Call) and expression.name in STEPS:
        expression = expression.arguments[0]
    return expression


def constant_type(value: str | bool | int | Decimal | float) -> str:
    """The atomic type of a literal."""
    names: dict[type, str] = {str: "string", bool: "boolean", int: "integer", Decimal: "decimal", float: "double"}
    return names[type(value)]
