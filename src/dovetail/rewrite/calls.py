"""The interval functions of a query, `interval_<relation>(start, end, start, end)`, checked before planning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import TokenType as T

from dovetail.errors import PlanError
from dovetail.joins.interval.relation import ALIASES, RELATIONS, Relation
from dovetail.request.choices import nearest
from dovetail.rewrite.text import Piece, Source

PREFIX = "interval_"
KNOWN = tuple(PREFIX + name for name in (*RELATIONS, *ALIASES))
# A name before parentheses is no call after these: it is an alias, part of a name, or a table function.
NOT_BEFORE_A_CALL = (T.ALIAS, T.DOT, T.VAR, T.IDENTIFIER, T.R_PAREN, T.FROM, T.JOIN, T.WITH, T.RECURSIVE, T.LATERAL)


@dataclass(frozen=True, slots=True)
class IntervalCall:
    """One call, from its name to its closing parenthesis."""

    piece: Piece
    relation: Relation
    arguments: tuple[Piece, Piece, Piece, Piece]

    def comparisons(self) -> str:
        """What the relation compares, as Spark SQL over the arguments: for Spark to check names and types."""
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
