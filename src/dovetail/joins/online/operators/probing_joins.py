"""XJoin and RPJ: partitions on disk are probed against memory of the other side, in pauses.

`Visiting` keeps the record of these probes, which keeps pairs from coming twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, int64s
from dovetail.engine.operator import Until
from dovetail.engine.rows.named_rows import SHIFT
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving, Part
from dovetail.joins.online.kernels.match import NEVER, Visits
from dovetail.joins.online.kernels.table import RPJ, XJOIN, queue_slots
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_joins import HashIndex, hash_index
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted


class Candidate(NamedTuple):
    """A disk part that can be probed against memory: its benefit, its side and its bucket."""

    pairs: float
    side: int
    bucket: int


class Visiting(Disk):
    """Disk parts that are used against memory, each use recorded as (latest departure on disk, tick of the use).

    A row d of that part and a row m were joined by it exactly if d had left by then and m was in memory at that tick.
    """

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.index, self.combinations = hash_index(join), Combinations(join)
        self.record: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        """The uses of a bucket's disk part, of left and of right."""
        found = [np.array(self.record.get((side, bucket), []), np.int64).reshape(-1, 2) for side in (0, 1)]
        left, right = (Visits(int64s(uses[:, 0]), int64s(uses[:, 1])) for uses in found)
        return left, right

    def visitable(self) -> Iterator[Candidate]:
        """Disk parts for which memory holds rows, unless the last use has joined all of them."""
        n, table, ats = self.index.buckets, self.index.table, self.index.rows.ats
        for side in (0, 1):
            rows, latest = self._disk_parts(side)
            for bucket in np.flatnonzero(rows > 0).tolist():
                queue = (1 - side) * n + bucket
                held = int(table.held[queue])
                if held == 0:
                    continue
                newest = int(ats[table.tail[queue]])
                last, tick = self.record.get((side, bucket), [(0, 0)])[-1]
                if latest[bucket] > last or newest > tick:
                    yield Candidate(float(rows[bucket]) * held, side, bucket)

    def _disk_parts(self, side: int) -> tuple[Any, Any]:
        """Rows on disk of each bucket, and when the last of them left."""
        store, n = self.blocks[side], self.index.buckets
        living, rows, latest = store.living(), np.zeros(n, np.int64), np.zeros(n, np.int64)
        buckets = store.column("bucket")[living]
        np.add.at(rows, buckets, store.column("rows")[living])
        np.maximum.at(latest, buckets, store.column("dts")[living])
        return rows, latest

    def visit(self, side: int, bucket: int) -> Iterator[pa.RecordBatch]:
        """New pairs of the disk part of one side with the memory part of the other; all blocks are used."""
        join, queue = self.join, (1 - side) * self.index.buckets + bucket
        room = self.blocks[side].largest + self.blocks[1 - side].beside * int(self.index.table.held[queue])
        join.buffer.reserve(room)
        visits = self.visits(bucket)
        latest, tick = self._disk_parts(side)[1][bucket], join.tick()
        if self.index.table.held[queue]:  # making room may have flushed it
            numbers = self.blocks[side].of_bucket(bucket).tolist()
            memory, steps = self._memory_part(1 - side, queue), self.combinations.path([1 - side, side])
            for number in numbers:
                if self.combinations.can_match(steps[1], memory, number):
                    parts = [memory, self.combinations.load(side, [number])]
                    yield from self.combinations.of(parts, steps, visits=visits)
        self.record.setdefault((side, bucket), []).append((int(latest), tick))
        join.buffer.release(room)

    def _memory_part(self, side: int, queue: int) -> Part:
        slots: I32 = np.empty(int(self.index.table.held[queue]), np.int32)
        queue_slots(self.index.table, queue, slots)
        r, pages = self.index.rows, self.join.pages[side]
        never, refs = np.full(len(slots), NEVER), r.ref[slots]
        used = {number: pages.page(number) for number in np.unique(refs >> SHIFT).tolist()}
        return Part(r.keys[:, slots], r.ats[slots], never, never, refs, used, self.join.schemas[side])

    def renumber(self) -> None:
        """Drop the uses before a drain."""
        self.record.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class XJoin(OnlineJoin):
    """When memory is full, the largest partition of either side goes to disk; its counterpart stays in memory.

    In pauses the disk part of one side's partition is probed against the memory part of the other's, as long as there
    are new rows; one such use is the unit of work, after which `until` is called. Pairs are told apart by ticks and by
    a list of those uses. The clean-up joins what is left.
    Reference: Bornea 2010, 2; Naeem 2012, 2.3.3; docs/algorithms/online.md, 2.3.
    """

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """The largest partition leaves."""
        return HashIndex(fitted, keys, XJOIN)

    def disk(self, join: OnlineOperator) -> Disk:
        """Stages 2 and 3."""
        return XJoinStages(join)


