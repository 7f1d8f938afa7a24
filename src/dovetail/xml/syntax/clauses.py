"""FLWOR expressions, quantifiers and the other expressions that start with a keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as OneOf
from typing import TypeVar

from dovetail.xml.syntax.names import NameTest
from dovetail.xml.syntax.reader import TypeParser
from dovetail.xml.syntax.tree import (
    Catch,
    Clause,
    CountClause,
    Expr,
    Flwor,
    ForClause,
    GroupClause,
    GroupKey,
    If,
    LetClause,
    OrderClause,
    OrderKey,
    Quantified,
    Sequence,
    Switch,
    SwitchCase,
    TryCatch,
    TypeCase,
    Typeswitch,
    WhereClause,
)

Part = TypeVar("Part")
CODEPOINT = "http://www.w3.org/2005/xpath-functions/collation/codepoint"


class FlworParser(TypeParser):
    """Expressions that a keyword introduces; `keyword_expr` gives None where none of them starts."""

    def keyword_expr(self) -> Expr | None:
        """The expression that starts here, if a keyword says so."""
        token = self.lexer.peek()
        if token.kind != "name":
            return None
        following = _FOLLOWING.get(token.text)
        if following is None or self.lexer.peek(1).kind not in following:
            self._window()
            return None
        return self.at(token.start, _STARTS[token.text](self))

    def _window(self) -> None:
        if (self.sees("for", "tumbling") or self.sees("for", "sliding")) and self.lexer.peek(2).text == "window":
            raise self.unsupported("window clauses are")

    def flwor(self) -> Expr:
        """`for`/`let` clauses, then any clauses, then `return`."""
        clauses: list[Clause] = []
        while not self.sees("return"):
            start = self.lexer.peek().start
            clauses += [clause if clause.line else self.at(start, clause) for clause in self._clauses()]
        self.expect("return")
        return Flwor(tuple(clauses), self.single())

    def _clauses(self) -> list[Clause]:
        if self.sees("for", "$"):
            return self._separated(self._for)
        if self.sees("let", "$"):
            return self._separated(self._let)
        if self.takes("where"):
            return [WhereClause(self.single())]
        if self.takes("stable", "order", "by") or self.takes("order", "by"):
            return [OrderClause(tuple(self._list(self._order_key)))]
        if self.takes("group", "by"):
            return [GroupClause(tuple(self._list(self._group_key)))]
        if self.takes("count"):
            return [CountClause(self.variable())]
        self._window()
        raise self.unexpected("'return' or another clause expected")

    def _separated(self, parse: Callable[[], Clause]) -> list[Clause]:
        self.lexer.take()
        return self._list(parse)

    def _list(self, parse: Callable[[], Part]) -> list[Part]:
        parts = [parse()]
        while self.takes(","):
            parts.append(parse())
        return parts

    def _for(self) -> Clause:
        start = self.lexer.peek().start
        variable, kind = self.variable(), self.optional_type()
        empty = self.takes("allowing", "empty")
        position = self.variable() if self.takes("at") else None
        if position == variable:
            raise self.lexer.error("XQST0089", f"${variable} is bound twice in one for clause", start)
        self.expect("in")
        return self.at(start, ForClause(variable, self.single(), position, kind, empty))

    def _let(self) -> Clause:
        start = self.lexer.peek().start
        variable, kind = self.variable(), self.optional_type()
        self.expect(":=")
        return self.at(start, LetClause(variable, self.single(), kind))

    def _order_key(self) -> OrderKey:
        expr = self.single()
        descending = not self.takes("ascending") and self.takes("descending")
        greatest = self.empty_greatest
        if self.takes("empty"):
            greatest = self.takes("greatest")
            if not greatest:
                self.expect("least")
        self._collation()
        return OrderKey(expr, descending, greatest)

    def _collation(self) -> None:
        if self.takes("collation"):
            token = self.lexer.peek()
            if self.string() != CODEPOINT:
                raise self.lexer.error("XQST0076", f"only the collation {CODEPOINT} is supported", token.start)

    def _group_key(self) -> GroupKey:
        variable, kind = self.variable(), self.optional_type()
        value = None
        if kind is not None and not self.sees(":="):
            raise self.unexpected("':=' expected")
        if self.takes(":="):
            value = self.single()
        self._collation()
        return GroupKey(variable, value, kind)

    def quantified(self) -> Expr:
        """`some` or `every`."""
        kind: OneOf["some", "every"] = "some" if self.lexer.take().text == "some" else "every"
        bindings = tuple(self._list(self._binding))
        self.expect("satisfies")
        return Quantified(kind, bindings, self.single())

    def _binding(self) -> ForClause:
        start = self.lexer.peek().start
        variable, kind = self.variable(), self.optional_type()
        self.expect("in")
        return self.at(start, ForClause(variable, self.single(), None, kind))

    def if_expr(self) -> Expr:
        """`if (a) then b else c`."""
        condition = self._operand()
        self.expect("then")
        then = self.single()
        self.expect("else")
        return If(condition, then, self.single())

    def _operand(self) -> Expr:
        self.lexer.take()
        self.expect("(")
        operand = self.expr()
        self.expect(")")
        return operand

    def switch(self) -> Expr:
        """`switch (a) case b return c default return d`."""
        operand, cases = self._operand(), []
        while self.sees("case"):
            values = []
            while self.takes("case"):
                values.append(self.single())
            self.expect("return")
            cases.append(SwitchCase(tuple(values), self.single()))
        if not cases:
            raise self.unexpected("'case' expected")
        self.expect("default")
        self.expect("return")
        return Switch(operand, tuple(cases), self.single())

    def typeswitch(self) -> Expr:
        """`typeswitch (a) case $x as T return b default $x return c`."""
        operand, cases = self._operand(), []
        while self.takes("case"):
            variable = None
            if self.sees("$"):
                variable = self.variable()
                self.expect("as")
            types = [self.sequence_type()]
            while self.takes("|"):
                types.append(self.sequence_type())
            self.expect("return")
            cases.append(TypeCase(variable, tuple(types), self.single()))
        if not cases:
            raise self.unexpected("'case' expected")
        self.expect("default")
        variable = self.variable() if self.sees("$") else None
        self.expect("return")
        return Typeswitch(operand, (*cases, TypeCase(variable, (), self.single())))

    def try_catch(self) -> Expr:
        """`try { a } catch * { b }`."""
        self.lexer.take()
        body, catches = self.enclosed(), []
        while self.takes("catch"):
            tests = [self.name_test(self.element_namespace)]
            while self.takes("|"):
                tests.append(self.name_test(self.element_namespace))
            catches.append(Catch(tuple(tests), self.enclosed()))
        if not catches:
            raise self.unexpected("'catch' expected")
        return TryCatch(body, tuple(catches))

    def enclosed(self) -> Expr:
        """`{ expr }`; `{ }` is the empty sequence."""
        start = self.expect("{").start
        if self.takes("}"):
            return self.at(start, Sequence(()))
        inner = self.expr()
        self.expect("}")
        return inner

    def name_test(self, default: str) -> NameTest:
        """A name or wildcard: `a`, `p:a`, `*`, `p:*`, `*:a`, `Q{uri}*`."""
        token = self.lexer.peek()
        if self.takes("*"):
            return NameTest(None, None)
        if token.kind not in ("name", "braced", "wildcard"):
            raise self.unexpected("a name or wildcard expected")
        self.lexer.take()
        if token.text.startswith("*:"):
            return NameTest(None, token.text[2:])
        name = self.resolve(token.text, default, token.start)
        return NameTest(name.uri, None if name.local == "*" else name.local, name.prefix)


_STARTS: dict[str, Callable[[FlworParser], Expr]] = {
    "for": FlworParser.flwor,
    "let": FlworParser.flwor,
    "some": FlworParser.quantified,
    "every": FlworParser.quantified,
    "if": FlworParser.if_expr,
    "switch": FlworParser.switch,
    "typeswitch": FlworParser.typeswitch,
    "try": FlworParser.try_catch,
}
_FOLLOWING = {
    "for": "$", "let": "$", "some": "$", "every": "$", "if": "(", "switch": "(", "typeswitch": "(", "try": "{"
}  # fmt: skip
