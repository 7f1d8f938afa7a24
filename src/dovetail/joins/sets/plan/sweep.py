"""Sweeps rows by start: clusters of rows that touch, and the gaps between them.

A row begins a cluster if it starts beyond the largest end before it. Spark's window functions sort, sweep and spill;
between the cells of a key, the largest end, the last cluster and its number are carried over.
Reference: docs/algorithms/sets.md, 1 and 2.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.joins.sets.plan.cuts import Carried, Cuts
from dovetail.joins.sets.plan.rows import Rows, aggregate_columns, check_free
from dovetail.joins.sets.plan.scale import LARGEST
from dovetail.joins.sets.request import Request
from dovetail.request import Distance
from dovetail.spark.frames import RESERVED, quoted, unquoted

N_MERGED = "n_merged"
CLUSTER, CLUSTER_START, CLUSTER_END = "cluster", "cluster_start", "cluster_end"
_BEFORE, _NEW, _FIRST, _NUMBER, _LAST = (f"{RESERVED}{what}" for what in ("before", "new", "first", "number", "last"))
_LOW, _HIGH, _FIRST_ROW, _LAST_ROW = (f"{RESERVED}{what}" for what in ("low", "high", "low_row", "high_row"))
_CARRIED_END, _CARRIED_FIRST, _CARRIED_NUMBER = (f"{RESERVED}carried_{what}" for what in ("end", "first", "number"))
_PRECEDING = "rows between unbounded preceding and 1 preceding"


def merged(rows: Rows, request: Request, cuts: Cuts) -> DataFrame:
    """A row for each cluster: keys, bounds, the number of rows and their aggregates."""
    keys = [unquoted(key) for key in rows.keys]
    more = aggregate_columns(rows, request.aggregates, [*keys, *rows.named, N_MERGED])
    groups = _clustered(rows, request.gap, cuts).groupBy(*rows.keys, _FIRST)
    found = groups.agg(F.max(rows.end).alias(_LAST), F.count("*").alias(N_MERGED), *more)
    given = found.columns[len(keys) + 3 :]
    return found.selectExpr(*rows.keys, *rows.output(_FIRST, _LAST), N_MERGED, *map(quoted, given))


def clustered(rows: Rows, request: Request, cuts: Cuts) -> DataFrame:
    """Every row with the number and the bounds of its cluster, all null for rows without an interval or a key."""
    check_free(rows, (CLUSTER, CLUSTER_START, CLUSTER_END))
    columns = [quoted(column) for column in rows.columns]
    bound = rows.scale.bound
    found = cuts.ends(_clustered(rows, request.gap, cuts), _NUMBER, rows.end, _LAST).selectExpr(
        *columns,
        f"{_NUMBER} as {CLUSTER}",
        f"{bound(_FIRST)} as {CLUSTER_START}",
        f"{bound(_LAST)} as {CLUSTER_END}",
    )
    none = bound(f"cast(null as {rows.scale.number_type})")
    alone = [f"cast(null as bigint) as {CLUSTER}", f"{none} as {CLUSTER_START}", f"{none} as {CLUSTER_END}"]
    return found.union(rows.unusable().selectExpr(*columns, *alone))


def gaps(rows: Rows, cuts: Cuts) -> DataFrame:
    """Keys and numbers of the gaps between clusters that touch nothing, under the names of the rows' numbers."""
    between = _swept(rows, 0, cuts).where(f"{_NEW} and {_BEFORE} is not null")
    return between.selectExpr(*rows.keys, f"{_BEFORE} as {rows.start}", f"{rows.start} as {rows.end}")


def gaps_of_keys(rows: Rows, cuts: Cuts, limits: DataFrame) -> DataFrame:
    """The gaps within a range for each key, from its start to its end; `limits` has keys and two numbers."""
    ranges, same = _named_ranges(rows, limits)
    low, high = (f"greatest({rows.start}, {_LOW})", f"least({rows.end}, {_HIGH})")
    clipped = gaps(rows, cuts).join(ranges, same).selectExpr(*ranges.columns[:-2], low, high)
    return with_ends(rows, limits, clipped)


