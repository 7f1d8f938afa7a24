"""Joins one bucket of two or more inputs: the specification as a value, and the running join between micro-batches.

The value has the predicates, the algorithm and the budget. The running join takes events, restores stored rows, and
retires old rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.engine.operator import OperatorError
from dovetail.engine.rows.layout import How, Key
from dovetail.engine.rows.packing import CHUNK_ROWS, in_chunks
from dovetail.errors import BudgetExceeded, UnsupportedError
from dovetail.joins.online.bucket_rule import BucketRule, Cells, MultiBucketRule, choose_cells, hot_codes
from dovetail.joins.online.events import Event, Piece, unpack_events
from dovetail.joins.online.graph import Band, Predicate, Term, join_graph
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.unmatched import PRESERVED, with_number
from dovetail.request import Distance

if TYPE_CHECKING:
    from dovetail.joins.online.operators.base import OnlineOperator
    from dovetail.joins.online.operators.spec import MultiJoin, OnlineJoin, OnlineSpec

_PLAIN = {
    pa.null(): "null", pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32",
    pa.int64(): "int64", pa.float32(): "float32", pa.float64(): "float64", pa.string(): "string",
    pa.large_string(): "large string", pa.binary(): "binary", pa.large_binary(): "large binary", pa.date32(): "date",
    pa.month_day_nano_interval(): "month day nano interval",
}  # fmt: skip
_INSIDE = ("", " of right")
"""Suffixes that no user's names have: the plan renames the columns of the answer."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The predicates of a join of two inputs, left and right; `hot` is the result of `hot_as_text`."""

    on: tuple[Key, ...]
    within: Band | Intervals | None = None
    hot: str = ""
    how: How = "inner"
    null_safe: bool = False

    @property
    def predicate(self) -> Predicate:
        """When two rows match."""
        return Predicate(self.on, self.within, self.null_safe)

    @property
    def preserved(self) -> tuple[int, ...]:
        """The sides whose rows are numbered."""
        return PRESERVED[self.how]

    @property
    def alone_sides(self) -> tuple[int, ...]:
        """The sides whose rows come without a partner if they have none."""
        return () if self.how == "left_semi" else self.preserved

    def key_columns(self, side: int) -> tuple[str, ...]:
        """The equal columns of an input."""
        return tuple(pair[side] for pair in Predicate(self.on).pairs) if self.on else ()

    def spec(self, algorithm: str, names: tuple[str, ...], with_phase: bool) -> OnlineJoin:
        """The specification of the operator: an inner join, which leaves room to remember which rows matched."""
        from dovetail.joins.online.operators import ALGORITHMS  # workers that only pack rows do not need the kernels

        join, beside = ALGORITHMS[algorithm], bool(self.preserved)
        given = {"on": self.on, "within": self.within, "null_safe": self.null_safe}
        return join(**given, with_phase=with_phase, suffixes=_INSIDE, beside=beside)  # type: ignore[arg-type]  # as named

    def bucket_rule(self, schemas: dict[str, pa.Schema], buckets: int) -> BucketRule:
        """The bucket of each row."""
        hot, once = hot_codes(self.hot, self.on, schemas, self.null_safe), int(self.how == "right")
        return BucketRule(self.predicate, schemas, buckets, hot, once, self.alone_sides)

    def meaning(self, names: tuple[str, ...]) -> dict[str, Any]:
        """When rows match, as JSON."""
        band = self.within
        how: dict[str, Any] = {} if self.how == "inner" else {"how": self.how}
        how |= {"null_safe": True} if self.null_safe else {}
        within = None
        if isinstance(band, Intervals):
            how |= band.as_json()
        elif band is not None:
            within = [band.left, band.right, bound_as_json(band.lo), bound_as_json(band.hi)]
        return {"on": [list(pair) for pair in self.predicate.pairs], "within": within, **how}


