"""Reads conditions of joins, and recognises interval joins in them.

A condition is an interval function, `interval_<relation>(start, end, start, end)`, comparisons of two expressions, or
anything else. An interval function, or two comparisons that say "overlap", make an interval join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import TokenType as T
from sqlglot import exp

from dovetail.errors import PlanError
from dovetail.joins.interval.relation import ALIASES, INVERSE, RELATIONS, Relation
from dovetail.request import nearest
from dovetail.rewrite.names import Scope, Term
from dovetail.rewrite.text import Piece, Source, expression

PREFIX = "interval_"
KNOWN = tuple(PREFIX + name for name in (*RELATIONS, *ALIASES))
# After these tokens a name before parentheses is not a call, but an alias, part of a name or a table function.
NOT_BEFORE_A_CALL = (T.ALIAS, T.DOT, T.VAR, T.IDENTIFIER, T.R_PAREN, T.FROM, T.JOIN, T.WITH, T.RECURSIVE, T.LATERAL)


@dataclass(frozen=True, slots=True)
class IntervalCall:
    """One call of an interval function, from its name to its closing parenthesis."""

    piece: Piece
    relation: Relation
    arguments: tuple[Piece, Piece, Piece, Piece]

    def comparisons(self) -> str:
        """The comparisons of the relation as Spark SQL, so that Spark checks names and types."""
        return f"({self.relation.sql(*(f'({argument.text})' for argument in self.arguments))})"


def interval_calls(source: Source, is_users: Callable[[str], bool]) -> list[IntervalCall]:
    """Every interval function that the query calls.

    A `PlanError` for a name that is neither ours nor a function of the session, and for a wrong number of arguments.
    """
    found = []
    for number in range(len(source.tokens)):
        name = source.tokens[number].text.lower()
        if not name.startswith(PREFIX) or not _is_call(source, number):
            continue
        if name in KNOWN:
            found.append(_call(source, number, name))
        elif not is_users(name):
            raise PlanError(_unknown(name))
    return found


def called_functions(source: Source, known: bool = True) -> list[str]:
    """The names of our interval functions that the text calls; else also names that only begin like ours."""
    called = (token.text for n, token in enumerate(source.tokens) if _is_call(source, n))
    return [n for n in called if n.lower() in KNOWN or (not known and n.lower().startswith(PREFIX))]


def _is_call(source: Source, number: int) -> bool:
    named = source.kind(number) in (T.VAR, T.IDENTIFIER) and source.kind(number - 1) not in NOT_BEFORE_A_CALL
    if not named or source.kind(number + 1) is not T.L_PAREN:
        return False
    end = source.partner.get(number + 1, number + 1)
    return not (source.kind(end + 1) is T.ALIAS and source.kind(end + 2) is T.L_PAREN)


def _call(source: Source, number: int, name: str) -> IntervalCall:
    end = source.partner[number + 1]
    piece = source.piece(number, end + 1)
    inside = source.piece(number + 2, end) if number + 2 < end else None
    arguments = inside.split(inside.find(T.COMMA)) if inside else []
    if len(arguments) != 4:
        raise PlanError(
            f"{piece.text}: {name} takes 4 arguments (start and end of one input, start and end of the other), "
            f"not {len(arguments)}"
        )
    first, second, third, fourth = arguments
    return IntervalCall(piece, Relation.parse(name.removeprefix(PREFIX)), (first, second, third, fourth))


def _unknown(name: str) -> str:
    near = nearest(name, KNOWN)
    hint = "." if near is None else f"; did you mean {near!r}?"
    return f"unknown interval function {name!r}{hint} Known: {', '.join(KNOWN)}."


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
        """The comparison with its left expression over the left inputs only, reversed if necessary; else None."""
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
        """The same with the left interval over the left inputs only; None if the bounds mix the inputs."""
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
    """A part of an ON or WHERE condition; `whole` is None if only Spark can evaluate it, at its place."""

    piece: Piece
    whole: Term | None
    bounds: Bounds | None
    comparisons: tuple[Comparison, ...]
    calls: tuple[IntervalCall, ...]

    @property
    def inputs(self) -> Numbers | None:
        """The inputs that it reads; None if that is not known."""
        return None if self.whole is None else self.whole.inputs

    @property
    def shown(self) -> str:
        """As the query wrote it, on one line."""
        return " ".join(self.piece.text.split())


def read_condition(piece: Piece, scope: Scope, calls: Iterable[IntervalCall]) -> Condition:
    """Read a part of a condition over the inputs in scope."""
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
    if isinstance(read, exp.NullSafeEQ) and piece.find(T.IS):
        return _not_distinct(piece, scope)
    marks = piece.find(*OPERATORS)
    kind = piece.source.kind(marks[0]) if len(marks) == 1 else None
    if kind is None or type(read) is not OPERATORS[kind][1]:
        return ()
    sides = piece.split(marks)
    return _pairs(scope, OPERATORS[kind][0], (sides[0], sides[1])) if len(sides) == 2 else ()


def _not_distinct(piece: Piece, scope: Scope) -> tuple[Comparison, ...]:
    """The sides of IS NOT DISTINCT FROM, which is `<=>`."""
    marks = piece.find(T.IS)
    words = [piece.source.kind(number) for number in range(marks[0], marks[0] + 4)]
    if len(marks) > 1 or words != [T.IS, T.NOT, T.DISTINCT, T.FROM]:
        return ()
    sides = piece.split(list(range(marks[0], marks[0] + 4)))
    return _pairs(scope, "<=>", (sides[0], sides[1])) if len(sides) == 2 else ()


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


MOST_CANDIDATES = 6


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two comparisons that make an overlap: left start before right end, left end after right start.

    A touch counts where the comparison allows equality. Any two comparisons in opposite directions fit, also those
    of a point between bounds and of containment.
    """

    terms: tuple[Term, Term, Term, Term]
    touching_start: bool  # left start <= right end
    touching_end: bool  # left end >= right start
    used: frozenset[tuple[int, int]]  # (condition, comparison), by number

    def __str__(self) -> str:
        ls, le, rs, re = (term.shown for term in self.terms)
        before, after = ("<=" if self.touching_start else "<"), (">=" if self.touching_end else ">")
        return f"{ls} {before} {re} and {le} {after} {rs}"


