"""What every multiway online join is told, and what it checks before it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.kernels.multi_rows import KEY_BYTES, ROW_BYTES
from dovetail.joins.online.multiway.answers import multi_schema
from dovetail.joins.online.multiway.base import MultiOperator
from dovetail.joins.online.multiway.blocks import loaded_bytes
from dovetail.joins.online.multiway.graph import JoinGraph, Term, join_graph
from dovetail.joins.online.multiway.sizes import MultiFitted, MultiFootprint, fit_multi, row_widths
from dovetail.joins.online.sizes import FITTED, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiJoin(ABC):
    """Streams joined over a tree of predicates, every combination exactly once, under any interleaving and budget.

    `inputs` are the names of the inputs in order. `on` has ("orders.id", "items.order_id") for equal columns, and
    ("a.at", "b.at", lo, hi) for lo <= b.at - a.at <= hi on numbers, dates and times. Two inputs may have equal columns
    and one band, by which rows with equal keys are ordered. Chains, stars and snowflakes are possible; cycles
    and inputs that nothing connects are a `PlanError`. A null in any key of a row matches nothing.

    The answer has the columns of all inputs in order; a name that several inputs have becomes input_name in each of
    them (orders_id, parts_id). `with_phase` adds `_phase`: arriving, reactive or cleanup. There is no order. `seed`
    decides what is left to chance. `hash_bits` below 64 makes hashed keys meet; answers stay right.
    """

    inputs: tuple[str, ...]
    on: tuple[Term, ...]
    with_phase: bool = False
    sizes: Sizes = FITTED
    seed: int = 0
    hash_bits: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "on", tuple(tuple(term) for term in self.on))
        self.check()

    def check(self) -> None:
        """`PlanError` if the predicates make no tree."""
        join_graph(self.inputs, self.on)

    @property
    def graph(self) -> JoinGraph:
        """The join tree."""
        return join_graph(self.inputs, self.on)

    @property
    def sides(self) -> tuple[str, ...]:
        """The inputs."""
        return self.inputs

    @property
    def most_attributes(self) -> int:
        """Join attributes of the input that has the most."""
        graph = self.graph
        return max(len(graph.attributes(r)) for r in range(len(self.inputs)))

    def needs(self, index: int) -> MultiFootprint:
        """What any of these joins needs, with an index of so many bytes a slot."""
        graph, each = self.graph, range(len(self.inputs))
        keys = max(graph.n_keys(r) for r in each)
        slot = ROW_BYTES + 4 + KEY_BYTES * keys + index
        return MultiFootprint(slot, keys, max(loaded_bytes(graph, r) for r in each))

    def schema(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The columns of the answer; `PlanError` if keys or names do not fit the inputs."""
        self.graph.check(schemas)
        return multi_schema(self.inputs, schemas, self.with_phase)

    def fit(self, limit: int, schemas: Mapping[str, pa.Schema], seen: Mapping[int, int]) -> MultiFitted:
        """The split of a budget of `limit` bytes for rows as wide as seen; `PlanError` if it is too small."""
        given = [schemas[name] for name in self.inputs]
        return fit_multi(self.sizes, limit, row_widths(given, seen), given, self.footprint())

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> MultiOperator:
        """The running join inside this budget; rows that do not fit go to `spill_dir`."""
        schema = self.schema(schemas)
        self.fit(budget.available, schemas, {})
        return self.operator(self, budget, schemas, schema, spill_dir)

    @property
    @abstractmethod
    def operator(self) -> type[MultiOperator]:
        """The class of the running join."""

    @abstractmethod
    def footprint(self) -> MultiFootprint:
        """Bytes that this algorithm needs besides the columns of rows."""

    def options(self) -> list[str]:
        """What this algorithm is told beyond the rest, as name=value."""
        return []

    def explain(self) -> str:
        """The specification in one line."""
        return ", ".join([f"{type(self).__name__}: on {self.graph}", *self.options(), str(self.sizes)])
