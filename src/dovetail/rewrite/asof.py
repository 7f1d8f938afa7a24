"""Plans two parts of FROM as one as-of join: `a ASOF [LEFT] JOIN b ON a.k = b.k AND a.t >= b.t`, as in DuckDB.

Spark's `a [LEFT] ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k` is the same join.
Semi and anti joins are the rows of inner and left joins. A right or full join is the as-of join with one right row for
each key and time, joined by equality with all right rows, so that the others come once, beside nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from sqlglot import TokenType, exp

from dovetail.errors import DovetailError, UnsupportedError
from dovetail.joins.asof.api import asof_join
from dovetail.joins.asof.operator import Direction
from dovetail.rewrite.conditions import EQUALITIES, Comparison, Condition
from dovetail.rewrite.interval import (
    Pair,
    all_of,
    hidden_input,
    key_terms,
    repeatable_trouble,
    same_type,
    with_terms,
)
from dovetail.rewrite.names import Scope, Term
from dovetail.rewrite.query import RecognisedAsof
from dovetail.rewrite.text import Piece, expression
from dovetail.spark.frames import quoted

_DIRECTIONS: dict[str, tuple[Direction, bool]] = {
    ">=": ("backward", True),
    ">": ("backward", False),
    "<=": ("forward", True),
    "<": ("forward", False),
}


@dataclass(frozen=True, slots=True)
class _Read:
    """The condition of an as-of join: its inequality, its equalities, and conditions on one input."""

    time: Comparison
    keys: tuple[Comparison, ...]
    left: tuple[Term, ...]  # a left row that they exclude has no match
    right: tuple[Term, ...]  # a right row that they exclude is not searched


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both inputs with a column for each term: the time first, then the keys; null times match nothing."""

    left: DataFrame
    right: DataFrame
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    shown: dict[str, str]  # columns as the query writes them
    options: dict[str, Any]

    def joined(self, right: DataFrame, theirs: Sequence[str], how: Literal["inner", "left"]) -> DataFrame:
        """The as-of join with a right input in which the columns have these names."""
        by = list(zip(self.ours[1:], theirs[1:], strict=True)) or None
        return asof_join(self.left, right, on=(self.ours[0], theirs[0]), by=by, how=how, **self.options)


def asof_joined(pair: Pair, must: Sequence[Condition], using: Sequence[str] | None) -> DataFrame:
    """The rows of the join, under our names; `using` are the names in USING, none of them for NATURAL.

    `UnsupportedError` for conditions that no as-of join has, which Spark cannot run either.
    """
    _check(pair, using)
    read = _by_names(pair, using, must) if using else _by_conditions(pair, must)
    sides = _sides(pair, read)
    shown = tuple(map(_shown, read.keys))
    others = tuple(term.shown for term in (*read.left, *read.right))
    pair.query.recognised(RecognisedAsof(*pair.shown, _shown(read.time), shown, others), pair.hints)
    pair.query.asof_joins += 1
    try:
        return _rows(pair, sides)
    except DovetailError as error:
        raise type(error)(f"{_named(pair)}: {_in_words(str(error), sides)}") from error


def _check(pair: Pair, using: Sequence[str] | None) -> None:
    trouble = hidden_input(pair)
    if using is not None and not using:
        trouble = "NATURAL merges columns; say the equalities and the comparison of times in ON, or write USING (k, t)."
    elif pair.left.merged or pair.right.merged:
        trouble = "it stands on a join by USING or NATURAL, which merges columns; put that join in a subquery."
    if trouble is not None:
        raise UnsupportedError(f"{_named(pair)}: {trouble}")


def _named(pair: Pair) -> str:
    return f"{pair.left.shown} ASOF JOIN {pair.right.shown}"


def _by_names(pair: Pair, using: Sequence[str], match: Sequence[Condition]) -> _Read:
    """Equalities of the columns with these names, and `>=` of the last one, unless MATCH_CONDITION says the time."""
    terms = [[_column(pair, part.inputs, name) for part in (pair.left, pair.right)] for name in using]
    if match:
        keys = [Comparison(left, "=", right) for left, right in terms]
        return replace(_by_conditions(pair, match), keys=tuple(keys))
    operators = ["="] * (len(using) - 1) + [">="]
    *keys, time = (Comparison(left, operator, right) for (left, right), operator in zip(terms, operators, strict=True))
    return _Read(time, tuple(keys), (), ())


