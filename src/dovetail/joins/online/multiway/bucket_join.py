"""The multiway join of one bucket as a value that travels as text: what to join, how, and inside which budget."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.bucket_join import bound_as_json, bound_from_json
from dovetail.joins.online.bucket_rule import Cells, MultiBucketRule, choose_cells
from dovetail.joins.online.graph import Term, join_graph
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.schema_text import schema_text

KIND = "multiway 1"


@dataclass(frozen=True, slots=True)
class MultiBucketJoin:
    """An algorithm with its predicates, budget and inputs; `rows` are those expected of some inputs, by name."""

    algorithm: str
    on: tuple[Term, ...]
    memory: int
    with_phase: bool
    inputs: tuple[tuple[str, pa.Schema], ...]
    rows: tuple[tuple[str, float], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs."""
        return tuple(name for name, _ in self.inputs)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each input."""
        return dict(self.inputs)

    def cells(self, buckets: int) -> Cells:
        """At most so many buckets, as cells of a cube."""
        return choose_cells(join_graph(self.names, self.on), buckets, dict(self.rows))

    def spec(self) -> MultiJoin:
        """The specification of the operator."""
        return MULTIWAY[self.algorithm](inputs=self.names, on=self.on, with_phase=self.with_phase)

    def open(self) -> OnlineOperator:
        """The running join, in a budget of its own; what does not fit goes to Spark's local directory."""
        return self.spec().open(MemoryBudget(self.memory, "online multijoin"), self.schemas)

    def spread(self, buckets: int) -> MultiBucketRule:
        """Which of at most so many buckets rows belong to."""
        return MultiBucketRule(self.cells(buckets), self.schemas)

    def to_json(self) -> str:
        """The value as text."""
        on = [[*term[:2], *map(bound_as_json, term[2:])] for term in self.on]
        inputs = [[name, base64.b64encode(schema.serialize()).decode()] for name, schema in self.inputs]
        return json.dumps([KIND, self.algorithm, on, self.memory, self.with_phase, inputs, self.rows])

    @classmethod
    def from_json(cls, text: str) -> MultiBucketJoin:
        """What `to_json` wrote."""
        _, algorithm, terms, memory, with_phase, inputs, rows = json.loads(text)
        on: list[Any] = [(*term[:2], *map(bound_from_json, term[2:])) for term in terms]
        read = tuple((name, pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))) for name, schema in inputs)
        return cls(algorithm, tuple(on), memory, with_phase, read, tuple((name, n) for name, n in rows))

    def meaning(self) -> dict[str, Any]:
        """What the rows of its state are and when they match: nothing of this can change while there is state."""
        on = [[*term[:2], *map(bound_as_json, term[2:])] for term in self.on]
        columns = {f"columns of {name}": schema_text(schema) for name, schema in self.inputs}
        return {"inputs": list(self.names), "on": on, **columns}
