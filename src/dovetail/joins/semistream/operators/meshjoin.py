"""MESHJOIN and R-MESHJOIN: scan the master data in a loop; every stream row stays for one whole scan."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Until
from dovetail.engine.rows.named_rows import refs_of
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.segment_match import INNER, LEFT, SEMI
from dovetail.joins.semistream.kernels.waiting_pool import BUCKETS
from dovetail.joins.semistream.operators.answers import RowStore, Shape
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.joins.semistream.operators.waiting import Rows, report_waits
from dovetail.joins.semistream.sizes import GARBAGE, Footprint, Part, Sizes, footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshJoin(SemiStreamJoin):
    """Every iteration reads the next segment and takes in one chunk of stream rows; a chunk leaves after a round.

    Needs no index and no order. A chunk is `sizes.waiting` rows divided by the segments of a round. When input pauses,
    iterations continue with partial and empty chunks.
    Reference: Naeem 2012, 3.2 and algorithm 1; docs/algorithms/semistream.md, 2.2.
    """

    parts: ClassVar[tuple[Part, ...]] = ("waiting", "chunks")
    needs_index: ClassVar[bool] = False

    def logical_parts(self) -> int:
        """Parts of a segment that are joined one after the other."""
        return 1

    def fit(self, limit: int, stream: pa.Schema) -> Sizes:
        """The shortest segments for which a chunk has at least one row; `PlanError` if there are none."""
        n_pages, parts = max(1, len(self.pages.starts) - 1), self.logical_parts()
        fitting, least = None, []
        for per in [self.sizes.per_segment] if self.sizes.per_segment else _lengths(n_pages):
            cost = self._cost(stream, per, limit)
            chunks = max(1, cost.segments.n) * parts
            rows = self.sizes.waiting or int((limit - cost.fixed) / _row_bytes(cost)) - chunks
            least.append(_enough(partial(self._cost, stream, per), 2 * chunks))
            if rows >= chunks:
                fitting = replace(self.sizes, per_segment=per, waiting=rows, parts=parts)
                if cost.segment >= _wanted_bytes(limit):
                    break
        if fitting is None or limit < min(least):
            raise PlanError(
                f"{format_bytes(limit)} of memory, waiting={self.sizes.waiting}: not enough for chunks of one row; the "
                f"join needs at least {min(least)} bytes, and as many waiting rows as segments x parts.",
                argument="memory",
            )
        return fitting

    def _cost(self, stream: pa.Schema, per_segment: int, limit: int) -> Footprint:
        return footprint(self.pages, stream, per_segment, 0, limit, 1)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> MeshCycle:
        """The running join with these sizes."""
        segments = -(-(len(self.pages.starts) - 1) // (sizes.per_segment or 1))
        rows = (sizes.waiting or 1) // (max(1, segments) * (sizes.parts or 1))
        return MeshCycle(self, budget, stream, shape, sizes, chunk_rows=max(1, rows))


def _enough(cost: Callable[[int], Footprint], rows: int) -> int:
    """The smallest budget for `rows` waiting rows; the fixed parts grow with the budget."""
    limit, need = -1, 0
    while limit < need:
        limit = need
        need = int(cost(limit).fixed + rows * _row_bytes(cost(limit))) + 4096
    return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RMeshJoin(MeshJoin):
    """MESHJOIN with segments joined in `sizes.parts` logical parts, and a chunk of stream rows admitted after each.

    Reference: Naeem 2012, 4.3 and algorithm 2; docs/algorithms/semistream.md, 2.3.
    """

    def logical_parts(self) -> int:
        """Parts of a segment that are joined one after the other; two unless given."""
        return self.sizes.parts or 2


def _lengths(n_pages: int) -> list[int]:
    powers = [1 << bits for bits in range(n_pages.bit_length())]
    return [*(p for p in powers if p < n_pages), n_pages]


def _wanted_bytes(limit: int) -> float:
    """About the best segment for a device whose seek is worth 50 kB (docs/algorithms/semistream.md, 3.1)."""
    return float((50_000 * limit) ** 0.5)


def _row_bytes(cost: Footprint) -> float:
    """A waiting row: its place in the ring, its entry in the hash table at its emptiest, and its columns."""
    table = HashMultimap(1000).nbytes / 1000 * 2
    return RING_BYTES + table + GARBAGE * (cost.stream_row + 1)


RING_BYTES = 8 * 4 + 1
MANY_CHUNKS = 48


class MeshCycle(SemiStreamOperator):
    """Rows in a ring, in order of arrival: first those of the chunks in the hash table, then those being gathered.

    A chunk added in one iteration is joined with the parts of that and the following iterations, each exactly once,
    and leaves after the last one. Rows leave in arrival order, so that a place in the ring identifies a row.
    Reference: Naeem 2012, algorithms 1 and 2; docs/algorithms/semistream.md, 2.2 and 2.3.
    """

    def __init__(self, *arguments: Any, chunk_rows: int) -> None:
        super().__init__(*arguments)
        self.chunk_rows = chunk_rows
        self._parts = self.sizes.parts or 1
        self._room = self.own(self.budget.reserve("waiting slots"))
        self._start_ring()
        self._lent: tuple[int, int] | None = None
        self._residence = np.zeros(BUCKETS, np.int64)
        self.iterations = 0
        self._queue_peak = 0

    def _start_ring(self) -> None:
        """An empty ring for as many chunks as a round has parts, and one being gathered; the round starts again."""
        self._capacity = self.chunk_rows * (self.n_chunks + 1)
        self._table = HashMultimap(self.chunk_rows * self.n_chunks)
        self._room.resize(RING_BYTES * self._capacity + self._table.nbytes)
        self._ref, self._code = np.zeros(self._capacity, np.int64), np.zeros(self._capacity, np.int64)
        self._slot, self._since = np.zeros(self._capacity, np.int64), np.zeros(self._capacity, np.int64)
        self._matched = np.zeros(self._capacity, np.bool_)
        self._chunks: deque[int] = deque()
        self._first = self._added = self._last = 0
        self._position = self._part = 0

    @property
    def n_chunks(self) -> int:
        """Chunks in the queue: parts of the master data."""
        return max(1, self.disk.segments.n) * (self.sizes.parts or 1)

    @property
    def waiting_rows(self) -> int:
        """Rows in the ring."""
        return self._last - self._first

    def stream_store(self, cost: Footprint) -> RowStore:
        """Where waiting rows are."""
        return self.own(RowStore(self._stream_schema, self.budget.reserve("waiting rows"), cost.floor))

    def lend(self, batch: pa.RecordBatch) -> int:
        """The chunk of a pushed batch."""
        chunk = self.stream.lend(batch)
        self._lent = chunk, self._last
        return chunk

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Gather rows; every full chunk starts an iteration."""
        start, now = 0, self.clock.now_ns()
        while start < len(rows.codes):
            stop = min(len(rows.codes), start + self.chunk_rows - (self._last - self._added))
            at = np.arange(self._last, self._last + stop - start) % self._capacity
            self._ref[at], self._code[at], self._since[at] = rows.refs[start:stop], rows.codes[start:stop], now
            self._matched[at] = False
            self._last += stop - start
            start = stop
            if self._last - self._added == self.chunk_rows:
                yield from self.work()

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Continue with partial and empty chunks until no row is left or input resumes."""
        while self.waiting_rows and not until():
            yield from self.work()
        yield from self.answers.flush()

    def work(self) -> Iterator[pa.RecordBatch]:
        """One iteration: the gathered rows, if any, become a chunk, and the next part is joined with all chunks."""
        if not self.disk.segments.n:
            yield from self._expire_all()
            return
        if self._part == 0:
            yield from self.disk.load(*self.disk.segments.run(self._position))
        elif self.disk.is_empty:
            yield from self.disk.hold(self.disk.segments.read(self._position))
        self._add_chunk()
        yield from self._meet()
        self._part = (self._part + 1) % self._parts
        if self._part == 0:
            self._position = (self._position + 1) % self.disk.segments.n
        self.iterations += 1
        if len(self._chunks) == self.n_chunks:
            yield from self._expire()

    def _add_chunk(self) -> None:
        at = np.arange(self._added, self._last) % self._capacity
        self._slot[at] = self._table.insert(self._code[at], at)
        self._chunks.append(len(at))
        self.counts["admits"] += len(at)
        self._added = self._last
        self._queue_peak = max(self._queue_peak, self._added - self._first)

    def _meet(self) -> Iterator[pa.RecordBatch]:
        """The current part's rows probe the hash table; pairs of one stream row come together."""
        start, stop = self._part_rows()
        codes = self.disk.loaded.codes[start:stop]
        order = np.argsort(codes, kind="stable")
        ranked = codes[order]
        first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(codes) else np.empty(0, np.int64)
        sizes = np.diff(np.append(first, len(codes)))
        self.disk.scratch.probes[0] += len(codes)
        most = self.answers.capacity // max(1, int(sizes.max(initial=1)))
        for which, ring in self._table.probe_chunks(ranked[first], max(1, most)):
            rows = order[expand_runs(first[which], sizes[which])] + start
            yield from self._found(np.repeat(ring, sizes[which]), refs_of(self.disk.loaded.chunk, rows))

    def _part_rows(self) -> tuple[int, int]:
        """The rows of the current logical part: whole pages, empty where the last segment is short.

        Stores may know the sizes of pages by estimate only: the last part has all rows that are left.
        """
        per = -(-self.disk.segments.per_segment // self._parts)
        first, last = int(self.disk.segments.first[self._position]), int(self.disk.segments.last[self._position])
        begin, end = min(first + self._part * per, last), min(first + (self._part + 1) * per, last)
        starts, base = self.disk.segments.starts, int(self.disk.segments.starts[first])
        n = len(self.disk.loaded.codes)
        is_last = self._part == self._parts - 1
        return min(int(starts[begin]) - base, n), n if is_last else min(int(starts[end]) - base, n)

    def _found(self, ring: I64, rows: I64) -> Iterator[pa.RecordBatch]:
        answers = self.answers
        if answers.n + len(ring) > answers.capacity:
            yield from self.answers.flush()
        if answers.checked:
            right = answers.right_pairs(self._ref[ring], rows)
            ring, rows = ring[right], rows[right]
            answers.refuse(self._ref[ring], rows, self._ref[ring[self._matched[ring]]])
        if answers.how == SEMI:
            new = np.sort(np.unique(ring, return_index=True)[1])
            new = new[~self._matched[ring[new]]]
            self._matched[ring] = True
            ring, rows = ring[new], rows[new]
        self._matched[ring] = True
        if answers.how in (INNER, LEFT, SEMI):
            n = answers.n
            answers.refs[n : n + len(ring)], answers.rows[n : n + len(ring)] = self._ref[ring], rows
            answers.n += len(ring)

    def _expire(self) -> Iterator[pa.RecordBatch]:
        """Remove the oldest chunk, which was joined with all parts."""
        n = self._chunks.popleft()
        at = np.arange(self._first, self._first + n) % self._capacity
        self._table.delete_slots(self._slot[at])
        matched: Bool = self._matched[at]
        refs = self._ref[at]
        self.counts["answered_by_page"] += int(matched.sum())
        self.counts["misses"] += int(n - matched.sum())
        now = self.clock.now_ns()
        bits = np.ceil(np.log2(np.maximum(now - self._since[at], 0) + 1)).astype(np.int64)
        self._residence += np.bincount(bits, minlength=BUCKETS)
        self._first += n
        yield from self.answers.misses(refs[~matched])

    def _expire_all(self) -> Iterator[pa.RecordBatch]:
        self._add_chunk()
        while self._chunks:
            yield from self._expire()

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Copy the waiting rows; if there is no room, run iterations until enough rows have left."""
        while not self._settled():
            yield from self.work()
            yield from self.answers.flush()

    def _settled(self) -> bool:
        if self._lent is not None:
            chunk, since = self._lent
            at = np.arange(max(since, self._first), self._last) % self._capacity
            if len(at) and not self._copied(at):
                return False
            self.stream.drop([chunk])
            self._lent = None
        self._tidy()
        return True

    def _copied(self, at: I64) -> bool:
        copies = self.stream.copied(self._ref[at])
        if copies is None:
            self._tidy()
            return False
        self._ref[at] = copies
        return True

    def _tidy(self) -> None:
        """Drop chunks that no row is in; many small ones are copied together."""
        at = np.arange(self._first, self._last) % self._capacity
        used = set(np.unique(self._ref[at] >> 32).tolist())
        lent = -1 if self._lent is None else self._lent[0]
        self.stream.drop([chunk for chunk in self.stream.chunks() if chunk not in used and chunk != lent])
        if self._lent is None and len(self.stream) > MANY_CHUNKS:
            self._ref[at] = self.stream.moved(self._ref[at], self.stream.chunks())

    def adopted(self, changed: I64 | None) -> None:
        """Start another round, with chunks for as many parts as the new version has."""
        self._rechunk()

    def _rechunk(self) -> None:
        self.chunk_rows = max(1, (self.sizes.waiting or 1) // self.n_chunks)
        self._start_ring()

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Answer all waiting rows, then continue with other numbers of waiting rows, pages per segment, or parts."""
        yield from self.drain()
        given = {name: n for name in ("waiting", "per_segment", "parts") if (n := getattr(sizes, name)) is not None}
        self.sizes = replace(self.sizes, **given)
        self._parts = self.sizes.parts or 1
        self.regroup(self.pages)
        self._rechunk()

    def snapshot(self) -> dict[str, pa.Table]:
        """Everything that later answers depend on: rows in order, which have matched, the chunks and the position."""
        at = np.arange(self._first, self._last) % self._capacity
        waits = {"age_ns": self.clock.now_ns() - self._since[at], "matched": self._matched[at]}
        state = {"chunks": list(self._chunks), "position": self._position, "part": self._part}
        rows = self.stream.gather(self._ref[at])
        return {
            "rows": pa.Table.from_batches([rows], self._stream_schema),
            "waits": pa.table(waits),
            "state": pa.table({"json": [json.dumps(state)]}),
        }

    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Restore a snapshot in a join of the same sizes that has seen no rows."""
        state = json.loads(snapshot["state"]["json"][0].as_py())
        rows, waits = snapshot["rows"].combine_chunks(), snapshot["waits"]
        batch = rows.to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], self._stream_schema)
        coded, _ = self.coded(batch, self.lend(batch))
        sizes, start = state["chunks"], 0
        for size in [*sizes, rows.num_rows - sum(sizes)]:
            at = np.arange(start, start + size)
            self._ref[at], self._code[at] = coded.refs[at], coded.codes[at]
            self._since[at] = self.clock.now_ns() - waits["age_ns"].to_numpy()[at]
            self._matched[at] = waits["matched"].to_numpy(zero_copy_only=False)[at]
            start = self._last = start + size
            if len(self._chunks) < len(sizes):
                self._add_chunk()
        self._position, self._part = state["position"], state["part"]
        return list(self.settle())

    def report(self, metrics: Metrics) -> None:
        """Add all counts, with how long rows stayed."""
        metrics.peak("queue_peak", self._queue_peak, unit="rows")
        metrics.add("iterations", self.iterations, unit="iterations")
        report_waits(metrics, "residence", self._residence)
        super().report(metrics)
