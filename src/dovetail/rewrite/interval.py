"""Plans two parts of FROM as one interval join.

SQL compares bounds as they are: an empty interval inside another one matches, and so may one that ends before it
starts. An interval join matches neither. So for `r.start < s.end and s.start < r.end` the join runs over intervals that
are never empty or inverted, closed at both bounds: from the smaller bound to the end. If ls < re and rs < le, then
min(ls, le) <= re and min(rs, re) <= le: every pair that SQL selects is among those of the join, and the comparisons
themselves, kept as a condition, select it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from sqlglot import exp

from dovetail.errors import DataError, PlanError, UnsupportedError
from dovetail.joins.interval.api import interval_join
from dovetail.request import parse_how
from dovetail.rewrite.conditions import (
    Comparison,
    Condition,
    Found,
    Key,
    Overlap,
    find_functions,
    find_overlaps,
    found_comparisons,
    found_function,
)
from dovetail.rewrite.hints import Hint
from dovetail.rewrite.names import Term
from dovetail.rewrite.query import NO_PREDICATE, Part, Query, Recognised
from dovetail.rewrite.text import expression
from dovetail.spark.frames import is_connect, quoted
from dovetail.spark.inputs import BOUND_TYPES, FLOATS

KEY_TYPES = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.FloatType, T.DoubleType, T.DecimalType),
    *(T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
)
# The value in place of null beside a column that says whether it is null; 0 for numbers.
_SOMETHING: dict[type[T.DataType], str] = {
    T.BooleanType: "false",
    T.StringType: "''",
    T.BinaryType: "''",
    T.DateType: "'1970-01-01'",
    T.TimestampType: "'1970-01-01 00:00:00'",
    T.TimestampNTZType: "'1970-01-01 00:00:00'",
}
# Sides on which a condition over that side alone may filter before the join, by join type.
FILTERS = {
    "inner": ("left", "right"),
    "left_semi": ("left", "right"),
    "left": ("right",),
    "left_anti": ("right",),
    "right": ("left",),
    "full": (),
}
# Errors of Spark for a row without a value of an expression: a division by zero, text that is not a number.
NO_VALUE = (ArithmeticException, DateTimeException, NumberFormatException, SparkRuntimeException)
RANDOM = (exp.Anonymous, exp.Rand, exp.Randn, exp.Randstr, exp.Shuffle, exp.Uniform, exp.Uuid)
PARTIAL = re.compile(r"(?m)^[\s:+|*'-]*(GlobalLimit|LocalLimit|Offset|Tail|Sample)\b")


@dataclass(frozen=True, slots=True)
class Joined:
    """A planned interval join: its rows, and the conditions that it evaluates."""

    frame: DataFrame
    consumed: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The two sides of a join."""

    query: Query
    left: Part
    right: Part
    how: str
    hints: tuple[Hint, ...] = ()  # those of its SELECT
    guards: tuple[Term, ...] = ()  # conditions that every pair of the result satisfies

    def guard(self, side: str) -> str | None:
        """The condition on a row of this side under which its other expressions must have a value, if there is one."""
        numbers = dict(zip(("left", "right"), self.numbers, strict=True))[side]
        return all_of([term for term in self.guards if term.inputs and term.inputs <= numbers])

    def options(self, join: str) -> dict[str, Any]:
        """The options that hints give a join of this kind."""
        return {name: value for hint in self.hints if hint.join == join for name, value in hint.options.items()}

    @property
    def numbers(self) -> tuple[frozenset[int], frozenset[int]]:
        """The inputs of either side."""
        return self.left.numbers, self.right.numbers

    @property
    def shown(self) -> tuple[str, str, str]:
        """Both sides and the join type, for the report."""
        return self.left.shown, self.right.shown, self.how


def interval_joined(pair: Pair, must: Sequence[Condition], may: Sequence[Condition]) -> Joined | str:
    """The interval join of two parts, or why Spark has to join them.

    `must` are the conditions of the join itself; `may` those of WHERE that an inner join can evaluate. An interval
    function that cannot be planned is an error; comparisons that cannot be planned are left to Spark.
    """
    conditions = [*must, *may]
    functions = find_functions(conditions, *pair.numbers)
    overlaps = [] if functions else find_overlaps(conditions, *pair.numbers)
    if not functions and not overlaps:
        return hidden_input(pair) or f"{NO_PREDICATE} between its sides"
    trouble = input_trouble(pair, must)
    if trouble:
        return trouble
    pair = guarded(pair, conditions)
    if functions:
        return _by_function(pair, found_function(must, may, functions[0], pair.numbers))
    try:
        return _by_overlap(pair, must, may, overlaps)
    except (PlanError, UnsupportedError, AnalysisException, *NO_VALUE) as error:
        return str(error).partition("\n")[0]


