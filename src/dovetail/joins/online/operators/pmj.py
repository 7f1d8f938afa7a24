"""PMJ, the progressive merge join: memory loads are sorted and joined, then kept as runs that are merged at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32
from dovetail.engine.operator import OperatorError
from dovetail.joins.online.blocks import Part
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
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.merging import Segments
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint


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
        """Nothing leaves before it has been joined with the rest of its memory load."""
        return False

    def store(self, side: int, slots: I32) -> None:
        """The rows are collected."""
        hold_all(self.rows, slots.astype(np.int64), side)

    def drop(self, side: int, slots: I32) -> None:
        """Never asked: where nothing is owed, memory is empty."""
        raise OperatorError("the progressive merge join has rows in memory that have not met.")

    def forget(self) -> None:
        """There is no index."""


class Runs(Segments):
    """Memory loads on disk. A block's group is its pair of runs; all are of one bucket."""

    collects: ClassVar[bool] = True

    def end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        """Sort and join what memory holds, and write it as a pair of runs."""
        slots = [pages.slots() for pages in self.join.pages]
        parts = [self._part(side, slots[side]) for side in (0, 1)]
        yield from self.combinations.of(parts, self.combinations.path((0, 1)), phase=phase)
        self._write_load(slots)

    def _part(self, side: int, slots: I32) -> Part:
        r, pages = self.join.rows, self.join.pages[side]
        ats, dts = np.full(len(slots), NEVER), np.zeros(len(slots), np.int64)
        return Part(r.keys[:, slots], ats, dts, dts, r.ref[slots], pages.batches(), self.join.schemas[side])

    def spill_load(self) -> None:
        """What memory holds has met: it becomes a pair of runs without being joined."""
        self._write_load([pages.slots() for pages in self.join.pages])
        for pages in self.join.pages:
            pages.tidy()

    def _write_load(self, slots: list[I32]) -> None:
        """What memory holds becomes a pair of runs."""
        heads = [[side, 0, FLUSHED, self.next_group(), len(slots[side])] for side in (0, 1)]
        heads[1][H_TICK] = heads[0][H_TICK]
        self.join.write_flushes(np.array(heads, np.int64), np.concatenate(slots))
        self.join.rows.meta[[BYTES, HELD]] = 0
        self.join.rows.held[:] = 0

    def fan_in(self) -> int:
        """Pairs of runs a merge: half of the fan-in, as each has two runs."""
        return max(2, super().fan_in() // 2)
