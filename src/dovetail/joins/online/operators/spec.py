"""Specifications of online joins: options, answer columns, and the bytes that they need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.layout import Key, Layout, join_layout
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.answers import AnswerColumns, multi_schema, with_phase
from dovetail.joins.online.graph import SIDES, Band, JoinGraph, Predicate, Term, join_graph, pair_graph
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.kernels.rows import KEY_BYTES, ROW_BYTES
from dovetail.joins.online.kernels.table import bucket_bytes, slot_bytes
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.sizes import FITTED, Fitted, Footprint, Sizes, block_overhead, fit

_GONE_BYTES = 4
"""Of each slot, in the list of rows that leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineSpec(ABC):
    """Streams joined over a tree of predicates, every combination exactly once, under any interleaving and budget.

    `with_phase` adds `_phase`: arriving, reactive or cleanup. There is no order. `seed` seeds the random choices.
    `hash_bits` below 64 makes hashed keys collide; answers stay right. `beside` leaves a part of the budget to the
    caller.
    """

    with_phase: bool = False
    sizes: Sizes = FITTED
    seed: int = 0
    hash_bits: int = 64
    beside: bool = False

    # ------------------------------------------------------------------ what is joined

    @property
    @abstractmethod
    def graph(self) -> JoinGraph:
        """The join tree."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The inputs."""
        return self.graph.names

    @abstractmethod
    def answer(self, schemas: Mapping[str, pa.Schema]) -> AnswerColumns:
        """The columns of the answer; `PlanError` if keys or names do not fit the inputs."""

    def schema(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The schema of the answer; `PlanError` as `answer`."""
        return self.answer(schemas).schema

    # ------------------------------------------------------------------ the parts of the algorithm

    @abstractmethod
    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """The index of rows in memory, which also evicts them."""

    @abstractmethod
    def disk(self, join: OnlineOperator) -> Disk:
        """The join of blocks on disk."""

    @abstractmethod
    def footprint(self) -> Footprint:
        """Bytes that this algorithm needs besides the columns of rows."""

    @abstractmethod
    def loaded_bytes(self, side: int) -> int:
        """Bytes of each loaded row of an input beside its columns."""

    @abstractmethod
    def arriving_bytes(self, side: int) -> int:
        """Bytes of each arriving row of an input beside its columns."""

    @property
    def row_bytes(self) -> int:
        """Bytes of each slot without an index."""
        return _GONE_BYTES + ROW_BYTES + KEY_BYTES * max(self.graph.n_keys(r) for r in range(len(self.sides)))

    def options(self) -> list[str]:
        """The options that only this algorithm has, as name=value."""
        return []

    # ------------------------------------------------------------------ a running join

    @abstractmethod
    def fit(self, limit: int, schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> Fitted:
        """The split of a budget of `limit` bytes for rows as wide as seen, by input; `PlanError` if it is too small."""

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> OnlineOperator:
        """The running join inside this budget; rows that do not fit go to `spill_dir`."""
        self.fit(budget.available, [schemas[name] for name in self.sides], {})
        return OnlineOperator(self, budget, schemas, spill_dir)

    def explain(self) -> str:
        """The specification in one line."""
        return ", ".join([f"{type(self).__name__}: on {self.shown()}", *self.options(), str(self.sizes)])

    @abstractmethod
    def shown(self) -> str:
        """The predicates as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineJoin(OnlineSpec):
    """Two streams joined, every matching pair exactly once, under any interleaving, delay and budget.

    `on` names equal columns (a name, or a pair of names), `within` a band or a relation of intervals; at least one is
    needed. Null keys match nothing, or with `null_safe` each other. The answer has left's columns, then right's; a key
    given by one name appears once; other names that both sides have get the suffixes.
    """

    on: tuple[Key, ...] = ()
    within: Band | Intervals | tuple[Any, ...] | None = None
    null_safe: bool = False
    suffixes: tuple[str, str] = ("", "_right")

    bands: ClassVar[bool] = False

    def __post_init__(self) -> None:
        predicate = self.predicate
        if predicate.within is not None and not self.bands and not predicate.on:
            raise UnsupportedError(
                f"{type(self).__name__} hashes its keys, so a band or a relation alone cannot be found; give equal "
                f"columns too, or use Diner or ProgressiveMergeJoin.",
                argument="algorithm",
            )

    @property
    def predicate(self) -> Predicate:
        """When two rows match."""
        within = self.within
        near = within if within is None or isinstance(within, Intervals) else Band.of(within)
        return Predicate(tuple(self.on), near, self.null_safe)

    @property
    def graph(self) -> JoinGraph:
        """The join tree: one edge."""
        return pair_graph(self.predicate)

    def shown(self) -> str:
        """The predicate as text."""
        return str(self.predicate)

    def layout(self, schemas: Mapping[str, pa.Schema]) -> Layout:
        """The columns of the answer; `PlanError` if keys or names do not fit the inputs."""
        if set(schemas) != set(SIDES):
            raise PlanError(f"schemas are given for {sorted(schemas)}; this join takes {list(SIDES)}.")
        self.predicate.check(schemas["left"], schemas["right"])
        return join_layout(schemas["left"], schemas["right"], list(self.on), "inner", self.suffixes)

    def answer(self, schemas: Mapping[str, pa.Schema]) -> AnswerColumns:
        """The columns of the answer, a shared key once."""
        layout = self.layout(schemas)
        return AnswerColumns(with_phase(layout, self.with_phase), (layout.left, layout.right), self.with_phase)

    def footprint(self) -> Footprint:
        """That of a hash table: slots with their chains and queues, buckets, and a list of flushes for each."""
        return Footprint(self.row_bytes + slot_bytes(2), bucket=bucket_bytes(2), fixed=13 * 40 + 512)

    def loaded_bytes(self, side: int) -> int:
        """Keys, ranges, ticks and names."""
        return 8 * 7

    def arriving_bytes(self, side: int) -> int:
        """Keys, ranges, sizes and slots."""
        return 48

    def fit(self, limit: int, schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> Fitted:
        """The split of a budget; the estimated width of one side is corrected by the error of the other."""
        needs = replace(self.footprint(), block=max(block_overhead(schema) for schema in schemas), beside=self.beside)
        return fit(self.sizes, limit, schemas, seen, needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiJoin(OnlineSpec):
    """Streams joined over a tree of predicates, every combination exactly once, under any interleaving and budget.

    `inputs` are the names of the inputs in order. `on` has ("orders.id", "items.order_id") for equal columns, and
    ("a.at", "b.at", lo, hi) for lo <= b.at - a.at <= hi on numbers, dates and times. Two inputs may have equal columns
    and one band, by which rows with equal keys are ordered. Chains, stars and snowflakes are possible; cycles
    and inputs that nothing connects are a `PlanError`. A null in any key of a row matches nothing.

    The answer has the columns of all inputs in order; a name that several inputs have becomes input_name in each of
    them (orders_id, parts_id).
    """

    inputs: tuple[str, ...]
    on: tuple[Term, ...]

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

    def shown(self) -> str:
        """The predicates as text."""
        return str(self.graph)

    @property
    def most_attributes(self) -> int:
        """Join attributes of the input that has the most."""
        return max(len(self.graph.attributes(r)) for r in range(len(self.inputs)))

    def answer(self, schemas: Mapping[str, pa.Schema]) -> AnswerColumns:
        """The columns of all inputs side by side."""
        self.graph.check(schemas)
        taken = tuple(tuple(schemas[name].names) for name in self.inputs)
        return AnswerColumns(multi_schema(self.inputs, schemas, self.with_phase), taken, self.with_phase)

    def loaded_bytes(self, side: int) -> int:
        """Keys, ticks, block and name, once more for each input that rules rows out, and all of it sorted, with the
        keys of a band."""
        banded = bool(self.graph.nears(side))
        return 8 * ((len(self.inputs) + 1) * (self.graph.n_keys(side) + 4) + 1 + banded)

    def arriving_bytes(self, side: int) -> int:
        """Keys twice, sizes and slots."""
        return 16 * self.graph.n_keys(side) + 24

    def needs(self, index: int) -> Footprint:
        """The footprint of these joins with an index of `index` bytes per slot."""
        n, each = len(self.inputs), range(len(self.inputs))
        return Footprint(
            slot=self.row_bytes + index,
            kept=8,
            bucket=16,
            fixed=4096,
            arriving=max(map(self.arriving_bytes, each)),
            loaded=max(map(self.loaded_bytes, each)),
            combination=12 * n,
            answer=16 * n,
            written=64,
            buffer=8,
            bucket_rows=16 * n,
        )

    def fit(self, limit: int, schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> Fitted:
        """The split of a budget."""
        keys = max(self.graph.n_keys(r) for r in range(len(self.inputs)))
        overhead = max(block_overhead(schema) for schema in schemas) + 64 * keys
        return fit(self.sizes, limit, schemas, seen, replace(self.footprint(), block=overhead), alike=False)
