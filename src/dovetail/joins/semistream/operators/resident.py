"""SSIJ and the partition-based join: the most requested segments stay in memory, rows of others wait by segment."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact_bytes
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.waiting_pool import BY_SEGMENT, OLDEST, admit_until, choose, fullest
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.hybridjoin import IndexDriven, Kept
from dovetail.joins.semistream.operators.master_rows import Loaded
from dovetail.joins.semistream.operators.operator import SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import FOREVER, Limits, Loads, Parts, Rows, places_by_value
from dovetail.joins.semistream.sizes import Part, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssij(SemiStreamJoin):
    """Three phases: input is collected (a pushed batch), joined with resident segments, and kept where that fails;
    when memory is full, all needed segments are loaded one after the other until no row waits.

    Resident are the segments with the most requests, which count half after every join phase. With `sizes.together`
    above 1 that many segments of a join phase are loaded at a time, in the same order.
    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.5. Which segments stay is ours.
    """

    parts: ClassVar[tuple[Part, ...]] = ("waiting", "resident")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep = partial(ResidentSegments, most=sizes.resident or 0, by_phase=True)
        return IndexDriven(self, budget, stream, shape, sizes, keep, JoinPhases)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedJoin(SemiStreamJoin):
    """Rows of resident segments are answered at once, others wait in a list for each segment.

    A segment is loaded when `threshold` rows wait for it (default: twice the average when memory is full). When memory
    is full the longest lists are served until only `low_water` of it is in use. Without `max_residence` rows of a
    segment that is rarely asked for wait until then, or until input pauses. With `sizes.together` above 1 the longest
    lists are served that many at a time; a list that reaches the threshold is still served alone.
    Low water and age are ours.
    Reference: Naeem 2012, 2.4.3; Naeem 2011, 2; Naeem 2014, 2; docs/algorithms/semistream.md, 2.4.
    """

    threshold: int | None = None
    low_water: float = 0.9
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "resident")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        if not 0 <= self.low_water < 1 or (self.threshold is not None and self.threshold < 1):
            raise PlanError(
                f"threshold={self.threshold}, low_water={self.low_water}: a segment needs at least one waiting row; "
                f"low_water is a share from 0 to below 1."
            )

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep = partial(ResidentSegments, most=sizes.resident or 0, by_phase=False, long=self._threshold)
        return IndexDriven(self, budget, stream, shape, sizes, keep, partial(LongestLists, low_water=self.low_water))

    def _threshold(self, slots: int, segments: int) -> int:
        return self.threshold or 2 * -(-slots // max(1, segments))

    def options(self) -> list[str]:
        """When segments are loaded."""
        return [f"threshold={self.threshold or 'fitted'}", f"low_water={self.low_water:g}"]


class ResidentSegments(Kept):
    """The segments with the most recent requests, kept in memory; a loaded one replaces the least requested one.

    Requests count half after every join phase, or after as many loads as there are segments. `long` gives the number
    of waiting rows at which a list is long enough to be served. `full_list` is the segment whose list became that long.
    Reference: Naeem 2012, 2.4.3; Naeem 2014, 2; docs/algorithms/semistream.md, 2.4 and 2.5.
    """

    keeps_segments = True

    def __init__(self, parts: Parts, most: int, by_phase: bool, long: Any = None) -> None:
        super().__init__(parts)
        self._most, self._by_phase = most, by_phase
        self._long = FOREVER if long is None else long(parts.waiting.slots, parts.disk.segments.wanted)
        self._resized: dict[str, int] = {}
        self._residents: dict[int, Loaded] = {}
        self._payer = parts.budget.reserve("resident segments")  # given back with the segments
        self._counters = parts.budget.reserve("segment counters")
        self._start_counting()

    def _start_counting(self) -> None:
        n = self.parts.disk.segments.n + 1
        self._counters.resize(9 * n)
        self.requests, self._there = np.zeros(n, np.float64), np.zeros(n, np.bool_)

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Answer rows whose segment is resident, let others wait, until slots or a list are full."""
        parts, found = self.parts, np.empty(len(rows.codes) - start, np.int64)
        before, pool = len(parts.waiting), parts.waiting.pool
        given = rows.codes, rows.segments, rows.refs, start, parts.clock.now_ns(), self._long, self._there, found
        stop, n = admit_until(pool, *given)
        parts.counts["admits"] += len(parts.waiting) - before
        last = int(rows.segments[stop - 1]) if stop > start else -1
        yield from self._online(rows, found[:n])
        is_full = last >= 0 and not self._there[last] and pool.held[last] >= self._long
        self.full_list = last if is_full else -1
        return stop

    def _online(self, rows: Rows, found: I64) -> Iterator[pa.RecordBatch]:
        """Answer rows whose segment is resident."""
        for segment, places in places_by_value(rows.segments[found]):
            self.requests[segment] += len(places)
            wanted = rows.some(found[places])
            loaded = self._residents[segment]
            yield from self.parts.disk.match(wanted.codes, wanted.refs, loaded, "answered_by_cache")

    def before_load(self, segment: int) -> None:
        """Count the rows that wait for the segment as requests."""
        self.requests[segment] += self.parts.waiting.pool.held[segment]

    def after_load(self, segment: int, keys: int, whole: bool) -> None:
        """Keep the segment if it is requested more than a resident one."""
        if self._deserves(segment):
            loaded = self.parts.disk.loaded
            self.parts.disk.keep(loaded.chunk, self._payer)
            self._stay(segment, loaded)
        self._age(1)

    def after_round(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Keep copies of the round's segments that are requested more than resident ones."""
        self.requests[picked] += asked
        if self._most and offsets is not None:
            there = np.array(list(self._residents), np.int64)
            new = ~np.isin(picked, there)
            both = np.append(there, picked[new])
            most = both[np.argsort(-self.requests[both], kind="stable")][: self._most]
            for segment in np.setdiff1d(there, most).tolist():
                self._let_go(segment)
            for at in np.flatnonzero(new & np.isin(picked, most)).tolist():
                self._keep_copy(int(picked[at]), slice(int(offsets[at]), int(offsets[at + 1])))
        self._age(len(picked))

    def _age(self, loads: int) -> None:
        """Halve all requests if an interval has passed after `loads` more loads."""
        if self._by_phase:
            times = 0 if len(self.parts.waiting) else 1
        else:
            every, total = max(1, self.parts.disk.segments.wanted), self.parts.waiting.loads
            times = total // every - (total - loads) // every
        if times:
            self.requests *= 0.5**times

    def _keep_copy(self, segment: int, rows: slice) -> None:
        """Keep rows of the loaded round as a resident segment, if there is room for a copy of them."""
        disk = self.parts.disk
        loaded = disk.loaded
        part = loaded.batch.slice(rows.start, rows.stop - rows.start)
        size = compact_bytes(part) + 8 * part.num_rows
        if disk.fits(size):
            chunk = disk.store.add_charged(pa.concat_batches([part]), size, self._payer)
            self._stay(segment, Loaded(disk.store.chunk(chunk), int64s(loaded.codes[rows].copy()), chunk))

    def _deserves(self, segment: int) -> bool:
        """Make a place for the segment, if needed by evicting one that is requested less; whether there is one."""
        if not self._most or segment in self._residents:
            return False
        if len(self._residents) >= self._most:
            least = min(self._residents, key=lambda number: (self.requests[number], number))
            if self.requests[segment] <= self.requests[least]:
                return False
            self._let_go(least)
        return True

    def _stay(self, segment: int, loaded: Loaded) -> None:
        self._residents[segment] = loaded
        self._there[segment] = True

    def _let_go(self, segment: int) -> None:
        self.parts.disk.let_go(self._residents.pop(segment).chunk)
        self._there[segment] = False

    def adopted(self, changed: I64 | None) -> None:
        """Drop resident segments that changed."""
        segments = self.parts.disk.segments
        for segment in list(self._residents):
            if (
                changed is None
                or segment >= segments.n
                or np.isin(np.arange(segments.first[segment], segments.last[segment]), changed).any()
            ):
                self._let_go(segment)
        requests, there = self.requests, self._there
        self._start_counting()
        n = min(len(requests), len(self.requests))
        self.requests[:n], self._there[:n] = requests[:n], there[:n]
        self.parts.disk.release()

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Drop the least requested resident segments, if there are too many."""
        if sizes.resident is not None:
            self._most = sizes.resident
            self._resized = {"resident": self._most}
            least_first = sorted(self._residents, key=lambda number: (self.requests[number], number))
            yield from self.parts.answers.flush()
            for segment in least_first[: max(0, len(least_first) - self._most)]:
                self._let_go(segment)
            self.parts.disk.release()

    def sizes(self) -> dict[str, int]:
        """The number of segments that may stay, if it changed."""
        return self._resized

    def regrouped(self) -> None:
        """Drop all resident segments, as the segment length changed."""
        for segment in list(self._residents):
            self._let_go(segment)
        self._start_counting()
        self.parts.disk.release()

    def state(self) -> dict[str, Any]:
        """The requests, and which segments are resident, in order."""
        some = np.flatnonzero(self.requests)
        return {"requests": [some.tolist(), self.requests[some].tolist()], "residents": list(self._residents)}

    def restore(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any]) -> None:
        """Restore the requests, and read the resident segments again."""
        some, counts = state["requests"]
        self.requests[some] = counts
        disk = self.parts.disk
        for segment in state["residents"]:
            for _ in disk.hold(disk.segments.read(segment)):
                pass
            disk.keep(disk.loaded.chunk, self._payer)
            self._stay(segment, disk.loaded)

    def close(self) -> None:
        """Release the memory of counters; segments are released with the store of master rows."""
        self._counters.close()


class JoinPhases:
    """SSIJ's schedule: when memory is full, or a row has waited too long, all waiting rows are answered."""

    def __init__(self, parts: Parts, kept: Kept) -> None:
        self._parts = parts

    def choose(self) -> int:
        """The next segment in order that a row waits for, or -1."""
        return choose(self._parts.waiting.pool, BY_SEGMENT, 0.0, FOREVER, 0)

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The next segments in order that rows wait for."""
        return self._parts.waiting.pick(BY_SEGMENT, 0.0, None, self._parts.clock.now_ns(), limits)

    def relieve(self, loads: Loads, more: bool) -> Iterator[pa.RecordBatch]:
        """A join phase if memory is full."""
        if more:
            yield from loads.until(0)

    def overdue(self, loads: Loads) -> Iterator[pa.RecordBatch]:
        """A join phase if a row has waited for too long."""
        if self._parts.waiting.overdue(self._parts.spec.max_residence, self._parts.clock.now_ns()):
            yield from loads.until(0)


class LongestLists:
    """The partition-based schedule: a list that is long enough, or the longest ones when memory is full."""

    def __init__(self, parts: Parts, kept: Kept, low_water: float) -> None:
        self._parts, self._kept, self._low_water = parts, kept, low_water

    def choose(self) -> int:
        """The segment that most rows wait for."""
        return fullest(self._parts.waiting.pool.held) if len(self._parts.waiting) else -1

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments that most rows wait for."""
        held = self._parts.waiting.pool.held
        wanted = np.flatnonzero(held)
        longest = wanted[np.argsort(-held[wanted], kind="stable")]
        return self._parts.waiting.take(int64s(longest), limits)

    def relieve(self, loads: Loads, more: bool) -> Iterator[pa.RecordBatch]:
        """Serve a list that is long enough; or, if memory is full, the longest until the low-water mark is reached."""
        long = self._kept.full_list
        if long >= 0:
            yield from loads.segment(long)
        elif more:
            waiting = self._parts.waiting
            low = int(self._low_water * waiting.slots)
            yield from loads.together(len(waiting) - low)
            while len(waiting) > self._low_water * waiting.slots:
                yield from loads.together(len(waiting) - low)
        yield from self.overdue(loads)

    def overdue(self, loads: Loads) -> Iterator[pa.RecordBatch]:
        """Serve the lists of rows that have waited for too many loads or too long."""
        bound, waiting = self._parts.spec.max_residence, self._parts.waiting
        while bound is not None and len(waiting):
            oldest = int(waiting.pool.meta[OLDEST])
            late = bound.loads is not None and waiting.loads - int(waiting.pool.born[oldest]) >= bound.loads
            if not late and not waiting.overdue(bound, self._parts.clock.now_ns()):
                return
            yield from loads.segment(int(waiting.pool.segment[oldest]))
