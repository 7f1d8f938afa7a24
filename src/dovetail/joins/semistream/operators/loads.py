"""Loads of home segments: one segment, or a round of several, read and matched with the rows that wait for them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import Clock
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.semistream.kernels import waiting_pool as kernels
from dovetail.joins.semistream.kernels.segment_match import Met, Round, empty_met, resolve, resolve_round
from dovetail.joins.semistream.kernels.waiting_pool import chain_rows
from dovetail.joins.semistream.operators.answers import SHIFT, Answers
from dovetail.joins.semistream.operators.disk_buffer import Counts, DiskBuffer, Loaded, PageOf, Read
from dovetail.joins.semistream.operators.operator import Rows
from dovetail.joins.semistream.operators.waiting import Limits, Waiting
from dovetail.joins.semistream.sizes import ROUND_ROW_BYTES, Sizes

if TYPE_CHECKING:
    from dovetail.joins.semistream.operators.operator import SemiStreamJoin

EVERYTHING = 1 << 40
SHARE_OF_A_ROUND = 8
FEW = 4  # rows waiting for a segment, up to which it is asked what pages they need
MANY = 64  # segments of a round, from which the rate is not low, and asking would cost more than it saves
_COPIES = 3.3  # of a round's rows, at most: as read, as decoded, and in answers
_MOST_TIMES = 3  # more would not fit the processor's caches, and save little


@dataclass(frozen=True, slots=True)
class Parts:
    """What an index-driven join is made of, and what the parts that it is given work with."""

    spec: SemiStreamJoin
    budget: MemoryBudget
    clock: Clock
    counts: Counts
    answers: Answers
    disk: DiskBuffer
    waiting: Waiting

    def admit(self, rows: Rows, start: int) -> int:
        """Let rows wait from `start` on; the first that found no free slot."""
        pool = self.waiting.pool
        stop = kernels.admit(pool, rows.codes, rows.segments, rows.refs, start, self.clock.now_ns())
        self.counts["admits"] += stop - start
        return stop

    def resolve(
        self, segment: int, loaded: Loaded, answered_by: str, remembers: bool = False
    ) -> Generator[pa.RecordBatch, None, tuple[int, bool]]:
        """Answer every row that waits for the segment; how many keys were met last, and whether those were all."""
        keys, whole, pool, answers = 0, True, self.waiting.pool, self.answers
        while pool.held[segment]:
            start, source, now = answers.n, loaded.chunk << SHIFT, self.clock.now_ns()
            state = pool, segment, loaded.codes, source, self.disk.scratch
            output = answers.written_how, answers.out, start, now, remembers
            answers.n, done, missed, keys = resolve(*state, *output)
            missed += answers.wrong(start)
            self.counts["misses"] += missed
            self.counts[answered_by] += done - missed
            whole = not pool.held[segment]
            if not whole:
                yield from answers.flush()
        return keys, whole


class Kept:
    """The master rows that a join keeps in memory between loads: none here; other kinds are HYBRIDJOIN's kin."""

    remembers = False  # whether keys that the master data has not are noted
    notes_keys = False  # whether keys that a round met are noted
    keeps_segments = False  # whether segments must be read whole
    threshold = 1  # waiting rows from which a key that a round met is noted
    is_paused = False  # whether a load must come before more rows are taken
    full_list = -1  # the segment for which so many rows wait that it is to be loaded

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def open(self) -> None:
        """Read what is kept from the start."""

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Answer rows from `start` on or let them wait; returns the first that was not looked at."""
        yield from ()
        return self.parts.admit(rows, start)

    def resume(self) -> None:
        """Go on after a load."""

    def before_load(self, segment: int) -> None:
        """Note what a load is for."""

    def after_load(self, segment: int, keys: int, whole: bool) -> None:
        """Learn from a load that met so many keys, all of the segment's waiting rows if `whole`."""

    def after_keys(self, batch: pa.RecordBatch, met: Met, n: int, n_rows: int, page_of: PageOf) -> None:
        """Learn from `n` keys, with `n_rows` master rows, that a round met."""

    def after_round(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Learn from a round of segments with so many waiting rows; `offsets` if all their rows are there."""

    def adopted(self, changed: I64 | None) -> None:
        """Mend what is kept after a version was taken up of which `changed` pages differ, all if None."""

    def regrouped(self) -> None:
        """Mend what is kept after segments took another length."""

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Give up what these sizes have no room for."""
        return iter(())

    def grow(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Use the room that these sizes give."""
        return iter(())

    def sizes(self) -> dict[str, int]:
        """The sizes of what is kept, which may have changed."""
        return {}

    def snapshot(self) -> dict[str, pa.Table]:
        """What is kept, as far as it cannot be read again."""
        return {}

    def state(self) -> dict[str, Any]:
        """The numbers that a restored join must go on with."""
        return {}

    def restore(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any]) -> None:
        """Take up a snapshot."""

    def relearn(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any], changed: I64 | None) -> None:
        """Take up what a snapshot of another version has that still holds."""

    def report(self, metrics: Metrics) -> None:
        """Add what was counted."""

    def close(self) -> None:
        """Give back all memory."""


class Picks(Protocol):
    """Which segments are loaded next."""

    def choose(self) -> int:
        """The segment to load next, or -1 if nothing waits."""
        ...

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round in ascending order, and how many rows wait for each."""
        ...


class Loads:
    """Loads of an index-driven join: what waits for a segment is answered, and the kept part learns from it.

    Reference: docs/algorithms/semistream.md, 2.0 (resolution, partial reads, invariants) and 6.10 (short reads).
    """

    def __init__(self, parts: Parts, kept: Kept, picks: Picks) -> None:
        self._parts, self._kept, self._picks = parts, kept, picks
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
        segment = self._picks.choose()
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

    def together(self, enough: int = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """One round: the segments that are picked next, loaded together, as many as the disk buffer holds.

        Picks are those that single loads would make if nothing was admitted between them: rows of a picked segment
        are out of the queue before the next is picked. What a join learns from loads, it learns after the round.
        Picking ends when `enough` rows will be answered.
        """
        if self.most < 2:
            yield from self.one()
            return
        self._parts.disk.use(None)
        yield from self._parts.answers.flush()
        yield from self._round(*self._picks.pick(self._roomy(enough)))

    def make_slots(self) -> Iterator[pa.RecordBatch]:
        """Free some slots: by one load, or by a round that answers no more than a share of what waits.

        A round is picked from a queue that nothing enters meanwhile, so that its last loads answer fewer rows than
        single ones would; the share bounds how many fewer.
        """
        yield from self.together(max(1, self._parts.waiting.slots // SHARE_OF_A_ROUND))

    def until(self, most: int) -> Iterator[pa.RecordBatch]:
        """Load until no more than so many rows wait."""
        while len(self._parts.waiting) > most:
            yield from self.together(len(self._parts.waiting) - most)

    def _roomy(self, enough: int) -> Limits:
        """The limits of the next round: larger than planned by what is unused, but not many times as large."""
        cost, usual = self._parts.disk.cost, self._limits.most_rows
        unused = max(0, self._parts.budget.available - cost.floor) / (_COPIES * cost.round_row)
        more = int(min(unused, (_MOST_TIMES - 1) * usual))
        self._room.resize(cost.round + ROUND_ROW_BYTES * more)
        return self._limits._replace(enough=enough, most_rows=usual + more)

    def _round(self, picked: I64, counts: I64) -> Iterator[pa.RecordBatch]:
        """Read the segments and answer every row that waits for them; after a failure all that is not, waits again."""
        parts, disk, asked = self._parts, self._parts.disk, counts.copy()
        try:
            found = self._read_keys(picked, int(counts.sum())) if disk.cost.keyed else None
            if found is None:
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
        chain_rows(self._parts.waiting.pool, segments, codes, refs)
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
        """The first page of each of these segments that is read, and how many, if so many rows wait for each.

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
        """Give back the memory."""
        self._room.close()
