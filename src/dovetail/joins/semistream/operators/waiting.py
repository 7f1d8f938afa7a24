"""Stream rows that wait for their segment, and the loads that answer them: one segment, or a round of several."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import Clock
from dovetail.engine.kernels.arrays import I32, I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.named_rows import SHIFT
from dovetail.joins.semistream.kernels import waiting_pool as kernels
from dovetail.joins.semistream.kernels.segment_match import Round, empty_met, meet, resolve_round
from dovetail.joins.semistream.kernels.waiting_pool import chain_rows
from dovetail.joins.semistream.operators.answers import Answers, RowStore
from dovetail.joins.semistream.operators.master_rows import Counts, DiskBuffer, Loaded, Read
from dovetail.joins.semistream.request import Residence
from dovetail.joins.semistream.sizes import ROUND_ROW_BYTES

if TYPE_CHECKING:
    from dovetail.joins.semistream.operators.hybridjoin import Kept, Schedule
    from dovetail.joins.semistream.operators.operator import SemiStreamJoin

FOREVER = 1 << 40  # rows, or loads: no bound
MANY_CHUNKS = 48


class Rows(NamedTuple):
    """Stream rows to be matched: the code of each key, its home segment (0 without an index) and the row's name."""

    codes: I64
    segments: I64
    refs: I64

    def some(self, which: I64 | slice) -> Rows:
        """These of the rows."""
        return Rows(*(int64s(column[which]) for column in self))


def places_by_value(values: I64) -> Iterator[tuple[int, I64]]:
    """Each different value, in ascending order, with the places that have it."""
    order = np.argsort(values, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(values[order])) + 1) if len(order) else ():
        yield int(values[places[0]]), places


class Limits(NamedTuple):
    """How large a round may be: rows of each segment (none: waiting rows count), the most in all, and room for it.

    `enough`: rows answered after which no more is picked.
    """

    rows: I64
    most_rows: int
    picked: I64
    counts: I64
    enough: int = FOREVER

    def for_kernels(self) -> tuple[I64, int, int, I64, I64]:
        """The arguments of the kernels that pick."""
        return self.rows, self.most_rows, self.enough, self.picked, self.counts

    def ascending(self, n: int) -> tuple[I64, I64]:
        """The first `n` segments picked and their waiting rows, in the order of the master data."""
        order = np.argsort(self.picked[:n])
        return self.picked[order], self.counts[order]


