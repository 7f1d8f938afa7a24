"""The native route: an interval join as an ordinary Spark plan, so that Spark compiles, spills and balances it.

Bins with an equality join where intervals share or touch a point, Spark's own equality join where a relation holds an
equality, REPLICATE and PROJECT for before and after, a nested loop for what is left. Rows that live in one cell are
decided where they stand; only rows that live in several need a second step to learn that nothing matched.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.interval.frame_cells import BinCells, OrderCells, drop_scratch, name
from dovetail.interval.frame_sides import RESERVED, Side, quoted
from dovetail.interval.relation import EQUAL, GREATER, LESS, Relation
from dovetail.interval.request import Request

EQUALITIES = frozenset({"starts", "started_by", "ends", "ended_by", "equals", "meets", "met_by"})


def strategy(relation: Relation) -> str:
    """How the native route finds the pairs: bins, equality, order (before, after) or nested_loop."""
    if relation.only in EQUALITIES:
        return "equality"
    if relation.only in ("before", "after"):
        return "order"
    return "nested_loop" if _holds_apart(relation) else "bins"


def _holds_apart(relation: Relation) -> bool:
    """Whether the relation can hold for two intervals that neither share nor touch a point."""
    signs = itertools.product((LESS, EQUAL, GREATER), repeat=4)
    return any(relation.holds(*sign) for sign in signs if sign[1] == GREATER or sign[2] == LESS)


@dataclass(frozen=True, slots=True)
class NativeJoin:
    """An interval join as a Spark plan; `cells` is None where no bins are needed."""

    left: Side
    right: Side
    request: Request
    cells: BinCells | OrderCells | None

    def pairs(self, how: str = "inner") -> DataFrame:
        """Matching rows of both sides under output names, with Spark's own `how` where no row has several cells."""
        if self.cells is None:
            return self.left.frame.join(self.right.frame, self._matches(usable=True), how)
        left, right = self._exploded(self.left, "n"), self._exploded(self.right, "n")
        joined = left.join(right, self._meets(once=True) & self._matches(), how)
        if how == "inner":
            return joined
        alone_left = f"({name(self.right, 'cell')} is null and {name(self.left, 'n')} = 1)"
        alone_right = f"({name(self.left, 'cell')} is null and {name(self.right, 'n')} = 1)"
        matched = f"({name(self.left, 'cell')} is not null and {name(self.right, 'cell')} is not null)"
        return joined.where(" or ".join([matched, alone_left, alone_right]))

    def semi(self) -> DataFrame:
        """Left rows with a match, once each."""
        if self.cells is None:
            return self.left.frame.join(self.right.frame, self._matches(usable=True), "left_semi")
        one, several = self._one_cell(self.left, "left_semi"), self._several_cells(self.left, "left_semi")
        return one.unionByName(several.select(*one.columns))

    def anti(self, side: Side) -> DataFrame:
        """Rows of a side without a match, once each."""
        if self.cells is None:
            other = self.right if side is self.left else self.left
            return side.frame.join(other.frame, self._matches(usable=True), "left_anti")
        one, several = self._one_cell(side, "left_anti"), self.undecided(side)
        return one.unionByName(several.select(*one.columns))

    def undecided(self, side: Side) -> DataFrame:
        """Rows of a side that live in several cells and matched in none."""
        found = self._several_cells(side, "left_anti")
        return found.where(f"{RESERVED}missed = {RESERVED}cells")

    def _one_cell(self, side: Side, how: str) -> DataFrame:
        other = self.right if side is self.left else self.left
        rows = self._exploded(side, "n").where(f"{name(side, 'n')} = 1")
        return rows.join(self._exploded(other), self._meets(once=False) & self._matches(), how).select(
            *map(quoted, side.frame.columns)
        )

    def _several_cells(self, side: Side, how: str) -> DataFrame:
        """Rows of several cells, once each, that are in the result of `how` in at least one cell; with counts."""
        other = self.right if side is self.left else self.left
        row, key = F.struct(*map(quoted, side.frame.columns)), f"{RESERVED}row"
        tagged = side.frame.withColumn(key, F.monotonically_increasing_id())
        rows = self._cells().add(side, tagged).where(f"{name(side, 'n')} > 1")
        rows = drop_scratch(side, rows, ("cell", "in", "n"))
        met = rows.join(self._exploded(other), self._meets(once=False) & self._matches(), how)
        once = met.groupBy(key).agg(
            F.first(row).alias(f"{RESERVED}whole"),
            F.count("*").alias(f"{RESERVED}missed"),
            F.first(name(side, "n")).alias(f"{RESERVED}cells"),
        )
        return once.select(f"{RESERVED}whole.*", f"{RESERVED}missed", f"{RESERVED}cells")

    def _cells(self) -> BinCells | OrderCells:
        assert self.cells is not None, "asked for cells where the plan has none"  # noqa: S101  (callers check)
        return self.cells

    def _exploded(self, side: Side, *keep: str) -> DataFrame:
        return drop_scratch(side, self._cells().add(side, side.frame), ("cell", "in", *keep))

    def _meets(self, once: bool) -> Column:
        left, right = self.left, self.right
        same = f"{name(left, 'cell')} = {name(right, 'cell')}"
        if once and isinstance(self.cells, BinCells):
            same += f" and ({name(left, 'in')} or {name(right, 'in')})"
        return F.expr(same)

    def _matches(self, usable: bool = False) -> Column:
        left, right = self.left, self.right
        parts = [f"{lk} = {rk}" for lk, rk in zip(left.keys, right.keys, strict=True)]
        parts.append(f"({self.request.relation.sql(left.start, left.end, right.start, right.end)})")
        if usable:
            parts += [side.usable for side in (left, right) if side.kept]
        matches = F.expr(" and ".join(parts))
        return matches if self.request.condition is None else matches & as_column(self.request.condition)


def as_column(condition: Any) -> Column:
    """A user's condition, a Column or SQL text, as a Column."""
    return F.expr(condition) if isinstance(condition, str) else condition


def native_frame(join: NativeJoin) -> DataFrame:
    """The whole answer of a request by the native route, columns not yet projected."""
    how = join.request.how
    if how == "left_semi":
        return join.semi()
    if how == "left_anti":
        return join.anti(join.left)
    if join.request.keep != "all":
        return _kept(join)
    pairs = join.pairs(how)
    if join.cells is None or how == "inner":
        return pairs
    parts = [pairs]
    if join.request.keeps_left:
        parts.append(join.undecided(join.left))
    if join.request.keeps_right:
        parts.append(join.undecided(join.right))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True)
    return whole


def _kept(join: NativeJoin) -> DataFrame:
    """One match for each left row: the first or last right row by (start, end), or any."""
    key, whole = f"{RESERVED}row", f"{RESERVED}whole"
    tagged = join.left.frame.withColumn(key, F.monotonically_increasing_id())
    left = replace(join.left, frame=tagged.where(join.left.usable) if join.left.kept else tagged, kept=False)
    pairs = NativeJoin(left, join.right, join.request, join.cells).pairs()
    order = F.struct(F.expr(join.right.start), F.expr(join.right.end))
    best = F.max_by if join.request.keep == "last" else F.min_by
    row = F.struct(*(quoted(c) for c in pairs.columns if c != key))
    matched = pairs.groupBy(key).agg(best(row, order).alias(whole)).select(f"{whole}.*")
    if not join.request.keeps_left:
        return matched
    return matched.unionByName(join.anti(join.left), allowMissingColumns=True)
