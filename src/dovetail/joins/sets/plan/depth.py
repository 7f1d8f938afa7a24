"""Sweeps bounds in order: how many rows are open between two of them.

At a point where s rows start and e rows end, the depth d becomes d + s - e. The point itself belongs to what follows if
intervals are closed left, to what precedes if they are closed right. If they are closed on both sides d + s rows hold
it, if on neither d - e, and it has a piece of its own, of length zero, where that differs from both neighbours.
Reference: docs/algorithms/sets.md, 3.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.sets.plan.cuts import Carried, Cuts
from dovetail.joins.sets.plan.rows import Rows
from dovetail.spark.frames import RESERVED
from dovetail.spark.hosts.batch import exchange_by_hash

DEPTH = "depth"
_AT, _NEXT, _STARTS, _ENDS = (f"{RESERVED}{what}" for what in ("at", "next", "starts", "ends"))
_OPEN, _PIECE = f"{RESERVED}open", f"{RESERVED}piece"
_CARRIED_OPEN, _CARRIED_NEXT = f"{RESERVED}carried_open", f"{RESERVED}carried_next"


def depths(rows: Rows, cuts: Cuts, every_bound: bool = False) -> DataFrame:
    """Keys, two numbers and the depth of each piece in which it is constant and above zero.

    With `every_bound` a piece ends at every bound of a row of its key, also where the depth stays the same.
    """
    points = _points(rows, cuts)
    if rows.closed in ("left", "right") and not every_bound:
        points = points.where(f"{_STARTS} != {_ENDS}")
    points = cuts.carry(
        points,
        Carried(_CARRIED_OPEN, f"sum({_STARTS} - {_ENDS})", "sum"),
        Carried(_CARRIED_NEXT, f"min({_AT})", "min", "after"),
    )
    before = cuts.over(_AT, "rows between unbounded preceding and 1 preceding")
    swept = points.selectExpr(
        *rows.keys,
        _AT,
        _STARTS,
        _ENDS,
        f"coalesce(sum({_STARTS} - {_ENDS}) {before}, 0) + coalesce({_CARRIED_OPEN}, 0) as {_OPEN}",
        f"coalesce(lead({_AT}) {cuts.over(_AT)}, {_CARRIED_NEXT}) as {_NEXT}",
    )
    pieces = [_piece(_AT, _NEXT, f"{_OPEN} + {_STARTS} - {_ENDS}")]
    if rows.closed in ("both", "neither"):
        at_point = f"{_OPEN} + {_STARTS}" if rows.closed == "both" else f"{_OPEN} - {_ENDS}"
        pieces.insert(0, f"if({_STARTS} > 0 and {_ENDS} > 0, {_piece(_AT, _AT, at_point)}, null)")
    found = swept.selectExpr(*rows.keys, f"explode(array({', '.join(pieces)})) as {_PIECE}")
    found = found.where(f"{_PIECE}.depth > 0")
    bounds = f"{_PIECE}.a as {rows.start}", f"{_PIECE}.b as {rows.end}"
    return found.selectExpr(*rows.keys, *bounds, f"{_PIECE}.depth as {DEPTH}")


def largest(rows: Rows, found: DataFrame) -> DataFrame:
    """Of each key the first of the pieces that have the largest depth; nothing for no rows."""
    by = F.expr(f"struct(-{DEPTH}, {rows.start}, {rows.end})")
    whole = F.expr(f"struct({rows.start}, {rows.end}, {DEPTH})")
    best = found.groupBy(*rows.keys).agg(F.min_by(whole, by).alias(_PIECE)).where(f"{_PIECE} is not null")
    return best.selectExpr(*rows.keys, f"{_PIECE}.*")


def _points(rows: Rows, cuts: Cuts) -> DataFrame:
    """Of each key its bounds, with how many rows start and end there."""
    events = (
        f"inline(array(named_struct('{_AT}', {rows.start}, '{_STARTS}', 1L, '{_ENDS}', 0L), "
        f"named_struct('{_AT}', {rows.end}, '{_STARTS}', 0L, '{_ENDS}', 1L)))"
    )
    placed = cuts.place(rows.usable().selectExpr(*rows.keys, events), _AT)
    if cuts.groups:  # one exchange for the count and the sweep
        placed = exchange_by_hash(placed, cuts.groups)
    counted = placed.groupBy(*cuts.groups, _AT)
    return counted.agg(F.sum(_STARTS).alias(_STARTS), F.sum(_ENDS).alias(_ENDS))


def _piece(start: str, end: str, depth: str) -> str:
    return f"named_struct('a', {start}, 'b', {end}, 'depth', {depth})"
