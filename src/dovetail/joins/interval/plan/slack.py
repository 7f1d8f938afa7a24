"""Slack in what counts as an overlap: gaps that are bridged, and overlaps that are too short.

A gap widens the left intervals before they are compared. A least overlap is a further condition of a match, so that it
holds for every `how` and for counts.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.rows.keys import NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.sides import Side, Sides, as_column, asked_type
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
    if isinstance(kind, T.DecimalType) and kind.precision > NARROW_DIGITS:
        raise PlanError(
            f"bounds of type {kind.simpleString()} take no slack; cast them to at most {NARROW_DIGITS} digits.",
            argument="left_interval",
        )
    if slack.max_gap is not None:
        gap = distance_units("max_gap", slack.max_gap, kind, asked_type(left.source, request.left_interval))
        gap = gap if isinstance(gap, float) else min(2**63 - 1, gap)
        both = Relation(request.relation.names, request.relation.strict, "both", "both")
        return Sides(replace(request, relation=both, slack=None), _widened(left, gap), _widened(right, 0))
    sides = [replace(side, frame=side.frame.selectExpr("*", *_measured(side))) for side in (left, right)]
    enough = F.expr(_enough(left, right, request, slack))
    condition = enough if request.condition is None else as_column(request.condition) & enough
    return Sides(replace(request, condition=condition, slack=None), *sides)


def _measured(side: Side) -> list[str]:
    bounds = ("start", side.start), ("end", side.end)
    return [f"{units(side.bound_type, bound)} as {side.own(name)}" for name, bound in bounds]


def _widened(side: Side, gap: int | float) -> Side:
    """The side with bounds in units, farther apart by the gap at both ends; null where the interval is empty.

    Inverted intervals stay inverted, so that they are still found.
    """
    start, end = (units(side.bound_type, bound) for bound in (side.start, side.end))
    if isinstance(side.bound_type, FLOATS):
        kind: T.DataType = T.DoubleType()
        low, high = f"{start} - {gap!r}D", f"{end} + {gap!r}D"
    else:
        kind = T.LongType()
        low = f"if({start} is null, null, coalesce(try_subtract({start}, {gap}L), {_LEAST}))"
        high = f"if({end} is null, null, coalesce(try_add({end}, {gap}L), {_MOST}))"
    empty = "" if side.closed == "both" else f"when {side.start} = {side.end} then null"
    ends = ((start, low, "low"), (end, high, "high"))
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


def _enough(left: Side, right: Side, request: Request, slack: Slack) -> str:
    """SQL: the two share enough: a least length, a least part of the left one, or of both."""
    (ls, le), (rs, re) = ((side.own("start"), side.own("end")) for side in (left, right))
    end, start = f"least({le}, {re})", f"greatest({ls}, {rs})"
    floating = isinstance(left.bound_type, FLOATS)
    parts = []
    if slack.min_overlap is not None:
        asked_kind = asked_type(left.source, request.left_interval)
        least = distance_units("min_overlap", slack.min_overlap, left.bound_type, asked_kind, up=True)
        if floating or least >= 2**63:
            parts.append(f"{_share(end, start, floating)} >= {float(min(least, 10**300))!r}D")
        else:
            parts.append(f"coalesce(try_subtract({end}, {start}), {_MOST}) >= {least}L")
    if slack.min_fraction is not None:
        shared = _share(end, start, floating)
        asked = [(le, ls), (re, rs)] if slack.reciprocal else [(re, rs) if left.exchanged else (le, ls)]
        parts += [f"{shared} >= {slack.min_fraction!r}D * {_share(*ends, floating)}" for ends in asked]
    return " and ".join(parts)


def _share(end: str, start: str, floating: bool) -> str:
    """SQL: a length as a double, also one beyond 64 bits; that of a point at infinity is 0."""
    difference = f"cast({end} as double) - cast({start} as double)"
    return (
        f"nanvl({difference}, 0D)"
        if floating
        else f"coalesce(cast(try_subtract({end}, {start}) as double), {difference})"
    )
