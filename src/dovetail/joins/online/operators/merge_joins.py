"""HMJ and PMJ: sorted segments on disk are merged, some at a time.

Pairs of different segments come out, and one segment remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.operator import OperatorError, Until
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Blocks, Leaving, Part
from dovetail.joins.online.kernels.match import NEVER
from dovetail.joins.online.kernels.rows import (
    BYTES,
    DONE,
    FIRST_REF,
    FLUSHED,
    H_TICK,
    HELD,
    LOAD_FULL,
    MAX_BYTES,
    MAX_ROWS,
    NEXT,
    SIDE,
    Arrivals,
    claim,
    fill,
    hold_all,
)
from dovetail.joins.online.kernels.table import HMJ, HMJ_SMALLEST
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_joins import HashIndex
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint

_LAST = 2**63 - 1


class Segments(Disk):
    """Blocks that belong to pairs of segments: inside one pair of segments all pairs of rows are done.

    Sorted blocks are joined only if their key ranges overlap. A merged pair of segments gets a new number, and is one
    sorted run if there is room to merge the runs of its parts; else it keeps them. A block's departure is the number of
    its run.
    """

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.combinations = Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Both sides of one flush are one pair of segments."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def next_group(self) -> int:
        """A new number for a segment pair, larger than all before: a tick."""
        return self.join.tick()

    def segments(self, bucket: int) -> I64:
        """The segment pairs of a bucket, oldest first."""
        found = [store.column("group")[store.of_bucket(bucket)] for store in self.blocks]
        return np.unique(np.concatenate(found))

    def most_segments(self) -> int | None:
        """The bucket on both sides with the most segment pairs, if any has more than one."""
        buckets = self.combinations.buckets()
        counts = [len(self.segments(bucket)) for bucket in buckets]
        most = max(counts, default=0)
        return buckets[counts.index(most)] if most > 1 else None

    def merge_once(self, bucket: int, keep: bool) -> Iterator[pa.RecordBatch]:
        """Pairs of rows of up to `fan_in` segment pairs, which become one.

        Without `keep` nothing is written if these were all segments of the bucket: they will not be read again.
        """
        every = self.segments(bucket)
        groups = every[: self.fan_in()]
        numbers = [self._blocks_of_groups(store, bucket, groups) for store in self.blocks]
        yield from self.combinations.settle([some.tolist() for some in numbers], "group")
        if keep or len(groups) < len(every):
            group = self.next_group()
            for side in (0, 1):
                self._merge_runs(side, numbers[side], bucket, group)
        else:
            for store, buried in zip(self.blocks, numbers, strict=True):
                store.directory.bury(buried)

    def fan_in(self) -> int:
        """Segment pairs per merge: as configured, but at most as many as there is room for a block of each."""
        block = max(1, *(store.largest for store in self.blocks))
        return max(2, min(self.join.spec.sizes.fan_in, self.join.buffer.room // (2 * block)))

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Merge the segments of each bucket; rows that will not be read again are not written."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_once(bucket, keep=not self.join.finished)

    def renumber(self) -> None:
        """Make all rows on disk, which are joined with each other, one pair of segments."""
        group = self.next_group()
        for store in self.blocks:
            store.directory.regroup(group)

    def _blocks_of_groups(self, store: Blocks, bucket: int, groups: I64) -> I64:
        numbers = store.of_bucket(bucket)
        return numbers[np.isin(store.column("group")[numbers], groups)]

    def _merge_runs(self, side: int, numbers: I64, bucket: int, group: int) -> None:
        """Make the rows of these blocks one segment, sorted if a block of each run fits in memory."""
        store = self.blocks[side]
        of_run = store.column("dts")[numbers]
        names = np.unique(of_run)
        room = 2 * store.largest * len(names)
        if len(names) < 2 or not self.join.buffer.try_reserve(room):
            store.directory.regroup(group, numbers)
            return
        runs = [_Run(store, numbers[of_run == name].tolist()) for name in names]
        waiting: list[Leaving] = []
        while runs:
            bound = min(run.bound for run in runs)
            waiting = [_sorted(waiting + [part for run in runs if (part := run.until(bound)) is not None])]
            runs = [run for run in runs if not run.is_done]
            waiting = self._written(store, waiting[0], bucket, group, whole=not runs)
        self.join.buffer.release(room)
        store.directory.bury(numbers)

    def _written(self, store: Blocks, rows: Leaving, bucket: int, group: int, whole: bool) -> list[Leaving]:
        """Write full blocks; returns the remaining rows, none with `whole`."""
        size, at = self.join.fitted.block_rows, 0
        while len(rows.ats) - at >= size or (whole and at < len(rows.ats)):
            store.append(rows.slice(at, size), -1, group, bucket, group)
            at += size
        return [rows.slice(at, size)] if at < len(rows.ats) else []


class _Run:
    """The blocks of one sorted segment, read one after the other."""

    def __init__(self, store: Blocks, numbers: list[int]) -> None:
        self._store, self._numbers = store, numbers[::-1]
        self._rows, self._at = store.read(self._numbers.pop()), 0

    @property
    def bound(self) -> int:
        """Up to this key all rows are in memory."""
        return int(self._rows.keys[-1][-1]) if self._numbers else _LAST

    @property
    def is_done(self) -> bool:
        """Whether every row was taken."""
        return not self._numbers and self._at >= len(self._rows.ats)

    def until(self, bound: int) -> Leaving | None:
        """Rows in memory up to this key that were not taken, None if there are none; the next block follows."""
        stop = int(np.searchsorted(self._rows.keys[-1], bound, side="right"))
        part = self._rows.slice(self._at, stop - self._at) if stop > self._at else None
        self._at = max(self._at, stop)
        if self._at >= len(self._rows.ats) and self._numbers:
            self._rows, self._at = self._store.read(self._numbers.pop()), 0
        return part


def _sorted(parts: list[Leaving]) -> Leaving:
    keys, ats = np.concatenate([part.keys for part in parts], axis=1), np.concatenate([part.ats for part in parts])
    together = Leaving(pa.concat_batches([part.batch for part in parts]), keys, ats)
    return together.take(np.argsort(keys[-1], kind="stable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMergeJoin(OnlineJoin):
    """When memory is full, both sides of a bucket go to disk, each sorted: the largest pair that keeps the sides alike.

    `flush="smallest"` takes the smallest pair of at least a block instead. In pauses, and at the end, up to `fan_in`
    pairs of segments of a bucket are merged: pairs of rows of different segments come out, and the merged pair is one
    segment from then on. A merge is the unit of work, after which `until` is called; it grows as segments grow.
    Reference: Bornea 2010, 2; Naeem 2012, 2.3.4; docs/algorithms/online.md, 2.5.
    """

    flush: Literal["largest", "smallest"] = "largest"

    def __post_init__(self) -> None:
        OnlineJoin.__post_init__(self)
        if self.flush not in ("largest", "smallest"):
            raise PlanError(f"flush={self.flush!r} is not one of ['largest', 'smallest'].")

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """A pair of buckets leaves."""
        return HashIndex(fitted, keys, HMJ if self.flush == "largest" else HMJ_SMALLEST)

    def disk(self, join: OnlineOperator) -> Disk:
        """Merges of segments."""
        return MergedInPauses(join)

    def options(self) -> list[str]:
        """Which pair is flushed."""
        return [f"flush={self.flush}"]


class MergedInPauses(Segments):
    """Segments of HMJ: both sides of one flush are one pair, named by the tick of the flush or merge."""

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Merges, of the bucket with the most segments first, until every bucket has one or `until()`."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_once(bucket, keep=True)
            if until():
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressiveMergeJoin(OnlineJoin):
    """Rows are collected until memory is full; then both sides are sorted, joined, and written as a pair of runs.

    So results come only when memory is full. At the end, `fan_in` / 2 pairs of runs are merged at a time: pairs of rows
    of different runs come out. Equality and bands. There is no reactive phase.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.4.
    """

    bands: ClassVar[bool] = True

    def footprint(self) -> Footprint:
        """Slots, and room to sort a memory load."""
        return Footprint(self.row_bytes + self.loaded_bytes(0) + 4, fixed=1536)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Rows without an index."""
        return Load(fitted, keys, flushes=24)

    def disk(self, join: OnlineOperator) -> Disk:
        """Runs."""
        return Runs(join)


