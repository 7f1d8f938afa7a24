"""Plans two parts of FROM as one join by inequalities: `a.x < b.y`, alone or with others, as a band join.

SQL sorts NaN above all numbers, and a band join matches it with nothing. So floats are joined by finite numbers in the
same order, with the comparisons themselves as a condition; so are several inequalities, of which each has its own `<`
or `<=`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.plan.band import band_join
from dovetail.request import parse_how
from dovetail.rewrite.conditions import Comparison, Condition, Inequalities, find_inequalities, found_comparisons
from dovetail.rewrite.interval import (
    NO_VALUE,
    Joined,
    Pair,
    all_of,
    bounded_sql,
    conditions_as_reported,
    guarded,
    input_trouble,
    repeatable_trouble,
    sides_of,
    type_trouble,
    with_terms,
)
from dovetail.rewrite.query import NO_PREDICATE, RecognisedInequality
from dovetail.spark.frames import quoted
from dovetail.spark.inputs import FLOATS

MOST = 4  # inequalities that are joined by; others remain conditions


def inequality_joined(pair: Pair, must: Sequence[Condition], may: Sequence[Condition]) -> Joined | str:
    """The join of two parts by their inequalities, or why Spark has to join them."""
    conditions = [*must, *may]
    across = find_inequalities(conditions, *pair.numbers)
    if not across:
        return f"{NO_PREDICATE} between its sides"
    trouble = input_trouble(pair, must)
    if trouble:
        return trouble
    pair = guarded(pair, conditions)
    try:
        fitting, trouble = _fitting(pair, across)
        return _joined(pair, must, may, fitting) if fitting.comparisons else trouble
    except (PlanError, UnsupportedError, AnalysisException, *NO_VALUE) as error:
        return str(error).partition("\n")[0]


def _fitting(pair: Pair, across: Sequence[tuple[tuple[int, int], Comparison]]) -> tuple[Inequalities, str]:
    """The inequalities whose two sides compare as one type, and why the last other one does not."""
    fitting, trouble = [], ""
    left, right = pair.left.frame(), pair.right.frame()
    for at, each in across:
        one, (a,) = with_terms(pair.query, left, [each.left], pair.guard("left"))
        other, (b,) = with_terms(pair.query, right, [each.right], pair.guard("right"))
        why = type_trouble([one.schema[a].dataType, other.schema[b].dataType])
        if why is None:
            fitting.append((at, each))
        trouble = why or trouble
    some = fitting[:MOST]
    return Inequalities(tuple(each for _, each in some), frozenset(at for at, _ in some)), trouble


def _joined(pair: Pair, must: Sequence[Condition], may: Sequence[Condition], chosen: Inequalities) -> Joined | str:
    found = found_comparisons(must, may, chosen, pair.numbers)
    left, right, keys, residual = sides_of(pair, found)
    left, of_left = with_terms(pair.query, left, found.terms[::2], pair.guard("left"))
    right, of_right = with_terms(pair.query, right, found.terms[1::2], pair.guard("right"))
    trouble = repeatable_trouble(pair, left, right)
    if trouble is not None:
        return trouble
    operators = [each.operator for each in chosen.comparisons]
    comparisons = [f"{quoted(a)} {op} {quoted(b)}" for a, op, b in zip(of_left, operators, of_right, strict=True)]
    kinds = [frame.schema[name].dataType for frame, names in ((left, of_left), (right, of_right)) for name in names]
    left, ours = _finite(pair, left, of_left)
    right, theirs = _finite(pair, right, of_right)
    exact = len(operators) == 1 and not any(isinstance(kind, FLOATS) for kind in kinds)
    frame = band_join(
        left,
        right,
        within=[
            (a, b, 0, None) if op in ("<", "<=") else (a, b, None, 0)
            for a, op, b in zip(ours, operators, theirs, strict=True)
        ],
        on=keys or None,
        closed="neither" if exact and operators[0] in ("<", ">") else "both",
        condition=" and ".join([*([] if exact else comparisons), *filter(None, [all_of(residual)])]) or None,
        how=parse_how(pair.how),
        **pair.options("interval_join"),
    )
    shown = conditions_as_reported(found, residual)
    pair.query.recognised(RecognisedInequality(*pair.shown, str(chosen), *shown), pair.hints)
    return Joined(frame, found.consumed)


def _finite(pair: Pair, frame: DataFrame, names: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """The frame with floats as finite numbers in the same order, NaN as the largest, and the names of all columns."""
    found = []
    for name in names:
        if isinstance(frame.schema[name].dataType, FLOATS):
            finite = pair.query.names.fresh("finite")
            frame = frame.selectExpr("*", f"{bounded_sql(quoted(name))} as {quoted(finite)}")
            found.append(finite)
        else:
            found.append(name)
    return frame, found
