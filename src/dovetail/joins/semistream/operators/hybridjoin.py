"""HYBRIDJOIN: the oldest waiting row says which segment is loaded, and the load answers all rows that wait for it.

X-HYBRIDJOIN also keeps the most requested pages of the master data in memory, as a plain buffer. `IndexDriven` is the
loop of all joins with an index: take rows, load when slots are full, answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels import waiting_pool as kernels
from dovetail.joins.semistream.kernels.segment_match import Met
from dovetail.joins.semistream.operators.answers import RowStore, Shape
from dovetail.joins.semistream.operators.master_rows import Loaded, PageOf
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.joins.semistream.operators.waiting import Limits, Loads, Parts, Rows, Waiting, report_waits
from dovetail.joins.semistream.request import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Footprint, Part, Sizes

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.pages import Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridJoin(SemiStreamJoin):
    """Waiting rows in a queue; the segment of one of them is loaded, and everything that waits for it is answered.

    If the oldest row is looked up, a row waits for at most as many loads as there are segments; with alternate and
    guarded look-up, for twice as many. With `sizes.together` above 1 several segments are picked before the first is
    loaded: as in the source, except that nothing is admitted between these loads.
    Reference: Naeem 2012, 5.2 and algorithm 3; Naeem 2011, 4.2; Naeem 2014, 3 and 4;
    docs/algorithms/semistream.md, 2.6 and 2.12.
    """

    lookup: Lookup = OLDEST

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        return IndexDriven(self, budget, stream, shape, sizes, Kept, partial(LookUps, lookup=self.lookup))

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class XHybridJoin(SemiStreamJoin):
    """HYBRIDJOIN whose first `sizes.pinned` pages stay in memory and are probed by all waiting rows before every load.

    Meant for master data with the most requested rows first. Without `sizes.pinned` the pinned and the swapped part are
    of one size; given both, the parts are tuned independently. `sizes.together` is as in HYBRIDJOIN: waiting rows probe
    the pinned pages before every round.
    Reference: Naeem 2012, 6.2, algorithm 4 and 6.4; docs/algorithms/semistream.md, 2.7 and 2.8.
    """

    lookup: Lookup = OLDEST
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "pinned")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep, schedule = partial(PinnedPages, pages=sizes.pinned), partial(LookUps, lookup=self.lookup)
        return IndexDriven(self, budget, stream, shape, sizes, keep, schedule, pinned=sizes.pinned or 0)

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


class Kept:
    """The master rows that a join keeps in memory between loads: none in this base class."""

    remembers = False  # whether keys that the master data does not have are recorded
    notes_keys = False  # whether keys matched in a round are recorded
    keeps_segments = False  # whether segments must be read whole
    threshold = 1  # waiting rows from which a key matched in a round is recorded
    is_paused = False  # whether a load must come before more rows are taken
    full_list = -1  # the segment that is due because its list is long enough; -1 if none

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def open(self) -> None:
        """Read the rows that are kept from the start."""

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Answer rows from `start` on or let them wait; returns the first row that was not processed."""
        yield from ()
        return self.parts.admit(rows, start)

    def resume(self) -> None:
        """Continue after a load."""

    def before_load(self, segment: int) -> None:
        """Record the segment of the next load."""

    def after_load(self, segment: int, keys: int, whole: bool) -> None:
        """Learn from a load that matched `keys` keys; these are all of the segment's waiting rows if `whole`."""

    def after_keys(self, batch: pa.RecordBatch, met: Met, n: int, n_rows: int, page_of: PageOf) -> None:
        """Learn from the `n` keys, with `n_rows` master rows, that a round matched."""

    def after_round(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Learn from a round of segments with `asked` waiting rows; `offsets` is set if all their rows were read."""

    def adopted(self, changed: I64 | None) -> None:
        """Update the kept rows after a new version, in which the `changed` pages differ, or all if None."""

    def regrouped(self) -> None:
        """Update the kept rows after the segment length changed."""

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Drop the kept rows that exceed these sizes."""
        return iter(())

    def grow(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Use the additional room of these sizes."""
        return iter(())

    def sizes(self) -> dict[str, int]:
        """The current sizes of the kept part."""
        return {}

    def snapshot(self) -> dict[str, pa.Table]:
        """The kept rows that cannot be read again."""
        return {}

    def state(self) -> dict[str, Any]:
        """The numbers that a restored join needs."""
        return {}

    def restore(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any]) -> None:
        """Restore a snapshot."""

    def relearn(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any], changed: I64 | None) -> None:
        """Restore the part of another version's snapshot that is still valid."""

    def report(self, metrics: Metrics) -> None:
        """Add what was counted."""

    def close(self) -> None:
        """Release all memory."""


class PinnedPages(Kept):
    """The pinned pages: one more segment, which is always in memory."""

    def __init__(self, parts: Parts, pages: int | None) -> None:
        super().__init__(parts)
        self._pages = pages
        self._payer = parts.budget.reserve("pinned pages")  # given back with the chunk
        self._pinned: Loaded | None = None

    def open(self) -> None:
        """Read the pinned pages."""
        disk, self._pinned = self.parts.disk, None
        if not disk.segments.pinned:
            return
        batch = disk.segments.read(disk.segments.aligned)
        kept, size = batch.select(disk.columns), int(batch.get_total_buffer_size())
        self._pinned = Loaded(kept, disk.codes_of(batch), disk.store.add_charged(kept, size, self._payer))

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Let rows wait, then answer those that wait for the pinned pages."""
        start = self.parts.admit(rows, start)
        if self._pinned is not None:
            yield from self.parts.disk.make_room(len(self._pinned.codes))  # pages may hold more rows than was planned
            yield from self.parts.resolve(self.parts.disk.segments.aligned, self._pinned, "answered_by_cache")
        return start

    def adopted(self, changed: I64 | None) -> None:
        """Read the pinned pages again."""
        if self._pinned is not None:
            self.parts.disk.store.drop([self._pinned.chunk])
        self.open()

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """`PlanError` for another number of pinned pages."""
        if sizes.pinned not in (None, self._pages):
            raise PlanError(
                f"pinned={sizes.pinned}: the pinned pages cannot change while a join runs; start a new one."
            )
        return iter(())


class Schedule(Protocol):
    """Which segments are loaded, and when."""

    def choose(self) -> int:
        """The segment to load next, or -1 if nothing waits."""
        ...

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round in ascending order, and how many rows wait for each."""
        ...

    def relieve(self, loads: Loads, more: bool) -> Iterator[pa.RecordBatch]:
        """Load the segments that are due after rows were taken; if `more` rows follow, free slots for some of them."""
        ...

    def overdue(self, loads: Loads) -> Iterator[pa.RecordBatch]:
        """Load the segments of rows that have waited too long."""
        ...


class LookUps:
    """Loads by a look-up policy: when no slot is free, or when the kept part asks for a load."""

    def __init__(self, parts: Parts, kept: Kept, lookup: Lookup) -> None:
        self._parts, self._kept, self._rule = parts, kept, (lookup.code, lookup.position)

    def choose(self) -> int:
        """The segment to load next, or -1 if nothing waits."""
        parts = self._parts
        return parts.waiting.choose(*self._rule, parts.spec.max_residence, parts.clock.now_ns())

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round in ascending order, and how many rows wait for each."""
        parts = self._parts
        return parts.waiting.pick(*self._rule, parts.spec.max_residence, parts.clock.now_ns(), limits)

    def relieve(self, loads: Loads, more: bool) -> Iterator[pa.RecordBatch]:
        """Free some slots if none is free; otherwise make the one load that the kept part waits for."""
        is_full = self._parts.waiting.is_full
        if more and (is_full or self._kept.is_paused):
            yield from loads.make_slots() if is_full else loads.one()
            self._kept.resume()

    def overdue(self, loads: Loads) -> Iterator[pa.RecordBatch]:
        """Load until no row has waited too long."""
        parts = self._parts
        while parts.waiting.overdue(parts.spec.max_residence, parts.clock.now_ns()):
            yield from loads.one()


class IndexDriven(SemiStreamOperator):
    """Rows wait in a queue and by home segment; a load answers every row that waits for its segment.

    `keep` makes the part that keeps master rows in memory, `schedule` the one that decides on loads.
    Reference: docs/algorithms/semistream.md, 2.0.
    """

    def __init__(
        self,
        spec: SemiStreamJoin,
        budget: MemoryBudget,
        stream: pa.Schema,
        shape: Shape,
        sizes: Sizes,
        keep: Callable[[Parts], Kept],
        schedule: Callable[[Parts, Kept], Schedule],
        pinned: int = 0,
        stores_rows: bool = False,
    ) -> None:
        super().__init__(spec, budget, stream, shape, sizes, pinned, stores_rows)
        self._parts = Parts(spec, budget, self.clock, self.counts, self.answers, self.disk, self.waiting)
        self.kept = self.own(keep(self._parts))
        self._schedule = schedule(self._parts, self.kept)
        self.loads = self.own(Loads(self._parts, self.kept, self._schedule))
        self.kept.open()

    def stream_store(self, cost: Footprint) -> RowStore:
        """Where waiting rows are."""
        slots = self.sizes.waiting or 1
        self.waiting = self.own(Waiting(self._stream_schema, slots, cost.segments.n, self.budget, cost.floor))
        return self.waiting.store

    def lend(self, batch: pa.RecordBatch) -> int:
        """The chunk of a pushed batch."""
        return self.waiting.borrow(batch)

    @property
    def waiting_rows(self) -> int:
        """How many stream rows are unanswered."""
        return len(self.waiting)

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Answer rows from the kept part or let them wait, with loads when they are due."""
        start, n = 0, len(rows.codes)
        while start < n:
            start = yield from self.kept.take(rows, start, self.loads)
            yield from self._schedule.relieve(self.loads, start < n)
        yield from self._schedule.overdue(self.loads)

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Copy the rows that wait; where there is no room for them, answer some first."""
        while not self.waiting.settle():
            yield from self.loads.until(max(0, len(self.waiting) - 1 - self.waiting.slots // 16))
            yield from self.answers.flush()

    def work(self) -> Iterator[pa.RecordBatch]:
        """One load, of the segment that is to be loaded next."""
        yield from self.loads.one()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer all waiting rows, in rounds."""
        if self.waiting_rows:
            self.kept.resume()
        yield from self.loads.until(0)
        yield from self.answers.flush()

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Answer waiting rows, or only those that wait too long, until none is left or input resumes."""
        if self.spec.when_idle == "drain":
            yield from super().idle(until)
            return
        while self.waiting.overdue(self.spec.max_residence, self.clock.now_ns()) and not until():
            yield from self.work()
        yield from self.answers.flush()

    def regroup(self, pages: Pages) -> None:
        """Also fit chains and rounds to the segments."""
        super().regroup(pages)
        self.waiting.store.floor = self.disk.cost.floor
        self.waiting.reshape(self.waiting.slots, self.disk.segments.n)
        self.loads.fit()

    def adopted(self, changed: I64 | None) -> None:
        """Update the kept master rows."""
        self.kept.adopted(changed)

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Apply new sizes, and answer rows that no longer fit; a new segment length answers all waiting rows."""
        yield from self.kept.shrink(sizes)
        if sizes.per_segment not in (None, self.sizes.per_segment):
            yield from self.drain()
            self.sizes = replace(self.sizes, per_segment=sizes.per_segment)
            self.regroup(self.pages)
            self.kept.regrouped()
        slots = sizes.waiting or self.waiting.slots
        yield from self.loads.until(slots)
        yield from self.answers.flush()
        if not self.waiting.resize(slots):
            yield from self.drain()
            self.waiting.reshape(slots, self.disk.segments.n)
        yield from self.kept.grow(sizes)
        self.sizes = replace(self.sizes, waiting=slots, **self.kept.sizes())

    def snapshot(self) -> dict[str, pa.Table]:
        """Everything that later answers depend on: waiting rows in order, what is kept, the state of the policies."""
        slots, pool, now = self.waiting.in_order(), self.waiting.pool, self.clock.now_ns()
        waits = {"age_ns": now - pool.since[slots], "born": pool.born[slots]}
        return {
            "rows": pa.Table.from_batches([self.waiting.rows()], self._stream_schema),
            "waits": pa.table(waits),
            "state": pa.table({"json": [json.dumps(self._state())]}),
        } | self.kept.snapshot()

    def _state(self) -> dict[str, Any]:
        """The numbers that policies depend on."""
        meta = self.waiting.pool.meta
        return {"loads": int(meta[kernels.LOADS]), "turn": int(meta[kernels.TURN])} | self.kept.state()

    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Restore a snapshot in a join that has seen no rows; returns answers of rows that no longer fit."""
        rows, waits = snapshot["rows"].combine_chunks(), snapshot["waits"]
        out = [found for batch in rows.to_batches() for found in self._readmitted(batch)]
        pool, slots, now = self.waiting.pool, self.waiting.in_order(), self.clock.now_ns()
        if len(self.waiting) == rows.num_rows:
            pool.since[slots] = now - waits["age_ns"].to_numpy()
            pool.born[slots] = waits["born"].to_numpy()
        state = _state_of(snapshot)
        pool.meta[kernels.LOADS], pool.meta[kernels.TURN] = state["loads"], state["turn"]
        self.kept.restore(snapshot, state)
        return out

    def _readmitted(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Admit rows that waited before: they do not probe the kept part and are not counted as new."""
        rows, _ = self.coded(batch, self.lend(batch))
        start = 0
        while start < len(rows.codes):
            start = self._parts.admit(rows, start)
            if start < len(rows.codes):
                yield from self.loads.make_slots()
        while self.waiting.overdue(self.spec.max_residence, self.clock.now_ns()):
            yield from self.work()
        yield from self.answers.flush()
        yield from self.settle()

    def relearn(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> None:
        """Restore the kept part that is still valid."""
        self.kept.relearn(snapshot, _state_of(snapshot), changed)

    def report(self, metrics: Metrics) -> None:
        """Add all counts, with how long rows waited."""
        pool = self.waiting.pool
        metrics.peak("queue_peak", int(pool.meta[kernels.PEAK]), unit="rows")
        metrics.peak("longest_residence", int(pool.meta[kernels.WORST]), unit="loads")
        report_waits(metrics, "residence", pool.residence)
        self.kept.report(metrics)
        super().report(metrics)


def _state_of(snapshot: Mapping[str, pa.Table]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(snapshot["state"]["json"][0].as_py())
    return found