def _column(pair: Pair, inputs: Sequence[Any], name: str) -> Term:
    found = Scope(tuple(inputs), pair.query.fold).resolve([name])
    if found is None:
        raise UnsupportedError(f"{_named(pair)}: USING names {name!r}, which is no column of one input on each side.")
    number, ours, _ = found
    alias = next(each.alias for each in inputs if each.number == number)
    return Term(quoted(ours), frozenset({number}), f"{alias}.{name}", True)


def _by_conditions(pair: Pair, must: Sequence[Condition]) -> _Read:
    times: list[Comparison] = []
    keys: list[Comparison] = []
    left: list[Term] = []
    right: list[Term] = []
    for each in (part for condition in must for part in _expanded(pair, condition)):
        if isinstance(each, Comparison):
            (keys if each.operator in EQUALITIES else times).append(each)
        else:
            (right if each.inputs and each.inputs <= pair.numbers[1] else left).append(each)
    if len(times) != 1:
        raise UnsupportedError(
            f"{_named(pair)}: ON has {len(times)} inequalities between the inputs; write equalities and one of >=, >, "
            "<= and <. A further one belongs in WHERE, if it is about the row that was found, or in a range join with "
            "row_number(), if it is about the rows that are searched."
        )
    return _Read(times[0], tuple(keys), tuple(left), tuple(right))


def _expanded(pair: Pair, condition: Condition) -> Iterator[Comparison | Term]:
    """The comparisons between the inputs that a condition is, or the condition on one input."""
    tuples = _tuples(condition.piece)
    if tuples is not None:
        scope = Scope(pair.left.inputs + pair.right.inputs, pair.query.fold)
        for left, right in zip(*tuples, strict=True):
            terms = scope.term(left.text), scope.term(right.text)
            yield _one(pair, condition, None if None in terms else Comparison(terms[0], "<=>", terms[1]))  # type: ignore[arg-type]  # both are terms
        return
    across = [each.across(*pair.numbers) for each in condition.comparisons]
    if across and None not in across:
        yield from (each for each in across if each is not None)
    elif condition.whole is not None and _of_one(pair, condition.whole):
        yield condition.whole
    else:
        raise _neither(pair, condition)


def _one(pair: Pair, condition: Condition, comparison: Comparison | None) -> Comparison | Term:
    """A comparison of two elements: between the inputs, or a condition on one of them."""
    if comparison is None:
        raise _neither(pair, condition)
    turned = comparison.across(*pair.numbers)
    if turned is not None:
        return turned
    ends = comparison.left, comparison.right
    inputs = ends[0].inputs | ends[1].inputs
    text, shown = (f"{a} <=> {b}" for a, b in ((ends[0].sql, ends[1].sql), (ends[0].shown, ends[1].shown)))
    whole = Term(text, inputs, shown, ends[0].plain and ends[1].plain)
    if not _of_one(pair, whole):
        raise _neither(pair, condition)
    return whole


def _of_one(pair: Pair, term: Term) -> bool:
    return any(term.inputs <= side for side in pair.numbers)


def _neither(pair: Pair, condition: Condition) -> UnsupportedError:
    return UnsupportedError(
        f"{_named(pair)}: {condition.shown!r} is no equality or inequality between the two inputs, and no condition on "
        "one of them. A condition on both that the found row must fulfil belongs in WHERE; one that says which rows "
        "are searched needs a range join and row_number()."
    )


def _tuples(piece: Piece) -> tuple[list[Piece], list[Piece]] | None:
    """The elements of both sides of `(a, b) = (c, d)`; None for anything else."""
    read, marks = expression(piece.text), piece.find(TokenType.EQ)
    if not isinstance(read, exp.EQ) or len(marks) != 1:
        return None
    sides = [side.inside() for side in piece.split(marks)]
    if len(sides) != 2 or None in sides:
        return None
    first, second = (side.split(side.find(TokenType.COMMA)) for side in sides if side is not None)
    return (first, second) if len(first) == len(second) > 1 else None


