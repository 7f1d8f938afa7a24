"""The nearest join as a specification, and as an operator: left rows probe an index of the right intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import Operator
from dovetail.engine.point_join import PointJoinOperator, PointSpec
from dovetail.engine.rows.keys import bound_codes
from dovetail.engine.rows.layout import check_columns
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import Relation
from dovetail.joins.nearest.interval_index import IntervalIndex, usable_rows
from dovetail.joins.nearest.kernels.nearest import Wanted
from dovetail.request import Closed

DISTANCE = "distance"


@dataclass(frozen=True, slots=True)
class NearestJoin(PointSpec):
    """Matches each left interval with its k nearest right intervals among those of its keys.

    The distance is 0 for intervals that overlap or touch, else the gap between their bounds, in units of their codes:
    days, microseconds, the last digit; floats as floats. Null and NaN bounds, empty and inverted intervals and null
    keys match nothing. Of equally near rows those that overlap come first, the one that ends last before the others;
    then those before, then those after; rows with equal bounds in the order of their columns. So equal inputs give
    equal answers. Rows that overlap are skipped only in a join that counts either the
    rows before or those after.
    Reference: docs/algorithms/interval.md, 8.5.
    """

    left: tuple[str, str]
    right: tuple[str, str]
    by: tuple[tuple[str, str], ...] = ()
    k: int = 1
    before: bool = True
    overlapping: bool = True
    after: bool = True
    farthest: int | float | None = None
    closed: tuple[Closed, Closed] = ("left", "left")
    how: Literal["inner", "left"] = "inner"
    left_columns: tuple[str, ...] | None = None
    right_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise PlanError(f"k={self.k} is not possible; give a whole number from 1.", argument="k")
        if not self.overlapping and self.before == self.after:
            raise PlanError("rows on both sides, without those between, need two joins: before, and after.")

    @property
    def mirrored(self) -> bool:
        """Whether bounds are negated, so that rows before are rows after."""
        return not self.overlapping and self.before

    @property
    def wanted(self) -> Wanted:
        """The rows that count, as the index sees them."""
        touching = Relation(frozenset({"overlapping"}), False, *self.closed)
        touches = touching.touching_start, touching.touching_end
        if self.mirrored:
            return Wanted(False, False, True, *touches[::-1], self.farthest)
        return Wanted(self.before, self.overlapping, self.after, *touches, self.farthest)

    def bounds(self, side: str) -> tuple[str, str]:
        """The columns that are start and end of a side."""
        start, end = self.left if side == "left" else self.right
        return (end, start) if self.mirrored else (start, end)

    def mirror(self, numbers: AnyArray) -> AnyArray:
        """The numbers, or the same in the opposite order, with the same differences."""
        if not self.mirrored:
            return numbers
        return -numbers if numbers.dtype.kind == "f" else int64s(~numbers)

    def explain(self) -> str:
        """The join in one line."""
        keys = ", ".join(a if a == b else f"{a}={b}" for a, b in self.by) or "none"
        counted = ("before", self.before), ("overlapping", self.overlapping), ("after", self.after)
        within = "" if self.farthest is None else f", farthest={self.farthest}"
        rows = ", ".join(name for name, counts in counted if counts)
        return f"NearestJoin: k={self.k} of rows {rows}, keys={keys}{within}, how={self.how}"

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> Operator:
        """The running join; `PlanError` when these schemas do not fit."""
        left, right = schemas["left"], schemas["right"]
        check_columns(left, self.left, "left", "left_interval")
        check_columns(right, self.right, "right", "right_interval")
        check_columns(left, [a for a, _ in self.by], "left", "on")
        check_columns(right, [b for _, b in self.by], "right", "on")
        bounds = zip(("right_interval", "right_interval", "left_interval"), (*self.right, self.left[1]), strict=True)
        kinds = [(name, (right if name[0] == "r" else left).field(bound).type, bound) for name, bound in bounds]
        first = left.field(self.left[0]).type
        kinds += [("on", right.field(b).type, b) for a, b in self.by if left.field(a).type != right.field(b).type]
        for argument, kind, name in kinds:
            if argument == "on" or kind != first:
                raise PlanError(
                    f"{argument}: {name!r} is {kind}, and the column that it is compared with is not; cast one of them "
                    "so that both are of one type.",
                    argument=argument,
                )
        return NearestOperator(self, budget, schemas, spill_dir)

    def output_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The columns of the answer: left's, right's, which may be null, and the distance."""
        floating = pa.types.is_floating(left.field(self.left[0]).type)
        distance = pa.field(DISTANCE, pa.float64() if floating else pa.int64())
        return PointSpec.output_schema(self, left, right).append(distance)


class NearestOperator(PointJoinOperator):
    """A nearest join in progress: the point of a right row is its start, that of a left row its end."""

    def __init__(
        self, spec: NearestJoin, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        self.spec = spec
        wanted = spec.wanted
        carries = wanted.before or wanted.overlapping, wanted.after
        super().__init__(spec, budget, schemas, spill_dir, carries, spec.k)

    def usable(self, side: str, rows: pa.RecordBatch) -> Bool:
        """Which rows have an interval that is not empty, and all keys."""
        own = self.spec.left if side == "left" else self.spec.right
        return usable_rows(rows, own, self._by[side], self.spec.closed[side == "right"])

    def points(self, side: str, rows: pa.RecordBatch) -> I64:
        """Ends of left rows and starts of right rows, as codes."""
        codes = bound_codes(rows[self.spec.bounds(side)[side == "left"]])
        return int64s(self.spec.mirror(codes)) if self.spec.mirrored else codes

    def index(self, rows: pa.RecordBatch, budget: MemoryBudget) -> IntervalIndex:
        """An index of right rows by key and start."""
        return IntervalIndex(self.spec, rows, budget)
