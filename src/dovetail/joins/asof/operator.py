"""The as-of join as a specification, and as an operator: left rows probe an index of the right rows by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import Operator
from dovetail.engine.point_join import PointJoinOperator, PointSpec
from dovetail.engine.rows.keys import bound_codes
from dovetail.engine.rows.layout import check_columns
from dovetail.errors import PlanError
from dovetail.joins.asof.right_index import RightIndex, usable_rows

Direction = Literal["backward", "forward", "nearest"]
Tie = Literal["any", "first", "last"]


@dataclass(frozen=True, slots=True)
class AsofJoin(PointSpec):
    """Matches each left row with the last right row before it (or next after it, or nearest) among those of its keys.

    Every left row has at most one match. A null or NaN time and a null key match nothing. Of right rows at one time the
    `tie` decides: the first or the last by the columns `tie_order`, nulls first; rows that are still equal, and all
    rows with "any", by all their columns, so that equal inputs give equal answers. Of two right rows that are equally
    near the earlier one is nearest.
    `tolerance` is the largest distance, in units of the codes (days, microseconds, the last digit) or as a float.
    Output order is unspecified. Reference: docs/algorithms/asof.md, 1 and 2.
    """

    on: tuple[str, str]
    by: tuple[tuple[str, str], ...] = ()
    direction: Direction = "backward"
    tolerance: int | float | None = None
    allow_exact: bool = True
    tie: Tie = "any"
    tie_order: tuple[str, ...] = ()
    how: Literal["inner", "left"] = "inner"
    left_columns: tuple[str, ...] | None = None
    right_columns: tuple[str, ...] | None = None

    def explain(self) -> str:
        """The join in one line."""
        keys = ", ".join(a if a == b else f"{a}={b}" for a, b in self.by) or "none"
        on = self.on[0] if self.on[0] == self.on[1] else "=".join(self.on)
        order = f" by {', '.join(self.tie_order)}" if self.tie_order else ""
        within = "" if self.tolerance is None else f", tolerance={self.tolerance}"
        exact = "" if self.allow_exact else ", no exact matches"
        return f"AsofJoin: {self.direction} on {on}, keys={keys}{within}{exact}, ties={self.tie}{order}, how={self.how}"

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> Operator:
        """The running join; `PlanError` when these schemas do not fit."""
        left, right = schemas["left"], schemas["right"]
        check_columns(left, [self.on[0]], "left", "on")
        check_columns(right, [self.on[1]], "right", "on")
        check_columns(left, [a for a, _ in self.by], "left", "by")
        check_columns(right, [b for _, b in self.by], "right", "by")
        check_columns(right, self.tie_order, "right", "ties")
        pairs = [("on", self.on), *(("by", pair) for pair in self.by)]
        for argument, (a, b) in pairs:
            if left.field(a).type != right.field(b).type:
                raise PlanError(
                    f"{argument}: {a!r} of left is {left.field(a).type} but {b!r} of right is {right.field(b).type}; "
                    "cast one of them so that both are of one type.",
                    argument=argument,
                )
        return AsofOperator(self, budget, schemas, spill_dir)


class AsofOperator(PointJoinOperator):
    """An as-of join in progress: the point of a row is its time."""

    def __init__(
        self, spec: AsofJoin, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        self.spec = spec
        self._on = dict(zip(("left", "right"), spec.on, strict=True))
        carries = spec.direction != "forward", spec.direction != "backward"
        super().__init__(spec, budget, schemas, spill_dir, carries)

    def usable(self, side: str, rows: pa.RecordBatch) -> Bool:
        """Which rows have a time and all keys."""
        return usable_rows(rows, self._on[side], self._by[side])

    def points(self, side: str, rows: pa.RecordBatch) -> I64:
        """The times, as codes."""
        return bound_codes(rows[self._on[side]])

    def index(self, rows: pa.RecordBatch, budget: MemoryBudget) -> RightIndex:
        """An index of right rows by key and time."""
        return RightIndex(self.spec, rows, budget)
