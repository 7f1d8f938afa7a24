"""The text of a plan read back: what `printer` writes without annotations, with any blanks and line breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar, cast

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Constant, Evaluate, Expression, Name, Variable
from dovetail.xml.algebra.matching import compares_nodes, looks_up
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Gathered,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    SortKey,
    Subplan,
    Unnest,
)
from dovetail.xml.syntax.parser import parse

T = TypeVar("T")

_TOKEN = re.compile(
    r"""\s*(?:(?P<variable>\$\$\d+)|(?P<number>-?\d[\w.]*(?:(?<=e)[-+]\d+)?)
    |(?P<string>"(?:[^"]|"")*")|(?P<name>[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?)|(?P<mark>[(){},:;=.]))""",
    re.VERBOSE,
)


def parse_plan(text: str) -> Operator:
    """The plan that a text describes; PlanError says where the text is no plan."""
    reader = _Reader(text)
    plan = reader.operator()
    reader.expect("end", "")
    return plan


def parse_expression(text: str) -> Expression:
    """One expression of a plan."""
    reader = _Reader(text)
    found = reader.expression()
    reader.expect("end", "")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.place = text, _tokens(text), 0
        self.heads: dict[str, Callable[[], Operator]] = {
            "EMPTY-TUPLE-SOURCE": EmptyTupleSource,
            "NESTED-TUPLE-SOURCE": NestedTupleSource,
            "DISTRIBUTE-RESULT": self._distribute,
            "ASSIGN": self._assign,
            "UNNEST": self._unnest,
            "AGGREGATE": self._aggregate,
            "SUBPLAN": self._subplan,
            "SELECT": self._select,
            "JOIN": self._join,
            "ORDER": self._order,
            "GROUP-BY": self._group,
            "DATASCAN": self._scan,
        }

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.place]

    def take(self) -> tuple[str, str]:
        self.place += 1
        return self.tokens[self.place - 1]

    def taken(self, text: str) -> bool:
        if self.peek()[1] != text:
            return False
        self.place += 1
        return True

    def expect(self, kind: str, text: str | None = None) -> str:
        found = self.take()
        if found[0] != kind or text not in (None, found[1]):
            raise PlanError(f"expected {text or kind} in the text of a plan, found {found[1]!r} (token {self.place}).")
        return found[1]

    def mark(self, text: str) -> None:
        self.expect("mark", text)

    def operator(self) -> Operator:
        name = self.expect("name")
        if name not in self.heads:
            raise PlanError(f"{name} is no operator; operators are {', '.join(self.heads)}.")
        return self.heads[name]()

    def variable(self) -> Variable:
        return Variable(int(self.expect("variable")[2:]))

    def expression(self) -> Expression:
        kind, text = self.take()
        if kind == "variable":
            return Variable(int(text[2:]))
        if kind == "string":
            return Constant(text[1:-1].replace('""', '"'))
        if kind == "number":
            return Constant(_number(text))
        if kind != "name":
            raise PlanError(f"expected an expression in the text of a plan, found {text!r} (token {self.place}).")
        if self.peek()[1] != "(":
            return Constant(text == "true") if text in ("true", "false") else Name(text)
        return self._evaluate() if text == "evaluate" else Call(text, tuple(self.listed(self.expression)))

    def listed(self, one: Callable[[], T]) -> list[T]:
        """Items in parentheses, with commas between them."""
        self.mark("(")
        found: list[T] = []
        while not self.taken(")"):
            if found:
                self.mark(",")
            found.append(one())
        return found

    def _evaluate(self) -> Evaluate:
        self.mark("(")
        text = self.expect("string")[1:-1].replace('""', '"')
        bindings: list[tuple[str, Expression]] = []
        while self.taken(","):
            name = self.take()[1]
            self.mark("=")
            bindings.append((name, self.expression()))
        self.mark(")")
        tree = parse(text).body
        return Evaluate(tree, tuple(bindings), looks_up(tree), compares_nodes(tree))

    def pair(self) -> tuple[Variable, Expression]:
        variable = self.variable()
        self.mark(":")
        return variable, self.expression()

    def _distribute(self) -> Operator:
        return DistributeResult(self.listed(self.variable)[0], self.operator())

    def _assign(self) -> Operator:
        [(variable, expression)] = self.listed(self.pair)
        return Assign(variable, expression, self.operator())

    def _unnest(self) -> Operator:
        self.mark("(")
        variable = self.variable()
        position = self.variable() if self.taken("at") else None
        self.mark(":")
        expression = self.expression()
        self.mark(")")
        return Unnest(variable, expression, self.operator(), position)

    def _aggregate(self) -> Operator:
        [(variable, expression)] = self.listed(self.pair)
        return Aggregate(variable, expression, self.operator())

    def braced(self) -> Operator:
        self.mark("{")
        plan = self.operator()
        self.mark("}")
        return plan

    def _subplan(self) -> Operator:
        return Subplan(self.braced(), self.operator())

    def _select(self) -> Operator:
        return Select(self.listed(self.expression)[0], self.operator())

    def _join(self) -> Operator:
        return Join(self.listed(self.expression)[0], self.braced(), self.braced())

    def sort_key(self) -> SortKey:
        expression = self.expression()
        descending = self.taken("descending")
        return SortKey(expression, descending, self.taken("empty") and self.taken("greatest"))

    def _order(self) -> Operator:
        return Order(tuple(self.listed(self.sort_key)), self.operator())

    def _group(self) -> Operator:
        self.mark("(")
        keys, gathered = [self.pair()], list[Gathered]()
        while self.taken(","):
            keys.append(self.pair())
        while self.taken(";" if not gathered else ","):
            gathered.append(Gathered(*self.pair()))
        self.mark(")")
        return GroupBy(tuple(keys), tuple(gathered), self.operator())

    def _scan(self) -> Operator:
        self.mark("(")
        source = cast(Call, self.expression())
        self.mark(",")
        variable = self.variable()
        path = self.expect("string")[1:-1] if self.taken(",") else ""
        self.mark(")")
        return DataScan(source, variable, split_path(path), self.operator())


def split_path(text: str) -> tuple[str, ...]:
    """The steps of "/a/Q{http://x/y}b": a slash inside braces separates nothing."""
    return tuple(re.findall(r"/((?:Q\{[^}]*\})?[^/]*)", text))


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise PlanError(f"the text of a plan cannot be read at {text[place : place + 20]!r}.")
        found.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
        place = match.end()
    return [*found, ("end", "")]


def _number(text: str) -> int | Decimal | float:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)
