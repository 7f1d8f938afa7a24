"""Sorted segments on disk, merged some at a time: pairs of different segments come out, one segment remains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.blocks import Blocks, Leaving
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.parts import Disk

_LAST = 2**63 - 1


class Segments(Disk):
    """Blocks that belong to pairs of segments: inside one pair of segments all pairs of rows are done.

    Sorted blocks meet only where their keys do. A merged pair of segments gets a new number, and is one sorted run
    where there is room to merge the runs of its parts; else it keeps them as they are. A block's departure is the
    number of its run.
    """

    def __init__(self, join: OnlineOperator) -> None:
        super().__init__(join)
        self.combinations = Combinations(join)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Both sides of one flush are one pair of segments."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def next_group(self) -> int:
        """A number that no segment pair has had, larger than all before: a tick."""
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

    def merge_turn(self, bucket: int, keep: bool) -> Iterator[pa.RecordBatch]:
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
        """Segment pairs a merge: as told, but no more than there is room for a block of each."""
        block = max(1, *(store.largest for store in self.blocks))
        return max(2, min(self.join.spec.sizes.fan_in, self.join.block_room // (2 * block)))

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """The segments of each bucket are merged; what will not be read again is not written."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=not self.join.finished)

    def renumber(self) -> None:
        """All rows on disk have met, so that they are one pair of segments."""
        group = self.next_group()
        for store in self.blocks:
            store.directory.regroup(group)

    def _blocks_of_groups(self, store: Blocks, bucket: int, groups: I64) -> I64:
        numbers = store.of_bucket(bucket)
        return numbers[np.isin(store.column("group")[numbers], groups)]

    def _merge_runs(self, side: int, numbers: I64, bucket: int, group: int) -> None:
        """The rows of these blocks are one segment, sorted if a block of each run fits in memory."""
        store = self.blocks[side]
        of_run = store.column("dts")[numbers]
        names = np.unique(of_run)
        room = 2 * store.largest * len(names)
        if len(names) < 2 or not self.join.try_reserve_blocks(room):
            store.directory.regroup(group, numbers)
            return
        runs = [_Run(store, numbers[of_run == name].tolist()) for name in names]
        waiting: list[Leaving] = []
        while runs:
            bound = min(run.bound for run in runs)
            waiting = [_sorted(waiting + [part for run in runs if (part := run.until(bound)) is not None])]
            runs = [run for run in runs if not run.is_done]
            waiting = self._written(store, waiting[0], bucket, group, whole=not runs)
        self.join.let_blocks_go(room)
        store.directory.bury(numbers)

    def _written(self, store: Blocks, rows: Leaving, bucket: int, group: int, whole: bool) -> list[Leaving]:
        """What is left after full blocks were written; nothing with `whole`."""
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
