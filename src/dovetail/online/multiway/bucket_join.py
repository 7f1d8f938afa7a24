"""The multiway join of one bucket as a value that travels as text: what to join, how, and inside which budget."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.online.bucket_join import bound_as_json, bound_from_json
from dovetail.online.multiway.base import MultiOperator
from dovetail.online.multiway.cells import Cells
from dovetail.online.multiway.graph import Term, join_graph
from dovetail.online.multiway.registry import MULTIWAY
from dovetail.online.multiway.spec import MultiJoin
from dovetail.online.multiway.spread import MultiSpread

KIND = "multiway 1"


@dataclass(frozen=True, slots=True)
class MultiBucketJoin:
    """An algorithm with its predicates, budget and inputs; `shares` say how rows are spread over buckets."""

    algorithm: str
    on: tuple[Term, ...]
    memory: int
    with_phase: bool
    inputs: tuple[tuple[str, pa.Schema], ...]
    shares: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs."""
        return tuple(name for name, _ in self.inputs)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each input."""
        return dict(self.inputs)

    @property
    def cells(self) -> Cells:
        """The buckets as cells of a cube."""
        return Cells(join_graph(self.names, self.on), self.shares)

    def spec(self) -> MultiJoin:
        """The specification of the operator."""
        return MULTIWAY[self.algorithm](inputs=self.names, on=self.on, with_phase=self.with_phase)

    def open(self) -> MultiOperator:
        """The running join, in a budget of its own; what does not fit goes to Spark's local directory."""
        return self.spec().open(MemoryBudget(self.memory, "online multijoin"), self.schemas)

    def spread(self, buckets: int) -> MultiSpread:
        """Which bucket rows belong to; there are as many as the cells."""
        return MultiSpread(self.cells, self.schemas)

    def to_json(self) -> str:
        """The value as text."""
        on = [[*term[:2], *map(bound_as_json, term[2:])] for term in self.on]
        inputs = [[name, base64.b64encode(schema.serialize()).decode()] for name, schema in self.inputs]
        return json.dumps([KIND, self.algorithm, on, self.memory, self.with_phase, inputs, self.shares])

    @classmethod
    def from_json(cls, text: str) -> MultiBucketJoin:
        """What `to_json` wrote."""
        _, algorithm, terms, memory, with_phase, inputs, shares = json.loads(text)
        on: list[Any] = [(*term[:2], *map(bound_from_json, term[2:])) for term in terms]
        read = tuple((name, pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))) for name, schema in inputs)
        return cls(algorithm, tuple(on), memory, with_phase, read, tuple(shares))

    def digest(self, buckets: int) -> str:
        """A short text that differs where state of one join is of no use to another."""
        return hashlib.sha256(f"{buckets} {self.to_json()}".encode()).hexdigest()[:16]
