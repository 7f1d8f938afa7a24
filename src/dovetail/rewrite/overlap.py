"""`r.start < s.end and s.start < r.end` exactly as SQL means it, for every row, by one interval join.

SQL compares bounds as they stand: an empty interval inside another one matches, and so may one that ends before it
starts. An interval join matches neither. So the join runs over intervals that are never empty or inverted, closed at
both bounds: from the smaller bound to the end. If ls < re and rs < le, then min(ls, le) <= re and min(rs, re) <= le:
every pair that SQL wants is among those that meet, and the comparisons themselves, kept as a condition, pick it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.interval.plan.sides import BOUND_TYPES
from dovetail.rewrite.recognise import Overlap
from dovetail.rewrite.text import quoted

INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
FLOATS = (T.FloatType, T.DoubleType)
PROBE_ROWS = 200
FAR = "1e300D"


def comparisons_sql(overlap: Overlap, names: Sequence[str]) -> str:
    """The two comparisons over columns that hold the bounds: left start and end, right start and end."""
    ls, le, rs, re = map(quoted, names)
    return f"{ls} {'<=' if overlap.touching_start else '<'} {re} and {le} {'>=' if overlap.touching_end else '>'} {rs}"


def ordered_sql(start: str, end: str, kinds: Sequence[T.DataType]) -> tuple[str, str]:
    """SQL for bounds in order: the smaller of the two, and the end; null if either is null.

    Floats are kept finite, so that lengths are: NaN, which Spark puts above all numbers, becomes the largest. Bounds
    that were in order stay so, and that is all that meeting needs.
    """
    first, last = quoted(start), quoted(end)
    if any(isinstance(kind, FLOATS) for kind in kinds):
        first, last = (f"if({x} > {FAR}, {FAR}, if({x} < -{FAR}, -{FAR}, double({x})))" for x in (first, last))
    return (first if start == end else f"if({first} > {last}, {last}, {first})"), last


def type_trouble(bounds: Sequence[T.DataType]) -> str | None:
    """Why bounds of these types do not compare as one type; None if they do, without loss."""
    for kind in bounds:
        if not isinstance(kind, BOUND_TYPES):
            return f"a bound has type {kind.simpleString()}"
    for family in (INTEGERS, FLOATS):
        if all(isinstance(kind, family) for kind in bounds):
            return None
    if len({kind.simpleString() for kind in bounds}) == 1:
        return None
    return f"the bounds have different types ({', '.join(sorted({kind.simpleString() for kind in bounds}))}); cast them"


def most_selective(left: DataFrame, right: DataFrame, conditions: Sequence[str]) -> int:
    """Which condition holds for the fewest pairs of a few rows of both sides; the first of equals. One small job."""
    pairs = left.limit(PROBE_ROWS).crossJoin(right.limit(PROBE_ROWS))
    counted = pairs.selectExpr(*(f"count_if({condition}) as n{n}" for n, condition in enumerate(conditions))).collect()
    return min(range(len(conditions)), key=lambda n: int(counted[0][n]))