class XJoinStages(Visiting):
    """The second and third stage of XJoin."""

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Stage 2: partitions on disk against memory, the most promising first, while there is something new."""
        while (best := max(self.visitable(), default=None)) is not None:
            yield from self.visit(best.side, best.bucket)
            if until():
                return

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Stage 3: all pairs that no stage has produced."""
        for bucket in self.combinations.buckets():
            yield from self.combinations.of_bucket(bucket, "ticks", self.visits(bucket))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBasedJoin(OnlineJoin):
    """Rows leave that the least likely arrivals of the other side would match.

    Probabilities are counts of arrivals, multiplied by `ageing` at each flush (1: no ageing, as papers that compare
    with RPJ read it; 0.9: recent arrivals count more). A block of rows leaves at a time, from the next bucket where
    one has too few. In pauses the task of the highest expected rate runs: a disk part against memory, or
    up to `fan_in` segments of one side against the other's joined ones; a task is the unit of work, after which `until`
    is called.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.6.
    """

    ageing: float = 0.9

    def __post_init__(self) -> None:
        OnlineJoin.__post_init__(self)
        if not 0 <= self.ageing <= 1:
            raise PlanError(f"ageing={self.ageing} is not between 0 and 1.")

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """Rows that the least likely arrivals would join with leave."""
        return HashIndex(fitted, keys, RPJ, ageing=self.ageing)

    def disk(self, join: OnlineOperator) -> Disk:
        """Tasks by expected rate."""
        return Tasks(join)

    def options(self) -> list[str]:
        """The ageing of arrivals."""
        return [f"ageing={self.ageing}"]


class Task(NamedTuple):
    """Reactive work: expected results per block read, whether on disk alone, and the side and bucket."""

    rate: float
    on_disk: bool
    side: int
    bucket: int


class Tasks(Visiting):
    """RPJ's work on disk. A block's group is its segment, the tick of its flush.

    `boxes` are the numbers of joined segments of each side, by bucket.
    """

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.boxes, self._fan_in = np.zeros((2, self.index.buckets), np.int64), join.spec.sizes.fan_in

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows that left together from one bucket are a sorted segment."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Tasks by expected rate, until there is nothing to do or `until()`."""
        while (task := max(self._tasks(), default=None)) is not None:
            if task.on_disk:
                yield from self._grow_box(task.side, task.bucket, self._fan_in)
            else:
                yield from self.visit(task.side, task.bucket)
            if until():
                return

    def _tasks(self) -> Iterator[Task]:
        density = (self.index.table.met + 1.0) / (self.index.table.compared + 1.0)
        for found in self.visitable():
            blocks = len(self.blocks[found.side].of_bucket(found.bucket))
            yield Task(density[found.bucket] * found.pairs / blocks, False, found.side, found.bucket)
        for bucket in self.combinations.buckets():
            for side in (0, 1):
                if (rate := self._box_rate(side, bucket)) is not None:
                    yield Task(density[bucket] * rate, True, side, bucket)

    def _segments(self, side: int, bucket: int) -> list[list[int]]:
        """The blocks of each segment of a bucket, segments in the order written."""
        store = self.blocks[side]
        numbers = store.of_bucket(bucket)
        of_block = store.column("group")[numbers]
        return [numbers[of_block == group].tolist() for group in np.unique(of_block)]

    def _step(self, side: int, bucket: int, most: int) -> tuple[list[int], list[int], int]:
        """Blocks of the next segments of one side, those of the other side in the box, and segments joined then."""
        mine, theirs = self._segments(side, bucket), self._segments(1 - side, bucket)
        done, met = int(self.boxes[side, bucket]), int(self.boxes[1 - side, bucket])
        return list(chain(*mine[done : done + most])), list(chain(*theirs[:met])), min(len(mine), done + most)

    def _box_rate(self, side: int, bucket: int) -> float | None:
        """Comparable pairs per block read if the box grew on this side; None if it cannot."""
        new, old, _ = self._step(side, bucket, self._fan_in)
        if not new:
            return None
        rows = [int(self.blocks[s].column("rows")[n].sum()) for s, n in ((side, new), (1 - side, old))]
        return rows[0] * rows[1] / (len(new) + len(old))

    def _grow_box(self, side: int, bucket: int, most: int) -> Iterator[pa.RecordBatch]:
        """Join further segments of one side with those of the other side that are in the box."""
        new, old, self.boxes[side, bucket] = self._step(side, bucket, most)
        numbers = (new, old) if side == 0 else (old, new)
        yield from self.combinations.settle(numbers, visits=self.visits(bucket))

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every box grows to its full size."""
        for bucket in self.combinations.buckets():
            for side in (0, 1):
                yield from self._grow_box(side, bucket, len(self.blocks[side]))

    def renumber(self) -> None:
        """All segments that are left are joined."""
        super().renumber()
        for side in (0, 1):
            for bucket in range(self.index.buckets):
                self.boxes[side, bucket] = len(self._segments(side, bucket))
