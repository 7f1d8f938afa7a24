"""Two parts of FROM as one interval join, if their condition says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import DataError, PlanError, UnsupportedError
from dovetail.interval.frame import interval_join
from dovetail.spark.connect import is_connect
from dovetail.sql.conditions import Condition
from dovetail.sql.names import Term
from dovetail.sql.overlap import INTEGERS, Bounded, Count, OverlapJoin, closed_as, count_rows, type_trouble
from dovetail.sql.query import Part, Query
from dovetail.sql.recognise import Found, Key, Overlap, find_functions, find_overlaps, found_function, found_overlap
from dovetail.sql.report import Recognised
from dovetail.sql.text import quoted

MOST_ODD = 0.5
UNREPEATABLE = "an input may give other rows each time it is read (random values, LIMIT, sample or stream)"
KEY_TYPES = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.FloatType, T.DoubleType, T.DecimalType),
    *(T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
)
# Sides on which a condition over that side alone may filter before the join, by join type.
FILTERS = {
    "inner": ("left", "right"),
    "left_semi": ("left", "right"),
    "left": ("right",),
    "left_anti": ("right",),
    "right": ("left",),
    "full": (),
}
PARTIAL = re.compile(r"(?m)^[\s:+|*'-]*(GlobalLimit|LocalLimit|Offset|Tail|Sample)\b")


@dataclass(frozen=True, slots=True)
class Joined:
    """An interval join that is planned: its rows, and the conditions that it has taken care of."""

    frame: DataFrame
    consumed: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The two sides of a join while its columns are worked out."""

    query: Query
    left: Part
    right: Part
    how: str

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

    `must` are the conditions of the join itself; `may` those of WHERE that an inner join can take over.
    Errors of an interval function are the user's; what hinders the raw form only means that Spark keeps it.
    """
    conditions = [*must, *may]
    functions = find_functions(conditions, *pair.numbers)
    overlaps = [] if functions else find_overlaps(conditions, *pair.numbers)
    if not functions and not overlaps:
        return _hidden(pair) or "no interval predicate between its sides"
    trouble = _trouble(pair, must)
    if trouble:
        return trouble
    if functions:
        return _by_function(pair, found_function(must, may, functions[0], pair.numbers))
    try:
        return _by_overlap(pair, must, may, overlaps)
    except (PlanError, UnsupportedError, AnalysisException) as error:
        return str(error).partition("\n")[0]


def _trouble(pair: Pair, must: Sequence[Condition]) -> str | None:
    if pair.left.merged or pair.right.merged:
        return "it stands on a join by USING or NATURAL, which merges columns"
    unread = [each.shown for each in must if each.whole is None]
    if unread:
        return f"only Spark can evaluate {unread[0]!r}"
    return _hidden(pair)


def _hidden(pair: Pair) -> str | None:
    hidden = [each.alias for part in (pair.left, pair.right) for each in part.inputs if each.opaque]
    return f"{hidden[0]} depends on other inputs" if hidden else None


def _by_function(pair: Pair, found: Found) -> Joined:
    bounds = found.bounds
    assert bounds is not None, "an interval function was found"  # noqa: S101  (by the caller)
    left, right, keys, residual = _sides(pair, found)
    left, (ls, le) = _with_terms(pair.query, left, found.terms[:2])
    right, (rs, re_) = _with_terms(pair.query, right, found.terms[2:])
    try:
        frame = interval_join(
            left,
            right,
            left_interval=(ls, le),
            right_interval=(rs, re_),
            relation=bounds.relation.names,
            on=keys or None,
            condition=_all(residual),
            how=pair.how,
        )
    except DataError as error:
        raise DataError(
            f"{pair.left.shown} join {pair.right.shown}: {error} In SQL: filter them in a subquery."
        ) from error
    _report(pair, found, keys, residual, f"{bounds.relation}, by function", "")
    return Joined(frame, found.consumed)


def _by_overlap(
    pair: Pair, must: Sequence[Condition], may: Sequence[Condition], overlaps: Sequence[Overlap]
) -> Joined | str:
    if is_connect(pair.query.spark):
        return "Spark Connect does not show whether an input is the same each time it is read; use an interval function"
    if not all(_repeatable(part.frame()) for part in (pair.left, pair.right)):
        return UNREPEATABLE
    chosen = _choose(pair, overlaps)
    if isinstance(chosen, str):
        return chosen
    overlap, counts = chosen
    found = found_overlap(must, may, overlap, pair.numbers)
    left, right, keys, residual = _sides(pair, found)
    left, (ls, le) = _with_terms(pair.query, left, found.terms[:2])
    right, (rs, re_) = _with_terms(pair.query, right, found.terms[2:])
    if not all(_repeatable(frame) for frame in (left, right)):
        return UNREPEATABLE
    closed = closed_as(overlap.touching_start, overlap.touching_end, *counts)
    sides = (
        Bounded(pair.left.shown, left, ls, le, closed[0], counts[0]),
        Bounded(pair.right.shown, right, rs, re_, closed[1], counts[1]),
    )
    odd = [f"{side.n_odd} of {side.name}" for side in sides if side.n_odd]
    note = f"{' and '.join(odd)} with bounds out of order, joined by Spark" if odd else "all bounds in order"
    frame = OverlapJoin(*sides, keys, _all(residual)).frame(pair.how)
    _report(pair, found, keys, residual, f"overlapping, by comparisons, closed={'/'.join(closed)}", note)
    return Joined(frame, found.consumed)


def _choose(pair: Pair, overlaps: Sequence[Overlap]) -> tuple[Overlap, tuple[Count, Count]] | str:
    """The candidate with the fewest odd rows; comparisons that hardly ever bound intervals are none."""
    sides, fitting, trouble = [], [], ""
    for overlap in overlaps:
        two = [_bounded_rows(pair, part, terms) for part, terms in _halves(pair, overlap.terms)]
        kinds = [frame.schema[name].dataType for frame, *names in two for name in names]
        trouble = type_trouble(kinds) or ""
        if not trouble:
            fitting.append(overlap)
            sides += two
    if not fitting:
        return trouble
    counts = count_rows(sides)
    pairs = [(overlap, (counts[2 * n], counts[2 * n + 1])) for n, overlap in enumerate(fitting)]
    best = min(pairs, key=lambda each: _odd_share(*each))
    if _odd_share(*best) > MOST_ODD:
        start, end, other_start, other_end = (term.shown for term in best[0].terms)
        return f"most of ({start}, {end}) or ({other_start}, {other_end}) are out of order, so they bound no intervals"
    return best


def _halves(pair: Pair, terms: tuple[Term, ...]) -> tuple[tuple[Part, tuple[Term, ...]], tuple[Part, tuple[Term, ...]]]:
    return (pair.left, terms[:2]), (pair.right, terms[2:])


def _bounded_rows(pair: Pair, part: Part, terms: tuple[Term, ...]) -> tuple[DataFrame, str, str]:
    """Rows to count: of the one input that holds the bounds, which is cheaper to read than a join of several."""
    numbers = terms[0].inputs | terms[1].inputs
    frame = pair.query.rows[next(iter(numbers))] if len(numbers) == 1 else part.frame()
    frame, (start, end) = _with_terms(pair.query, frame, terms)
    return frame, start, end


def _odd_share(overlap: Overlap, counts: tuple[Count, Count]) -> float:
    closed = closed_as(overlap.touching_start, overlap.touching_end, *counts)
    odd = [count.inverted + (0 if side == "both" else count.empty) for count, side in zip(counts, closed, strict=True)]
    return max(some / count.rows if count.rows else 0.0 for some, count in zip(odd, counts, strict=True))


def _sides(pair: Pair, found: Found) -> tuple[DataFrame, DataFrame, tuple[tuple[str, str], ...], list[Term]]:
    """Both frames, filtered and with a column for every key; the key columns; the conditions that are left."""
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
    keys = []
    for key in found.keys:
        if _same_type(frames["left"], frames["right"], key):
            frames["left"], (left,) = _with_terms(pair.query, frames["left"], (key.left,))
            frames["right"], (right,) = _with_terms(pair.query, frames["right"], (key.right,))
            keys.append((left, right))
        elif key.condition.whole is not None:
            residual.append(key.condition.whole)
    return frames["left"], frames["right"], tuple(keys), residual


def _same_type(left: DataFrame, right: DataFrame, key: Key) -> bool:
    """Whether an equality compares as one type without loss, so that a key means the same."""
    one, other = (
        frame.selectExpr(term.sql).schema[0].dataType for frame, term in ((left, key.left), (right, key.right))
    )
    if isinstance(one, INTEGERS) and isinstance(other, INTEGERS):
        return True
    return one == other and isinstance(one, KEY_TYPES) and (not isinstance(one, T.StringType) or one == T.StringType())


def _with_terms(query: Query, frame: DataFrame, terms: Sequence[Term]) -> tuple[DataFrame, list[str]]:
    """The frame with a column for every term, and the names of these; a plain column serves as it is."""
    names = []
    for term in terms:
        name = next((each for each in frame.columns if quoted(each) == term.sql.strip()), None)
        if name is None:
            name = query.names.fresh("bound")
            frame = frame.selectExpr("*", f"({term.sql}) as {quoted(name)}")
        names.append(name)
    return frame, names


def _all(terms: Sequence[Term]) -> str | None:
    return " and ".join(f"({term.sql})" for term in terms) or None


def _repeatable(frame: DataFrame) -> bool:
    """Whether reading the frame twice gives the same rows, as far as its plan can tell."""
    if frame.isStreaming:
        return False
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and not PARTIAL.search(plan.toString())


def _report(
    pair: Pair, found: Found, keys: Sequence[tuple[str, str]], residual: Sequence[Term], relation: str, note: str
) -> None:
    ls, le, rs, re_ = (term.shown for term in found.terms)
    written = {term.sql for term in residual}
    shown = [f"{key.left.shown} = {key.right.shown}" for key in found.keys]
    demoted = [each.condition.whole is not None and each.condition.whole.sql in written for each in found.keys]
    kept = tuple(text for text, gone in zip(shown, demoted, strict=True) if not gone)
    filters = [each.shown for each in found.residual if each.whole is not None and each.whole.sql not in written]
    rest = (*filters, *(term.shown for term in residual))
    joined = Recognised(*pair.shown, relation, (ls, le, rs, re_), kept, rest, note)
    pair.query.report.joins.append(joined)