@dataclass(frozen=True, slots=True)
class Inequalities:
    """Comparisons between the two sides that make no overlap, left expression first: one, or several that must hold."""

    comparisons: tuple[Comparison, ...]
    used: frozenset[tuple[int, int]]  # (condition, comparison), by number

    @property
    def terms(self) -> tuple[Term, ...]:
        """The left and the right expression of each."""
        return tuple(term for each in self.comparisons for term in (each.left, each.right))

    def __str__(self) -> str:
        return " and ".join(f"{each.left.shown} {each.operator} {each.right.shown}" for each in self.comparisons)


@dataclass(frozen=True, slots=True)
class Key:
    """An equality between the two sides, and its condition; `<=>` takes nulls as equal."""

    left: Term
    operator: str
    right: Term
    condition: Condition


@dataclass(frozen=True, slots=True)
class Found:
    """An interval predicate between two sides, with its equality keys and the other conditions of its join."""

    terms: tuple[Term, ...]
    bounds: Bounds | None  # None for comparisons
    keys: tuple[Key, ...]
    residual: tuple[Condition, ...]
    consumed: tuple[Condition, ...]  # conditions that the join evaluates itself


def find_functions(conditions: Sequence[Condition], left: Numbers, right: Numbers) -> list[int]:
    """Numbers of the conditions that are interval functions between the two sides."""
    return [n for n, each in enumerate(conditions) if each.bounds and each.bounds.across(left, right)]


def find_overlaps(conditions: Sequence[Condition], left: Numbers, right: Numbers) -> list[Overlap]:
    """Pairs of comparisons between the two sides that say overlap, in the order of the text."""
    across = find_inequalities(conditions, left, right)
    upper = [(at, each) for at, each in across if each.operator in ("<", "<=")]
    lower = [(at, each) for at, each in across if each.operator in (">", ">=")]
    found = [_overlap(first, second, frozenset({a, b})) for a, first in upper for b, second in lower]
    return found[:MOST_CANDIDATES]


def find_inequalities(
    conditions: Sequence[Condition], left: Numbers, right: Numbers
) -> list[tuple[tuple[int, int], Comparison]]:
    """The inequalities between the two sides, left expression first, each with its place: (condition, comparison)."""
    return [
        ((n, m), turned)
        for n, each in enumerate(conditions)
        for m, comparison in enumerate(each.comparisons)
        if (turned := comparison.across(left, right)) is not None and turned.operator not in EQUALITIES
    ]


def _overlap(first: Comparison, second: Comparison, used: frozenset[tuple[int, int]]) -> Overlap:
    terms = (first.left, second.left, second.right, first.right)
    return Overlap(terms, first.operator == "<=", second.operator == ">=", used)


def found_function(
    must: Sequence[Condition], may: Sequence[Condition], chosen: int, sides: tuple[Numbers, Numbers]
) -> Found:
    """The join by the chosen interval function; further functions become conditions."""
    conditions = [*must, *may]
    bounds = conditions[chosen].bounds
    turned = bounds and bounds.across(*sides)
    assert turned is not None, "chosen among those that fall on both sides"  # noqa: S101  (by find_functions)
    keys, takes = _keys(conditions, sides)
    others = [each for n, each in enumerate(conditions) if n != chosen and n not in takes]
    residual = tuple(each for each in others if each in must or each.bounds)
    consumed = (conditions[chosen], *(conditions[n] for n in takes), *(each for each in residual if each.bounds))
    return Found(turned.terms, turned, keys, residual, consumed)


def found_comparisons(
    must: Sequence[Condition], may: Sequence[Condition], chosen: Overlap | Inequalities, sides: tuple[Numbers, Numbers]
) -> Found:
    """The join by the chosen comparisons; if one half of a BETWEEN is used, the whole stays a condition."""
    conditions = [*must, *may]
    keys, takes = _keys(conditions, sides)
    whole = {
        n
        for n, each in enumerate(conditions)
        if each.comparisons and all((n, m) in chosen.used for m in range(len(each.comparisons)))
    }
    said = whole | takes
    residual = tuple(each for n, each in enumerate(conditions) if n not in said and each in must)
    return Found(chosen.terms, None, keys, residual, tuple(conditions[n] for n in sorted(said)))


def _keys(conditions: Sequence[Condition], sides: tuple[Numbers, Numbers]) -> tuple[tuple[Key, ...], set[int]]:
    keys, takes = [], set()
    for n, each in enumerate(conditions):
        turned = each.comparisons[0].across(*sides) if len(each.comparisons) == 1 else None
        if turned is not None and turned.operator in EQUALITIES:
            keys.append(Key(turned.left, turned.operator, turned.right, each))
            takes.add(n)
    return tuple(keys), takes
