"""What every online join is told, and what it checks before it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from dovetail.engine.layout import Key, Layout, join_layout
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.keys import SIDES
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.predicate import Band, Predicate
from dovetail.joins.online.sizes import FITTED, Fitted, Footprint, Sizes, block_overhead, fit, widths_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineJoin(ABC):
    """Two streams joined, every matching pair exactly once, under any interleaving, delay and budget.

    `on` names equal columns (a name, or a pair of names), `within` a band; at least one is needed. Null keys match
    nothing. The answer has left's columns, then right's; a key given by one name appears once; other names that both
    sides have get the suffixes. `with_phase` adds `_phase`: arriving, reactive or cleanup. There is no order.
    `seed` decides what is left to chance.
    `hash_bits` below 64 makes hashed keys meet; answers stay right.
    """

    on: tuple[Key, ...] = ()
    within: Band | tuple[Any, ...] | None = None
    suffixes: tuple[str, str] = ("", "_right")
    with_phase: bool = False
    sizes: Sizes = FITTED
    seed: int = 0
    hash_bits: int = 64

    bands: ClassVar[bool] = False

    def __post_init__(self) -> None:
        predicate = self.predicate
        if predicate.within is not None and not self.bands and not predicate.on:
            raise UnsupportedError(
                f"{type(self).__name__} hashes its keys, so a band alone cannot be found; give equal columns too, or "
                f"use Diner or ProgressiveMergeJoin.",
                argument="algorithm",
            )

    @property
    def predicate(self) -> Predicate:
        """When two rows match."""
        return Predicate(tuple(self.on), None if self.within is None else Band.of(self.within))

    @property
    def sides(self) -> tuple[str, ...]:
        """The two inputs."""
        return SIDES

    def layout(self, schemas: Mapping[str, pa.Schema]) -> Layout:
        """The columns of the answer; `PlanError` if keys or names do not fit the inputs."""
        if set(schemas) != set(SIDES):
            raise PlanError(f"schemas are given for {sorted(schemas)}; this join takes {list(SIDES)}.")
        self.predicate.check(schemas["left"], schemas["right"])
        return join_layout(schemas["left"], schemas["right"], list(self.on), "inner", self.suffixes)

    def fit(self, limit: int, schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> Fitted:
        """The split of a budget of `limit` bytes for rows as wide as seen, by side; `PlanError` if it is too small."""
        needs = replace(self.footprint(), block=max(block_overhead(schema) for schema in schemas))
        return fit(self.sizes, limit, widths_of(schemas, seen), needs)

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> OnlineOperator:
        """The running join inside this budget; rows that do not fit go to `spill_dir`."""
        layout = self.layout(schemas)
        self.fit(budget.available, [schemas[side] for side in SIDES], {})
        return self.operator(self, budget, schemas, layout, spill_dir)

    @property
    @abstractmethod
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""

    @abstractmethod
    def footprint(self) -> Footprint:
        """Bytes that this algorithm needs besides the columns of rows."""

    def options(self) -> list[str]:
        """What this algorithm is told beyond the rest, as name=value."""
        return []

    def explain(self) -> str:
        """The specification in one line."""
        return ", ".join([f"{type(self).__name__}: on {self.predicate}", *self.options(), str(self.sizes)])
