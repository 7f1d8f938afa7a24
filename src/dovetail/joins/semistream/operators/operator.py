"""The base classes of semi-stream joins: the specification, and the operator, which encodes keys and emits results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Drains, OperatorBase, OperatorError, Resizes, Restores, Snapshots, Until
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.rows.named_rows import refs_of
from dovetail.errors import PlanError
from dovetail.joins.semistream.cells import CELL
from dovetail.joins.semistream.kernels.waiting_pool import BUCKETS
from dovetail.joins.semistream.keys import check_keys
from dovetail.joins.semistream.master.pages import Pages, probed, ranges_of, stream_key
from dovetail.joins.semistream.operators.answers import Answers, RowStore, Shape
from dovetail.joins.semistream.operators.master_rows import Counts, DiskBuffer
from dovetail.joins.semistream.operators.waiting import Rows, report_waits
from dovetail.joins.semistream.request import How, Residence, check_how
from dovetail.joins.semistream.sizes import FITTED, INTAKE_BYTES, Footprint, Part, Sizes, asks_for_keys, fit, footprint
from dovetail.joins.semistream.within import PairCheck

Snapshot = Mapping[str, pa.Table]


def unanswered(snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
    """The rows of a snapshot that have no answer yet, in their order.

    MESHJOIN also keeps answered rows until they were joined with all pages. If all rows of a key are in one page, no
    more answers follow.
    """
    if "rows" not in snapshot:
        return []
    rows, waits = snapshot["rows"], snapshot["waits"]
    if "matched" in waits.column_names:
        rows = rows.filter(pc.invert(waits["matched"]))
    return [batch for batch in rows.combine_chunks().to_batches() if batch.num_rows]


class SemiStreamOperator(OperatorBase, Drains, Snapshots[Snapshot], Restores[Snapshot], Resizes[Sizes]):
    """A semi-stream join in progress.

    `push` ends with all rows of its batch answered or waiting; `idle` runs until no row waits; `drain` answers
    everything without ending; `finish` ends. `adopt` switches to a new version of the master data. With `pinned`, that
    number of first pages is a segment of its own; with `stores_rows`, master rows are kept even if no answer needs a
    column of them.
    """

    def __init__(
        self,
        spec: SemiStreamJoin,
        budget: MemoryBudget,
        stream: pa.Schema,
        shape: Shape,
        sizes: Sizes,
        pinned: int = 0,
        stores_rows: bool = False,
    ) -> None:
        self.clock, self._limit = spec.pages.device.clock, budget.available
        super().__init__(shape.schema, budget, Metrics())
        self.spec, self.sizes, self._stream_schema, self._pinned = spec, sizes, stream, pinned
        self.key_codes = KeyCodes(
            [spec.pages.schema.field(name).type for name in spec.pages.key], spec.hash_bits, spec.null_safe
        )
        self._buffer_wait = np.zeros(BUCKETS, np.int64)
        names = "rows", "answered_by_cache", "answered_by_page", "misses", "loads", "admits"
        self.counts: Counts = dict.fromkeys(names, 0)
        self._read_before, self._bytes_before = spec.pages.device.bytes_read, 0
        self._finished = self._closed = False
        cost = self._footprint(spec.pages)
        self._intake_rows = cost.intake
        self.own(budget.reserve("stream buffer")).grow(INTAKE_BYTES * self._intake_rows)
        self.stream = self.stream_store(cost)
        master = RowStore(spec.pages.schema, budget.reserve("disk buffer"))
        capacity = max(cost.pairs, cost.segments.most_rows + 64)
        keys = self.key_codes, spec.on, spec.pages.key
        self.answers = self.own(
            Answers(shape, spec.how, *keys, budget, (self.stream, master), capacity, self._key_of, spec.check)
        )
        columns = self._needed_columns(shape, stores_rows)
        self.disk = self.own(DiskBuffer(master, self.answers, self.key_codes, columns, cost, self.counts))

    def _footprint(self, pages: Pages) -> Footprint:
        """The segments of these pages, and the memory of everything except the sized parts."""
        per, together = self.sizes.per_segment or 1, self.sizes.together
        keyed = asks_for_keys(pages, self.spec.parts)
        return footprint(pages, self._stream_schema, per, self._pinned, self._limit, together, keyed)

    def _needed_columns(self, shape: Shape, stores_rows: bool) -> list[str]:
        """The master columns that answers and checks of keys need; one at least if rows are stored."""
        pages = self.spec.pages
        needed = set(shape.master) | (set() if self.key_codes.exact else set(pages.key))
        needed |= set() if self.spec.check is None else set(self.spec.check.master)
        if stores_rows and not needed:
            needed = {pages.key[0]}
        return [name for name in pages.schema.names if name in needed]

    def _key_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return stream_key(self.pages, rows, self.spec.on)

    @property
    def pages(self) -> Pages:
        """The version that is read."""
        return self.disk.pages

    @abstractmethod
    def stream_store(self, cost: Footprint) -> RowStore:
        """Where stream rows are kept."""

    @abstractmethod
    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Take rows in, whose batch stays until `settle`."""

    @abstractmethod
    def settle(self) -> Iterator[pa.RecordBatch]:
        """End a push: waiting rows are in owned memory afterwards."""

    @abstractmethod
    def work(self) -> Iterator[pa.RecordBatch]:
        """One step of deferred work."""

    @property
    @abstractmethod
    def waiting_rows(self) -> int:
        """How many stream rows are unanswered."""

    @abstractmethod
    def lend(self, batch: pa.RecordBatch) -> int:
        """The chunk of a pushed batch."""

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take stream rows; yields the answers that are now possible."""
        self._check(side, batch)
        if not batch.num_rows:
            return
        pushed_ns = self.clock.now_ns()
        chunk = self.lend(batch)
        self.counts["rows"] += batch.num_rows
        for start in range(0, batch.num_rows, self._intake_rows):
            part = batch.slice(start, self._intake_rows)
            rows, missing = self.coded(part, chunk, start)
            self.counts["misses"] += len(missing)
            yield from self.answers.misses(missing)
            yield from self.take(rows)
            self._buffer_wait[max(0, self.clock.now_ns() - pushed_ns).bit_length()] += part.num_rows
        yield from self.answers.flush()
        yield from self.settle()

    def _check(self, side: str, batch: pa.RecordBatch) -> None:
        if side != "stream" or self._finished:
            raise OperatorError(f"push({side!r}) after finish, or to another side than 'stream'.")
        if not batch.schema.equals(self._stream_schema):
            raise OperatorError(
                f"a batch has schema {batch.schema}; the stream was announced as {self._stream_schema}."
            )

    def coded(self, batch: pa.RecordBatch, chunk: int, start: int = 0) -> tuple[Rows, I64]:
        """The rows that have a home, and the names of those whose key matches nothing: null, or certainly absent."""
        key = self._key_of(batch)
        codes, valid = self.key_codes.encode(key)
        homes = self.disk.segments.homes(key) if self.spec.needs_index else np.zeros(len(codes), np.int64)
        refs = refs_of(chunk, np.arange(start, start + len(codes)))
        known = valid & (homes >= 0)
        if known.all():
            return Rows(codes, int64s(homes), int64s(refs)), refs[:0]
        return Rows(codes, homes, refs).some(np.flatnonzero(known)), refs[~known]

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer all waiting rows."""
        while self.waiting_rows:
            yield from self.work()
        yield from self.answers.flush()

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Answer waiting rows until none is left or input resumes."""
        while self.waiting_rows and not until():
            yield from self.work()
        yield from self.answers.flush()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Answer all waiting rows, and take no more rows."""
        yield from self.drain()
        self._finished = True

    def adopt(self, pages: Pages, changed: I64 | None = None) -> Iterator[pa.RecordBatch]:
        """Answer all waiting rows from the old version, then switch to the new one; only `changed` pages differ."""
        if pages.schema != self.pages.schema or pages.key != self.pages.key:
            raise PlanError(f"the new version has columns {pages.schema.names} and key {pages.key}; start a new join.")
        yield from self.drain()
        self._bytes_before += self.pages.device.bytes_read - self._read_before
        self._read_before = pages.device.bytes_read
        self.regroup(pages)
        self.adopted(changed)

    def regroup(self, pages: Pages) -> None:
        """Read the segments of these pages from now on; nothing waits."""
        self.disk.regroup(self._footprint(pages))

    def adopted(self, changed: I64 | None) -> None:
        """Update the kept master rows after a new version was adopted."""

    @abstractmethod
    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Apply the given sizes, and answer rows that no longer fit."""

    @abstractmethod
    def snapshot(self) -> dict[str, pa.Table]:
        """Everything that later answers depend on."""

    @abstractmethod
    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Restore a snapshot in a join that has seen no rows; returns answers of rows that no longer fit."""

    def readmit(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Restore a snapshot of another version, in which only `changed` pages differ, in a join that saw no rows.

        Waiting rows are admitted again, in their order, and are answered from this version. Learned state is kept if it
        is still valid.
        """
        self.relearn(snapshot, changed)
        before = self.counts["rows"]
        for batch in unanswered(snapshot):
            yield from self.push("stream", batch)
        self.counts["rows"] = before

    def relearn(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> None:
        """Restore the learned state of a join on another version that is still valid in this one."""

    def report(self, metrics: Metrics) -> None:
        """Add everything that was counted since the join was opened."""
        for name, n in self.counts.items():
            metrics.add(name, n, unit="loads" if name == "loads" else "rows")
        metrics.add("emits", self.answers.emitted)
        metrics.add("probes", int(self.disk.scratch.probes[0]), unit="probes")
        read = self.pages.device.bytes_read - self._read_before
        metrics.add("bytes_read", self._bytes_before + read, unit="bytes")
        report_waits(metrics, "buffer_wait", self._buffer_wait)

    def close(self) -> None:
        """Free all memory and complete the metrics; twice is fine."""
        if not self._closed:
            self._closed = True
            self.report(self.metrics)
        super().close()


STREAM = "stream"


class NothingWaits(SemiStreamOperator):
    """A running join that answers every batch before the next one: no row waits, and nothing has to be restored."""

    _lent: int | None = None

    def stream_store(self, cost: Footprint) -> RowStore:
        """Only the batch being pushed."""
        return self.own(RowStore(self._stream_schema, self.budget.reserve("stream rows")))

    def lend(self, batch: pa.RecordBatch) -> int:
        """The chunk of the pushed batch."""
        self._lent = self.stream.lend(batch)
        return self._lent

    @property
    def waiting_rows(self) -> int:
        """None ever wait."""
        return 0

    def work(self) -> Iterator[pa.RecordBatch]:
        """There is no deferred work."""
        return iter(())

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Release the batch; all its rows were answered."""
        if self._lent is not None:
            self.stream.drop([self._lent])
            self._lent = None
        return iter(())

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing: no row ever waits, and what is kept only saves reads."""
        return {}

    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Nothing to restore."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class SemiStreamJoin(ABC):
    """Stream rows joined with the master rows of equal key: the part that all algorithms share.

    `on` names the stream's key columns, in the order of the master's. Every stream row is answered exactly once, by all
    master rows of its key. Nulls match nothing, or with `null_safe` each other, over pages that have such rows. Answers
    of one key keep the order of the stream; there is no other order. `columns` are the master columns wanted (all if
    None); `matched` names one more column, that says whether there is a master row, `first` another, the last, that
    marks the first answer of each stream row. Sizes that are left out are fitted to the budget. In a pause all waiting
    rows are answered, or, with `when_idle="hold"`, only those beyond `max_residence`, as a load for few rows wastes
    most of it. `check` is what pairs of equal key must fulfil to match. With `short_reads` a load for few rows reads
    only the pages that these need; the default is to do so on real devices. `hash_bits` below 64 makes hashed keys
    collide; answers stay right, as every hash is checked.
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
    check: PairCheck | None = None

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
        key = probed(self.pages)
        check_keys(stream, self.on, self.pages.schema, key, ranged=key != self.pages.key)
        key = key if key == self.pages.key else (*key[:-1], CELL)  # a value is in no column of the range
        found = Shape.of(stream, self.pages.schema, self.on, key, self.how, self.columns, self.suffixes)
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
        """The further options of this algorithm, as name=value."""
        return []

    def explain(self) -> str:
        """The specification in one line."""
        pairs = zip(self.on, probed(self.pages), strict=False)
        on = " and ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in pairs)
        check = [] if self.check is None else [str(self.check)]
        keys = [f"on {on}", *check] if ranges_of(self.pages) is None else [f"on {self.check}"]
        return ", ".join([f"{type(self).__name__}: {keys[0]}", *keys[1:], self.how, *self.options(), str(self.sizes)])
