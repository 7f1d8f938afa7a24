"""Stores the state of mode "carry" between micro-batches: waiting and parked rows as bytes, and a log of states.

Which rows wait after a micro-batch depends on memory, on Spark's partitions and on measured times. Spark may repeat a
micro-batch whose answers a sink already has, with all of these changed. So the state that a micro-batch leaves is
logged before a sink gets its answers. A repeated attempt finds the state that the first one left, answers all rows but
those that wait in it, and leaves the same state.

versions/
    <query id>/
        <state's name>.17.state         the state after batch 17
        <state's name>.17-idle.state    the same, where no rows came
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.rows.packing import pack, unpack
from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place
from dovetail.errors import ConfigError, DataError
from dovetail.joins.semistream.decision import Decision
from dovetail.joins.semistream.operators.operator import unanswered

FORMAT = 3
NEXT = "next_ms"  # of a parked row: when it is tried again


@dataclass(frozen=True, slots=True)
class Carried:
    """The state of one bucket after a micro-batch: all that its later answers depend on.

    `decision` is the one with which the operator must be opened to restore the snapshot. `drained_ms` is the time of
    the batch since which rows wait. `snapshot` is the operator's, `parked` has rows without a match that are to be
    tried again, at the time in column "next_ms". `micro_batches` are those with rows so far. `name` identifies the
    bucket among those of all joins of the query. `log` is the mark of the version log that also has the state.
    `columns` has the names of the stream's columns, and `on` as it was.
    """

    version: str
    decision: Decision
    drained_ms: int
    snapshot: Mapping[str, pa.Table] = field(default_factory=dict)
    parked: pa.Table | None = None
    micro_batches: int = 0
    name: str = ""
    log: str = ""
    columns: str = ""

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
        head = {
            "format": FORMAT, "version": self.version, **self.decision.to_json(), "drained_ms": self.drained_ms,
            "micro_batches": self.micro_batches, "name": self.name, "log": self.log, "columns": self.columns,
            "tables": list(tables),
        }  # fmt: skip
        return pack(head, [table_bytes(table) for table in tables.values()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Carried:
        """The state that was stored."""
        head, parts = unpack(data)
        if head["format"] != FORMAT:
            raise ConfigError(f"the log has state of format {head['format']}, not {FORMAT}; use a new checkpoint.")
        tables = {name: table_of(part) for name, part in zip(head["tables"], parts, strict=True)}
        parked = tables.pop("parked", None)
        return cls(
            head["version"], Decision.from_json(head), head["drained_ms"], tables, parked,
            head["micro_batches"], head["name"], head["log"], head["columns"],
        )  # fmt: skip


def table_bytes(table: pa.Table | pa.RecordBatch) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def table_of(data: pa.Buffer) -> pa.Table:
    """The table of an Arrow stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


_REPLAYED = 1  # batches before the newest one whose states stay: only the newest one is ever replayed


@dataclass(frozen=True, slots=True)
class StateLog:
    """The log of the state that a micro-batch leaves, in the directory of the query.

    The name in the state identifies the log among those of other buckets and other joins of the query.
    """

    directory: Place
    name: str
    batch: int
    idle: bool

    @property
    def place(self) -> Place:
        """The entry of this micro-batch."""
        return self.directory / f"{self.name}.{self.batch}{'-idle' if self.idle else ''}.state"

    def read(self) -> Carried | None:
        """The state that the first attempt at this micro-batch left; None if this is the first attempt."""
        try:
            data = files.read(self.place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            return Carried.from_bytes(data)
        except (DataError, ValueError, KeyError, TypeError, OSError) as error:
            raise ConfigError(
                f"{self.place} is damaged; restore it, or remove it to answer micro-batch {self.batch} as if it had "
                f"not run, which may give rows twice that a sink has."
            ) from error

    def write(self, data: bytes) -> None:
        """Log the state, once; a `ConfigError` if a concurrent attempt logged another one."""
        try:
            found = data if files.create(self.place, data) else files.read(self.place)
            self._forget()
        except OSError as error:
            raise self._unreachable(error) from error
        if found != data:
            raise ConfigError(f"{self.place} was written by another attempt at the task; Spark tries this one again.")

    def _forget(self) -> None:
        for name in files.names(self.directory):
            number = name.removeprefix(f"{self.name}.").partition(".")[0].partition("-")[0]
            ours = name.startswith(f"{self.name}.") and name.endswith(".state") and number.isdigit()
            if ours and int(number) < self.batch - _REPLAYED:
                files.remove(self.directory / name)

    def _unreachable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the states of mode='carry' cannot be kept in {self.directory} ({error.strerror}); give enrich a "
            f"directory that driver and executors can write to, versions=..."
        )


class WaitingRows:
    """The waiting and parked rows of a state, with their multiplicity; rows are compared by value."""

    def __init__(self, state: Carried, columns: pa.Schema) -> None:
        parked = [] if state.parked is None else state.parked.drop_columns([NEXT]).to_batches()
        self._rows = pa.Table.from_batches([*state.unanswered, *parked], columns)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def others(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are not in the state; of equal rows the first ones count as kept."""
        for batch in batches:
            found = self._without(batch) if len(self) else batch
            if found.num_rows:
                yield found

    def _without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        n = len(self)
        codes = _codes(pa.concat_tables([self._rows, pa.Table.from_batches([batch])]))
        kept, given = codes[:n], codes[n:]
        size = int(codes.max()) + 1
        is_other = _ranks(given) >= np.bincount(kept, minlength=size)[given]
        met = np.bincount(given[~is_other], minlength=size)
        self._rows = self._rows.filter(pa.array(_ranks(kept) >= met[kept])).combine_chunks()
        return batch.filter(pa.array(is_other))


def _codes(rows: pa.Table) -> I64:
    """A number for each row, the same for equal rows and for no others."""
    codes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        values = _column_codes(column.combine_chunks())
        _, codes = np.unique(codes * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    return codes.astype(np.int64)


def _column_codes(column: pa.Array) -> I64:
    if pa.types.is_nested(column.type):  # Arrow has no dictionaries of these
        column = pa.array([repr(value) for value in column.to_pylist()], pa.large_string())
    return int64s(pc.dictionary_encode(column, null_encoding="encode").indices.to_numpy())


def _ranks(codes: I64) -> I64:
    """How many equal codes come before each."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return ranks
