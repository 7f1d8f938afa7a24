"""PMJ, the progressive merge join: memory loads are sorted and joined, then kept as runs that are merged at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.operator import OperatorError
from dovetail.joins.online.blocks import LOADED_BYTES, Leaving, Loaded, Unsorted
from dovetail.joins.online.kernels.match import NEVER
from dovetail.joins.online.kernels.rows import (
    BYTES,
    CODE_BYTES,
    FLUSHED,
    H_TICK,
    LEFT,
    MAX_BYTES,
    MAX_ROWS,
    ROW_BYTES,
    Arrivals,
    claim,
    hold_all,
)
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.merging import MergingOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.sizes import Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressiveMergeJoin(OnlineJoin):
    """Rows are collected until memory is full; then both sides are sorted, joined, and written as a pair of runs.

    So results come only at those moments. At the end, `fan_in` / 2 pairs of runs are merged at a time: pairs of rows
    of different runs come out. Equality and bands. There is no reactive phase.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.4.
    """

    bands: ClassVar[bool] = True

    def footprint(self) -> Footprint:
        """Slots, and room to sort a memory load."""
        code = CODE_BYTES if self.on and self.within is not None else 0
        return Footprint(4 + ROW_BYTES + code + LOADED_BYTES + 4, 0, 1536)

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return PmjOperator


class PmjOperator(MergingOperator):
    """A running progressive merge join. A block's group is its pair of runs; all are of one bucket."""

    def arrive(self, new: Arrivals) -> int:
        """Never asked: rows are collected without a look at the others."""
        raise OperatorError("the progressive merge join does not probe arriving rows.")

    def flush(self) -> bool:
        """Nothing leaves before it has been joined with the rest of its memory load."""
        return False

    def make_ready(self, n: int) -> Iterator[pa.RecordBatch]:
        """A memory load ends early where rows are wider than expected."""
        yield from super().make_ready(n)
        if self.budget.available < n:
            yield from self._end_load(ARRIVING)

    def receive(self, side: int, chunk: pa.RecordBatch, key: I64, code: I64, width: int) -> Iterator[pa.RecordBatch]:
        """Rows are collected; when memory is full, what it holds becomes a pair of runs."""
        slots = np.full(len(key), -1, np.int32)
        first = self.pages[side].add(chunk, slots)
        done = 0
        while done < len(key):
            n = min(len(key) - done, self._room(width))
            if n <= 0:
                yield from self._close_load(ARRIVING)
                continue
            self._collect(side, slots, first, slice(done, done + n), key, code, width)
            done += n
        self.pages[side].settle(first)

    def _room(self, width: int) -> int:
        """Rows of this width that still fit; at least one if memory is empty."""
        m = self.rows.meta
        held = int(m[LEFT] + m[LEFT + 1])
        room = min(int(m[MAX_ROWS]) - held, int(m[MAX_BYTES] - m[BYTES]) // width)
        return max(room, 0 if held else 1)

    def _collect(self, side: int, slots: I32, first: int, at: slice, key: I64, code: I64, width: int) -> None:
        slots[at] = claim(self.rows, at.stop - at.start)
        self.fill(slots[at], first + at.start, key[at], code[at], width)
        self.store(side, slots[at])

    def _close_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Sort and join what memory holds, write it as a pair of runs, and start anew."""
        slots = [self.pages[side].slots() for side in (0, 1)]
        left, right = (self._sorted(side, slots[side]) for side in (0, 1))
        yield from self.joined(left, right, phase)
        self._write_load(slots)

    def _write_load(self, slots: list[I32]) -> None:
        """What memory holds becomes a pair of runs."""
        heads = [[side, 0, FLUSHED, self.next_group(), len(slots[side])] for side in (0, 1)]
        heads[1][H_TICK] = heads[0][H_TICK]
        self.write_flushes(np.array(heads, np.int64), np.concatenate(slots))
        self.rows.meta[[BYTES, LEFT, LEFT + 1]] = 0

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Both sides of one memory load are one pair of runs."""
        self.write_blocks(side, rows, tick, bucket, group=tick)

    def _sorted(self, side: int, slots: I32) -> Loaded:
        r = self.rows
        ats, dts = np.full(len(slots), NEVER, np.int64), np.zeros(len(slots), np.int64)
        rows = Unsorted(r.key[slots], r.code[slots], ats, dts, r.ref[slots])
        return rows.loaded(self.keys, side, self.pages[side].batches(), self.schemas[side])

    def fan_in(self) -> int:
        """Pairs of runs a merge: half of the fan-in, as each has two runs."""
        return max(2, super().fan_in() // 2)

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        """What memory holds is the last pair of runs; then runs are merged until one pair is left."""
        yield from self._end_load(self.phase)
        yield from super().clean_up()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """What memory holds becomes a pair of runs, and all are merged."""
        self.begin({})
        yield from self._end_load(self.phase)
        yield from super().drain()

    def _end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Close a load while no chunk is arriving."""
        yield from self._close_load(phase)
        for pages in self.pages:
            pages.tidy()

    def spill(self) -> None:
        """What memory holds has met: it becomes a pair of runs without a look at it."""
        self._write_load([pages.slots() for pages in self.pages])
        for pages in self.pages:
            pages.tidy()

    def loaded(self) -> None:
        """All rows were taken up. They are all on disk, since what memory holds meets at the end of its load."""
        if self._begun:
            self.spill()
        super().loaded()

    @property
    def would_fit(self) -> bool:
        """Rows that were taken up are on disk, however few there are."""
        return False

    def drop(self, number: int, slots: I32) -> None:
        """Never asked: where nothing is owed, memory is empty."""
        raise OperatorError("the progressive merge join has rows in memory that have not met.")

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Runs are merged until one pair is left; what nobody will read any more is not written."""
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=not self._finished)

    def store(self, number: int, slots: I32) -> None:
        """The rows are collected."""
        hold_all(self.rows, slots.astype(np.int64), number)