def guarded(pair: Pair, conditions: Sequence[Condition]) -> Pair:
    """The pair with the conditions that guard its expressions."""
    return replace(pair, guards=tuple(each.whole for each in conditions if each.whole and _guards(each)))


def _guards(condition: Condition) -> bool:
    """Whether a condition may be evaluated twice: it has no random value."""
    read = expression(condition.piece.text)
    return not condition.bounds and read is not None and not any(read.find(kind) for kind in RANDOM)


def input_trouble(pair: Pair, must: Sequence[Condition]) -> str | None:
    """Why Spark has to evaluate a condition or read an input, if it has to."""
    if pair.left.merged or pair.right.merged:
        return "it stands on a join by USING or NATURAL, which merges columns"
    unread = [each.shown for each in must if each.whole is None]
    if unread:
        return f"only Spark can evaluate {unread[0]!r}"
    return hidden_input(pair)


def hidden_input(pair: Pair) -> str | None:
    """Why the inputs cannot be read by themselves, if they cannot."""
    hidden = [each.alias for part in (pair.left, pair.right) for each in part.inputs if each.opaque]
    return f"{hidden[0]} depends on other inputs" if hidden else None


def _by_function(pair: Pair, found: Found) -> Joined:
    bounds = found.bounds
    assert bounds is not None, "an interval function was found"  # noqa: S101  (by the caller)
    left, right, keys, residual = sides_of(pair, found)
    left, (ls, le) = with_terms(pair.query, left, found.terms[:2], pair.guard("left"))
    right, (rs, re_) = with_terms(pair.query, right, found.terms[2:], pair.guard("right"))
    try:
        frame = interval_join(
            left,
            right,
            left_interval=(ls, le),
            right_interval=(rs, re_),
            relation=bounds.relation.names,  # type: ignore[arg-type]  # checked as names of relations
            on=keys or None,
            condition=all_of(residual),
            how=parse_how(pair.how),
            **pair.options("interval_join"),
        )
    except DataError as error:
        raise DataError(
            f"{pair.left.shown} join {pair.right.shown}: {error} In SQL: filter them in a subquery."
        ) from error
    _report(pair, found, residual, f"{bounds.relation}, by function")
    return Joined(frame, found.consumed)


def _by_overlap(
    pair: Pair, must: Sequence[Condition], may: Sequence[Condition], overlaps: Sequence[Overlap]
) -> Joined | str:
    overlap = _choose(pair, overlaps)
    if isinstance(overlap, str):
        return overlap
    found = found_comparisons(must, may, overlap, pair.numbers)
    left, right, keys, residual = sides_of(pair, found)
    left, of_left = with_terms(pair.query, left, found.terms[:2], pair.guard("left"))
    right, of_right = with_terms(pair.query, right, found.terms[2:], pair.guard("right"))
    trouble = repeatable_trouble(pair, left, right)
    if trouble is not None:
        return trouble
    kinds = [frame.schema[name].dataType for frame, names in ((left, of_left), (right, of_right)) for name in names]
    left, left_interval = _with_ordered(pair.query, left, of_left, kinds)
    right, right_interval = _with_ordered(pair.query, right, of_right, kinds)
    comparisons = comparisons_sql(overlap, [*of_left, *of_right])
    if of_left[0] != of_left[1] or of_right[0] != of_right[1]:
        names = (*of_left, *of_right), (*left_interval, *right_interval)
        if _are_unrelated(left.limit(PROBE_ROWS).crossJoin(right.limit(PROBE_ROWS)), *names, comparisons):
            return "its bounds are in no order, so that they are not those of intervals"
    frame = interval_join(
        left,
        right,
        left_interval=left_interval,
        right_interval=right_interval,
        on=keys or None,
        condition=" and ".join(filter(None, [comparisons, all_of(residual)])),
        how=parse_how(pair.how),
        closed="both",
        invalid="null",  # they are in order
        **pair.options("interval_join"),
    )
    _report(pair, found, residual, f"overlapping, {overlap}")
    return Joined(frame, found.consumed)


