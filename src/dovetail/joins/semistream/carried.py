"""What a stream keeps from one micro-batch to the next in mode "carry": a join's state as bytes, and parked rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from dovetail.errors import ConfigError
from dovetail.joins.semistream.cost.reads import IoCosts
from dovetail.joins.semistream.cost.setting import ReadCosts
from dovetail.joins.semistream.decision import Decision
from dovetail.joins.semistream.operators.base import unanswered
from dovetail.joins.semistream.sizes import Sizes

_FORMAT = 1
NEXT = "next_ms"  # of a parked row: when it is tried again


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm with its sizes, and the skew and cost of reads that these were chosen for."""

    algorithm: str
    sizes: Sizes
    exponent: float = 1.0
    io: IoCosts | None = None

    @classmethod
    def of(cls, decision: Decision) -> Plan:
        """What is to be remembered of a decision."""
        return cls(decision.algorithm, decision.sizes, decision.exponent, decision.io)

    def decision(self, origin: str) -> Decision:
        """What an operator is opened with."""
        return Decision(self.algorithm, self.sizes, origin, io=self.io)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Plan:
        """The plan that was stored; of a checkpoint from before there were skew and costs in it, without these."""
        io = found.get("io")
        return cls(
            found["algorithm"],
            Sizes(**found["sizes"]),
            found.get("exponent", 1.0),
            None if io is None else IoCosts(ReadCosts(*(_points(io["read"][name]) for name in _READS)), io["look_up"]),
        )


_READS = ("random", "sequential")


def _points(found: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((size, seconds) for size, seconds in found)


@dataclass(frozen=True, slots=True)
class Carried:
    """The state of one owner after a micro-batch: all that its later answers depend on.

    `drained_ms` is the time of the batch since when rows wait. `snapshot` is the operator's, `parked` has rows without
    a match that are to be tried again, with when in column "next_ms". `turns` are micro-batches with rows so far.
    `name` tells the owner from all others, those of other joins of the query among them; it has none in checkpoints
    from before there were names.
    """

    version: str
    plan: Plan
    drained_ms: int
    snapshot: Mapping[str, pa.Table] = field(default_factory=dict)
    parked: pa.Table | None = None
    turns: int = 0
    name: str = ""

    @property
    def decision(self) -> Decision:
        """What the operator must be opened with to take the snapshot up."""
        return self.plan.decision("carried")

    @property
    def waiting(self) -> int:
        """Rows that are unanswered."""
        return int(self.snapshot["rows"].num_rows) if "rows" in self.snapshot else 0

    @property
    def keeps_rows(self) -> bool:
        """Whether there are rows that wait or are parked."""
        return self.waiting > 0 or (self.parked is not None and self.parked.num_rows > 0)

    @property
    def unanswered(self) -> list[pa.RecordBatch]:
        """The rows that wait, in their order."""
        return unanswered(self.snapshot)

    def to_bytes(self) -> bytes:
        """The state as it is stored."""
        tables = dict(self.snapshot)
        if self.parked is not None and self.parked.num_rows:
            tables["parked"] = self.parked
        parts = {name: table_bytes(table) for name, table in tables.items()}
        head = {
            "format": _FORMAT, "version": self.version, **self.plan.to_json(), "drained_ms": self.drained_ms,
            "turns": self.turns, "name": self.name, "tables": [(name, len(part)) for name, part in parts.items()],
        }  # fmt: skip
        text = json.dumps(head).encode()
        return b"".join([struct.pack("<I", len(text)), text, *parts.values()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Carried:
        """The state that was stored."""
        (length,) = struct.unpack_from("<I", data)
        head, at = json.loads(data[4 : 4 + length]), 4 + length
        if head["format"] != _FORMAT:
            raise ConfigError(f"the checkpoint has state of format {head['format']}, not {_FORMAT}; use a new one.")
        tables = {}
        for name, size in head["tables"]:
            tables[name] = table_of(data[at : at + size])
            at += size
        if at != len(data):
            raise ValueError(f"{len(data)} bytes of state, where {at} were stored")
        parked = tables.pop("parked", None)
        plan, turns = Plan.from_json(head), head.get("turns", 0)
        return cls(head["version"], plan, head["drained_ms"], tables, parked, turns, head.get("name", ""))


def table_bytes(table: pa.Table | pa.RecordBatch) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
