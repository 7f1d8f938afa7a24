"""Slack in what counts as an overlap: gaps that are bridged, and overlaps that are too short.

A gap widens the left intervals before they are compared. A least overlap is a further condition of a match, so that it
holds for every `how` and for counts.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.rows.keys import MOST_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.sides import Side, Sides, as_column, asked_type, is_wide_decimal
from dovetail.joins.interval.relation import Relation
from dovetail.joins.interval.request import Request, Slack
from dovetail.spark.frames import quoted, units
from dovetail.spark.inputs import FLOATS, distance_units

_LEAST, _MOST = "cast('-9223372036854775808' as bigint)", "9223372036854775807L"


def with_slack(asked: Sides) -> Sides:
    """The sides and the request of a join whose slack is part of the bounds or of the condition."""
    request, left, right = asked.request, asked.left, asked.right
    slack, kind = request.slack, left.bound_type
    if slack is None:
        return asked
    if isinstance(kind, T.DecimalType) and kind.precision > MOST_DIGITS - 2:  # widened bounds have two more
        raise PlanError(
            f"bounds of type {kind.simpleString()} take no slack; cast them to at most {MOST_DIGITS - 2} digits.",
            argument="left_interval",
        )
    if slack.max_gap is not None:
        gap = distance_units("max_gap", slack.max_gap, kind, asked_type(left.source, request.left_interval))
        both = Relation(request.relation.names, request.relation.strict, "both", "both")
        return Sides(replace(request, relation=both, slack=None), _widened(left, gap), _widened(right, 0))
    sides = [replace(side, frame=side.frame.selectExpr("*", *_measured(side))) for side in (left, right)]
    enough = F.expr(_enough(left, right, request, slack))
    condition = enough if request.condition is None else as_column(request.condition) & enough
    return Sides(replace(request, condition=condition, slack=None), *sides)


def _measured(side: Side) -> list[str]:
    bounds = ("start", side.start), ("end", side.end)
    wide = is_wide_decimal(side.bound_type)  # numbers without codes are measured as they are
    return [f"{bound if wide else units(side.bound_type, bound)} as {side.own(name)}" for name, bound in bounds]


def _widened(side: Side, gap: int | float) -> Side:
    """The side with bounds farther apart by the gap at both ends; null where the interval is empty.

    Inverted intervals stay inverted, so that they are still found.
    """
    kind, ends = _moved(side, gap)
    empty = "" if side.closed == "both" else f"when {side.start} = {side.end} then null"
    columns = [
        f"case when {side.inverted} then {own} {empty} else {wide} end as {side.own(name)}" for own, wide, name in ends
    ]
    return replace(
        side,
        frame=side.frame.selectExpr("*", *columns),
        start=quoted(side.own("low")),
        end=quoted(side.own("high")),
        bound_type=kind,
        closed="both",
        named=(*side.named, f"gap {gap} of {side.closed}"),
        written=(side.start, side.end),
        written_type=side.bound_type,
    )


def _moved(side: Side, gap: int | float) -> tuple[T.DataType, tuple[tuple[str, str, str], ...]]:
    """The type of widened bounds; each as it is, widened, and its name. In units, but for decimals without codes."""
    kind: T.DataType
    start, end = side.start, side.end
    if is_wide_decimal(side.bound_type):
        kind = T.DecimalType(side.bound_type.precision + 2, side.bound_type.scale)
        low, high = (f"{bound} {sign} {_decimal(gap, side.bound_type)}" for bound, sign in ((start, "-"), (end, "+")))
        return kind, ((start, low, "low"), (end, high, "high"))
    start, end = (units(side.bound_type, bound) for bound in (start, end))
    if isinstance(side.bound_type, FLOATS):
        kind, low, high = T.DoubleType(), f"{start} - {gap!r}D", f"{end} + {gap!r}D"
    else:
        kind, most = T.LongType(), min(2**63 - 1, int(gap))
        low = f"if({start} is null, null, coalesce(try_subtract({start}, {most}L), {_LEAST}))"
        high = f"if({end} is null, null, coalesce(try_add({end}, {most}L), {_MOST}))"
    return kind, ((start, low, "low"), (end, high, "high"))


def _decimal(units: int | float, kind: T.DecimalType) -> str:
    """SQL: so many of the last digit; at most a number longer than any difference of two bounds."""
    most = min(int(units), 10 ** (kind.precision + 1) - 1)
    return f"cast('{most}e-{kind.scale}' as decimal({kind.precision + 1}, {kind.scale}))"


def _enough(left: Side, right: Side, request: Request, slack: Slack) -> str:
    """SQL: the two share enough: a least length, a least part of the left one, or of both."""
    (ls, le), (rs, re) = ((side.own("start"), side.own("end")) for side in (left, right))
    end, start = f"least({le}, {re})", f"greatest({ls}, {rs})"
    floating = isinstance(left.bound_type, FLOATS)
    parts = []
    if slack.min_overlap is not None:
        asked_kind = asked_type(left.source, request.left_interval)
        least = distance_units("min_overlap", slack.min_overlap, left.bound_type, asked_kind, up=True)
        if is_wide_decimal(left.bound_type):
            parts.append(f"{end} - {start} >= {_decimal(least, left.bound_type)}")
        elif floating or least >= 2**63:
            parts.append(f"{_share(end, start, floating)} >= {float(min(least, 10**300))!r}D")
        else:
            parts.append(f"coalesce(try_subtract({end}, {start}), {_MOST}) >= {least}L")
    if slack.min_fraction is not None:
        shared = _share(end, start, floating)
        asked = [(le, ls), (re, rs)] if slack.reciprocal else [(re, rs) if left.exchanged else (le, ls)]
        # 7 / 100 is the double 0.07, but 0.07 * 100 is more than 7. Of an interval without a length any part is all.
        shares = [f"try_divide({shared}, {_share(*ends, floating)})" for ends in asked]
        parts += [f"coalesce({share} >= {slack.min_fraction!r}D, true)" for share in shares]
    return " and ".join(parts)


def _share(end: str, start: str, floating: bool) -> str:
    """SQL: a length as a double, also one beyond 64 bits; that of a point at infinity is 0."""
    difference = f"cast({end} as double) - cast({start} as double)"
    return (
        f"nanvl({difference}, 0D)"
        if floating
        else f"coalesce(cast(try_subtract({end}, {start}) as double), {difference})"
    )
