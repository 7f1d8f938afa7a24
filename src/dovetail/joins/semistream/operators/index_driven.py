"""The loop of all joins that load the home segments of waiting rows: admit, choose, load, resolve."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Until
from dovetail.joins.semistream.kernels import waiting_pool as kernels
from dovetail.joins.semistream.kernels.segment_match import resolve
from dovetail.joins.semistream.operators.answers import SHIFT, RowStore
from dovetail.joins.semistream.operators.base import Loaded, Rows, SemiStreamOperator
from dovetail.joins.semistream.operators.cache import PageOf
from dovetail.joins.semistream.operators.rounds import Rounds
from dovetail.joins.semistream.operators.short_reads import pages_needed
from dovetail.joins.semistream.operators.waiting import Limits, Waiting, report_waits
from dovetail.joins.semistream.options import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Sizes

EVERYTHING = 1 << 40
SHARE_OF_A_ROUND = 8


class IndexDriven(SemiStreamOperator):
    """Rows wait in a queue and by home segment; a load settles every row that waits for its segment.

    Reference: docs/algorithms/semistream.md, 2.0 (resolution, partial reads, invariants).
    """

    lookup: Lookup = OLDEST
    remembers = False
    notes_keys = False
    keeps_segments = False
    keys_met = 0
    whole = True

    def stream_store(self) -> RowStore:
        """Where waiting rows are."""
        slots = self.sizes.waiting or 1
        self.waiting = self.own(Waiting(self._stream_schema, slots, self.segments.n, self.budget, self._floor))
        self.rounds = self.own(Rounds(self))
        return self.waiting.store

    def lend(self, batch: pa.RecordBatch) -> int:
        """The chunk of a pushed batch."""
        return self.waiting.borrow(batch)

    @property
    def waiting_rows(self) -> int:
        """How many stream rows are unanswered."""
        return len(self.waiting)

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Admit rows as slots become free, with a load whenever there is none."""
        start, n = 0, len(rows.codes)
        while start < n:
            start = self.admit(rows, start)
            if start < n:
                yield from self.make_slots()
        while self.waiting.overdue(self.spec.max_residence, self._clock.now_ns()):
            yield from self.work()

    def admit(self, rows: Rows, start: int) -> int:
        """The first row, from `start` on, that found no free slot."""
        stop = kernels.admit(self.waiting.pool, rows.codes, rows.segments, rows.refs, start, self._clock.now_ns())
        self.counts["admits"] += stop - start
        return stop

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Copy the rows that wait; where there is no room for them, answer some first."""
        while not self.waiting.settle():
            target = max(0, len(self.waiting) - 1 - self.waiting.slots // 16)
            while len(self.waiting) > target:
                yield from self.work_together(len(self.waiting) - target)
            yield from self.flush()

    def work(self) -> Iterator[pa.RecordBatch]:
        """One load, of the segment that the look-up policy chooses."""
        segment = self.choose()
        if segment >= 0:
            yield from self.serve(segment)

    def work_together(self, enough: int = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """One round: the segments that the policy picks next, loaded together, as many as the disk buffer holds.

        Picks are those that single loads would make if nothing was admitted between them: rows of a picked segment
        are out of the queue before the next is picked. What a join learns from loads, it learns after the round.
        Picking ends when `enough` rows will be answered.
        """
        if self.rounds.most < 2:
            yield from self.work()
            return
        self._loaded = None
        yield from self.flush()
        yield from self.rounds.serve(*self.pick(self.rounds.roomy(enough)))

    def make_slots(self) -> Iterator[pa.RecordBatch]:
        """Some slots become free: by one load, or by a round that answers no more than a share of what waits.

        A round is picked from a queue that nothing enters meanwhile, so that its last loads answer fewer rows than
        single ones would; the share bounds how many fewer.
        """
        yield from self.work_together(max(1, self.waiting.slots // SHARE_OF_A_ROUND))

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round in ascending order, and how many rows wait for each."""
        rule, bound = (self.lookup.code, self.lookup.position), self.spec.max_residence
        return self.waiting.pick(*rule, bound, self._clock.now_ns(), limits)

    @property
    def notes_from(self) -> int:
        """Waiting rows from which a key that a round met is noted."""
        return 1

    def met_together(self, batch: pa.RecordBatch, n: int, n_rows: int, page_of: PageOf) -> None:
        """What a join learns from `n` keys, with `n_rows` master rows, that a round met."""

    def served_together(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """What a join does after a round of segments with so many waiting rows; `offsets` if all rows are there."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer everything that waits, in rounds."""
        while self.waiting_rows:
            yield from self.work_together()
        yield from self.flush()

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Go on with what waits, or with what waits for too long, until that is answered or input is back."""
        if self.spec.when_idle == "drain":
            yield from super().idle(until)
            return
        while self.waiting.overdue(self.spec.max_residence, self._clock.now_ns()) and not until():
            yield from self.work()
        yield from self.flush()

    def choose(self) -> int:
        """The segment to load next, or -1 if nothing waits."""
        return self.waiting.choose(self.lookup, self.spec.max_residence, self._clock.now_ns())

    def serve(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load a segment and answer every row that waits for it."""
        yield from self.load(segment)
        self.waiting.pool.meta[kernels.LOADS] += 1
        yield from self.resolve(segment, self.loaded, "answered_by_page")

    @property
    def reads_short(self) -> bool:
        """Whether pages that nobody waits for may be left out of a read."""
        asked = self.spec.short_reads
        return not self.keeps_segments and (not self.pages.device.simulated if asked is None else asked)

    def read_segment(self, segment: int) -> pa.RecordBatch:
        """The rows of a segment, or of the pages that the few rows which wait for it need."""
        if self.segments.per_segment == 1 or not self.reads_short:
            return super().read_segment(segment)
        first, count = pages_needed(self, np.array([segment]), int64s(self.waiting.pool.held[segment : segment + 1]))
        self.first_row = int(self.segments.starts[first[0]])
        return self.pages.read(int(first[0]), int(count[0]))

    def resolve(self, segment: int, loaded: Loaded, answered_by: str) -> Iterator[pa.RecordBatch]:
        """Every row that waits for the segment is answered by its rows; those without a match are misses."""
        pool, answers = self.waiting.pool, self.answers
        while pool.held[segment]:
            start = answers.n
            answers.n, done, missed, self.keys_met = resolve(
                pool,
                segment,
                loaded.codes,
                loaded.chunk << SHIFT,
                self.scratch,
                answers.written_how,
                answers.out,
                start,
                self._clock.now_ns(),
                self.remembers,
            )
            missed += answers.wrong(start)
            self.counts["misses"] += missed
            self.counts[answered_by] += done - missed
            self.whole = not pool.held[segment]
            if pool.held[segment]:
                yield from self.flush()

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Take up new sizes, answering rows that no longer fit; another segment length answers all that wait."""
        if sizes.per_segment not in (None, self.sizes.per_segment):
            yield from self.drain()
            self.sizes = replace(self.sizes, per_segment=sizes.per_segment)
            self.regroup(self.pages)
            self.regrouped()
        slots = sizes.waiting or self.waiting.slots
        while len(self.waiting) > slots:
            yield from self.work_together(len(self.waiting) - slots)
        yield from self.flush()
        if not self.waiting.resize(slots):
            yield from self.drain()
            self.waiting.reshape(slots, self.segments.n)
        self.sizes = replace(self.sizes, waiting=slots)

    def regrouped(self) -> None:
        """What a join does about segments it keeps when these have another length."""

    def reshape(self) -> None:
        """Chains and rounds for the segments of a new version."""
        self.waiting.store.floor = self._floor
        self.waiting.reshape(self.waiting.slots, self.segments.n)
        self.rounds.reshape()

    def snapshot(self) -> dict[str, pa.Table]:
        """Everything that later answers depend on: waiting rows in order, and the state of the policies."""
        slots, pool, now = self.waiting.in_order(), self.waiting.pool, self._clock.now_ns()
        waits = {"age_ns": now - pool.since[slots], "born": pool.born[slots]}
        return {
            "rows": pa.Table.from_batches([self.waiting.rows()], self._stream_schema),
            "waits": pa.table(waits),
            "state": pa.table({"json": [json.dumps(self.state())]}),
        }

    def state(self) -> dict[str, int]:
        """The numbers that the look-up policy goes by."""
        meta = self.waiting.pool.meta
        return {"loads": int(meta[kernels.LOADS]), "turn": int(meta[kernels.TURN])}

    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Take up a snapshot in a join that has seen no rows; gives answers of rows that no longer fit."""
        rows, waits = snapshot["rows"].combine_chunks(), snapshot["waits"]
        out = list(self.push_again(rows))
        pool, n = self.waiting.pool, len(self.waiting)
        slots, now = self.waiting.in_order(), self._clock.now_ns()
        if n == rows.num_rows:
            pool.since[slots] = now - waits["age_ns"].to_numpy()
            pool.born[slots] = waits["born"].to_numpy()
        self.restate(json.loads(snapshot["state"]["json"][0].as_py()))
        return out

    def push_again(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Admit rows that waited before; they do not count as new ones."""
        for batch in rows.to_batches():
            before = self.counts["rows"]
            yield from self.push_rows(batch)
            self.counts["rows"] = before

    def push_rows(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows take slots without passing a cache."""
        chunk = self.lend(batch)
        rows, _ = self._coded(batch, chunk, 0)
        yield from IndexDriven.take(self, rows)
        yield from self.flush()
        yield from self.settle()

    def restate(self, state: Mapping[str, int]) -> None:
        """Take up the numbers of `state`."""
        meta = self.waiting.pool.meta
        meta[kernels.LOADS], meta[kernels.TURN] = state["loads"], state["turn"]

    def report(self) -> Metrics:
        """The metrics so far, with how long rows waited."""
        pool = self.waiting.pool
        self.metrics.peak("queue_peak", int(pool.meta[kernels.PEAK]), unit="rows")
        self.metrics.peak("longest_residence", int(pool.meta[kernels.WORST]), unit="loads")
        report_waits(self.metrics, "residence", pool.residence)
        return super().report()
