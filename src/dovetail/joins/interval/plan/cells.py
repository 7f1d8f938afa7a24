"""Completes joins that match rows cell by cell (bins or ranges), where rows may be in several cells.

Rows of one cell are decided there; only rows of several cells need a second step, which counts the cells without a
match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.interval.plan.sides import Side
from dovetail.spark.frames import RESERVED, quoted

CELL_COLUMNS = ("cell", "in", "n")  # the cell; whether the row starts in it; in how many cells the row is
MISS_CELLS = 1024  # rows that cannot match are spread over this many cells, which no other row uses
ROW, WHOLE, MISSED, CELLS = (f"{RESERVED}{what}" for what in ("row", "whole", "missed", "cells"))


class Cells(Protocol):
    """Places rows: adds the columns `cell`, `in` and `n`, and copies a row to each of its cells."""

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = CELL_COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of the added columns those to keep."""


Match: TypeAlias = Callable[[Side, DataFrame, Side, DataFrame, str, bool], DataFrame]
"""`Route.match`: joins the rows of two sides that are in the same cell."""


@dataclass(frozen=True, slots=True)
class CellsJoin:
    """An interval join composed of matches in cells; without cells, of one match of all rows."""

    left: Side
    right: Side
    cells: Cells | None
    match: Match

    def answer(self, how: str, keep: str = "all") -> DataFrame:
        """All columns of both sides for `how`, or of the left side for semi and anti joins."""
        if how == "left_semi":
            return self._semi()
        if how == "left_anti":
            return self._anti(self.left)
        if keep != "all":
            return self._kept(how, keep)
        whole = self._pairs(how)
        if self.cells is None:
            return whole
        for side in [side for side in (self.left, self.right) if side.kept]:
            whole = whole.unionByName(self._undecided(side), allowMissingColumns=True)
        return whole

    def _other(self, side: Side) -> Side:
        return self.right if side.name == "left" else self.left

    def _in_cells(self, side: Side, frame: DataFrame | None = None, counted: bool = True) -> DataFrame:
        frame = side.frame if frame is None else frame
        if self.cells is None:
            return frame
        return self.cells.add(side, frame, CELL_COLUMNS if counted else ("cell", "in"))

    def _pairs(self, how: str) -> DataFrame:
        left, right = self.left, self.right
        outer = how != "inner"  # only then is the number of a row's cells needed
        rows, others = (self._in_cells(side, counted=outer) for side in (left, right))
        joined = self.match(left, rows, right, others, how, True)
        if self.cells is None or how == "inner":
            return joined
        missing_right, missing_left = (f"{side.own('cell')} is null" for side in (right, left))
        alone = f"({missing_right} and {left.own('n')} = 1) or ({missing_left} and {right.own('n')} = 1)"
        return joined.where(f"not ({missing_right} or {missing_left}) or {alone}")

    def _semi(self) -> DataFrame:
        if self.cells is None:
            return self.match(self.left, self.left.frame, self.right, self.right.frame, "left_semi", False)
        one, several = self._one_cell(self.left, "left_semi"), self._several_cells(self.left, "left_semi")
        return one.unionByName(several.select(*map(quoted, one.columns)))

    def _anti(self, side: Side) -> DataFrame:
        if self.cells is None:
            other = self._other(side)
            return self.match(side, side.frame, other, other.frame, "left_anti", False)
        one = self._one_cell(side, "left_anti")
        return one.unionByName(self._undecided(side).select(*map(quoted, one.columns)))

    def _undecided(self, side: Side) -> DataFrame:
        """Rows of several cells that matched in none."""
        missed = self._several_cells(side, "left_anti").where(f"{MISSED} = {CELLS}")
        return missed.drop(MISSED, CELLS)

    def _one_cell(self, side: Side, how: str) -> DataFrame:
        other = self._other(side)
        rows = self._in_cells(side).where(f"{side.own('n')} = 1")
        met = self.match(side, rows, other, self._in_cells(other), how, False)
        return met.select(*map(quoted, side.frame.columns))

    def _several_cells(self, side: Side, how: str) -> DataFrame:
        """Rows of several cells that are in the result of `how` in at least one of them, once each, with counts."""
        other = self._other(side)
        tagged = self._in_cells(side, side.frame.withColumn(ROW, F.monotonically_increasing_id()))
        rows = tagged.where(f"{side.own('n')} > 1")
        met = self.match(side, rows, other, self._in_cells(other), how, False)
        once = met.groupBy(ROW).agg(
            F.first(F.struct(*map(quoted, side.frame.columns))).alias(WHOLE),
            F.count("*").alias(MISSED),
            F.first(side.own("n")).alias(CELLS),
        )
        return once.select(f"{WHOLE}.*", MISSED, CELLS)

    def _kept(self, how: str, keep: str) -> DataFrame:
        """One match for each left row: the first or last right row by (start, end), or any."""
        tagged = self.left.frame.withColumn(ROW, F.monotonically_increasing_id())
        if self.cells is None:
            pairs = replace(self, left=replace(self.left, frame=tagged))._pairs(how)
        else:
            left = replace(self.left, frame=tagged.where(self.left.matches) if self.left.kept else tagged, kept=False)
            pairs = replace(self, left=left)._pairs("inner")
        order = F.struct(F.expr(self.right.start), F.expr(self.right.end))
        best = F.max_by if keep == "last" else F.min_by
        row = F.struct(*(quoted(column) for column in pairs.columns if column != ROW))
        # Without cells Spark joined by the keys: grouping by them as well avoids a shuffle.
        groups = [ROW, *(self.left.keys if self.cells is None else ())]
        matched = pairs.groupBy(*groups).agg(best(row, order).alias(WHOLE)).select(f"{WHOLE}.*")
        if how == "inner" or self.cells is None:
            return matched
        return matched.unionByName(self._anti(self.left), allowMissingColumns=True)
