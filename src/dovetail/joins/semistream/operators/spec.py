"""What every semi-stream operator is told, and what it checks before it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.keys import check_keys
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.options import How, Residence, check_how
from dovetail.joins.semistream.sizes import FITTED, Part, Sizes, fit

STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class SemiStreamJoin(ABC):
    """Stream rows joined with the master rows of equal key: the part that all algorithms share.

    `on` names the stream's key columns, in the order of the master's. Every stream row is answered exactly once, by all
    master rows of its key. Nulls match nothing, or with `null_safe` each other, over pages that have such rows. Answers
    of one key keep the order of the stream; there is no other order. `columns` are the master columns wanted (all if
    None); `matched` names one more column, that tells whether there is a master row, `first` another, the last, that
    tells the first answer of each stream row. Sizes that are left out are fitted to the budget. In a pause rows are
    answered until none waits, or, with `when_idle="hold"`, only those beyond `max_residence`, as a load for few rows
    wastes most of it. With `short_reads` a load for few rows reads only the pages that these need; left out, it does on
    real devices. `hash_bits` below 64 makes hashed keys meet; answers stay right, as every hash is checked.
    """

    pages: Pages = field(repr=False)
    on: tuple[str, ...]
    how: How = "inner"
    columns: tuple[str, ...] | None = None
    suffixes: tuple[str, str] = ("", "_master")
    sizes: Sizes = FITTED
    max_residence: Residence | None = None
    when_idle: Literal["drain", "hold"] = "drain"
    hash_bits: int = 64
    null_safe: bool = False
    short_reads: bool | None = None
    matched: str | None = None
    first: str | None = None

    parts: ClassVar[tuple[Part, ...]] = ("waiting",)
    needs_index: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_how(self.how)
        if self.when_idle not in ("drain", "hold"):
            raise PlanError(f"when_idle={self.when_idle!r} is not one of ['drain', 'hold'].")
        if not self.on:
            raise PlanError("on=() names no key; give the stream's key columns.")
        if self.needs_index and not self.pages.indexed:
            raise PlanError(
                f"{type(self).__name__} looks keys up, but this master data has no index; use MeshJoin or RMeshJoin, "
                f"or build a store with an index."
            )

    @property
    def sides(self) -> tuple[str, ...]:
        """The one input."""
        return (STREAM,)

    def shape(self, stream: pa.Schema) -> Shape:
        """The columns of the answers; `PlanError` if keys or names do not fit."""
        check_keys(stream, self.on, self.pages.schema, self.pages.key)
        found = Shape.of(stream, self.pages.schema, self.on, self.pages.key, self.how, self.columns, self.suffixes)
        found = found if self.matched is None else found.with_match(self.matched)
        return found if self.first is None else found.with_first(self.first)

    def fit(self, limit: int, stream: pa.Schema) -> Sizes:
        """The sizes of all parts inside a budget of `limit` bytes; `PlanError` if there is none that works."""
        return fit(self.pages, stream, self.sizes, limit, self.parts)

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> SemiStreamOperator:
        """The running join inside this budget."""
        stream = schemas[STREAM]
        shape = self.shape(stream)
        return self.start(budget, stream, shape, self.fit(budget.available, stream))

    @abstractmethod
    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> SemiStreamOperator:
        """The running join with these sizes."""

    def options(self) -> list[str]:
        """What this algorithm is told beyond the rest, as name=value."""
        return []

    def explain(self) -> str:
        """The specification in one line."""
        pairs = zip(self.on, self.pages.key, strict=False)
        on = " and ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in pairs)
        return ", ".join([f"{type(self).__name__}: on {on}", self.how, *self.options(), str(self.sizes)])
