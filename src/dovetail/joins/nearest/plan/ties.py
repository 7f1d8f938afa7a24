"""Rows of two searches together, and right rows that are equally near: all of them, or the first by start and end.

Rows before and rows after, without those that overlap, are two searches. A left row passes one after the other, and
collects what they find: so it needs no number that two branches of a plan would have to agree on.

For ties, the distance of the k-th nearest row of each left row is searched first. All right rows within it are then
found by an interval join of the left intervals, widened by it: each pair that it forms is a tie or nearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.interval.api import plan_interval_join
from dovetail.joins.interval.plan.sides import Side
from dovetail.joins.nearest.kernels.nearest import FARTHEST
from dovetail.joins.nearest.operator import DISTANCE
from dovetail.joins.nearest.plan.search import Search, has_order
from dovetail.joins.nearest.request import Request
from dovetail.spark.frames import quoted, units, unquoted
from dovetail.spark.inputs import FLOATS

_FLOAT_ROOM = 1e-9  # rounding of floats must not lose a row; the distance is compared exactly afterwards
_ENDLESS = "double('inf')"
_BY_ORDER = "(x, y) -> case when x.o < y.o then -1 when x.o > y.o then 1 else 0 end"


@dataclass(frozen=True, slots=True)
class Nearest:
    """Searches, what they find together, and the ties of it."""

    request: Request
    searches: tuple[Search, ...]
    left: Side
    right: Side

    @property
    def chains(self) -> bool:
        """Whether more than one search decides."""
        return len(self.searches) > 1 or self.request.ties != "any"

    def answer(self, mine: tuple[str, ...], theirs: tuple[str, ...]) -> DataFrame:
        """These columns of left rows and of their nearest rows, with the distance in units of the bounds."""
        how: Literal["inner", "left"] = "left" if self.request.join.how == "left" else "inner"
        if not self.chains:
            return self.searches[0].answer(self.left, self.right, mine, theirs, how)
        row = self._own("row")
        tagged = replace(self.left, frame=self.left.frame.withColumn(row, F.monotonically_increasing_id()))
        if self.request.ties == "any":
            return self._found(tagged, mine, theirs, how).drop(row)
        return self._with_ties(tagged, mine, theirs, how)

    def _own(self, what: str) -> str:
        """The name of a column of ours, which an interval join takes."""
        return f"nearest_{self.left.mark}_{what}"

    def _found(
        self, left: Side, mine: tuple[str, ...], theirs: tuple[str, ...], how: Literal["inner", "left"]
    ) -> DataFrame:
        """The nearest rows of all searches, for left rows that have a number."""
        row = self._own("row")
        needed = [unquoted(name) for name in (left.start, left.end, *left.keys)]
        kept = tuple(dict.fromkeys((*mine, row, *needed)))
        if len(self.searches) == 1:
            return self.searches[0].answer(left, self.right, kept, theirs, how)
        ends = [units(self.right.bound_type, bound) for bound in (self.right.start, self.right.end)]
        over = tuple(dict.fromkeys((*theirs, *(unquoted(bound) for bound in (self.right.start, self.right.end)))))
        lists: list[str] = []
        for number, search in enumerate(self.searches):
            pairs = search.answer(left, self.right, (*kept, *lists), over, "left")
            columns = ", ".join(map(quoted, theirs))
            order = f"named_struct('d', {DISTANCE}, 'n', {number}, 's', {ends[0]}, 'e', {ends[1]})"
            match = f"named_struct('o', {order}, 'd', {DISTANCE}, 'r', struct({columns}))"
            listed, name = f"collect_list(case when {DISTANCE} is not null then {match} end)", self._own(f"l{number}")
            left = replace(left, frame=_once(pairs, row, (*kept, *lists), name, listed))
            lists.append(name)
        sorted_all = f"slice(array_sort(concat({', '.join(lists)}), {_BY_ORDER}), 1, {self.request.k})"
        explode = "explode" if how == "inner" else "explode_outer"
        each = left.frame.selectExpr(*map(quoted, kept), f"{explode}({sorted_all}) as m")
        return each.selectExpr(*map(quoted, kept), *(f"m.r.{quoted(c)}" for c in theirs), f"m.d as {DISTANCE}")

    def _with_ties(
        self, left: Side, mine: tuple[str, ...], theirs: tuple[str, ...], how: Literal["inner", "left"]
    ) -> DataFrame:
        row, reach = self._own("row"), self._own("reach")
        near = self._found(left, mine, (), how)
        kept = tuple(name for name in near.columns if name != DISTANCE)
        if self.request.k == 1:
            reached = near.withColumnRenamed(DISTANCE, reach)
        else:
            reached = _once(near, row, kept, reach, f"max({DISTANCE})")
        names = {what: self._own(what) for what in ("ls", "le", "rs", "re", "low", "high")}
        first = self._measured(reached, left, (*mine, row, reach), ("ls", "le")).selectExpr(
            "*", *self._widened(names, reach)
        )
        second = self._measured(self.right.frame.where(self.right.matches), self.right, theirs, ("rs", "re"))
        pairs = plan_interval_join(
            first,
            second,
            left_interval=(names["low"], names["high"]),
            right_interval=(names["rs"], names["re"]),
            on=[(self._own(f"left{n}"), self._own(f"right{n}")) for n in range(len(left.keys))],
            closed="both",
            invalid="null",
            condition=self._counts(names, reach),
            how=how,
            memory=self.request.join.memory,
            partitions=self.request.join.partitions,
        ).frame()
        pairs = pairs.selectExpr("*", f"if({names['rs']} is null, null, {self._distance(names)}) as {DISTANCE}")
        if self.request.ties == "first":
            ties = [quoted(name) for name in theirs if has_order(pairs.schema[name].dataType)]
            order = ", ".join((DISTANCE, names["rs"], names["re"], *ties))
            place = self._own("place")
            ranked = pairs.selectExpr("*", f"row_number() over (partition by {row} order by {order}) as {place}")
            pairs = ranked.where(f"{place} <= {self.request.k}")
        return pairs.select(*map(quoted, (*mine, *theirs)), DISTANCE)

    def _measured(self, frame: DataFrame, side: Side, columns: Sequence[str], bounds: tuple[str, str]) -> DataFrame:
        """These columns, keys under names of ours, and bounds in their units."""
        keys = (f"{key} as {self._own(f'{side.name}{number}')}" for number, key in enumerate(side.keys))
        ends = zip((side.start, side.end), bounds, strict=True)
        measured = (f"{units(side.bound_type, bound)} as {self._own(name)}" for bound, name in ends)
        return frame.selectExpr(*map(quoted, columns), *keys, *measured)

    def _widened(self, names: dict[str, str], reach: str) -> list[str]:
        """SQL: the bounds of left rows, each beyond the last tie on its side; null where there is none."""
        if isinstance(self.left.bound_type, FLOATS):
            wide = f"({reach} * {1 + _FLOAT_ROOM!r}D + abs({{0}}) * {_FLOAT_ROOM!r}D)"
            low, high = f"nanvl({{0}} - {wide}, -{_ENDLESS})", f"nanvl({{0}} + {wide}, {_ENDLESS})"  # inf - inf is NaN
        else:
            within = f"nullif({reach}, {FARTHEST}L)"  # rows that are farther apart count as this far
            low = f"coalesce(try_subtract({{0}}, {within}), cast('-9223372036854775808' as bigint))"
            high = f"coalesce(try_add({{0}}, {within}), {FARTHEST}L)"
        ends = (
            (low if self.request.before else "{0}", "ls", "low"),
            (high if self.request.after else "{0}", "le", "high"),
        )
        return [f"if({reach} is null, null, {how.format(names[of])}) as {names[to]}" for how, of, to in ends]

    def _counts(self, names: dict[str, str], reach: str) -> str:
        """SQL: the right row counts, and is not farther than the k-th nearest one."""
        relation = self.request.join.relation
        before = f"{names['re']} {'<' if relation.touching_start else '<='} {names['ls']}"
        after = f"{names['rs']} {'>' if relation.touching_end else '>='} {names['le']}"
        counted = [f"({before})"] * self.request.before + [f"({after})"] * self.request.after
        counted += [] if self.request.ignore_overlaps else [f"not ({before} or {after})"]
        return f"({' or '.join(counted)}) and {self._distance(names)} <= {reach}"

    def _distance(self, names: dict[str, str]) -> str:
        """SQL: 0 for intervals that overlap or touch, else the gap, which stops growing at the largest bigint."""
        floating = isinstance(self.left.bound_type, FLOATS)
        gap = "{} - {}" if floating else "coalesce(try_subtract({}, {}), 9223372036854775807L)"
        before, after = gap.format(names["ls"], names["re"]), gap.format(names["rs"], names["le"])
        apart = f"when {names['ls']} > {names['re']} then {before} when {names['rs']} > {names['le']} then {after}"
        return f"case {apart} else {'0.0D' if floating else '0L'} end"


def _once(pairs: DataFrame, row: str, kept: Sequence[str], name: str, added: str) -> DataFrame:
    """Each left row once, with what is aggregated over its pairs under this name."""
    whole = F.first(F.struct(*map(quoted, kept))).alias("whole")
    return pairs.groupBy(row).agg(whole, F.expr(added).alias(name)).select("whole.*", name)
