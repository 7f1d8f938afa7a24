"""Time-sweep interval join (TS): a sweep over starts and ends in which every active pair is an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.time_sweep import rebuild, renumber, time_step
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.spec import FirstIsOuterSpec
from dovetail.joins.interval.operators.sweep import SweepOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSweepJoin(FirstIsOuterSpec):
    """Starts come from the inputs, ends from a heap; a row that starts meets all active rows of the other side.

    Makes no unproductive comparison in memory when sharing a point is the relation. A relation in which one input
    always starts first holds only that input. When memory is full, the side with fewer active rows is spilled past the
    other.
    Reference: Carman 2020, 3.3.2 and 6.2.2; docs/algorithms/interval.md, 2.2 and 3.2.
    """

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> TimeSweepOperator:
        """The running join."""
        return TimeSweepOperator(self, budget, schemas, spill_dir)


class TimeSweepOperator(SweepOperator):
    """A time-sweep interval join in progress."""

    held_in_order = False  # the last active tuple fills the place of one that ends

    def __init__(
        self, spec: TimeSweepJoin, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        self._active: list[I64] = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self._place: list[I64] = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self._ends, self._refs = np.empty(0, np.int64), np.empty(0, np.int64)

    def _step(self) -> int:
        r, s = (feed.rows for feed in self.feeds)
        (active_r, active_s), (place_r, place_s) = self._active, self._place
        out_r, out_s = self.output.out_r, self.output.out_s
        return time_step(
            self.state, r, s, self.rule, active_r, active_s, place_r, place_s, self._ends, self._refs, out_r, out_s
        )

    def _live(self, side: int) -> I64:
        return self._active[side][: self.state[side * sw.SIDE + sw.R_ACTIVE]]

    def _moved(self, side: int, live: int) -> None:
        renumber(self.state, side, self._place[side], self._refs)
        rows = self.feeds[side].batch.num_rows
        self._active[side], self._place[side] = np.arange(rows), np.arange(rows)
        needed, known = sum(feed.batch.num_rows for feed in self.feeds), int(self.state[sw.HEAP])
        ends, refs = np.empty(needed, np.int64), np.empty(needed, np.int64)
        ends[:known], refs[:known] = self._ends[:known], self._refs[:known]
        self._ends, self._refs = ends, refs

    def _spill(self) -> Pull:
        held = 1 if self.state[sw.S_ACTIVE] >= self.state[sw.R_ACTIVE] else 0
        spilled = 1 - held
        yield from self._stream_past(spilled, int(self.state[spilled * sw.SIDE + sw.R_POS]), self._active[held])
        rebuild(
            self.state,
            self.feeds[spilled].rows,
            spilled,
            self._active[spilled],
            self._place[spilled],
            self._ends,
            self._refs,
        )
        self.state[sw.USED] = self._weight(spilled, self._live(spilled))