class Load(Index):
    """A memory load: rows are collected without probing, and leave together once they have been joined."""

    def arrive(self, new: Arrivals) -> int:
        """Collect rows until all are in, or memory is full."""
        at, n = int(new.at[NEXT]), len(new.slot)
        while at < n:
            some = slice(at, at + min(n - at, self._room(int(new.size[0]))))
            if some.stop <= at:
                return LOAD_FULL
            self._collect(new, some)
            at = new.at[NEXT] = some.stop
        return DONE

    def _room(self, width: int) -> int:
        """Rows of this width that still fit; at least one if memory is empty."""
        m = self.rows.meta
        room = min(int(m[MAX_ROWS] - m[HELD]), int(m[MAX_BYTES] - m[BYTES]) // width)
        return max(room, 0 if m[HELD] else 1)

    def _collect(self, new: Arrivals, some: slice) -> None:
        slots = new.slot[some] = claim(self.rows, some.stop - some.start)
        fill(self.rows, slots, int(new.at[FIRST_REF]) + some.start, new.keys[:, some], int(new.size[0]))
        self.store(int(new.at[SIDE]), slots)

    def flush(self) -> bool:
        """No flush: rows leave only after they were joined with the rest of their memory load."""
        return False

    def store(self, side: int, slots: I32) -> None:
        """Collect the rows."""
        hold_all(self.rows, slots.astype(np.int64), side)

    def drop(self, side: int, slots: I32) -> None:
        """Never called: memory is empty when nothing is owed."""
        raise OperatorError("the progressive merge join has rows in memory that have not been joined.")

    def forget(self) -> None:
        """There is no index."""


class Runs(Segments):
    """Memory loads on disk. A block's group is its pair of runs; all are of one bucket."""

    collects: ClassVar[bool] = True

    def end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Sort and join the rows in memory, and write them as a pair of runs."""
        slots = [pages.slots() for pages in self.join.pages]
        parts = [self._part(side, slots[side]) for side in (0, 1)]
        yield from self.combinations.of(parts, self.combinations.path((0, 1)), phase=phase)
        self._write_load(slots)

    def _part(self, side: int, slots: I32) -> Part:
        r, pages = self.join.rows, self.join.pages[side]
        ats, dts = np.full(len(slots), NEVER), np.zeros(len(slots), np.int64)
        return Part(r.keys[:, slots], ats, dts, dts, r.ref[slots], pages.batches(), self.join.schemas[side])

    def spill_load(self) -> None:
        """Write the rows in memory, which are joined already, as a pair of runs."""
        self._write_load([pages.slots() for pages in self.join.pages])
        for pages in self.join.pages:
            pages.tidy()

    def _write_load(self, slots: list[I32]) -> None:
        """Write the rows in memory as a pair of runs."""
        heads = [[side, 0, FLUSHED, self.next_group(), len(slots[side])] for side in (0, 1)]
        heads[1][H_TICK] = heads[0][H_TICK]
        self.join.write_flushes(np.array(heads, np.int64), np.concatenate(slots))
        self.join.rows.meta[[BYTES, HELD]] = 0
        self.join.rows.held[:] = 0

    def fan_in(self) -> int:
        """Pairs of runs a merge: half of the fan-in, as each has two runs."""
        return max(2, super().fan_in() // 2)
