"""Prints plans as text, in the form of the listings of the source, with pieces of the query as query text.

The listings differ among themselves in the blanks at parentheses and commas. Here an operator has one blank inside its
parentheses, a call none, and a comma is followed by one: `UNNEST( $$13:child(child($$4, "a"), "b") )`. The text of a
piece follows its tree, not its spelling: abbreviations are written out if the tree has none, and operands of operators
are in parentheses unless they are simple.
Reference: Carman 2020, 7.4; docs/algorithms/xquery.md, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Constant, Evaluate, Expression, Name, Variable, written_name
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
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
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import FN, XS, KindTest, NameTest, QName, SequenceType


def name_text(name: QName) -> str:
    """A function's or a type's name: without prefix in the namespace of functions, `xs:` for types."""
    if name.uri in (FN, ""):
        return name.local
    return f"xs:{name.local}" if name.uri == XS else f"{name.prefix}:{name.local}" if name.prefix else _braced(name)


def _braced(name: QName) -> str:
    return f"Q{{{name.uri}}}{name.local}"


def variable_text(name: QName) -> str:
    """`$name`."""
    return f"${name.local}" if not name.uri else f"${name}" if name.prefix else f"${_braced(name)}"


def test_text(test: NameTest | KindTest) -> str:
    """`book`, `*`, `p:book`, `*:book`, `Q{uri}book`, `text()`, `element(book)`."""
    if isinstance(test, KindTest):
        inner = (test_text(part) for part in (test.name, test.inner) if part is not None)
        return f"{test.kind}({', '.join(inner)})"
    return f"{test.prefix}:{test.local or '*'}" if test.prefix and test.uri is not None else written_name(test)


def type_text(kind: SequenceType) -> str:
    """`xs:integer?`, `element(book)*`, `item()`, `empty-sequence()`."""
    match kind.item:
        case None:
            return "empty-sequence()"
        case QName():
            return name_text(kind.item) + kind.occurrence
        case str():
            return kind.item + kind.occurrence
    return test_text(kind.item) + kind.occurrence


def source_text(node: tree.Expr) -> str:
    """The expression as XQuery."""
    write = _WRITERS.get(type(node))
    if write is None:
        raise PlanError(f"{type(node).__name__} has no text.")
    return write(node)


_SIMPLE = (
    tree.Literal, tree.VariableRef, tree.ContextItem, tree.Root, tree.Sequence, tree.FunctionCall, tree.Path,
    tree.AxisStep, tree.Filter, tree.DirectElement,
)  # fmt: skip


def _operand(node: tree.Expr) -> str:
    text = source_text(node)
    return text if isinstance(node, _SIMPLE) else f"({text})"


def _list(nodes: Iterable[tree.Expr]) -> str:
    return ", ".join(map(source_text, nodes))


def _operation(node: tree.Operation) -> str:
    symbol, operands = tree.SYMBOLS[node.name], list(map(_operand, node.arguments))
    return f" {symbol} ".join(operands) if len(operands) > 1 else f"{symbol}{operands[0]}"


def _literal(node: tree.Literal) -> str:
    return print_constant(node.value.replace("&", "&amp;") if isinstance(node.value, str) else node.value)


def _step(node: tree.AxisStep) -> str:
    test = test_text(node.test)
    prefix = {"child": "", "attribute": "@"}.get(node.axis, f"{node.axis}::")
    if node.axis == "parent" and test == "node()":
        prefix, test = "", ".."
    return f"{prefix}{test}{_predicates(node.predicates)}"


def _predicates(predicates: tuple[tree.Expr, ...]) -> str:
    return "".join(f"[{source_text(one)}]" for one in predicates)


def _path(node: tree.Path) -> str:
    steps = "/".join(_operand(step) for step in node.steps)
    match node.start:
        case tree.Root():
            return f"/{steps}"
        case tree.ContextItem() if node.steps and isinstance(node.steps[0], tree.AxisStep):
            return steps
    return f"{_operand(node.start)}/{steps}"


def _clause(clause: tree.Clause) -> str:
    match clause:
        case tree.ForClause():
            return f"for {_binding(clause)}"
        case tree.LetClause():
            return f"let {variable_text(clause.variable)}{_typed(clause.type)} := {source_text(clause.value)}"
        case tree.WhereClause():
            return f"where {source_text(clause.condition)}"
        case tree.OrderClause():
            return f"order by {', '.join(map(_order_key, clause.keys))}"
        case tree.GroupClause():
            return f"group by {', '.join(map(_group_key, clause.keys))}"
        case tree.CountClause():
            return f"count {variable_text(clause.variable)}"
    raise PlanError(f"{type(clause).__name__} has no text.")


def _binding(clause: tree.ForClause) -> str:
    empty = " allowing empty" if clause.allowing_empty else ""
    at = f" at {variable_text(clause.position)}" if clause.position is not None else ""
    return f"{variable_text(clause.variable)}{_typed(clause.type)}{empty}{at} in {source_text(clause.source)}"


def _typed(kind: Any) -> str:
    return f" as {type_text(kind)}" if kind is not None else ""


def _order_key(key: tree.OrderKey) -> str:
    return source_text(key.expr) + " descending" * key.descending + " empty greatest" * key.empty_greatest


def _group_key(key: tree.GroupKey) -> str:
    value = f" := {source_text(key.value)}" if key.value is not None else ""
    return f"{variable_text(key.variable)}{_typed(key.type)}{value}"


def _flwor(node: tree.Flwor) -> str:
    return f"{' '.join(map(_clause, node.clauses))} return {source_text(node.result)}"


def _if(node: tree.If) -> str:
    return f"if ({source_text(node.condition)}) then {_operand(node.then)} else {_operand(node.otherwise)}"


def _switch(node: tree.Switch) -> str:
    cases = (
        f"{' '.join(f'case {_operand(value)}' for value in case.values)} return {_operand(case.result)}"
        for case in node.cases
    )
    return f"switch ({source_text(node.operand)}) {' '.join(cases)} default return {_operand(node.default)}"


def _type_case(case: tree.TypeCase) -> str:
    name = f"{variable_text(case.variable)} " if case.variable is not None else ""
    kinds = " | ".join(map(type_text, case.types))
    head = f"case {name}{'as ' if name else ''}{kinds}" if case.types else f"default {name}".rstrip()
    return f"{head} return {_operand(case.result)}"


def _typeswitch(node: tree.Typeswitch) -> str:
    return f"typeswitch ({source_text(node.operand)}) {' '.join(map(_type_case, node.cases))}"


def _try(node: tree.TryCatch) -> str:
    catches = (
        f"catch {' | '.join(map(test_text, catch.tests))} {{ {source_text(catch.result)} }}" for catch in node.catches
    )
    return f"try {{ {source_text(node.body)} }} {' '.join(catches)}"


def _escaped(text: str) -> str:
    for plain, written in (("&", "&amp;"), ("<", "&lt;"), ("{", "{{"), ("}", "}}")):
        text = text.replace(plain, written)
    return text


def _mixed(parts: tuple[str | tree.Expr, ...], quote: bool = False) -> str:
    def one(part: str | tree.Expr) -> str:
        if isinstance(part, str):
            return _escaped(part).replace('"', "&quot;") if quote else _escaped(part)
        return source_text(part) if isinstance(part, tree.DirectElement) and not quote else f"{{{source_text(part)}}}"

    return "".join(map(one, parts))


def _element(node: tree.DirectElement) -> str:
    declared = (f' xmlns{":" if prefix else ""}{prefix}="{_escaped(uri)}"' for prefix, uri in node.namespaces)
    attributes = (f' {a.name}="{_mixed(a.parts, quote=True)}"' for a in node.attributes)
    head = f"{node.name}{''.join(declared)}{''.join(attributes)}"
    return f"<{head}>{_mixed(node.content)}</{node.name}>" if node.content else f"<{head}/>"


def _computed(node: tree.Computed) -> str:
    name = node.name
    shown = "" if name is None else f" {{{source_text(name)}}}" if isinstance(name, tree.Expr) else f" {name}"
    return f"{node.kind}{shown} {{{source_text(node.content)}}}"


_WRITERS: dict[type[tree.Expr], Callable[[Any], str]] = {
    tree.Literal: _literal,
    tree.VariableRef: lambda n: variable_text(n.name),
    tree.ContextItem: lambda n: ".",
    tree.Root: lambda n: "(/)",
    tree.Sequence: lambda n: f"({_list(n.items)})",
    tree.FunctionCall: lambda n: f"{name_text(n.name)}({_list(n.arguments)})",
    tree.Operation: _operation,
    tree.SimpleMap: lambda n: f"{_operand(n.left)} ! {_operand(n.right)}",
    tree.AxisStep: _step,
    tree.Path: _path,
    tree.Filter: lambda n: f"({source_text(n.base)}){_predicates(n.predicates)}",
    tree.Flwor: _flwor,
    tree.If: _if,
    tree.Switch: _switch,
    tree.Typeswitch: _typeswitch,
    tree.TryCatch: _try,
    tree.InstanceOf: lambda n: f"{_operand(n.operand)} instance of {type_text(n.type)}",
    tree.TreatAs: lambda n: f"{_operand(n.operand)} treat as {type_text(n.type)}",
    tree.CastAs: lambda n: f"{_operand(n.operand)} cast as {n.type}{'?' * n.optional}",
    tree.CastableAs: lambda n: f"{_operand(n.operand)} castable as {n.type}{'?' * n.optional}",
    tree.DirectElement: _element,
    tree.Computed: _computed,
}


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
    raise PlanError(f"{type(operator).__name__} is no operator that has a text.")


def _scan(scan: DataScan, notes: bool) -> str:
    path = f', "/{"/".join(scan.path)}"' if scan.path else ""
    text = f"DATASCAN( {print_expression(scan.source)}, {scan.variable}{path} )"
    return f"{text} [partitioned by document]" if notes and scan.partitioned else text


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
