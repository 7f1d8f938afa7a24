"""Cuts keys with many rows, or all rows where there are no keys, so that no task gets more than its share.

A cut key has several cells, ranges of numbers in ascending order; every other key has one. A sweep passes over a cell
at a time; what it needs from the cells before and after is carried over: one row for each cell of a cut key.
Reference: docs/algorithms/sets.md, 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.sets.plan.rows import Rows
from dovetail.joins.sets.request import Request
from dovetail.request import MOST_CELLS
from dovetail.spark.frames import RESERVED, parallelism
from dovetail.spark.hosts.batch import copied_to_tasks
from dovetail.spark.hosts.sample import SMALL_BYTES, Source, double_literal, draw, long_literal, reached
from dovetail.spark.inputs import known_bytes, row_bytes

_TASKS_PER_CORE = 2
CELL = f"{RESERVED}cell"


class Carried(NamedTuple):
    """A value of the cells before (or after) a cell: an aggregate of the rows of a cell, and of these values."""

    name: str
    of_rows: str
    of_cells: Literal["max", "min", "sum"]
    where: Literal["before", "after"] = "before"


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where keys are cut: ascending points by the hash of the key; without keys there is one hash, 0."""

    keys: tuple[str, ...]
    points: dict[int, tuple[float, ...]]
    reason: str

    @property
    def groups(self) -> tuple[str, ...]:
        """SQL: columns whose values make the rows of one sweep."""
        return (*self.keys, CELL) if self.points else self.keys

    def explain(self) -> str:
        """The tasks in one line."""
        cells = sum(len(points) + 1 for points in self.points.values())
        if not self.points:
            how = "by key" if self.keys else "in one task"
        elif self.keys:
            how = f"by key, {len(self.points)} keys with many rows in {cells} cells"
        else:
            how = f"in {cells} cells"
        return f"sweep: {how} ({self.reason})"

    def place(self, frame: DataFrame, number: str) -> DataFrame:
        """The frame with the cell of each row, by one of its numbers."""
        if not self.points:
            return frame
        at = f"cast({number} as double)"
        found = {key: reached([f"{at} >= {double_literal(p)}" for p in points]) for key, points in self.points.items()}
        if not self.keys:
            return frame.selectExpr("*", f"{found[0]} as {CELL}")
        cases = " ".join(f"when {long_literal(key)} then {cell}" for key, cell in found.items())
        return frame.selectExpr("*", f"case {_key_hash(self.keys)} {cases} else 0 end as {CELL}")

    def over(self, order: str, frame: str = "", by: Sequence[str] = ()) -> str:
        """SQL: the window of a sweep, in this order, with this frame; `by` divides it further."""
        groups = ", ".join((*self.groups, *by)) or _one_group(order.split(",")[0])
        parts = [f"partition by {groups}", f"order by {order}" if order else "", frame]
        return f"over ({' '.join(part for part in parts if part)})"

    def cut_rows(self, frame: DataFrame) -> DataFrame:
        """The rows of keys that are cut."""
        if not self.keys:
            return frame
        return frame.where(f"{_key_hash(self.keys)} in ({', '.join(map(long_literal, self.points))})")

    def carry(self, frame: DataFrame, *carried: Carried) -> DataFrame:
        """The frame with a column for each carried value, null where there is nothing to carry."""
        if not self.points:
            return frame.selectExpr("*", *(f"null as {one.name}" for one in carried))
        own = [f"{RESERVED}g{number}" for number in range(len(self.groups))]
        each = self.cut_rows(frame).groupBy(*self.groups)
        cells = each.agg(*(F.expr(one.of_rows).alias(one.name) for one in carried))
        by = f"partition by {', '.join(self.keys) or _one_group(CELL)}"
        reach = {
            "before": "rows between unbounded preceding and 1 preceding",
            "after": "rows between 1 following and unbounded following",
        }
        values = [
            f"{one.of_cells}({one.name}) over ({by} order by {CELL} {reach[one.where]}) as {one.name}"
            for one in carried
        ]
        names = [f"{group} as {name}" for group, name in zip(self.groups, own, strict=True)]
        found = cells.selectExpr(*names, *values)
        return self._joined(frame, found, self.groups, own)

    def ends(self, frame: DataFrame, number: str, value: str, name: str) -> DataFrame:
        """The frame with the largest value of the rows that have one number within a key, whatever their cells."""
        local = frame.selectExpr("*", f"max({value}) {self.over('', by=(number,))} as {name}")
        if not self.points:
            return local
        keys = (*self.keys, number)
        own = [f"{RESERVED}g{n}" for n in range(len(keys))]
        whole, low, high = (f"{RESERVED}{what}" for what in ("whole", "low", "high"))
        totals = self.cut_rows(frame).groupBy(*keys)
        found = totals.agg(F.max(value).alias(whole), F.min(CELL).alias(low), F.max(CELL).alias(high)).where(
            f"{low} < {high}"
        )
        found = found.selectExpr(*(f"{key} as {n}" for key, n in zip(keys, own, strict=True)), whole)
        met = self._joined(local, found, keys, own)
        return met.withColumn(name, F.expr(f"coalesce({whole}, {name})")).drop(whole)

    def _joined(self, frame: DataFrame, found: DataFrame, keys: Sequence[str], own: list[str]) -> DataFrame:
        same = " and ".join(f"{key} = {name}" for key, name in zip(keys, own, strict=True))
        return frame.join(copied_to_tasks(found), F.expr(same), "left").drop(*own)


def choose_cuts(rows: Rows, request: Request, numbers: Sequence[str]) -> Cuts:
    """Cuts that make tasks of equal size; an input that is not small is sampled by one job, at these numbers."""
    keys, size = rows.keys, known_bytes(rows.frame)
    if rows.scale.textual:
        return Cuts(keys, {}, "texts are not cut")
    small = max(SMALL_BYTES, request.memory // 2) if keys else SMALL_BYTES  # even one key would fit a task
    if size <= small and request.partitions is None:
        return Cuts(keys, {}, "a small input, not sampled")
    usable, positions = replace(rows, invalid="null").usable(), tuple(f"cast({n} as double)" for n in numbers)
    (sample,) = draw(Source(usable, "true", _key_hash(keys), positions))
    hashes, positions_of, count = sample.hashes, sample.positions, sample.rows
    if request.partitions is None and count * row_bytes(rows.frame) <= SMALL_BYTES:
        return Cuts(keys, {}, f"about {count:,} rows, too few to cut")
    needed = ceil(2 * count * row_bytes(rows.frame) / request.memory)
    cells = request.partitions or max(_TASKS_PER_CORE * parallelism(rows.frame.sparkSession), needed)
    found: dict[int, tuple[float, ...]] = {}
    for key, size in zip(*np.unique(hashes, return_counts=True), strict=True):
        wanted = round(min(cells, MOST_CELLS) * size / len(hashes))
        if wanted > 1:
            at = np.sort(positions_of[hashes == key])
            chosen = np.unique(at[np.arange(1, wanted) * len(at) // wanted])
            if len(chosen := chosen[chosen > at[0]]):
                found[int(key)] = tuple(map(float, chosen))
    return Cuts(keys, found, f"about {count:,} rows, by a sample")


def _one_group(column: str) -> str:
    """SQL: the same number for all rows. Without a partition Spark warns of a single task; these rows are few."""
    return f"pmod(hash({column}), 1)"


def _key_hash(keys: Sequence[str]) -> str:
    return f"xxhash64({', '.join(keys)})" if keys else "0L"
