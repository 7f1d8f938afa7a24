"""One part of a join's condition, read: an interval function, comparisons of two expressions, or anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import TokenType as T
from sqlglot import exp

from dovetail.joins.interval.relation import INVERSE, Relation
from dovetail.rewrite.calls import IntervalCall
from dovetail.rewrite.names import Scope, Term
from dovetail.rewrite.text import Piece, expression

Numbers = frozenset[int]
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<=>": "<=>"}
EQUALITIES = ("=", "<=>")
OPERATORS: Mapping[T, tuple[str, type[exp.Expression]]] = {
    T.LT: ("<", exp.LT),
    T.LTE: ("<=", exp.LTE),
    T.GT: (">", exp.GT),
    T.GTE: (">=", exp.GTE),
    T.EQ: ("=", exp.EQ),
    T.NULLSAFE_EQ: ("<=>", exp.NullSafeEQ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two expressions and the operator between them."""

    left: Term
    operator: str
    right: Term

    def across(self, left: Numbers, right: Numbers) -> Comparison | None:
        """The comparison with its left expression over the left inputs only, turned round if need be."""
        if _over(self.left, left) and _over(self.right, right):
            return self
        if _over(self.left, right) and _over(self.right, left):
            return Comparison(self.right, FLIPPED[self.operator], self.left)
        return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the left interval, then those of the right one, and the relation that must hold between them."""

    relation: Relation
    terms: tuple[Term, Term, Term, Term]

    def across(self, left: Numbers, right: Numbers) -> Bounds | None:
        """The same with the left interval over the left inputs only; None if the bounds do not fall so."""
        sides = [all(_over(term, side) for term in pair) for side in (left, right) for pair in self._pairs()]
        if sides[0] and sides[3]:
            return self
        if sides[1] and sides[2]:
            names = frozenset(INVERSE[name] for name in self.relation.names)
            return Bounds(replace(self.relation, names=names), (*self.terms[2:], *self.terms[:2]))
        return None

    def _pairs(self) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
        return (self.terms[0], self.terms[1]), (self.terms[2], self.terms[3])

    def sql(self) -> str:
        """The relation as a condition on a pair of rows: empty intervals match nothing, inverted ones are an error."""
        ls, le, rs, re = (f"({term.sql})" for term in self.terms)
        # A NaN is above every number, so an end that is one shows in no comparison; its text is the same for all types.
        broken = f"{ls} > {le} or {rs} > {re} or string({le}) = 'NaN' or string({re}) = 'NaN'"
        message = "'an interval ends before it starts, or a bound is NaN'"
        in_order = f"if({broken}, raise_error({message}), {ls} < {le} and {rs} < {re})"
        return f"({self.relation.sql(ls, le, rs, re)}) and {in_order}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of an ON or WHERE condition; `whole` is None for what only Spark can evaluate, in its place."""

    piece: Piece
    whole: Term | None
    bounds: Bounds | None
    comparisons: tuple[Comparison, ...]
    calls: tuple[IntervalCall, ...]

    @property
    def inputs(self) -> Numbers | None:
        """The inputs that it reads, if that is known."""
        return None if self.whole is None else self.whole.inputs

    @property
    def shown(self) -> str:
        """As the query wrote it, on one line."""
        return " ".join(self.piece.text.split())


def read_condition(piece: Piece, scope: Scope, calls: Iterable[IntervalCall]) -> Condition:
    """What a part of a condition says about the inputs in scope."""
    inside = tuple(call for call in calls if piece.start <= call.piece.start and call.piece.stop <= piece.stop)
    if inside:
        bounds = _bounds(piece, scope, inside)
        whole = _sum(bounds.sql(), bounds.terms, piece.text) if bounds else None
        return Condition(piece, whole, bounds, (), inside)
    return Condition(piece, scope.term(piece.text), None, _comparisons(piece, scope), ())


def _bounds(piece: Piece, scope: Scope, calls: tuple[IntervalCall, ...]) -> Bounds | None:
    """One interval function, or several over the same bounds with OR between them."""
    parts = piece.split(piece.find(T.OR))
    opened = [part.inside() or part for part in parts]
    if [(part.start, part.stop) for part in opened] != [(call.piece.start, call.piece.stop) for call in calls]:
        return None
    if len({tuple(argument.text.lower() for argument in call.arguments) for call in calls}) > 1:
        return None
    terms = [scope.term(argument.text) for argument in calls[0].arguments]
    first, second, third, fourth = terms
    if first is None or second is None or third is None or fourth is None:
        return None
    names = frozenset(name for call in calls for name in call.relation.names)
    return Bounds(Relation(names), (first, second, third, fourth))


def _comparisons(piece: Piece, scope: Scope) -> tuple[Comparison, ...]:
    read = expression(piece.text)
    if isinstance(read, exp.Between) and not read.args.get("symmetric"):
        return _between(piece, scope)
    marks = piece.find(*OPERATORS)
    kind = piece.source.kind(marks[0]) if len(marks) == 1 else None
    if kind is None or type(read) is not OPERATORS[kind][1]:
        return ()
    sides = piece.split(marks)
    return _pairs(scope, OPERATORS[kind][0], (sides[0], sides[1])) if len(sides) == 2 else ()


def _between(piece: Piece, scope: Scope) -> tuple[Comparison, ...]:
    sides = piece.split(piece.find(T.BETWEEN, T.AND))
    if len(sides) != 3:
        return ()
    found = _pairs(scope, ">=", (sides[0], sides[1])) + _pairs(scope, "<=", (sides[0], sides[2]))
    return found if len(found) == 2 else ()


def _pairs(scope: Scope, operator: str, sides: tuple[Piece, Piece]) -> tuple[Comparison, ...]:
    left, right = (scope.term(side.text) for side in sides)
    return () if left is None or right is None else (Comparison(left, operator, right),)


def _over(term: Term, inputs: Numbers) -> bool:
    return bool(term.inputs) and term.inputs <= inputs


def _sum(sql: str, terms: tuple[Term, ...], text: str) -> Term:
    inputs = frozenset(number for term in terms for number in term.inputs)
    return Term(sql, inputs, " ".join(text.split()), False)