@dataclass(frozen=True, slots=True)
class Tree:
    """The predicates of a join of many inputs; `rows` are the expected rows of some inputs, by name."""

    on: tuple[Term, ...]
    rows: tuple[tuple[str, float], ...] = ()
    preserved: ClassVar[tuple[int, ...]] = ()

    def cells(self, names: tuple[str, ...], buckets: int) -> Cells:
        """At most this many buckets, as cells of a cube."""
        return choose_cells(join_graph(names, self.on), buckets, dict(self.rows))

    def spec(self, algorithm: str, names: tuple[str, ...], with_phase: bool) -> MultiJoin:
        """The specification of the operator."""
        from dovetail.joins.online.operators import MULTIWAY  # as above

        return MULTIWAY[algorithm](inputs=names, on=self.on, with_phase=with_phase)

    def bucket_rule(self, schemas: dict[str, pa.Schema], buckets: int) -> MultiBucketRule:
        """The buckets of each row, of at most this many."""
        return MultiBucketRule(self.cells(tuple(schemas), buckets), schemas)

    def meaning(self, names: tuple[str, ...]) -> dict[str, Any]:
        """When rows match, as JSON."""
        return {"inputs": list(names), "on": [[*term[:2], *map(bound_as_json, term[2:])] for term in self.on]}


@dataclass(frozen=True, slots=True)
class BucketJoin:
    """An algorithm with its predicates, budget and inputs; `open` returns the running operator."""

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

    @property
    def stored(self) -> dict[str, pa.Schema]:
        """The columns of each input in the operator and in the state: preserved rows have a number."""
        preserved = self.what.preserved
        return {n: with_number(s, side) if side in preserved else s for side, (n, s) in enumerate(self.inputs)}

    @property
    def pair(self) -> Pair:
        """The predicates of a join of two inputs."""
        assert isinstance(self.what, Pair)  # noqa: S101  (for the type checker: joins of many inputs are inner joins)
        return self.what

    def spec(self) -> OnlineSpec:
        """The specification of the operator."""
        return self.what.spec(self.algorithm, self.names, self.with_phase)

    def open(self) -> OnlineOperator:
        """The running join, in a budget of its own; rows that do not fit go to Spark's local directory."""
        return self.spec().open(MemoryBudget(self.memory, "online join"), self.stored)

    def bucket_rule(self, buckets: int) -> BucketRule | MultiBucketRule:
        """Which of at most this many buckets rows belong to."""
        return self.what.bucket_rule(self.schemas, buckets)

    def meaning(self) -> dict[str, Any]:
        """The schemas of its state and its predicates, which cannot change while there is state."""
        columns = {f"columns of {name}": schema_text(schema) for name, schema in self.inputs}
        return {**self.what.meaning(self.names), **columns}


def bound_as_json(bound: Distance) -> list[Any]:
    """A bound of a band, as JSON."""
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


_ANSWER_BYTES = 4 << 20


class Work(NamedTuple):
    """The input of one call: events, before which the `leaving` oldest rows leave a resident join.

    A rebuilt join does not have these rows.
    """

    events: Sequence[Event]
    leaving: int = 0


@dataclass(slots=True)
class Units:
    """The `until` of `idle`: true after this many units of work. If some are `left` afterwards, all work is done."""

    left: int

    def __call__(self) -> bool:
        """Count one unit; whether all are used up."""
        self.left -= 1
        return self.left <= 0


