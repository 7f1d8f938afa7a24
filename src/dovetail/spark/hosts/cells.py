"""Cells: the tasks of a join of left rows with right rows near a point.

A cell is one task: a range in the order of (key hash, position). Cells are cut between keys, and inside a key only if
it has more rows than half a cell: so a join without keys, or with a hot key, still uses all cores. Right rows that left
rows of other cells may match are copied by the family.
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Protocol

import numpy as np
from pyspark.sql import DataFrame

from dovetail.engine.exchange.delivery import CELL
from dovetail.engine.point_join import LEFT_SHARE, RIGHT_SHARE, ROW_BYTES
from dovetail.request import MOST_CELLS
from dovetail.spark.frames import RESERVED, parallelism, quoted
from dovetail.spark.hosts.sample import SMALL_BYTES, Sample, Source, double_literal, draw, long_literal, reached
from dovetail.spark.inputs import known_bytes, row_bytes

CELL_ROOM = 1.5  # cells are not equal: there is room for this many times the rows
HASH, _AT = f"{RESERVED}hash", f"{RESERVED}at"


class PlacedSide(Protocol):
    """One side: its rows, and SQL for whether a row can match, for the hash of its keys and for its position."""

    @property
    def name(self) -> str:
        """left or right."""
        ...

    @property
    def frame(self) -> DataFrame:
        """The rows."""
        ...

    @property
    def usable(self) -> str:
        """SQL: the row can match something."""
        ...

    @property
    def key_hash(self) -> str:
        """SQL: one number for equal keys; 0 without keys."""
        ...

    @property
    def position(self) -> str:
        """SQL: the point of the row as a monotonic double."""
        ...


@dataclass(frozen=True, slots=True)
class Cells:
    """Ascending boundaries: a row belongs to the cell after the last boundary that its (key hash, position) reaches.

    A boundary at -inf is between keys. Others are inside a key: right rows of it are carried across.
    """

    hashes: tuple[int, ...] = ()
    positions: tuple[float, ...] = ()
    keyed: bool = True

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.hashes) + 1

    @property
    def hot(self) -> tuple[int, ...]:
        """The hashes of keys that are cut by time."""
        return tuple(dict.fromkeys(h for h, p in zip(self.hashes, self.positions, strict=True) if p > -inf))

    def explain(
        self, point: str = "time", carried: str = "the last right row of each goes on to those after it"
    ) -> str:
        """The cells in one line."""
        if not self.keyed:
            return f"cells: {self.count}, cut by {point}; {carried}"
        hot = f", {len(self.hot)} hot keys cut by {point}" if self.hot else ""
        return f"cells: {self.count}, by key{hot}"

    def place(self, side: PlacedSide, frame: DataFrame, columns: list[str]) -> DataFrame:
        """These columns of the frame with the cell of each row; rows that cannot match go to any cell."""
        chosen = [quoted(name) for name in columns]
        if self.count == 1:
            return frame.selectExpr(*chosen, f"0 as {CELL}")
        placed = frame.selectExpr(*chosen, f"{side.key_hash} as {HASH}", f"{side.position} as {_AT}")
        cell = reached([self._reached(number) for number in range(self.count - 1)])
        if side.name == "left":  # right rows that are not usable are left out
            cell = f"if({side.usable}, {cell}, {self.any_cell(frame)})"
        return placed.selectExpr(*chosen, f"{cell} as {CELL}", *([HASH] if side.name == "right" and self.hot else []))

    def any_cell(self, frame: DataFrame) -> str:
        """SQL: some cell for a row, the same whenever it is sent."""
        hashed = ", ".join(_hashable(frame, frame.columns)) or "0"
        return f"cast(pmod(xxhash64({hashed}), {self.count}) as int)"

    def _reached(self, number: int) -> str:
        at = f"{_AT} >= {double_literal(self.positions[number])}"
        if not self.keyed:
            return at
        key = long_literal(self.hashes[number])
        return f"{HASH} >= {key}" if self.positions[number] == -inf else f"{HASH} > {key} or ({HASH} = {key} and {at})"

    def edge(self, which: str) -> str:
        """SQL: the first or the last cell that rows of a hot key go to, by its hash."""
        at = ("first", "last").index(which)
        cases = [f"when {long_literal(key)} then {self.reach(key)[at]}" for key in self.hot]
        return f"case {HASH} {' '.join(cases)} end"

    def reach(self, key: int) -> tuple[int, int]:
        """The first and the last cell that rows with this hash go to."""
        before = sum(h < key or (h == key and p == -inf) for h, p in zip(self.hashes, self.positions, strict=True))
        return before, sum(h <= key for h in self.hashes)


def choose_cells(samples: Sequence[Sample], wanted: int, keyed: bool) -> Cells:
    """Boundaries of about `wanted` cells of equal size."""
    hashes = np.concatenate([sample.hashes for sample in samples])
    positions = np.concatenate([sample.positions for sample in samples])
    weights = np.concatenate([np.full(len(s.hashes), s.rows / max(1, len(s.hashes))) for s in samples])
    wanted = min(wanted, MOST_CELLS)
    if wanted < 2 or not len(hashes):
        return Cells(keyed=keyed)
    order = np.lexsort((positions, hashes))
    reached = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(reached, reached[-1] * np.arange(1, wanted) / wanted), len(order) - 1)
    unique, of = np.unique(hashes, return_inverse=True)
    large = set(unique[np.bincount(of, weights) > reached[-1] / (2 * wanted)].tolist())
    points: set[tuple[int, float]] = set()
    for number in order[at]:
        key, place = int(hashes[number]), float(positions[number])
        points.add((key, place if not keyed or key in large else -inf))
    least = (int(hashes[order[0]]), -inf)
    chosen = sorted(point for point in points if point > least)
    return Cells(tuple(key for key, _ in chosen), tuple(place for _, place in chosen), keyed)


def even_cells(wanted: int) -> Cells:
    """Cells of equal ranges of hashes, for small inputs without a sample."""
    wanted = min(wanted, MOST_CELLS)
    step = 2**64 // wanted
    hashes = tuple(-(2**63) + number * step for number in range(1, wanted))
    return Cells(hashes, (-inf,) * len(hashes))


def _hashable(frame: DataFrame, columns: list[str]) -> list[str]:
    kinds: dict[str, Any] = {field.name: field.dataType for field in frame.schema}
    return [quoted(name) for name in columns if not any(w in kinds[name].simpleString() for w in ("map<", "variant"))]


def fitting_cells(
    left: PlacedSide, right: PlacedSide, keyed: bool, partitions: int | None, memory: int, most: int = MOST_CELLS
) -> tuple[Cells, str]:
    """Cells that fit the budget and use all cores, and why."""
    cores = parallelism(left.frame.sparkSession)
    sizes = known_bytes(left.frame), known_bytes(right.frame)
    if max(sizes) <= SMALL_BYTES:
        even = even_cells(partitions or cores) if keyed else Cells(keyed=False)
        return even, "small inputs, not sampled"
    samples = draw(*(Source(side.frame, side.usable, side.key_hash, (side.position,)) for side in (left, right)))
    wanted = partitions or max(cores, _fitting(left, right, samples[0].rows, samples[1].rows, memory))
    reason = f"{samples[0].rows:,} left and {samples[1].rows:,} right rows, by a sample"
    return choose_cells(samples, min(wanted, most), keyed), reason


def _fitting(left: PlacedSide, right: PlacedSide, left_rows: int, right_rows: int, memory: int) -> int:
    """How many cells make both sides fit the budget of a task."""
    needed = right_rows * (2 * row_bytes(right.frame) + ROW_BYTES) / (RIGHT_SHARE * memory)
    return ceil(CELL_ROOM * max(needed, left_rows * row_bytes(left.frame) / (LEFT_SHARE * memory)))
