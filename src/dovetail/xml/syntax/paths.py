"""Paths, steps, predicates, primary expressions and computed constructors."""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from dovetail.xml.syntax.lexer import Token
from dovetail.xml.syntax.names import FN, XS, Axis, KindTest, NameTest, QName
from dovetail.xml.syntax.parse_direct import DirectParser
from dovetail.xml.syntax.reader import KIND_TESTS
from dovetail.xml.syntax.tree import (
    AxisStep,
    CastAs,
    ComputedAttribute,
    ComputedComment,
    ComputedDocument,
    ComputedElement,
    ComputedInstruction,
    ComputedText,
    ContextItem,
    Expr,
    Filter,
    FunctionCall,
    Literal,
    Path,
    Root,
    Sequence,
    VariableRef,
)

AXES = frozenset(
    (
        "child", "attribute", "self", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self",
        "following-sibling", "preceding-sibling", "following", "preceding",
    )
)  # fmt: skip
_NOT_FUNCTIONS = KIND_TESTS | {"if", "switch", "typeswitch", "item", "empty-sequence", "function", "map", "array"}
_STEP_STARTS = frozenset(
    ("name", "wildcard", "braced", "string", "integer", "decimal", "double", "*", "@", ".", "..", "(", "$")
)
_NAMED = frozenset(("element", "attribute", "processing-instruction"))
_UNNAMED = {"text": ComputedText, "comment": ComputedComment, "document": ComputedDocument}
_ANY_NODE = KindTest("node")


