"""A tree as query text again, for plans that carry pieces of the query.

The text says what the tree says, not how it was typed: abbreviations are written out where the tree has none, operands
of operators stand in parentheses unless they are simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from dovetail.errors import PlanError
from dovetail.xml.algebra.source_text_names import name_text, test_text, type_text, variable_text
from dovetail.xml.syntax import tree


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
    return ", ".join(_single(node) for node in nodes)


def _single(node: tree.Expr) -> str:
    return source_text(node)


def _binary(node: Any, op: str) -> str:
    return f"{_operand(node.left)} {op} {_operand(node.right)}"


def _literal(node: tree.Literal) -> str:
    match node.value:
        case str():
            return '"' + node.value.replace("&", "&amp;").replace('"', '""') + '"'
        case float():
            text = repr(node.value)
            return text if "e" in text else f"{text}e0"
        case Decimal():
            text = f"{node.value:f}"
            return text if "." in text else f"{text}.0"
    return str(node.value)


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
            return f"let {variable_text(clause.variable)}{_typed(clause.type)} := {_single(clause.value)}"
        case tree.WhereClause():
            return f"where {_single(clause.condition)}"
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
    return f"{variable_text(clause.variable)}{_typed(clause.type)}{empty}{at} in {_single(clause.source)}"


def _typed(kind: Any) -> str:
    return f" as {type_text(kind)}" if kind is not None else ""


def _order_key(key: tree.OrderKey) -> str:
    return _single(key.expr) + " descending" * key.descending + " empty greatest" * key.empty_greatest


def _group_key(key: tree.GroupKey) -> str:
    value = f" := {_single(key.value)}" if key.value is not None else ""
    return f"{variable_text(key.variable)}{_typed(key.type)}{value}"


def _flwor(node: tree.Flwor) -> str:
    return f"{' '.join(map(_clause, node.clauses))} return {_single(node.result)}"


def _quantified(node: tree.Quantified) -> str:
    return f"{node.kind} {', '.join(map(_binding, node.bindings))} satisfies {_single(node.condition)}"


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


def _computed(word: str) -> Callable[[Any], str]:
    def write(node: Any) -> str:
        name = node.name if word in ("element", "attribute") else getattr(node, "target", None)
        shown = "" if name is None else f" {{{source_text(name)}}}" if isinstance(name, tree.Expr) else f" {name}"
        return f"{word}{shown} {{{source_text(node.content) if node.content is not None else ''}}}"

    return write


_WRITERS: dict[type[tree.Expr], Callable[[Any], str]] = {
    tree.Literal: _literal,
    tree.VariableRef: lambda n: variable_text(n.name),
    tree.ContextItem: lambda n: ".",
    tree.Root: lambda n: "(/)",
    tree.Sequence: lambda n: f"({_list(n.items)})",
    tree.FunctionCall: lambda n: f"{name_text(n.name)}({_list(n.arguments)})",
    tree.Logical: lambda n: _binary(n, n.op),
    tree.Comparison: lambda n: _binary(n, n.op),
    tree.Arithmetic: lambda n: _binary(n, n.op),
    tree.Unary: lambda n: f"{n.op}{_operand(n.operand)}",
    tree.StringConcat: lambda n: _binary(n, "||"),
    tree.Range: lambda n: f"{_operand(n.first)} to {_operand(n.last)}",
    tree.SetOperation: lambda n: _binary(n, n.op),
    tree.SimpleMap: lambda n: _binary(n, "!"),
    tree.AxisStep: _step,
    tree.Path: _path,
    tree.Filter: lambda n: f"({source_text(n.base)}){_predicates(n.predicates)}",
    tree.Flwor: _flwor,
    tree.Quantified: _quantified,
    tree.If: _if,
    tree.Switch: _switch,
    tree.Typeswitch: _typeswitch,
    tree.TryCatch: _try,
    tree.InstanceOf: lambda n: f"{_operand(n.operand)} instance of {type_text(n.type)}",
    tree.TreatAs: lambda n: f"{_operand(n.operand)} treat as {type_text(n.type)}",
    tree.CastAs: lambda n: f"{_operand(n.operand)} cast as {n.type}{'?' * n.optional}",
    tree.CastableAs: lambda n: f"{_operand(n.operand)} castable as {n.type}{'?' * n.optional}",
    tree.DirectElement: _element,
    tree.ComputedElement: _computed("element"),
    tree.ComputedAttribute: _computed("attribute"),
    tree.ComputedText: _computed("text"),
    tree.ComputedComment: _computed("comment"),
    tree.ComputedInstruction: _computed("processing-instruction"),
    tree.ComputedDocument: _computed("document"),
}
