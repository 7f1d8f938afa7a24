"""FLWOR expressions, quantifiers and the other expressions that start with a keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as OneOf
from typing import TypeVar

from dovetail.xml.syntax.reader import Reader
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
    Switch,
    SwitchCase,
    TryCatch,
    TypeCase,
    Typeswitch,
    WhereClause,
)

Part = TypeVar("Part")
CODEPOINT = "http://www.w3.org/2005/xpath-functions/collation/codepoint"


def keyword_expr(reader: Reader) -> Expr | None:
    """The expression that starts here, if a keyword says so."""
    token = reader.lexer.peek()
    if token.kind != "name":
        return None
    following = _FOLLOWING.get(token.text)
    if following is None or reader.lexer.peek(1).kind not in following:
        _window(reader)
        return None
    return reader.at(token.start, _STARTS[token.text](reader))


def _window(reader: Reader) -> None:
    if (reader.sees("for", "tumbling") or reader.sees("for", "sliding")) and reader.lexer.peek(2).text == "window":
        raise reader.unsupported("window clauses are")


def flwor(reader: Reader) -> Expr:
    """`for`/`let` clauses, then any clauses, then `return`."""
    clauses: list[Clause] = []
    while not reader.sees("return"):
        start = reader.lexer.peek().start
        clauses += [clause if clause.line else reader.at(start, clause) for clause in _clauses(reader)]
    reader.expect("return")
    return Flwor(tuple(clauses), reader.single())


def _clauses(reader: Reader) -> list[Clause]:
    if reader.sees("for", "$"):
        return _separated(reader, _for)
    if reader.sees("let", "$"):
        return _separated(reader, _let)
    if reader.takes("where"):
        return [WhereClause(reader.single())]
    if reader.takes("stable", "order", "by") or reader.takes("order", "by"):
        return [OrderClause(tuple(_list(reader, _order_key)))]
    if reader.takes("group", "by"):
        return [GroupClause(tuple(_list(reader, _group_key)))]
    if reader.takes("count"):
        return [CountClause(reader.variable())]
    _window(reader)
    raise reader.unexpected("'return' or another clause expected")


def _separated(reader: Reader, parse: Callable[[Reader], Clause]) -> list[Clause]:
    reader.lexer.take()
    return _list(reader, parse)


def _list(reader: Reader, parse: Callable[[Reader], Part]) -> list[Part]:
    parts = [parse(reader)]
    while reader.takes(","):
        parts.append(parse(reader))
    return parts


def _for(reader: Reader) -> Clause:
    start = reader.lexer.peek().start
    variable, kind = reader.variable(), reader.optional_type()
    empty = reader.takes("allowing", "empty")
    position = reader.variable() if reader.takes("at") else None
    if position == variable:
        raise reader.lexer.error("XQST0089", f"${variable} is bound twice in one for clause", start)
    reader.expect("in")
    return reader.at(start, ForClause(variable, reader.single(), position, kind, empty))


def _let(reader: Reader) -> Clause:
    start = reader.lexer.peek().start
    variable, kind = reader.variable(), reader.optional_type()
    reader.expect(":=")
    return reader.at(start, LetClause(variable, reader.single(), kind))


def _order_key(reader: Reader) -> OrderKey:
    expr = reader.single()
    descending = not reader.takes("ascending") and reader.takes("descending")
    greatest = reader.empty_greatest
    if reader.takes("empty"):
        greatest = reader.takes("greatest")
        if not greatest:
            reader.expect("least")
    _collation(reader)
    return OrderKey(expr, descending, greatest)


def _collation(reader: Reader) -> None:
    if reader.takes("collation"):
        token = reader.lexer.peek()
        if reader.string() != CODEPOINT:
            raise reader.lexer.error("XQST0076", f"only the collation {CODEPOINT} is supported", token.start)


def _group_key(reader: Reader) -> GroupKey:
    variable, kind = reader.variable(), reader.optional_type()
    value = None
    if kind is not None and not reader.sees(":="):
        raise reader.unexpected("':=' expected")
    if reader.takes(":="):
        value = reader.single()
    _collation(reader)
    return GroupKey(variable, value, kind)


def quantified(reader: Reader) -> Expr:
    """`some` or `every`."""
    kind: OneOf["some", "every"] = "some" if reader.lexer.take().text == "some" else "every"
    bindings = tuple(_list(reader, _binding))
    reader.expect("satisfies")
    return Quantified(kind, bindings, reader.single())


def _binding(reader: Reader) -> ForClause:
    start = reader.lexer.peek().start
    variable, kind = reader.variable(), reader.optional_type()
    reader.expect("in")
    return reader.at(start, ForClause(variable, reader.single(), None, kind))


def if_expr(reader: Reader) -> Expr:
    """`if (a) then b else c`."""
    condition = _operand(reader)
    reader.expect("then")
    then = reader.single()
    reader.expect("else")
    return If(condition, then, reader.single())


def _operand(reader: Reader) -> Expr:
    reader.lexer.take()
    reader.expect("(")
    operand = reader.expr()
    reader.expect(")")
    return operand


def switch(reader: Reader) -> Expr:
    """`switch (a) case b return c default return d`."""
    operand, cases = _operand(reader), []
    while reader.sees("case"):
        values = []
        while reader.takes("case"):
            values.append(reader.single())
        reader.expect("return")
        cases.append(SwitchCase(tuple(values), reader.single()))
    if not cases:
        raise reader.unexpected("'case' expected")
    reader.expect("default")
    reader.expect("return")
    return Switch(operand, tuple(cases), reader.single())


def typeswitch(reader: Reader) -> Expr:
    """`typeswitch (a) case $x as T return b default $x return c`."""
    operand, cases = _operand(reader), []
    while reader.takes("case"):
        variable = None
        if reader.sees("$"):
            variable = reader.variable()
            reader.expect("as")
        types = [reader.sequence_type()]
        while reader.takes("|"):
            types.append(reader.sequence_type())
        reader.expect("return")
        cases.append(TypeCase(variable, tuple(types), reader.single()))
    if not cases:
        raise reader.unexpected("'case' expected")
    reader.expect("default")
    variable = reader.variable() if reader.sees("$") else None
    reader.expect("return")
    return Typeswitch(operand, (*cases, TypeCase(variable, (), reader.single())))


def try_catch(reader: Reader) -> Expr:
    """`try { a } catch * { b }`."""
    reader.lexer.take()
    body, catches = reader.enclosed(), []
    while reader.takes("catch"):
        tests = [reader.name_test(reader.element_namespace)]
        while reader.takes("|"):
            tests.append(reader.name_test(reader.element_namespace))
        catches.append(Catch(tuple(tests), reader.enclosed()))
    if not catches:
        raise reader.unexpected("'catch' expected")
    return TryCatch(body, tuple(catches))


_STARTS: dict[str, Callable[[Reader], Expr]] = {
    "for": flwor,
    "let": flwor,
    "some": quantified,
    "every": quantified,
    "if": if_expr,
    "switch": switch,
    "typeswitch": typeswitch,
    "try": try_catch,
}
_FOLLOWING = {
    "for": "$", "let": "$", "some": "$", "every": "$", "if": "(", "switch": "(", "typeswitch": "(", "try": "{"
}  # fmt: skip
