"""What every interval join operator is told, and what it checks before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep_state import ANY, S_FIRST, S_FIRST_STRICT, Rule
from dovetail.joins.interval.operators.feed import END, KEY, START
from dovetail.joins.interval.operators.frames import Frames
from dovetail.joins.interval.operators.output import EMITS, Emit
from dovetail.joins.interval.operators.rule import order_name, pair_rule
from dovetail.joins.interval.operators.shares import Shares
from dovetail.joins.interval.relation import Relation

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSpec:
    """A join of two sides, each sorted by `_start`, `_end` (after `_key`, if keyed), of half-open int64 codes.

    Codes keep the order of what they stand for, and start < end in every row. The raw bounds that the relation compares
    are `_start >> halves` and `(_end - shift) >> halves`. With half steps, codes overlap exactly when the intervals
    share a point. `range_start` is where this partition begins: a pair that starts before it belongs to another.
    `keyed`: rows must also agree in `_key`; the sweep starts afresh at each key, and no two keys are ever compared.

    `emit` says what comes out: rows (left's columns, then right's), pairs of ordinals (positions in the two input
    streams), or nothing, only counts. `track` names sides whose matched rows are remembered, one bit each. `frames`
    sets the memory of the active tuples in the source's units instead of bytes. `swapped` exchanges the roles of the
    two inputs inside; answers keep left first. Inputs that are not sorted give wrong answers; the order of answers is
    unspecified.
    """

    relation: Relation
    swapped: bool = False
    halves: int = 0
    shift: int = 0
    range_start: int | None = None
    keyed: bool = False
    emit: Emit = "rows"
    track: tuple[Side, ...] = ()
    frames: Frames | None = None

    def __post_init__(self) -> None:
        if self.halves not in (0, 1) or self.shift not in (0, 1):
            raise PlanError(f"halves={self.halves}, shift={self.shift}: each must be 0 or 1")
        if self.emit not in EMITS:
            raise PlanError(f"emit={self.emit!r} is not one of {', '.join(EMITS)}")
        if any(side not in SIDES for side in self.track):
            raise PlanError(f"track={self.track!r} may name only {SIDES}")
        self.rule()

    @property
    def sides(self) -> tuple[str, ...]:
        """The two inputs."""
        return SIDES

    @property
    def exchange(self) -> bool:
        """Whether the right input plays R inside."""
        return self.swapped

    def rule(self) -> Rule:
        """The pair rule for R and S as they play inside."""
        return pair_rule(self.relation, self.halves, self.shift, self.range_start, self.exchange)

    def explain(self) -> str:
        """The specification in one line."""
        parts = [f"relation={self.relation}", f"outer={SIDES[self.exchange]}", order_name(self.rule().order)]
        parts += [f"range from {self.range_start}"] if self.range_start is not None else []
        parts += ["keyed"] if self.keyed else []
        parts += [f"emit={self.emit}"]
        parts += [f"track={'+'.join(self.track)}"] if self.track else []
        parts += [f"capacity={self.frames.tuples} tuples"] if self.frames else []
        return f"{type(self).__name__}: {', '.join(parts)}"

    def shares(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema]) -> Shares:
        """How this join divides the budget; `PlanError` if a schema lacks a code column or memory is too small."""
        if set(schemas) != set(SIDES):
            raise PlanError(f"schemas are given for {sorted(schemas)}; this join takes {list(SIDES)}.")
        for side, schema in schemas.items():
            for name in (START, END, KEY) if self.keyed else (START, END):
                kinds = [field.type for field in schema if field.name == name]
                if kinds != [pa.int64()]:
                    raise PlanError(f"{side} input needs one int64 column {name!r}; it has {schema.names}.")
        return Shares.of(budget, schemas["left"], schemas["right"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstIsOuterSpec(IntervalSpec):
    """A specification whose kernels want R to start first: inputs are exchanged when the relation says that S does."""

    @property
    def exchange(self) -> bool:
        """Whether the right input plays R inside."""
        order = pair_rule(self.relation, self.halves, self.shift, self.range_start, False).order
        return self.swapped if order == ANY else order in (S_FIRST, S_FIRST_STRICT)