class PathParser(DirectParser):
    """`/a//b[1]/@c` and everything that can stand between its slashes."""

    def path(self) -> Expr:
        """A path, or the one expression that stands where a path could."""
        start = self.lexer.peek().start
        if self.takes("//"):
            return self._rest(start, Root(), [AxisStep("descendant-or-self", _ANY_NODE), self.step()])
        if self.takes("/"):
            root = self.at(start, Root())
            return self._rest(start, root, [self.step()]) if self._starts_step() else root
        first = self.step()
        if isinstance(first, AxisStep):
            return self._rest(start, self.at(start, ContextItem()), [first])
        return self._rest(start, first, [])

    def _starts_step(self) -> bool:
        token = self.lexer.peek()
        return token.kind in _STEP_STARTS or self._starts_direct(token)

    def _starts_direct(self, token: Token) -> bool:
        following = self.lexer.text[token.end : token.end + 1]
        return token.kind == "<" and (following.isalpha() or following in ("_", "!", "?")) and bool(following)

    def _rest(self, offset: int, start: Expr, steps: list[Expr]) -> Expr:
        while self.sees("/") or self.sees("//"):
            if self.lexer.take().kind == "//":
                steps.append(AxisStep("descendant-or-self", _ANY_NODE))
            steps.append(self.step())
        return self.at(offset, Path(start, tuple(steps))) if steps else start

    def step(self) -> Expr:
        """An axis step, or a primary expression with its predicates."""
        start = self.lexer.peek().start
        axis = self._axis_step()
        if axis is not None:
            predicates = self._predicates()
            return self.at(start, AxisStep(axis[0], axis[1], predicates))
        primary = self.at(start, self.primary())
        predicates = self._predicates()
        if self.sees("(") or self.sees("?"):
            raise self.unsupported("calls of function items and look-ups are")
        return self.at(start, Filter(primary, predicates)) if predicates else primary

    def _predicates(self) -> tuple[Expr, ...]:
        predicates = []
        while self.takes("["):
            predicates.append(self.expr())
            self.expect("]")
        return tuple(predicates)

    def _axis_step(self) -> tuple[Axis, NameTest | KindTest] | None:
        token = self.lexer.peek()
        if self.takes(".."):
            return "parent", _ANY_NODE
        if self.takes("@"):
            return "attribute", self._node_test("attribute")
        if token.kind == "name" and self.lexer.peek(1).kind == "::":
            return self._full_step(token)
        if token.kind in ("*", "wildcard"):
            return "child", self._node_test("child")
        if token.kind not in ("name", "braced") or self._is_constructor(token):
            return None
        if self.lexer.peek(1).kind != "(":
            if self.lexer.peek(1).kind == "#":
                raise self.unsupported("references to functions are")
            return "child", self._node_test("child")
        if token.text not in KIND_TESTS:
            return None
        test = self.kind_test()
        return ("attribute" if test.kind == "attribute" else "child"), test

    def _full_step(self, token: Token) -> tuple[Axis, NameTest | KindTest]:
        if token.text == "namespace":
            raise self.unsupported("the axis namespace is", "XQST0134")
        if token.text not in AXES:
            raise self.unexpected("the name of an axis expected")
        self.lexer.take()
        self.lexer.take()
        axis = cast("Axis", token.text)
        return axis, self._node_test(axis)

    def _node_test(self, axis: Axis) -> NameTest | KindTest:
        token = self.lexer.peek()
        if token.kind == "name" and self.lexer.peek(1).kind == "(" and token.text in KIND_TESTS:
            return self.kind_test()
        return self.name_test("" if axis == "attribute" else self.element_namespace)

    # --- primary expressions

    def primary(self) -> Expr:
        """A literal, variable, call, constructor or something in parentheses."""
        token = self.lexer.peek()
        if token.kind == "string":
            return Literal(self.string())
        if token.kind in ("integer", "decimal", "double"):
            return Literal(_number(self.lexer.take()))
        if token.kind == "$":
            return VariableRef(self.variable())
        if self.takes("."):
            return ContextItem()
        if token.kind == "(":
            return self._parenthesised()
        if self._starts_direct(token):
            return self.direct()
        if self._is_constructor(token):
            return self._constructor(token)
        if token.kind in ("name", "braced") and self.lexer.peek(1).kind == "(":
            return self.call()
        if token.kind in ("[", "?", "%"):
            raise self.unsupported("maps, arrays and inline functions are")
        raise self.unexpected("an expression expected")

    def _parenthesised(self) -> Expr:
        self.lexer.take()
        if self.takes(")"):
            return Sequence(())
        inner = self.expr()
        self.expect(")")
        return inner

    def call(self, *first: Expr) -> Expr:
        """`name(arguments)`; what stands before an arrow is the first argument."""
        token = self.lexer.peek()
        if token.text in _NOT_FUNCTIONS:
            raise self.unsupported(f"{token.text}() at this place is")
        name = self.name(self.function_namespace)
        self.expect("(")
        arguments = list(first)
        while not self.sees(")"):
            if self.sees("?", ",") or self.sees("?", ")"):
                raise self.unsupported("partial application of functions is")
            arguments.append(self.single())
            if not self.sees(")"):
                self.expect(",")
                if self.sees(")"):
                    raise self.unexpected("an argument expected")
        self.lexer.take()
        if name.uri == FN and name.local == "concat" and len(arguments) < 2:
            raise self.lexer.error("XPST0017", "concat() takes at least 2 arguments", token.start)
        if name == QName(XS, "QName") and len(arguments) == 1:
            return CastAs(arguments[0], name, True, self.prefixes_for(name))
        return FunctionCall(name, tuple(arguments))

    # --- computed constructors

    def _is_constructor(self, token: Token) -> bool:
        if token.kind != "name":
            return False
        following = self.lexer.peek(1)
        if following.kind == "{":
            known = token.text in _NAMED or token.text in _UNNAMED
            return known or token.text in ("ordered", "unordered", "validate", "map", "array", "namespace")
        named = token.text in _NAMED or token.text in ("namespace", "validate")
        return named and following.kind in ("name", "braced") and self.lexer.peek(2).kind == "{"

    def _constructor(self, token: Token) -> Expr:
        self.lexer.take()
        if token.text in ("ordered", "unordered"):
            return self.enclosed()
        if token.text == "validate":
            raise self.unsupported("validate is", "XQST0075")
        if token.text in ("map", "array", "namespace"):
            raise self.unsupported(f"{token.text} constructors are")
        if token.text in _UNNAMED:
            return _UNNAMED[token.text](self.enclosed())
        if token.text == "processing-instruction":
            return self._instruction_constructor()
        element = token.text == "element"
        name = self._computed_name() if self.sees("{") else self._constructed_name(element)
        return (ComputedElement if element else ComputedAttribute)(name, self.enclosed(), self.prefixes())

    def _computed_name(self) -> Expr:
        self.expect("{")
        name = self.expr()
        self.expect("}")
        return name

    def _constructed_name(self, element: bool) -> QName:
        return self.name(self.element_namespace if element else "")

    def _instruction_constructor(self) -> Expr:
        target = self._computed_name() if self.sees("{") else self.name().local
        return ComputedInstruction(target, self.enclosed())


def _number(token: Token) -> int | Decimal | float:
    if token.kind == "integer":
        return int(Decimal(token.text))  # not int(text): Python refuses long texts
    return Decimal(token.text) if token.kind == "decimal" else float(token.text)
