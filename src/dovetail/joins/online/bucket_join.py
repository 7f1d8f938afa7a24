"""The join of one bucket as a value, of two inputs or of many: what to join, how, and inside which budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.engine.layout import Key
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import UnsupportedError
from dovetail.joins.online.bucket_rule import BucketRule, Cells, MultiBucketRule, choose_cells, hot_codes
from dovetail.joins.online.graph import Term, join_graph
from dovetail.joins.online.operators import ALGORITHMS, MULTIWAY
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import MultiJoin, OnlineJoin, OnlineSpec
from dovetail.joins.online.predicate import Band, Distance, Predicate

_PLAIN = {
    pa.null(): "null", pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32",
    pa.int64(): "int64", pa.float32(): "float32", pa.float64(): "float64", pa.string(): "string",
    pa.large_string(): "large string", pa.binary(): "binary", pa.large_binary(): "large binary", pa.date32(): "date",
    pa.month_day_nano_interval(): "month day nano interval",
}  # fmt: skip
_INSIDE = ("", " of right")
"""Suffixes that no names of users have: the plan gives the columns of the answer the names that were asked for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What is joined of two inputs, left and right; `hot` is what `hot_as_text` gave."""

    on: tuple[Key, ...]
    within: Band | None = None
    hot: str = ""

    def spec(self, algorithm: str, names: tuple[str, ...], with_phase: bool) -> OnlineJoin:
        """The specification of the operator."""
        return ALGORITHMS[algorithm](on=self.on, within=self.within, with_phase=with_phase, suffixes=_INSIDE)

    def spread(self, schemas: dict[str, pa.Schema], buckets: int) -> BucketRule:
        """The bucket of each row."""
        return BucketRule(Predicate(self.on, self.within), schemas, buckets, hot_codes(self.hot, self.on, schemas))

    def meaning(self, names: tuple[str, ...]) -> dict[str, Any]:
        """When rows match, as JSON takes it."""
        band = self.within
        within = None if band is None else [band.left, band.right, bound_as_json(band.lo), bound_as_json(band.hi)]
        return {"on": [list(pair) for pair in Predicate(self.on, band).pairs], "within": within}


@dataclass(frozen=True, slots=True)
class Tree:
    """What is joined of many inputs; `rows` are those expected of some inputs, by name."""

    on: tuple[Term, ...]
    rows: tuple[tuple[str, float], ...] = ()

    def cells(self, names: tuple[str, ...], buckets: int) -> Cells:
        """At most this many buckets, as cells of a cube."""
        return choose_cells(join_graph(names, self.on), buckets, dict(self.rows))

    def spec(self, algorithm: str, names: tuple[str, ...], with_phase: bool) -> MultiJoin:
        """The specification of the operator."""
        return MULTIWAY[algorithm](inputs=names, on=self.on, with_phase=with_phase)

    def spread(self, schemas: dict[str, pa.Schema], buckets: int) -> MultiBucketRule:
        """The buckets of each row, of at most this many."""
        return MultiBucketRule(self.cells(tuple(schemas), buckets), schemas)

    def meaning(self, names: tuple[str, ...]) -> dict[str, Any]:
        """When rows match, as JSON takes it."""
        return {"inputs": list(names), "on": [[*term[:2], *map(bound_as_json, term[2:])] for term in self.on]}


@dataclass(frozen=True, slots=True)
class BucketJoin:
    """An algorithm with what it joins, its budget and its inputs; `open` gives the running operator."""

    algorithm: str
    what: Pair | Tree
    memory: int
    with_phase: bool
    inputs: tuple[tuple[str, pa.Schema], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs."""
        return tuple(name for name, _ in self.inputs)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each input."""
        return dict(self.inputs)

    def spec(self) -> OnlineSpec:
        """The specification of the operator."""
        return self.what.spec(self.algorithm, self.names, self.with_phase)

    def open(self) -> OnlineOperator:
        """The running join, in a budget of its own; what does not fit goes to Spark's local directory."""
        return self.spec().open(MemoryBudget(self.memory, "online join"), self.schemas)

    def spread(self, buckets: int) -> BucketRule | MultiBucketRule:
        """Which of at most this many buckets rows belong to."""
        return self.what.spread(self.schemas, buckets)

    def meaning(self) -> dict[str, Any]:
        """What the rows of its state are and when they match: nothing of this can change while there is state."""
        columns = {f"columns of {name}": schema_text(schema) for name, schema in self.inputs}
        return {**self.what.meaning(self.names), **columns}


def bound_as_json(bound: Distance) -> list[Any]:
    """A bound of a band as JSON takes it."""
    if isinstance(bound, timedelta):
        return ["timedelta", bound // timedelta(microseconds=1)]
    return ["decimal", str(bound)] if isinstance(bound, Decimal) else ["number", bound]


def schema_text(schema: pa.Schema) -> str:
    """The columns as one line: two lines are equal if rows of one schema can be read as those of the other.

    We write it ourselves, so that no other library decides when two schemas differ.

    >>> schema_text(pa.schema([("k", pa.int64()), pa.field("at", pa.timestamp("us", "UTC"), nullable=False)]))
    '"k" int64, "at" timestamp(us, UTC) not null'
    """
    return ", ".join(_field(field) for field in schema)


def _field(field: pa.Field) -> str:
    quoted = '"' + field.name.replace('"', '""') + '"'
    return f"{quoted} {_kind(field.type)}" + ("" if field.nullable else " not null")


def _kind(kind: pa.DataType) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind):
        return f"decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return f"timestamp({kind.unit}, {kind.tz})" if kind.tz else f"timestamp({kind.unit})"
    if pa.types.is_duration(kind):
        return f"duration({kind.unit})"
    if pa.types.is_time(kind):
        return f"time{kind.bit_width}({kind.unit})"
    if pa.types.is_map(kind):
        return f"map<{_field(kind.key_field)}, {_field(kind.item_field)}>"
    if pa.types.is_list(kind):
        return f"list<{_field(kind.value_field)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_field(kind.field(at)) for at in range(kind.num_fields))}>"
    raise UnsupportedError(f"columns of type {kind} cannot be kept in the state of an online join; cast them.")