def _choose(pair: Pair, overlaps: Sequence[Overlap]) -> Overlap | str:
    """The overlap to join by, or why none fits; the others remain conditions."""
    left, right = pair.left.frame(), pair.right.frame()
    fitting, conditions, trouble = [], [], None
    for overlap in overlaps:
        left, of_left = with_terms(pair.query, left, overlap.terms[:2], pair.guard("left"))
        right, of_right = with_terms(pair.query, right, overlap.terms[2:], pair.guard("right"))
        kinds = [frame.schema[name].dataType for frame, names in ((left, of_left), (right, of_right)) for name in names]
        trouble = type_trouble(kinds)
        if trouble is None:
            fitting.append(overlap)
            conditions.append(comparisons_sql(overlap, [*of_left, *of_right]))
    if not fitting:
        return trouble or "no bounds that compare"
    return fitting[most_selective(left, right, conditions) if len(fitting) > 1 else 0]


def _are_unrelated(pairs: DataFrame, bounds: Sequence[str], ordered: Sequence[str], comparisons: str) -> bool:
    """Whether the comparisons are about unrelated columns, of which intervals tell little. Runs one small job.

    Many intervals of a side end before they start, and of sampled pairs the ordered intervals meet far more often than
    the comparisons hold.
    """
    (ls, le, rs, re), (first, last, start, end) = (map(quoted, names) for names in (bounds, ordered))
    counts = (f"{ls} > {le}", f"{rs} > {re}", f"{first} <= {end} and {start} <= {last}", comparisons)
    row = pairs.selectExpr(*(f"count_if({each})" for each in counts), "count(*)").collect()[0]
    left, right, met, matched, every = map(int, row)
    return 3 * max(left, right) > every and 5 * met > every and met > 2 * matched


def _with_ordered(
    query: Query, frame: DataFrame, names: Sequence[str], kinds: Sequence[T.DataType]
) -> tuple[DataFrame, tuple[str, str]]:
    start, end = query.names.fresh("ordered_start"), query.names.fresh("ordered_end")
    first, last = ordered_sql(names[0], names[1], kinds)
    return frame.selectExpr("*", f"{first} as {quoted(start)}", f"{last} as {quoted(end)}"), (start, end)


def sides_of(pair: Pair, found: Found) -> tuple[DataFrame, DataFrame, tuple[tuple[str, str], ...], list[Term]]:
    """Both frames, filtered and with a column for every key; the key columns; the remaining conditions."""
    frames = {"left": pair.left.frame(), "right": pair.right.frame()}
    numbers = dict(zip(("left", "right"), pair.numbers, strict=True))
    residual, open_ = [], set(FILTERS[pair.how])
    for term in (condition.whole for condition in found.residual):
        assert term is not None, "conditions that only Spark can evaluate were refused"  # noqa: S101  (by _trouble)
        side = next((s for s in open_ if term.inputs and term.inputs <= numbers[s]), None)
        if side is None or not term.plain:
            residual.append(term)
            open_.discard(side or "")  # it may protect later conditions of its side
        else:
            frames[side] = frames[side].where(term.sql)
    keys: list[tuple[str, str]] = []
    for key in found.keys:
        if same_type(frames["left"], frames["right"], key):
            names: dict[str, list[str]] = {}
            for of, term in (("left", key.left), ("right", key.right)):
                terms = key_terms(frames[of], key.operator, term)
                frames[of], names[of] = with_terms(pair.query, frames[of], terms, pair.guard(of))
            keys += zip(names["left"], names["right"], strict=True)
        elif key.condition.whole is not None:
            residual.append(key.condition.whole)
    return frames["left"], frames["right"], tuple(keys), residual


def key_terms(frame: DataFrame, operator: str, term: Term) -> tuple[Term, ...]:
    """The terms of a key; for `<=>` whether it is null, and its value if it is not."""
    if operator == "=":
        return (term,)
    kind = frame.selectExpr(term.sql).schema[0].dataType
    value = f"coalesce({term.sql}, cast({_SOMETHING.get(type(kind), '0')} as {kind.simpleString()}))"
    return replace(term, sql=f"({term.sql}) is null"), replace(term, sql=value)


def same_type(left: DataFrame, right: DataFrame, key: Key | Comparison) -> bool:
    """Whether an equality compares both sides as one type without loss, so that it can be a key."""
    one, other = (
        frame.selectExpr(term.sql).schema[0].dataType for frame, term in ((left, key.left), (right, key.right))
    )
    if isinstance(one, INTEGERS) and isinstance(other, INTEGERS):
        return True
    return one == other and isinstance(one, KEY_TYPES) and (not isinstance(one, T.StringType) or one == T.StringType())


