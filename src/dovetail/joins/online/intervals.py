"""Rows that match by a relation between their intervals, and the band that this implies for the starts.

Every relation is decided by comparing bounds. If intervals must touch, the start of a right row is no later than the
end of the left row, so that both starts differ by the longest left interval at most; likewise to the other side. So
rows are sorted by their start as for a band that is as wide as the longest intervals so far, and pairs within it are
compared by all their bounds.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import Bool
from dovetail.engine.rows.keys import NARROW_DIGITS, bound_codes
from dovetail.engine.rows.layout import check_columns
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import USABLE, Relation, classify, sign
from dovetail.joins.online.kernels.ranges import BACK, ENDLESS, FORTH, WHOLE

START, END = 0, 1
_LONGEST = 2**63 - 1
_LARGEST = float(np.finfo(np.float64).max)
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Rows match if the interval of the left row stands in the relation to that of the right row.

    `bounds` are by side the columns of start and end; one column twice is a point, which has both of its bounds.
    Intervals that are null, empty, inverted or have a NaN match nothing.
    Reference: docs/algorithms/online.md, 1.3.
    """

    bounds: tuple[tuple[str, str], tuple[str, str]]
    relation: Relation

    @property
    def left(self) -> str:
        """The column in which left intervals start."""
        return self.bounds[0][START]

    @property
    def right(self) -> str:
        """The column in which right intervals start."""
        return self.bounds[1][START]

    @property
    def column_pairs(self) -> tuple[tuple[str, str], ...]:
        """The starts and the ends of both sides."""
        return tuple(zip(*self.bounds, strict=True))

    def closed(self, side: int) -> Any:
        """Which bounds are part of a side's intervals."""
        return (self.relation.left_closed, self.relation.right_closed)[side]

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """`PlanError` unless all bounds are there, and of one type that has lengths."""
        found: dict[str, pa.DataType] = {}
        for name, schema, bounds in zip(("left", "right"), (left, right), self.bounds, strict=True):
            check_columns(schema, bounds, name, f"{name}_interval")
            found |= {f"{name}.{column}": schema.field(column).type for column in bounds}
        kind = left.field(self.left).type
        if len(set(found.values())) > 1:
            shown = ", ".join(f"{name} ({kind})" for name, kind in found.items())
            raise PlanError(
                f"bounds of intervals are {shown}; cast them so that all are of one type.", argument="left_interval"
            )
        if not _has_lengths(kind):
            raise PlanError(
                f"bounds of intervals are of type {kind}; they must be numbers (decimals of at most {NARROW_DIGITS} "
                f"digits), dates or times.",
                argument="left_interval",
            )

    def usable(self, side: int, batch: pa.RecordBatch) -> Bool:
        """Which rows of a side have an interval that can match something."""
        start, end = (batch.column(name) for name in self.bounds[side])
        return np.asarray(classify(start, end, self.closed(side)) == USABLE, np.bool_)

    def holds(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bool:
        """Whether the relation holds, pair by pair; all intervals are usable."""
        lefts, rights = (
            [bound_codes(batch.column(name)) for name in names]
            for batch, names in zip((left, right), self.bounds, strict=True)
        )
        case = np.zeros(left.num_rows, np.int64)
        for a, b in itertools.product(lefts, rights):
            case = 3 * case + 1 + (a > b) - (a < b)
        return np.asarray(self.relation.table()[case], np.bool_)

    # ------------------------------------------------------------------ the band of the starts

    def starts(self, side: int, batch: pa.RecordBatch) -> pa.Array:
        """The starts, of floating-point columns as finite doubles."""
        column = batch.column(self.bounds[side][START])
        return pa.array(_finite(column)) if pa.types.is_floating(column.type) else column

    def longest(self, side: int, batch: pa.RecordBatch) -> float:
        """The length of the longest interval, in units of the bounds; 0 for no rows."""
        if batch.num_rows == 0:
            return 0
        start, end = (batch.column(name) for name in self.bounds[side])
        if pa.types.is_floating(start.type):
            with np.errstate(over="ignore"):
                return float((_finite(end) - _finite(start)).max())
        length = bound_codes(end).view(np.uint64) - bound_codes(start).view(np.uint64)
        return int(length.max())

    def around(self, longest: tuple[float, float], floating: bool) -> list[list[int]]:
        """By side the range of the other side's starts around a start, as down, up and measure."""
        lowest, highest = _start_range(self.relation)
        down = {"start": 0, "end": -longest[1], "": -np.inf}[lowest]
        up = {"start": 0, "end": longest[0], "": np.inf}[highest]
        if floating:
            lo, hi = np.array([down, up], np.float64).view(np.int64).tolist()
            return [[lo, hi, FORTH], [lo, hi, BACK]]
        low = ENDLESS if down < -_LONGEST else int(down)
        high = ENDLESS if up > _LONGEST else int(up)
        mirrored = (ENDLESS if high == ENDLESS else -high, ENDLESS if low == ENDLESS else -low)
        return [[low, high, WHOLE], [*mirrored, WHOLE]]

    # ------------------------------------------------------------------ when rows leave

    def last_times(self, delays: tuple[Mapping[str, int], Mapping[str, int]]) -> list[tuple[str, str]] | None:
        """By side its column with a watermark, and the one up to which rows of the other side may come that match.

        `delays` are those of the columns with a watermark. None if rows of a side may match however late others come.
        """
        timed = [[at for at in (START, END) if self.bounds[side][at] in delays[side]] for side in (0, 1)]
        for mine, theirs in itertools.product(*timed):
            ends = _last(self.relation, theirs), _last(self.relation.swapped(), mine)
            if "" not in ends:
                names = [(START, END)[end == "end"] for end in ends]
                return [(self.bounds[s][at], self.bounds[s][names[s]]) for s, at in ((0, mine), (1, theirs))]
        return None

    def as_json(self) -> dict[str, Any]:
        """When rows match, as JSON."""
        r = self.relation
        return {
            "intervals": [list(names) for names in self.bounds],
            "relation": [sorted(r.names), r.strict, r.left_closed, r.right_closed],
        }

    def __str__(self) -> str:
        return f"{self._shown(0)} {self.relation} {self._shown(1)}"

    def _shown(self, side: int) -> str:
        (start, end), closed = self.bounds[side], self.closed(side)
        if start == end:
            return start
        return (
            f"{'[' if closed in ('left', 'both') else '('}{start}, {end}{']' if closed in ('right', 'both') else ')'}"
        )


def _finite(column: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    return np.clip(np.nan_to_num(numbers, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)


def _has_lengths(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= NARROW_DIGITS)
    plain = pa.types.is_integer(kind) and kind != pa.uint64()
    return bool(plain or pa.types.is_floating(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)))


@functools.cache
def _matches(relation: Relation) -> tuple[tuple[Span, Span], ...]:
    """Pairs of intervals that stand in the relation, with bounds of four values: every order of bounds is there."""
    spans = list(itertools.combinations_with_replacement(range(4), 2))
    pairs = itertools.product(spans, repeat=2)
    return tuple((a, b) for a, b in pairs if relation.holds(*(sign(x, y) for x in a for y in b)))


def _start_range(relation: Relation) -> tuple[str, str]:
    """The bounds between which right starts are.

    The first is "start" for the left start, "end" if the right interval must reach the left start; the last is the
    left "start" or "end". Either is empty if there is no such bound.
    """

    def always(holds: Callable[[Span, Span], bool]) -> bool:
        return all(holds(a, b) for a, b in _matches(relation))

    lowest = "start" if always(lambda a, b: b[0] >= a[0]) else "end" if always(lambda a, b: b[1] >= a[0]) else ""
    return lowest, _last(relation, START)


def _last(relation: Relation, bound: int) -> str:
    """The bound of a left interval, start or end, that this bound of matching right ones is never later than."""
    for at, name in ((START, "start"), (END, "end")):
        if all(b[bound] <= a[at] for a, b in _matches(relation)):
            return name
    return ""
