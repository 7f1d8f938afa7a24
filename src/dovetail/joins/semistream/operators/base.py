"""What running semi-stream joins share: rows are coded and sent home, master rows read and met, answers collected."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.columns import held_bytes
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import OperatorBase, OperatorError, Until
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.segment_match import empty_scratch, scratch_bytes
from dovetail.joins.semistream.kernels.waiting_pool import BUCKETS
from dovetail.joins.semistream.keys import KeyCodes, key_columns
from dovetail.joins.semistream.operators.answers import Answers, RowStore, Shape, refs_of
from dovetail.joins.semistream.operators.waiting import report_waits
from dovetail.joins.semistream.sizes import INTAKE_BYTES, Footprint, Segments, Sizes, asks_for_keys, footprint

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.pages import Pages
    from dovetail.joins.semistream.operators.spec import SemiStreamJoin


class Rows(NamedTuple):
    """Stream rows that must meet master rows: key code, home segment (0 without an index) and name of each."""

    codes: I64
    segments: I64
    refs: I64


class Loaded(NamedTuple):
    """A segment in memory: its rows and their codes, and its number among the stored chunks."""

    batch: pa.RecordBatch
    codes: I64
    chunk: int


def unanswered(snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
    """The rows of a snapshot that have no answer yet, in their order.

    MESHJOIN also keeps rows that were answered until they have met all pages; where all rows of a key lie in one page,
    no more answers can follow.
    """
    if "rows" not in snapshot:
        return []
    rows, waits = snapshot["rows"], snapshot["waits"]
    if "matched" in waits.column_names:
        rows = rows.filter(pc.invert(waits["matched"]))
    return [batch for batch in rows.combine_chunks().to_batches() if batch.num_rows]


class SemiStreamOperator(OperatorBase):
    """A semi-stream join in progress.

    `push` ends with all rows of its batch answered or waiting inside; `idle` goes on until nothing waits; `drain`
    answers everything without ending; `finish` ends. `adopt` takes up a new version of the master data.
    """

    def __init__(
        self, spec: SemiStreamJoin, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes
    ) -> None:
        self._clock, self._limit = spec.pages.device.clock, budget.available
        super().__init__(shape.schema, budget, Metrics(self._clock))
        self.spec, self.sizes = spec, sizes
        self._stream_schema = stream
        types = [spec.pages.schema.field(name).type for name in spec.pages.key]
        self.key_codes = KeyCodes(types, spec.hash_bits, spec.null_safe)
        self._buffer_wait = np.zeros(BUCKETS, np.int64)
        self.counts = dict.fromkeys(("rows", "answered_by_cache", "answered_by_page", "misses", "loads", "admits"), 0)
        self._read_before, self._bytes_before = spec.pages.device.bytes_read, 0
        self._finished = False
        self._open(spec.pages, shape)

    def _open(self, pages: Pages, shape: Shape) -> None:
        self.pages = pages
        self.segments = self.geometry(pages)
        cost = self.footprint()
        self._intake_rows, self._hold_bytes, self._floor = cost.intake, cost.hold, cost.output + cost.hold
        self._intake = self.own(self.budget.reserve("stream buffer"))
        self._intake.grow(INTAKE_BYTES * self._intake_rows)
        self._working = self.own(self.budget.reserve("disk buffer keys"))
        self.scratch = empty_scratch(0)
        self._grow_scratch()
        self.master = self.own(RowStore(pages.schema, self.budget.reserve("disk buffer")))
        self.stream = self.stream_store()
        capacity = max(cost.pairs, self.segments.most_rows + 64)
        stores = self.stream, self.master
        on, key = self.spec.on, pages.key
        self.answers = self.own(Answers(shape, self.spec.how, self.key_codes, on, key, self.budget, stores, capacity))
        self._loaded: Loaded | None = None
        self._passing: set[int] = set()

    def footprint(self) -> Footprint:
        """What everything but the sized parts takes with the segments there are."""
        per, together = self.sizes.per_segment or 1, self.sizes.together
        keyed = asks_for_keys(self.pages, self.spec.parts)
        return footprint(self.pages, self._stream_schema, per, self.segments.pinned, self._limit, together, keyed)

    def _grow_scratch(self, rows: int | None = None) -> None:
        rows = self.segments.most_rows if rows is None else rows
        self._working.resize(scratch_bytes(rows) + 16 * rows)
        before = self.scratch
        self.scratch = empty_scratch(rows)
        self.scratch.probes[:] = before.probes

    def make_room(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Room to meet a segment of so many rows, more than any had when it was counted."""
        if rows > len(self.scratch.following):
            yield from self.flush()
            self._grow_scratch(rows)
            self.answers.reserve(rows + 64)

    def geometry(self, pages: Pages) -> Segments:
        """The segments of these pages."""
        return Segments(pages, self.sizes.per_segment or 1)

    @abstractmethod
    def stream_store(self) -> RowStore:
        """Where stream rows are kept."""

    @abstractmethod
    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Take rows in, whose batch stays until `settle`."""

    @abstractmethod
    def settle(self) -> Iterator[pa.RecordBatch]:
        """End a push: rows that wait are in memory of our own afterwards."""

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
        """Take stream rows and give the answers that they and what waited make possible now."""
        self._check(side, batch)
        if not batch.num_rows:
            return
        pushed_ns = self._clock.now_ns()
        chunk = self.lend(batch)
        self.counts["rows"] += batch.num_rows
        for start in range(0, batch.num_rows, self._intake_rows):
            part = batch.slice(start, self._intake_rows)
            rows, missing = self._coded(part, chunk, start)
            self.counts["misses"] += len(missing)
            yield from self.answers.misses(missing)
            yield from self.take(rows)
            self._buffer_wait[max(0, self._clock.now_ns() - pushed_ns).bit_length()] += part.num_rows
        yield from self.flush()
        yield from self.settle()

    def _check(self, side: str, batch: pa.RecordBatch) -> None:
        if side not in self.spec.sides or self._finished:
            raise OperatorError(f"push({side!r}) after finish, or to a side that is not one of {self.spec.sides}.")
        if not batch.schema.equals(self._stream_schema):
            raise OperatorError(
                f"a batch has schema {batch.schema}; the stream was announced as {self._stream_schema}."
            )

    def _coded(self, batch: pa.RecordBatch, chunk: int, start: int) -> tuple[Rows, I64]:
        """The rows that have a home, and the names of those whose key matches nothing: null, or certainly not there."""
        key = key_columns(batch, self.spec.on, self.key_codes.types)
        codes, valid = self.key_codes.encode(key)
        homes = self.segments.homes(key) if self.spec.needs_index else np.zeros(len(codes), np.int64)
        refs = refs_of(chunk, np.arange(start, start + len(codes)))
        known = valid & (homes >= 0)
        if known.all():
            return Rows(codes, int64s(homes), int64s(refs)), refs[:0]
        some = np.flatnonzero(known)
        return Rows(int64s(codes[some]), int64s(homes[some]), int64s(refs[some])), refs[~known]

    def load(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Read a segment into the disk buffer, where `loaded` finds it; answers come out if room is needed."""
        self._loaded = None
        if self.master.charged > self._hold_bytes or self.answers.n * 2 > self.answers.capacity:
            yield from self.flush()
        elif not self.keeps_pages:
            self.release_pages()
        batch = self.read_segment(segment)
        self.counts["loads"] += 1
        yield from self.hold(batch)

    def read_segment(self, segment: int) -> pa.RecordBatch:
        """The rows of a segment, all of them or those that a join needs; `first_row` is the number of the first."""
        self.first_row = int(self.segments.starts[self.segments.first[segment]])
        return self.segments.read(segment)

    first_row = 0

    def hold(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep a batch of master rows as the loaded one until answers that name it are out."""
        size = held_bytes(batch)
        kept = batch.select(self.kept_columns())
        yield from self.make_room(batch.num_rows)
        if not self.fits(size):
            yield from self.flush()
        chunk = self.master.add_charged(kept, size)
        codes, _ = self.key_codes.encode([batch.column(batch.schema.get_field_index(k)) for k in self.pages.key])
        self.keep_loaded(Loaded(kept, codes, chunk))

    def keep_loaded(self, loaded: Loaded) -> Loaded:
        """The rows, now the loaded ones until answers that name them are out."""
        self._loaded = loaded
        self._passing.add(loaded.chunk)
        return loaded

    def now_ns(self) -> int:
        """The time on the join's clock."""
        return self._clock.now_ns()

    def fits(self, n: int) -> bool:
        """Whether so many bytes could be reserved now, with some left for answers."""
        return self.budget.available > n + self.output_floor

    @property
    def floor(self) -> int:
        """Bytes of the budget that only loaded rows and answers may use."""
        return self._floor

    @property
    def output_floor(self) -> int:
        """Bytes that are left for answers, at least."""
        return 4096

    @property
    def keeps_pages(self) -> bool:
        """Whether answers name master rows, so that pages must stay until they are out."""
        return bool(self.answers.shape.master)

    def kept_columns(self) -> list[str]:
        """The master columns that answers, checks of keys and caches need."""
        if self._kept_columns is None:
            self._kept_columns = self._needed_columns()
        return self._kept_columns

    _kept_columns: list[str] | None = None

    def _needed_columns(self) -> list[str]:
        needed = set(self.answers.shape.master)
        if not self.key_codes.exact:
            needed |= set(self.pages.key)
        return [name for name in self.pages.schema.names if name in needed]

    @property
    def loaded(self) -> Loaded:
        """The segment in the disk buffer."""
        if self._loaded is None:
            raise OperatorError("no segment is loaded.")
        return self._loaded

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Give all answers collected, and let go of pages that only they named."""
        yield from self.answers.flush()
        self.release_pages()

    def release_pages(self) -> None:
        """Let go of pages that nothing names; pages that a join keeps for longer are its own business."""
        if not self._passing:
            return
        lasting = self.lasting() | ({self._loaded.chunk} if self._loaded is not None else set())
        self.master.drop(self._passing - lasting)
        self._passing &= lasting

    def lasting(self) -> set[int]:
        """Chunks of master rows that stay."""
        return set()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer everything that waits."""
        while self.waiting_rows:
            yield from self.work()
        yield from self.flush()

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Go on with what waits until it is all answered or input is back."""
        while self.waiting_rows and not until():
            yield from self.work()
        yield from self.flush()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Answer everything that waits, for good."""
        yield from self.drain()
        self._finished = True

    def adopt(self, pages: Pages, changed: I64 | None = None) -> Iterator[pa.RecordBatch]:
        """Answer all that waits from the old version, then take up the new one; only `changed` pages differ in it."""
        if pages.schema != self.pages.schema or pages.key != self.pages.key:
            raise PlanError(f"the new version has columns {pages.schema.names} and key {pages.key}; start a new join.")
        yield from self.drain()
        self._bytes_before += self.pages.device.bytes_read - self._read_before
        self._read_before = pages.device.bytes_read
        self.regroup(pages)
        yield from self.adopted(changed)

    def adopted(self, changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """What a join does about its own copies of master rows when a version was taken up."""
        return iter(())

    def regroup(self, pages: Pages) -> None:
        """Segments of these pages from now on; nothing waits, and no segment is loaded."""
        self._loaded = None
        self.release_pages()
        self.pages, self.segments = pages, self.geometry(pages)
        cost = self.footprint()
        self._hold_bytes, self._floor = cost.hold, cost.output + cost.hold
        self._grow_scratch()
        self.answers.reserve(self.segments.most_rows + 64)
        self.reshape()

    @abstractmethod
    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Take up those of these sizes that are given, and answer what no longer fits."""

    @abstractmethod
    def snapshot(self) -> dict[str, pa.Table]:
        """Everything that later answers depend on."""

    @abstractmethod
    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Take up a snapshot in a join that has seen no rows; gives answers of rows that no longer fit."""

    def readmit(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Take up a snapshot of another version, of which only `changed` pages differ, in a join that saw no rows.

        Rows that waited are admitted anew, in their order, to be answered from this version. Of what the join had
        learned it keeps what still holds.
        """
        self.relearn(snapshot, changed)
        before = self.counts["rows"]
        for batch in unanswered(snapshot):
            yield from self.push("stream", batch)
        self.counts["rows"] = before

    def relearn(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> None:
        """Take up what a join on another version had learned and is still true in this one."""

    def reshape(self) -> None:
        """Fit what depends on the number of segments to a new version; nothing waits then."""

    def report(self) -> Metrics:
        """The metrics so far, with all counts in them; once, at the end."""
        for name, n in self.counts.items():
            self.metrics.add(name, n, unit="loads" if name == "loads" else "rows")
        self.metrics.add("emits", self.answers.emitted)
        self.metrics.add("probes", int(self.scratch.probes[0]), unit="probes")
        read = self.pages.device.bytes_read - self._read_before
        self.metrics.add("bytes_read", self._bytes_before + read, unit="bytes")
        report_waits(self.metrics, "buffer_wait", self._buffer_wait)
        return self.metrics

    def close(self) -> None:
        """Free all memory and complete the metrics; twice is fine."""
        if not getattr(self, "_closed", False):
            self._closed = True
            self.report()
        super().close()