def _sides(pair: Pair, read: _Read) -> _Sides:
    left, right = pair.left.frame(), pair.right.frame()
    ours, theirs = [read.time.left], [read.time.right]
    for key in read.keys:
        if key.operator == "<=>" and not same_type(left, right, key):
            raise UnsupportedError(
                f"{_named(pair)}: {_shown(key)} compares different types, or one that has no null-safe key; cast them."
            )
        ours += key_terms(left, key.operator, key.left)
        theirs += key_terms(right, key.operator, key.right)
    left, one = _with_columns(pair, left, ours, all_of(read.left))
    right, other = _with_columns(pair, right, theirs, all_of(read.right))
    direction, exact = _DIRECTIONS[read.time.operator]
    options = {"direction": direction, "allow_exact": exact, **pair.options("asof_join")}
    shown = {name: term.shown for name, term in zip((*one, *other), (*ours, *theirs), strict=True)}
    return _Sides(left, right, one, other, shown, options)


def _with_columns(
    pair: Pair, frame: DataFrame, terms: Sequence[Term], guard: str | None
) -> tuple[DataFrame, tuple[str, ...]]:
    """The frame with the time, null for rows that are left out, and the keys."""
    if guard is not None:
        time = Term(f"case when {guard} then ({terms[0].sql}) end", terms[0].inputs, terms[0].shown, terms[0].plain)
        terms = [time, *terms[1:]]
    frame, names = with_terms(pair.query, frame, terms)
    return frame, tuple(names)


def _rows(pair: Pair, sides: _Sides) -> DataFrame:
    if pair.how in ("inner", "left"):
        return sides.joined(sides.right, sides.theirs, "left" if pair.how == "left" else "inner")
    if pair.how in ("left_semi", "left_anti"):
        return _existing(pair, sides)
    return _outer(pair, sides)


def _existing(pair: Pair, sides: _Sides) -> DataFrame:
    """The left rows with a match, or those without one."""
    right, theirs = _copied(pair, sides.right, sides.theirs)
    kept = [quoted(name) for name in sides.left.columns]
    if pair.how == "left_semi":
        return sides.joined(right, theirs, "inner").select(*kept)
    return sides.joined(right, theirs, "left").where(f"{quoted(theirs[0])} is null").select(*kept)


def _copied(pair: Pair, frame: DataFrame, names: Sequence[str]) -> tuple[DataFrame, tuple[str, ...]]:
    """These columns alone, under new names."""
    fresh = tuple(pair.query.names.fresh("found") for _ in names)
    return frame.selectExpr(*(f"{quoted(a)} as {quoted(b)}" for a, b in zip(names, fresh, strict=True))), fresh


def _outer(pair: Pair, sides: _Sides) -> DataFrame:
    """The matched rows, the right rows that no left row found, and for a full join the left rows without a match."""
    trouble = repeatable_trouble(pair, sides.right)
    if trouble is not None:
        raise UnsupportedError(
            f"a {pair.how} join reads its right input twice, and over Spark Connect, or with random values, LIMIT or a "
            "sample in it, that may be different rows; write ASOF LEFT JOIN, or store the input in a table first."
        )
    number = pair.query.names.fresh("number")
    groups = ", ".join(map(quoted, sides.theirs))
    order = ", ".join(_ordered(field) for field in sides.right.schema.fields)
    rank = f"row_number() over (partition by {groups} order by {order}) as {quoted(number)}"
    right = sides.right.selectExpr("*", rank)
    once, theirs = _copied(pair, right.where(f"{quoted(number)} = 1"), sides.theirs)
    found = sides.joined(once, theirs, "inner" if pair.how == "right" else "left")
    same = [f"{quoted(a)} = {quoted(b)}" for a, b in zip(sides.theirs, theirs, strict=True)]
    joined = right.join(
        found, F.expr(" and ".join([f"{quoted(number)} = 1", *same])), "left" if pair.how == "right" else "full"
    )
    return joined.select(*(quoted(name) for frame in (sides.left, sides.right) for name in frame.columns))


def _ordered(field: T.StructField) -> str:
    """SQL that orders by a column; by its text if its type has no order."""
    name = quoted(field.name)
    return name if isinstance(field.dataType, T.AtomicType) else f"string({name})"


def _in_words(message: str, sides: _Sides) -> str:
    """The message with the expressions of the query in place of our names for them."""
    for name, shown in sides.shown.items():
        for written in (repr(name), quoted(name)):
            message = message.replace(written, repr(shown))
    return message


def _shown(comparison: Comparison) -> str:
    return f"{comparison.left.shown} {comparison.operator} {comparison.right.shown}"