def with_ends(rows: Rows, limits: DataFrame, clipped: DataFrame) -> DataFrame:
    """The gaps within ranges: those between two rows, cut to their range, and those before and after all rows."""
    start, end, (ranges, same) = rows.start, rows.end, _named_ranges(rows, limits)
    own = ranges.columns[:-2]
    extent = rows.usable().groupBy(*rows.keys).agg(F.min(start).alias(_FIRST_ROW), F.max(end).alias(_LAST_ROW))
    none = f"cast(null as {rows.scale.number_type})"
    head = f"named_struct('a', {_LOW}, 'b', coalesce(least({_FIRST_ROW}, {_HIGH}), {_HIGH}))"
    tail = f"named_struct('a', if({_LAST_ROW} is null, {none}, greatest({_LAST_ROW}, {_LOW})), 'b', {_HIGH})"
    outer = ranges.join(extent, same, "left").selectExpr(*own, f"explode(array({head}, {tail})) as piece")
    outer = outer.selectExpr(*own, f"piece.a as {start}", f"piece.b as {end}")
    return outer.union(clipped).where(f"{start} < {end}").toDF(*map(unquoted, rows.keys), start, end)


def _named_ranges(rows: Rows, limits: DataFrame) -> tuple[DataFrame, Column]:
    """The ranges under names of ours, and the condition that a row has their key."""
    own = [f"{RESERVED}l{number}" for number in range(len(rows.keys))]
    same = " and ".join(f"{key} = {name}" for key, name in zip(rows.keys, own, strict=True))
    return limits.toDF(*own, _LOW, _HIGH), F.expr(same or "true")


def _swept(rows: Rows, gap: Distance | None, cuts: Cuts) -> DataFrame:
    """Usable rows with the largest end before them in order of start, and whether they begin a cluster."""
    start, end = rows.start, rows.end
    placed = cuts.carry(cuts.place(rows.usable(), start), Carried(_CARRIED_END, f"max({end})", "max"))
    before = f"max({end}) {cuts.over(f'{start}, {end}', _PRECEDING)}"
    found = placed.selectExpr("*", f"greatest({before}, {_CARRIED_END}) as {_BEFORE}").drop(_CARRIED_END)
    touching = gap is None and rows.closed != "both"  # rows that share no point stay apart
    apart = f"{start} {'>=' if touching else '>'} {_BEFORE}"
    if gap:
        length = rows.scale.distance("gap", gap)
        # A difference beyond 64 bits, or of decimals beyond 38 digits, is null.
        beyond = isinstance(rows.scale.kind, T.DecimalType) or rows.scale.units("gap", gap) <= LARGEST
        apart += f" and coalesce(try_subtract({start}, {_BEFORE}) > {length}, {str(beyond).lower()})"
    return found.selectExpr("*", f"{_BEFORE} is null or ({apart}) as {_NEW}")


def _clustered(rows: Rows, gap: Distance | None, cuts: Cuts) -> DataFrame:
    """Usable rows with the start of their cluster and its number within the key."""
    first = f"if({_NEW}, {rows.start}, null)"
    swept = cuts.carry(
        _swept(rows, gap, cuts),
        Carried(_CARRIED_FIRST, f"max({first})", "max"),
        Carried(_CARRIED_NUMBER, f"count_if({_NEW})", "sum"),
    )
    over = cuts.over(f"{rows.start}, {rows.end}", "rows between unbounded preceding and current row")
    return swept.selectExpr(
        "*",
        f"coalesce(max({first}) {over}, {_CARRIED_FIRST}) as {_FIRST}",
        f"count_if({_NEW}) {over} + coalesce({_CARRIED_NUMBER}, 0) - 1 as {_NUMBER}",
    )