class Waiting:
    """At most `slots` rows, in order of admission and by segment.

    Rows of the current batch stay where they are; those that still wait at its end are copied to owned chunks. Chunks
    are compacted when less than half of their rows wait. `floor` bytes of the budget are left to others.
    """

    def __init__(self, schema: pa.Schema, slots: int, segments: int, budget: MemoryBudget, floor: int = 0) -> None:
        self._slots = budget.reserve("waiting slots")
        self._chains = budget.reserve("segment chains")
        self.store = RowStore(schema, budget.reserve("waiting rows"), floor)
        self._segments = segments
        self._charge(slots)
        self.pool = kernels.empty_pool(slots, segments)
        self._lent: tuple[int, int] | None = None

    def _charge(self, slots: int) -> None:
        chains = kernels.pool_bytes(0, self._segments)
        self._chains.resize(chains)
        self._slots.resize(kernels.pool_bytes(slots, self._segments) - chains)

    def __len__(self) -> int:
        return int(self.pool.meta[kernels.LIVE])

    @property
    def slots(self) -> int:
        """The most rows that can wait."""
        return len(self.pool.code)

    @property
    def is_full(self) -> bool:
        """Whether no slot is free."""
        return len(self) == self.slots

    @property
    def loads(self) -> int:
        """Loads so far."""
        return int(self.pool.meta[kernels.LOADS])

    def borrow(self, batch: pa.RecordBatch) -> int:
        """Register the current batch as a chunk: its rows may wait, and must be settled before it is dropped."""
        chunk = self.store.lend(batch)
        self._lent = chunk, int(self.pool.meta[kernels.TICKET])
        return chunk

    def choose(self, rule: int, position: float, bound: Residence | None, now_ns: int) -> int:
        """The segment to load next, or -1 if nothing waits."""
        return kernels.choose(self.pool, rule, position, *_bounds(bound, now_ns))

    def pick(self, rule: int, position: float, bound: Residence | None, now_ns: int, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round, which the policy picks one after the other, and how many rows wait for each.

        Their rows are out of the queue, and must be answered or put back.
        """
        patience, before = _bounds(bound, now_ns)
        return limits.ascending(kernels.pick_round(self.pool, rule, position, patience, before, *limits.for_kernels()))

    def take(self, order: I64, limits: Limits) -> tuple[I64, I64]:
        """As `pick`, for segments in a given order."""
        return limits.ascending(kernels.take_round(self.pool, order, *limits.for_kernels()))

    def put_back(self, picked: I64, counts: I64) -> None:
        """Rows of these segments of a round wait again, each in its old place."""
        if counts.any():
            kernels.reattach(self.pool, picked, counts)

    def overdue(self, bound: Residence | None, now_ns: int) -> bool:
        """Whether the oldest row waits for longer than it may."""
        oldest = int(self.pool.meta[kernels.OLDEST])
        return oldest >= 0 and bool(self.pool.since[oldest] < _bounds(bound, now_ns)[1])

    def settle(self) -> bool:
        """Copy waiting rows to owned memory; False if some must be answered first."""
        if self._lent is None:
            return True
        chunk, ticket = self._lent
        slots = self._since(ticket)
        if len(slots) and not self._copy(slots):
            return False
        self.store.drop([chunk])
        self._lent = None
        if len(self.store) > MANY_CHUNKS or self.store.rows > 2 * len(self) + 1024:
            self.compact()
        return True

    def _copy(self, slots: I64 | I32) -> bool:
        copies = self.store.copied(self.pool.ref[slots])
        if copies is None:
            self.compact()
            copies = self.store.copied(self.pool.ref[slots])
        if copies is not None:
            self.pool.ref[slots] = copies
        return copies is not None

    def _since(self, ticket: int) -> I64 | I32:
        """The slots of rows admitted from `ticket` on that still wait, in any order."""
        used, recent = int(self.pool.meta[kernels.USED]), int(self.pool.meta[kernels.TICKET]) - ticket
        if 8 * recent > used:  # reading all slots in a row is faster than following links through many of them
            return np.flatnonzero((self.pool.segment[:used] >= 0) & (self.pool.ticket[:used] >= ticket))
        slots = np.empty(len(self), np.int32)
        return slots[: kernels.slots_from(self.pool, ticket, slots)]

    def compact(self) -> None:
        """Drop chunks without waiting rows; compact those that are half empty, and small ones if many."""
        slots = np.flatnonzero(self.pool.segment[: int(self.pool.meta[kernels.USED])] >= 0)
        chunks = self.pool.ref[slots] >> SHIFT
        lent = -1 if self._lent is None else self._lent[0]
        low = int(chunks.min(initial=0))
        counted = np.bincount(chunks - low) if len(slots) else np.empty(0, np.int64)
        live = {low + at: int(n) for at, n in enumerate(counted.tolist()) if n}
        self.store.drop([c for c in self.store.chunks() if c not in live and c != lent])
        for chunk, n in live.items():
            if chunk != lent and 2 * n < self.store.chunk_rows(chunk):
                self._move(slots[chunks == chunk], [chunk])
        if len(self.store) > MANY_CHUNKS:
            small = [c for c, n in live.items() if c != lent and c in self.store and n < self.slots // MANY_CHUNKS]
            self._move(slots[np.isin(chunks, small)], small)

    def _move(self, slots: I64, worn: list[int]) -> None:
        self.pool.ref[slots] = self.store.moved(self.pool.ref[slots], worn)

    def in_order(self) -> I32:
        """The slots of all waiting rows, oldest first."""
        slots = np.empty(len(self), np.int32)
        kernels.waiting_slots(self.pool, slots)
        return slots

    def rows(self) -> pa.RecordBatch:
        """All waiting rows, oldest first."""
        refs: I64 = self.pool.ref[self.in_order()]
        return self.store.gather(refs)

    def resize(self, slots: int) -> bool:
        """Change the number of slots, at least one per waiting row; False if there was no room to move the rows."""
        order, old = self.in_order(), self.pool
        moving = 40 * len(order)
        if not self._slots.try_grow(moving):
            return False
        codes, segments, refs = (int64s(a[order]) for a in (old.code, old.segment, old.ref))
        since, born = old.since[order], old.born[order]
        del old
        self.reshape(slots, self._segments)
        n = kernels.admit(self.pool, codes, segments, refs, 0, 0)
        self.pool.since[:n], self.pool.born[:n] = since, born
        return True

    def reshape(self, slots: int, segments: int) -> None:
        """Room for another number of rows or segments; nothing may wait. Counts are kept."""
        meta, residence = self.pool.meta, self.pool.residence
        self._segments = segments
        self._charge(slots)
        self.pool = kernels.empty_pool(slots, segments)
        for place in (kernels.LOADS, kernels.PEAK, kernels.WORST, kernels.TICKET, kernels.TURN):
            self.pool.meta[place] = meta[place]
        self.pool.residence[:] = residence

    def close(self) -> None:
        """Release all memory."""
        self.store.close()
        self._slots.close()
        self._chains.close()


def _bounds(bound: Residence | None, now_ns: int) -> tuple[int, int]:
    """Loads that a row may wait for, and the time before which none may have been admitted."""
    loads, seconds = (None, None) if bound is None else (bound.loads, bound.seconds)
    return FOREVER if loads is None else loads, 0 if seconds is None else now_ns - int(seconds * 1e9)


def report_waits(metrics: Metrics, name: str, buckets: I64) -> None:
    """Count rows by waiting time: "name.lt_2^b_ns" rows took less than 2**b ns, but not less than half of it."""
    for b, n in enumerate(buckets.tolist()):
        if n:
            metrics.add(f"{name}.lt_2^{b:02d}_ns", n)


SHARE_OF_A_ROUND = 8
FEW = 4  # waiting rows of a segment up to which only the pages that they need are read
FEW_KEYS = 64  # waiting rows of a round, down to which their number is halved where rows of keys are too many
MANY = 64  # segments of a round from which finding these pages costs more than it saves
_COPIES = 3.3  # of a round's rows, at most: as read, as decoded, and in answers
_MOST_TIMES = 3  # more would not fit the processor's caches, and save little


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an index-driven join, which the kept part and the schedule also use."""

    spec: SemiStreamJoin
    budget: MemoryBudget
    clock: Clock
    counts: Counts
    answers: Answers
    disk: DiskBuffer
    waiting: Waiting

    def admit(self, rows: Rows, start: int) -> int:
        """Let rows wait from `start` on; returns the first that found no free slot."""
        pool = self.waiting.pool
        stop = kernels.admit(pool, rows.codes, rows.segments, rows.refs, start, self.clock.now_ns())
        self.counts["admits"] += stop - start
        return stop

    def resolve(
        self, segment: int, loaded: Loaded, answered_by: str, remembers: bool = False
    ) -> Generator[pa.RecordBatch, None, tuple[int, bool]]:
        """Answer every row that waits for the segment; returns the keys matched last, and whether those were all."""
        keys, whole, pool, answers = 0, True, self.waiting.pool, self.answers
        while pool.held[segment]:
            start, source, now = answers.n, loaded.chunk << SHIFT, self.clock.now_ns()
            state = pool, segment, int(pool.held[segment]), True, loaded.codes, source, self.disk.scratch
            output = answers.written_how, answers.out, start, now, remembers
            answers.n, done, missed, keys = meet(*state, *output)
            missed += answers.wrong(start)
            self.counts["misses"] += missed
            self.counts[answered_by] += done - missed
            whole = not pool.held[segment]
            if not whole:
                yield from answers.flush()
        return keys, whole


class Loads:
    """Loads of an index-driven join: a load answers the rows that wait for a segment, and the kept part learns from it.

    Reference: docs/algorithms/semistream.md, 2.0 (resolution, partial reads, invariants) and 6.10 (short reads).
    """

    def __init__(self, parts: Parts, kept: Kept, schedule: Schedule) -> None:
        self._parts, self._kept, self._schedule = parts, kept, schedule
        self._room = parts.budget.reserve("round")
        self.fit()

    def fit(self) -> None:
        """Fit rounds to segments and budget; `most` segments are loaded together, 1 where they are loaded singly."""
        disk = self._parts.disk
        cost = disk.cost
        self.most = min(cost.round_segments, max(1, cost.round_rows))
        self._room.resize(cost.round)
        rows = np.empty(0, np.int64) if cost.keyed else disk.segments.rows
        n = self.most if self.most > 1 else 0
        self._limits = Limits(int64s(rows), cost.round_rows, np.empty(n, np.int64), np.empty(n, np.int64))
        self._met = empty_met(*((cost.noted_keys, cost.noted_rows) if n and self._kept.notes_keys else (0, 0)))

    def one(self) -> Iterator[pa.RecordBatch]:
        """Load the segment that is to be loaded next."""
        segment = self._schedule.choose()
        if segment >= 0:
            yield from self.segment(segment)

    def segment(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load a segment and answer every row that waits for it."""
        parts, kept = self._parts, self._kept
        kept.before_load(segment)
        waiting = int64s(parts.waiting.pool.held[segment : segment + 1])
        first, count = self.pages_needed(np.array([segment]), waiting)
        yield from parts.disk.load(int(first[0]), int(count[0]))
        parts.waiting.pool.meta[kernels.LOADS] += 1
        keys, whole = yield from parts.resolve(segment, parts.disk.loaded, "answered_by_page", kept.remembers)
        kept.after_load(segment, keys, whole)

    def together(self, enough: int = FOREVER) -> Iterator[pa.RecordBatch]:
        """One round: the segments that are picked next, loaded together, as many as the disk buffer holds.

        Picks are those that single loads would make if nothing was admitted between them: rows of a picked segment
        are out of the queue before the next is picked. The kept part learns from the loads after the round.
        Picking ends when `enough` rows will be answered.
        """
        if self.most < 2:
            yield from self.one()
            return
        self._parts.disk.use(None)
        yield from self._parts.answers.flush()
        yield from self._round(*self._schedule.pick(self._roomy(enough)))

    def make_slots(self) -> Iterator[pa.RecordBatch]:
        """Free some slots: by one load, or by a round that answers at most a share of the waiting rows.

        A round is picked from a queue that nothing enters meanwhile, so that its last loads answer fewer rows than
        single ones would; the share bounds how many fewer.
        """
        yield from self.together(max(1, self._parts.waiting.slots // SHARE_OF_A_ROUND))

    def until(self, most: int) -> Iterator[pa.RecordBatch]:
        """Load until at most `most` rows wait."""
        while len(self._parts.waiting) > most:
            yield from self.together(len(self._parts.waiting) - most)

    def _roomy(self, enough: int) -> Limits:
        """The limits of the next round: the planned ones plus unused memory, up to a few times as much."""
        cost, usual = self._parts.disk.cost, self._limits.most_rows
        unused = max(0, self._parts.budget.available - cost.floor) / (_COPIES * cost.round_row)
        more = int(min(unused, (_MOST_TIMES - 1) * usual))
        self._room.resize(cost.round + ROUND_ROW_BYTES * more)
        return self._limits._replace(enough=enough, most_rows=usual + more)

    def _round(self, picked: I64, counts: I64) -> Iterator[pa.RecordBatch]:
        """Read the segments and answer every row that waits for them; after a failure unanswered rows wait again."""
        parts, disk, asked = self._parts, self._parts.disk, counts.copy()
        try:
            found = self._read_keys(picked, int(counts.sum())) if disk.cost.keyed else None
            if found is None:
                if disk.reads_homes and self._limits.most_rows > FEW_KEYS:  # they have more rows than planned
                    self._limits = self._limits._replace(most_rows=self._limits.most_rows // 2)
                n = disk.affordable(picked)
                parts.waiting.put_back(picked[n:], counts[n:])
                picked, counts, asked = picked[:n], counts[:n], asked[:n]
                found = disk.read_segments(picked, self.pages_needed(picked, counts))
            yield from disk.make_room(int(np.diff(found.offsets).max(initial=0)))
            yield from self._resolve_round(picked, counts, disk.hold_round(found.batch), found)
            self._kept.after_round(picked, asked, found.offsets if found.whole else None)
        except BaseException:
            parts.waiting.put_back(picked, counts)
            raise
        finally:
            self._room.resize(disk.cost.round)

    def _read_keys(self, picked: I64, waiting: int) -> Read | None:
        return self._parts.disk.read_keys(picked, *self._waiting_for(picked, waiting))

    def _waiting_for(self, segments: I64, n: int) -> tuple[I64, I64]:
        """Codes and names of the `n` rows that wait for these segments."""
        codes, refs = np.empty(n, np.int64), np.empty(n, np.int64)
        chain_rows(self._parts.waiting.pool, segments.copy(), codes, refs)  # some are read-only: another kernel
        return codes, refs

    def _resolve_round(self, picked: I64, counts: I64, loaded: Loaded, found: Read) -> Iterator[pa.RecordBatch]:
        parts, at, these = self._parts, 0, Round(picked, counts, int64s(found.offsets))
        answers, kept = parts.answers, self._kept
        while at < len(picked):
            start, now = answers.n, parts.clock.now_ns()
            state = parts.waiting.pool, these, at, loaded.codes, loaded.chunk << SHIFT, parts.disk.scratch
            output = answers.written_how, answers.out, start, now, kept.remembers
            at, answers.n, done, missed, keys, rows = resolve_round(*state, *output, self._met, kept.threshold)
            missed += answers.wrong(start)
            parts.counts["misses"] += missed
            parts.counts["answered_by_page"] += done - missed
            if keys:
                kept.after_keys(loaded.batch, self._met, keys, rows, found.page_of)
            if at < len(picked):
                yield from answers.flush()

    def pages_needed(self, segments: I64, waiting: I64) -> tuple[I64, I64]:
        """The first page to read of each of these segments, and the number of pages, if `waiting` rows wait for each.

        Of a segment for which few rows wait only the pages that these need are read, at low rates: for one row this is
        INLJ's read of one page; for rows that wait for pages far apart, all pages between them, as one more seek costs
        more. The same rows are answered as by the whole segment.
        """
        parts, disk = self._parts, self._parts.disk
        first, last = disk.segments.first[segments], disk.segments.last[segments]
        few = np.flatnonzero(waiting <= FEW)
        if disk.segments.per_segment == 1 or len(segments) > MANY or not len(few) or not self._reads_short:
            return first, last - first
        first, last = first.copy(), last.copy()
        _, refs = self._waiting_for(int64s(segments[few]), int(waiting[few].sum()))
        pages = disk.pages.home(parts.answers.keys_of(refs))
        starts = np.cumsum(waiting[few]) - waiting[few]
        first[few] = np.minimum.reduceat(pages, starts)
        last[few] = np.maximum.reduceat(pages, starts) + 1
        return first, last - first

    @property
    def _reads_short(self) -> bool:
        """Whether pages that no row waits for may be left out of a read."""
        asked = self._parts.spec.short_reads
        return not self._kept.keeps_segments and (
            not self._parts.disk.pages.device.simulated if asked is None else asked
        )

    def close(self) -> None:
        """Release the memory."""
        self._room.close()