def with_terms(
    query: Query, frame: DataFrame, terms: Sequence[Term], guard: str | None = None
) -> tuple[DataFrame, list[str]]:
    """The frame with a column for every term, and the names of the columns; an existing column is reused.

    A term is null if `guard` does not hold: by `v <> 0 and 10 div v < b` rows with 0 match nothing.
    """
    names = []
    for term in terms:
        name = next((each for each in frame.columns if quoted(each) == term.sql.strip()), None)
        if name is None:
            name = query.names.fresh("bound")
            value = f"({term.sql})" if guard is None else f"case when {guard} then ({term.sql}) end"
            frame = frame.selectExpr("*", f"{value} as {quoted(name)}")
        names.append(name)
    return frame, names


def all_of(terms: Sequence[Term]) -> str | None:
    """SQL: all of these conditions; None if there are none."""
    return " and ".join(f"({term.sql})" for term in terms) or None


def repeatable_trouble(pair: Pair, *frames: DataFrame) -> str | None:
    """Why the inputs cannot be read several times, if they cannot."""
    if is_connect(pair.query.spark):
        return "Spark Connect does not show whether an input is the same each time it is read; use an interval function"
    if not all(map(_repeatable, frames)):
        return "an input may give other rows each time it is read (random values, LIMIT, sample or stream)"
    return None


def _repeatable(frame: DataFrame) -> bool:
    """Whether reading the frame twice gives the same rows, as far as its plan can tell."""
    if frame.isStreaming:
        return False
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and not PARTIAL.search(plan.toString())


def _report(pair: Pair, found: Found, residual: Sequence[Term], relation: str) -> None:
    ls, le, rs, re_ = (term.shown for term in found.terms)
    shown = conditions_as_reported(found, residual)
    pair.query.recognised(Recognised(*pair.shown, relation, (ls, le, rs, re_), *shown), pair.hints)


def conditions_as_reported(found: Found, residual: Sequence[Term]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of a join, and its other conditions, as the query wrote them."""
    written = {term.sql for term in residual}
    shown = [f"{key.left.shown} {key.operator} {key.right.shown}" for key in found.keys]
    demoted = [each.condition.whole is not None and each.condition.whole.sql in written for each in found.keys]
    kept = tuple(text for text, gone in zip(shown, demoted, strict=True) if not gone)
    filters = [each.shown for each in found.residual if each.whole is not None and each.whole.sql not in written]
    return kept, (*filters, *(term.shown for term in residual))


INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
PROBE_ROWS = 200
FAR = "1e300D"


def comparisons_sql(overlap: Overlap, names: Sequence[str]) -> str:
    """The two comparisons over columns that hold the bounds: left start and end, right start and end."""
    ls, le, rs, re = map(quoted, names)
    return f"{ls} {'<=' if overlap.touching_start else '<'} {re} and {le} {'>=' if overlap.touching_end else '>'} {rs}"


def ordered_sql(start: str, end: str, kinds: Sequence[T.DataType]) -> tuple[str, str]:
    """SQL for bounds in order: the smaller of the two, and the end; null if either is null.

    Floats are made finite, so that lengths are finite: NaN, which Spark sorts above all numbers, becomes the largest.
    Bounds that were in order stay in order, which is enough for the join.
    """
    first, last = quoted(start), quoted(end)
    if any(isinstance(kind, FLOATS) for kind in kinds):
        first, last = bounded_sql(first), bounded_sql(last)
    return (first if start == end else f"if({first} > {last}, {last}, {first})"), last


def bounded_sql(value: str) -> str:
    """SQL: a float as a finite double, in the same order; NaN is the largest."""
    return f"if({value} > {FAR}, {FAR}, if({value} < -{FAR}, -{FAR}, double({value})))"


def type_trouble(bounds: Sequence[T.DataType]) -> str | None:
    """Why bounds of these types do not compare as one type; None if they do, without loss."""
    for kind in bounds:
        if not isinstance(kind, BOUND_TYPES) and kind not in (T.StringType(), T.BinaryType()):
            return f"a bound has type {kind.simpleString()}"
    for family in (INTEGERS, FLOATS):
        if all(isinstance(kind, family) for kind in bounds):
            return None
    if len({kind.simpleString() for kind in bounds}) == 1:
        return None
    return f"the bounds have different types ({', '.join(sorted({kind.simpleString() for kind in bounds}))}); cast them"


def most_selective(left: DataFrame, right: DataFrame, conditions: Sequence[str]) -> int:
    """The number of the condition that holds for the fewest pairs of a sample of both sides. Runs one small job."""
    pairs = left.limit(PROBE_ROWS).crossJoin(right.limit(PROBE_ROWS))
    counted = pairs.selectExpr(*(f"count_if({condition}) as n{n}" for n, condition in enumerate(conditions))).collect()
    return min(range(len(conditions)), key=lambda n: int(counted[0][n]))