class Running:
    """The running join of one bucket."""

    def __init__(self, join: BucketJoin) -> None:
        self.operator: OnlineOperator = join.open()
        self._names = join.names
        self._schemas = [join.stored[name] for name in join.names]
        self._rows: deque[tuple[int, int]] = deque()
        """For each event whose rows have not left: the number of rows, and the tick of the last one."""
        self.owed = True
        self.is_over = False

    def work(self, what: Work, is_new: bool) -> Generator[pa.Buffer, None, dict[str, Any]]:
        """Answers as Arrow record batches without their schema, and then what was counted.

        The join `is_over` after `finish`, and if a rebuilt one would be better.
        """
        if what.leaving and not is_new:
            self.retire(what.leaving)
            self.is_over = self.operator.would_fit
        base = self.totals()
        for event in what.events:
            self.is_over = self.is_over or event.kind == "finish"
            for batch in in_chunks(self.apply(event), CHUNK_ROWS, _ANSWER_BYTES):
                yield batch.serialize()
        counts = {key: value - base[key] for key, value in self.totals().items()}
        return {"owed": self.owed and self.operator.owes, "counts": counts, "peaks": self.peaks()}

    def apply(self, event: Event) -> Iterator[pa.RecordBatch]:
        """The answers that an event brings."""
        if event.kind == "push":
            self.owed = True
            batch = event.batch(self._schemas[event.side])
            yield from self.operator.push(self._names[event.side], batch)
            self._came(batch.num_rows)
        elif event.kind == "settle":
            yield from self._settled()
        elif event.kind == "finish":
            yield from self.operator.finish()
        elif event.kind == "end":
            self.operator.end(self._names[event.side])
        elif event.kind == "budget":
            yield from self.operator.resize(event.units)
        else:
            for _ in range(event.times):
                units = Units(event.units)
                yield from self.operator.idle(units)
                self.owed = units.left <= 0

    def _settled(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.operator.drain()
        except BudgetExceeded as error:
            limit = format_bytes(self.operator.budget.limit)
            raise BudgetExceeded(
                f"the pending results of rows on disk cannot be computed within {limit}; restart the query from the "
                f"same checkpoint with more memory=. {error}"
            ) from error
        self.owed = False

    def take_up(self, pieces: Iterable[Piece]) -> None:
        """Restore the join from these pieces: rows of settled ones are loaded, other events are replayed.

        Answers of the replay are discarded, as they were given before.
        """
        waiting = iter(pieces)
        tail: list[Piece] = []
        for _ in self.operator.restore(self._settled_rows(waiting, tail)):
            pass
        self.owed = False
        for piece in chain(tail, waiting):
            for event in unpack_events(piece.data):
                for _ in self.apply(event):
                    pass

    def _settled_rows(self, pieces: Iterator[Piece], tail: list[Piece]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of the settled pieces, which come first; the first of the others goes to the tail."""
        for piece in pieces:
            if not piece.settled:
                tail.append(piece)
                return
            for event in unpack_events(piece.data):
                if event.kind == "push":
                    batch = event.batch(self._schemas[event.side])
                    yield self._names[event.side], batch
                    self._came(batch.num_rows)

    def _came(self, rows: int) -> None:
        if rows:
            self._rows.append((rows, self.operator.clock))

    def retire(self, rows: int) -> None:
        """Retire the `rows` oldest rows of all inputs; they are those of whole events, and nothing is owed."""
        until = 0
        while rows > 0:
            n, until = self._rows.popleft()
            rows -= n
        if rows < 0:
            raise OperatorError(f"rows that leave end {-rows} rows before the end of an event.")
        self.operator.retire(until)

    def close(self) -> None:
        """Free memory and files."""
        self.operator.begin({})  # counters need a join that has begun
        self.operator.close()

    def totals(self) -> dict[str, int]:
        """The counters since the join began."""
        operator, found = self.operator, {"comparisons": self.operator.metrics.value("comparisons")}
        for phase, n in operator.progress.results.items():
            found[f"results_{phase}"] = n
        for side, store in zip(self._names, operator.blocks, strict=True):
            found[f"blocks_flushed {side}"] = store.blocks_written
            found[f"blocks_read {side}"] = store.blocks_read
            found[f"bytes_flushed {side}"] = store.bytes_written
            found[f"rows_reloaded {side}"] = operator.metrics.value("rows_reloaded", side)
        return found

    def peaks(self) -> dict[str, int]:
        """Largest values so far."""
        names = {entry.name for entry in self.operator.metrics.entries()}
        found = {"memory_peak": self.operator.budget.peak}
        if "handover_delay" in names:
            found["handover_delay"] = self.operator.metrics.value("handover_delay")
        return found
