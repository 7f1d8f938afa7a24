"""Plans as text, in the form of the listings of the source.

The listings differ among themselves in the blanks at parentheses and commas. Here an operator has one blank inside its
parentheses, a call none, and a comma is followed by one: `UNNEST( $$13:child(child($$4, "a"), "b") )`.
Reference: Carman 2020, 7.4; docs/algorithms/xquery.md, 5 and 6.
"""

from __future__ import annotations

from decimal import Decimal

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Constant, Evaluate, Expression, Name, Variable
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
    Exchange,
    Gathered,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    SortKey,
    Subplan,
    TwoStep,
    Unnest,
)
from dovetail.xml.algebra.source_text import source_text


def print_plan(plan: Operator, annotations: bool = False) -> str:
    """The plan, one operator a line, the topmost first.

    With annotations also what the listings leave out: partitions of scans, steps of aggregates, hash keys of joins.
    """
    return "\n".join(_lines(plan, annotations)) + "\n"


def _lines(plan: Operator, notes: bool) -> list[str]:
    match plan:
        case EmptyTupleSource():
            return ["EMPTY-TUPLE-SOURCE"]
        case NestedTupleSource():
            return ["NESTED-TUPLE-SOURCE"]
        case Subplan():
            return ["SUBPLAN {", *_indented(plan.nested, notes), "}", *_lines(plan.input, notes)]
        case Join():
            head = f"JOIN( {print_expression(plan.condition)} )" + (_keys(plan.keys) if notes else "")
            return [head, "{", *_indented(plan.inner, notes), "} {", *_indented(plan.outer, notes), "}"]
    return [_line(plan, notes), *_lines(plan.input, notes)]  # type: ignore[attr-defined]  # the others have one input


def _indented(plan: Operator, notes: bool) -> list[str]:
    return [f"  {line}" for line in _lines(plan, notes)]


def _line(operator: Operator, notes: bool) -> str:
    match operator:
        case DistributeResult():
            return f"DISTRIBUTE-RESULT( {operator.variable} )"
        case Assign():
            return f"ASSIGN( {operator.variable}:{print_expression(operator.expression)} )"
        case Unnest():
            at = f" at {operator.position}" if operator.position is not None else ""
            return f"UNNEST( {operator.variable}{at}:{print_expression(operator.expression)} )"
        case Aggregate():
            text = f"AGGREGATE( {operator.variable}:{print_expression(operator.expression)} )"
            return text + (_steps(operator.steps) if notes else "")
        case Select():
            return f"SELECT( {print_expression(operator.condition)} )"
        case DataScan():
            return _scan(operator, notes)
        case Order():
            return f"ORDER( {', '.join(_sort_key(key) for key in operator.keys)} )"
        case GroupBy():
            return _group(operator, notes)
        case Exchange():
            keys = f"( {', '.join(map(print_expression, operator.keys))} )" if operator.keys else ""
            return f"{operator.kind} EXCHANGE{keys}"
    raise PlanError(f"{type(operator).__name__} is no operator that has a text.")


def _scan(scan: DataScan, notes: bool) -> str:
    path = f', "/{"/".join(scan.path)}"' if scan.path else ""
    text = f"DATASCAN( {print_expression(scan.source)}, {scan.variable}{path} )"
    return f"{text} [partitioned by document]" if notes and scan.partitioning is not None else text


def _sort_key(key: SortKey) -> str:
    words = [print_expression(key.expression)]
    words += ["descending"] * key.descending + ["empty greatest"] * key.empty_greatest
    return " ".join(words)


def _group(group: GroupBy, notes: bool) -> str:
    keys = ", ".join(f"{variable}:{print_expression(value)}" for variable, value in group.keys)
    fields = ", ".join(_field(field, notes) for field in group.gathered)
    return f"GROUP-BY( {keys}; {fields} )" if fields else f"GROUP-BY( {keys} )"


def _field(field: Gathered, notes: bool) -> str:
    return f"{field.variable}:{print_expression(field.expression)}" + (_steps(field.steps) if notes else "")


def _steps(steps: TwoStep | None) -> str:
    return "" if steps is None else f" [local {', '.join(steps.local)}; global {steps.combine}]"


def _keys(keys: tuple[Equality, ...]) -> str:
    texts = (
        f"{'some-equal' if key.existential else 'equal'}({print_expression(key.inner)}, {print_expression(key.outer)})"
        f" as {key.kind}"
        for key in keys
    )
    return f" [{', '.join(texts)}]" if keys else ""


def print_expression(expression: Expression) -> str:
    """One expression as it stands in the text of a plan."""
    match expression:
        case Variable():
            return str(expression)
        case Constant(value):
            return print_constant(value)
        case Name(text):
            return text
        case Call(name, arguments):
            return f"{name}({', '.join(map(print_expression, arguments))})"
        case Evaluate():
            given = [f"{name}={print_expression(value)}" for name, value in expression.bindings]
            return f"evaluate({', '.join([print_constant(source_text(expression.tree)), *given])})"
    raise PlanError(f"{type(expression).__name__} is no expression that has a text.")


def print_constant(value: str | bool | int | Decimal | float) -> str:
    """A literal: strings in quotes (a quote inside is doubled), true, 1, 1.5, 1.5e0."""
    match value:
        case str():
            return '"' + value.replace('"', '""') + '"'
        case bool():
            return "true" if value else "false"
        case float():
            text = repr(value)
            return text if "e" in text or "n" in text else f"{text}e0"
        case Decimal():
            text = f"{value:f}"
            return text if "." in text else f"{text}.0"
    return str(value)
