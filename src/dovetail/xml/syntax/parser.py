"""The parser's upper half: operators by precedence, the prolog, whole queries."""

from __future__ import annotations

from typing import Any

from dovetail.xml.syntax.parse_path import PathParser
from dovetail.xml.syntax.parse_prolog import Prolog, read_prolog
from dovetail.xml.syntax.stack import deep_stack
from dovetail.xml.syntax.tree import (
    Arithmetic,
    CastableAs,
    CastAs,
    Comparison,
    Expr,
    InstanceOf,
    Logical,
    Module,
    Range,
    Sequence,
    SetOperation,
    SimpleMap,
    StringConcat,
    TreatAs,
    Unary,
)

_LEVELS = {
    **{"or": 1, "and": 2, "||": 4, "to": 5, "+": 6, "-": 6, "*": 7, "div": 7, "idiv": 7, "mod": 7},
    **{"union": 8, "|": 8, "intersect": 9, "except": 9, "instance": 10, "treat": 11, "castable": 12, "cast": 13},
    **{"=>": 14},
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "=", "!=", "<", "<=", ">", ">=", "is", "<<", ">>"), 3),
}
_ONCE = frozenset((3, 5, 10, 11, 12, 13))  # operators that do not repeat without parentheses
_VALUE = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_NODE = frozenset(("is", "<<", ">>"))
MAX_CHAIN = 200


class Parser(PathParser):
    """One query text, from its first token to its last."""

    def expr(self) -> Expr:
        """Expressions separated by commas."""
        start = self.lexer.peek().start
        items = [self.single()]
        while self.takes(","):
            items.append(self.single())
        return items[0] if len(items) == 1 else self.at(start, Sequence(tuple(items)))

    def single(self) -> Expr:
        """One expression. Expressions nest to a fixed depth, so that no query can exhaust the stack."""
        self.deeper()
        found = self.keyword_expr() or self.operators(1)
        self.depth -= 1
        return found

    def operators(self, lowest: int) -> Expr:
        """Operands joined by operators that bind at least as tightly as `lowest`."""
        start = self.lexer.peek().start
        left, highest = self._unary(), 99
        for _ in range(MAX_CHAIN):
            token = self.lexer.peek()
            level = _LEVELS.get(token.text, 0) if token.kind in ("name", token.text) else 0
            if not lowest <= level <= highest:
                return left
            self.lexer.take()
            left = self.at(start, self._operation(token.text, level, left))
            highest = level - 1 if level in _ONCE else level
        raise self.unsupported(f"more than {MAX_CHAIN} operators in a row are")

    def _operation(self, op: str, level: int, left: Expr) -> Expr:
        if level >= 10:
            return self._typed(op, left)
        right = self.operators(level + 1)
        if level == 3:
            return Comparison("value" if op in _VALUE else "node" if op in _NODE else "general", op, left, right)
        return _binary(op, left, right)

    def _typed(self, op: str, left: Expr) -> Expr:
        if op == "=>":
            if not self.lexer.peek(1).kind == "(" or self.lexer.peek().kind not in ("name", "braced"):
                raise self.unsupported("=> before anything but a call by name is")
            return self.call(left)
        self.expect("of" if op == "instance" else "as")
        if op in ("instance", "treat"):
            return (InstanceOf if op == "instance" else TreatAs)(left, self.sequence_type())
        kind, optional = self.single_type()
        return (CastAs if op == "cast" else CastableAs)(left, kind, optional, self.prefixes_for(kind))

    def _unary(self) -> Expr:
        signs = []
        while self.sees("+") or self.sees("-"):
            signs.append(self.lexer.take())
            self.deeper()
        start = self.lexer.peek().start
        left = self.path()
        while self.takes("!"):
            left = self.at(start, SimpleMap(left, self.path()))
        for sign in reversed(signs):
            left = self.at(sign.start, Unary("-" if sign.kind == "-" else "+", left))
        self.depth -= len(signs)
        return left


def _binary(op: Any, left: Expr, right: Expr) -> Expr:
    if op in ("and", "or"):
        return Logical(op, left, right)
    if op == "||":
        return StringConcat(left, right)
    if op == "to":
        return Range(left, right)
    if op in ("union", "|", "intersect", "except"):
        return SetOperation("union" if op == "|" else op, left, right)
    return Arithmetic(op, left, right)


def parse(text: str) -> Module:
    """The tree of a query. Raises XQueryError with the W3C code, line and column of the first mistake."""
    with deep_stack():
        return _module(Parser(text))


def _module(parser: Parser) -> Module:
    prolog: Prolog = read_prolog(parser)
    if parser.sees("end"):
        raise parser.unexpected("a query body expected")
    body = parser.expr()
    if not parser.sees("end"):
        raise parser.unexpected("the end of the query expected")
    return Module(
        body,
        tuple(prolog.variables),
        tuple(prolog.functions),
        tuple(parser.namespaces.items()),
        parser.element_namespace,
        prolog.base_uri,
    )
