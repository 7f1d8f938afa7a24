"""Expressions without operators: those that start with a keyword, paths, primary expressions, computed constructors."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar, cast

from dovetail.xml.syntax import tree
from dovetail.xml.syntax.direct import direct
from dovetail.xml.syntax.reader import KIND_TESTS, Reader, Token
from dovetail.xml.syntax.tree import AXES, CODEPOINT, FN, XS, Axis, Clause, Expr, KindTest, NameTest, QName

Part = TypeVar("Part")


def keyword_expr(reader: Reader) -> Expr | None:
    """The expression that starts here with a keyword; None if there is none."""
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
    return tree.Flwor(tuple(clauses), reader.single())


def _clauses(reader: Reader) -> list[Clause]:
    if reader.sees("for", "$"):
        return _separated(reader, _for)
    if reader.sees("let", "$"):
        return _separated(reader, _let)
    if reader.takes("where"):
        return [tree.WhereClause(reader.single())]
    if reader.takes("stable", "order", "by") or reader.takes("order", "by"):
        return [tree.OrderClause(tuple(_list(reader, _order_key)))]
    if reader.takes("group", "by"):
        return [tree.GroupClause(tuple(_list(reader, _group_key)))]
    if reader.takes("count"):
        return [tree.CountClause(reader.variable())]
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
    return reader.at(start, tree.ForClause(variable, reader.single(), position, kind, empty))


def _let(reader: Reader) -> Clause:
    start = reader.lexer.peek().start
    variable, kind = reader.variable(), reader.optional_type()
    reader.expect(":=")
    return reader.at(start, tree.LetClause(variable, reader.single(), kind))


def _order_key(reader: Reader) -> tree.OrderKey:
    expr = reader.single()
    descending = not reader.takes("ascending") and reader.takes("descending")
    greatest = reader.empty_greatest
    if reader.takes("empty"):
        greatest = reader.takes("greatest")
        if not greatest:
            reader.expect("least")
    _collation(reader)
    return tree.OrderKey(expr, descending, greatest)


def _collation(reader: Reader) -> None:
    if reader.takes("collation"):
        token = reader.lexer.peek()
        if reader.string() != CODEPOINT:
            raise reader.lexer.error("XQST0076", f"only the collation {CODEPOINT} is supported", token.start)


def _group_key(reader: Reader) -> tree.GroupKey:
    variable, kind = reader.variable(), reader.optional_type()
    value = None
    if kind is not None and not reader.sees(":="):
        raise reader.unexpected("':=' expected")
    if reader.takes(":="):
        value = reader.single()
    _collation(reader)
    return tree.GroupKey(variable, value, kind)


def quantified(reader: Reader) -> Expr:
    """`some` or `every`, as a search for an item that fulfils the condition, or that does not."""
    every = reader.lexer.take().text == "every"
    bindings = _list(reader, _binding)
    reader.expect("satisfies")
    condition = _called("not", reader.single()) if every else reader.single()
    found = _called("exists", tree.Flwor((*bindings, tree.WhereClause(condition)), tree.Literal(1)))
    return _called("not", found) if every else found


def _called(name: str, argument: Expr) -> Expr:
    return tree.FunctionCall(QName(FN, name), (argument,))


def _binding(reader: Reader) -> tree.ForClause:
    start = reader.lexer.peek().start
    variable, kind = reader.variable(), reader.optional_type()
    reader.expect("in")
    return reader.at(start, tree.ForClause(variable, reader.single(), None, kind))


def if_expr(reader: Reader) -> Expr:
    """`if (a) then b else c`."""
    condition = _operand(reader)
    reader.expect("then")
    then = reader.single()
    reader.expect("else")
    return tree.If(condition, then, reader.single())


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
        cases.append(tree.SwitchCase(tuple(values), reader.single()))
    if not cases:
        raise reader.unexpected("'case' expected")
    reader.expect("default")
    reader.expect("return")
    return tree.Switch(operand, tuple(cases), reader.single())


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
        cases.append(tree.TypeCase(variable, tuple(types), reader.single()))
    if not cases:
        raise reader.unexpected("'case' expected")
    reader.expect("default")
    variable = reader.variable() if reader.sees("$") else None
    reader.expect("return")
    return tree.Typeswitch(operand, (*cases, tree.TypeCase(variable, (), reader.single())))


def try_catch(reader: Reader) -> Expr:
    """`try { a } catch * { b }`."""
    reader.lexer.take()
    body, catches = reader.enclosed(), []
    while reader.takes("catch"):
        tests = [reader.name_test(reader.element_namespace)]
        while reader.takes("|"):
            tests.append(reader.name_test(reader.element_namespace))
        catches.append(tree.Catch(tuple(tests), reader.enclosed()))
    if not catches:
        raise reader.unexpected("'catch' expected")
    return tree.TryCatch(body, tuple(catches))


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


_NOT_FUNCTIONS = KIND_TESTS | {"if", "switch", "typeswitch", "item", "empty-sequence", "function", "map", "array"}
_STEP_STARTS = frozenset(
    ("name", "wildcard", "braced", "string", "integer", "decimal", "double", "*", "@", ".", "..", "(", "$")
)
_COMPUTED = frozenset(("element", "attribute", "processing-instruction", "text", "comment", "document"))
_NAMED = frozenset(("element", "attribute", "processing-instruction"))
_ANY_NODE = KindTest("node")


def path(reader: Reader) -> Expr:
    """A path, or a single expression in place of a path."""
    start = reader.lexer.peek().start
    if reader.takes("//"):
        return _rest(reader, start, tree.Root(), [tree.AxisStep("descendant-or-self", _ANY_NODE), step(reader)])
    if reader.takes("/"):
        root = reader.at(start, tree.Root())
        return _rest(reader, start, root, [step(reader)]) if _starts_step(reader) else root
    first = step(reader)
    if isinstance(first, tree.AxisStep):
        return _rest(reader, start, reader.at(start, tree.ContextItem()), [first])
    return _rest(reader, start, first, [])


def _starts_step(reader: Reader) -> bool:
    token = reader.lexer.peek()
    return token.kind in _STEP_STARTS or _starts_direct(reader, token)


def _starts_direct(reader: Reader, token: Token) -> bool:
    following = reader.lexer.text[token.end : token.end + 1]
    return token.kind == "<" and (following.isalpha() or following in ("_", "!", "?")) and bool(following)


def _rest(reader: Reader, offset: int, start: Expr, steps: list[Expr]) -> Expr:
    while reader.sees("/") or reader.sees("//"):
        if reader.lexer.take().kind == "//":
            steps.append(tree.AxisStep("descendant-or-self", _ANY_NODE))
        steps.append(step(reader))
    return reader.at(offset, tree.Path(start, tuple(steps))) if steps else start


def step(reader: Reader) -> Expr:
    """An axis step, or a primary expression with its predicates."""
    start = reader.lexer.peek().start
    axis = _axis_step(reader)
    if axis is not None:
        predicates = _predicates(reader)
        return reader.at(start, tree.AxisStep(axis[0], axis[1], predicates))
    base = reader.at(start, primary(reader))
    predicates = _predicates(reader)
    if reader.sees("(") or reader.sees("?"):
        raise reader.unsupported("calls of function items and look-ups are")
    return reader.at(start, tree.Filter(base, predicates)) if predicates else base


def _predicates(reader: Reader) -> tuple[Expr, ...]:
    predicates = []
    while reader.takes("["):
        predicates.append(reader.expr())
        reader.expect("]")
    return tuple(predicates)


def _axis_step(reader: Reader) -> tuple[Axis, NameTest | KindTest] | None:
    token = reader.lexer.peek()
    if reader.takes(".."):
        return "parent", _ANY_NODE
    if reader.takes("@"):
        return "attribute", _node_test(reader, "attribute")
    if token.kind == "name" and reader.lexer.peek(1).kind == "::":
        return _full_step(reader, token)
    if token.kind in ("*", "wildcard"):
        return "child", _node_test(reader, "child")
    if token.kind not in ("name", "braced") or _is_constructor(reader, token):
        return None
    if reader.lexer.peek(1).kind != "(":
        if reader.lexer.peek(1).kind == "#":
            raise reader.unsupported("references to functions are")
        return "child", _node_test(reader, "child")
    if token.text not in KIND_TESTS:
        return None
    test = reader.kind_test()
    return ("attribute" if test.kind == "attribute" else "child"), test


def _full_step(reader: Reader, token: Token) -> tuple[Axis, NameTest | KindTest]:
    if token.text == "namespace":
        raise reader.unsupported("the axis namespace is", "XQST0134")
    if token.text not in AXES:
        raise reader.unexpected("the name of an axis expected")
    reader.lexer.take()
    reader.lexer.take()
    axis = cast("Axis", token.text)
    return axis, _node_test(reader, axis)


def _node_test(reader: Reader, axis: Axis) -> NameTest | KindTest:
    token = reader.lexer.peek()
    if token.kind == "name" and reader.lexer.peek(1).kind == "(" and token.text in KIND_TESTS:
        return reader.kind_test()
    return reader.name_test("" if axis == "attribute" else reader.element_namespace)


# --- primary expressions


def primary(reader: Reader) -> Expr:
    """A literal, variable, call, constructor or something in parentheses."""
    token = reader.lexer.peek()
    if token.kind == "string":
        return tree.Literal(reader.string())
    if token.kind in ("integer", "decimal", "double"):
        return tree.Literal(_number(reader.lexer.take()))
    if token.kind == "$":
        return tree.VariableRef(reader.variable())
    if reader.takes("."):
        return tree.ContextItem()
    if token.kind == "(":
        return _parenthesised(reader)
    if _starts_direct(reader, token):
        return direct(reader)
    if _is_constructor(reader, token):
        return _constructor(reader, token)
    if token.kind in ("name", "braced") and reader.lexer.peek(1).kind == "(":
        return call(reader)
    if token.kind in ("[", "?", "%"):
        raise reader.unsupported("maps, arrays and inline functions are")
    raise reader.unexpected("an expression expected")


def _parenthesised(reader: Reader) -> Expr:
    reader.lexer.take()
    if reader.takes(")"):
        return tree.Sequence(())
    inner = reader.expr()
    reader.expect(")")
    return inner


def call(reader: Reader, *first: Expr) -> Expr:
    """`name(arguments)`; the operand before an arrow is the first argument."""
    token = reader.lexer.peek()
    if token.text in _NOT_FUNCTIONS:
        raise reader.unsupported(f"{token.text}() at this place is")
    name = reader.name(reader.function_namespace)
    reader.expect("(")
    arguments = list(first)
    while not reader.sees(")"):
        if reader.sees("?", ",") or reader.sees("?", ")"):
            raise reader.unsupported("partial application of functions is")
        arguments.append(reader.single())
        if not reader.sees(")"):
            reader.expect(",")
            if reader.sees(")"):
                raise reader.unexpected("an argument expected")
    reader.lexer.take()
    if name.uri == FN and name.local == "concat" and len(arguments) < 2:
        raise reader.lexer.error("XPST0017", "concat() takes at least 2 arguments", token.start)
    if name == QName(XS, "QName") and len(arguments) == 1:
        return tree.CastAs(arguments[0], name, True, reader.prefixes_for(name))
    return tree.FunctionCall(name, tuple(arguments))


# --- computed constructors


def _is_constructor(reader: Reader, token: Token) -> bool:
    if token.kind != "name":
        return False
    following = reader.lexer.peek(1)
    if following.kind == "{":
        return token.text in _COMPUTED | {"ordered", "unordered", "validate", "map", "array", "namespace"}
    named = token.text in _NAMED or token.text in ("namespace", "validate")
    return named and following.kind in ("name", "braced") and reader.lexer.peek(2).kind == "{"


def _constructor(reader: Reader, token: Token) -> Expr:
    reader.lexer.take()
    if token.text in ("ordered", "unordered"):
        return reader.enclosed()
    if token.text == "validate":
        raise reader.unsupported("validate is", "XQST0075")
    if token.text in ("map", "array", "namespace"):
        raise reader.unsupported(f"{token.text} constructors are")
    kind: Any = token.text
    name = _constructed_name(reader, kind) if kind in _NAMED else None
    prefixes = reader.prefixes() if kind in ("element", "attribute") else ()
    return tree.Computed(kind, reader.enclosed(), name, prefixes)


def _constructed_name(reader: Reader, kind: str) -> QName | str | Expr:
    if reader.takes("{"):
        name = reader.expr()
        reader.expect("}")
        return name
    if kind == "processing-instruction":
        return reader.name().local
    return reader.name(reader.element_namespace if kind == "element" else "")


def _number(token: Token) -> int | Decimal | float:
    if token.kind == "integer":
        return int(Decimal(token.text))  # not int(text): Python refuses long texts
    return Decimal(token.text) if token.kind == "decimal" else float(token.text)
