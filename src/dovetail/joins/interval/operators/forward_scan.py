"""Forward-scan interval join (FS): the row that starts first scans the other side up to its own end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.forward_scan import (
    NONE,
    SELECTED_R,
    SELECTED_S,
    forward_memory_step,
    forward_step,
)
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.spec import FirstIsOuterSpec
from dovetail.joins.interval.operators.sweep import SweepOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardScanJoin(FirstIsOuterSpec):
    """The row with the smallest start scans forward over the other input, from its own start to its own end.

    Only rows loaded ahead of their turn are held, in start order, so answers come in runs of neighbouring rows. A
    relation in which one input always starts first selects rows of that input only and holds the other.
    Reference: Carman 2020, 3.3.3 and 6.2.2; docs/algorithms/interval.md, 2.3 and 3.2.
    """

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> ForwardScanOperator:
        """The running join."""
        return ForwardScanOperator(self, budget, schemas, spill_dir)


class ForwardScanOperator(SweepOperator):
    """A forward-scan interval join in progress."""

    _spilling = False

    def _step(self) -> int:
        r, s = (feed.rows for feed in self.feeds)
        return forward_step(self.state, r, s, self.rule, self.output.out_r, self.output.out_s)

    def _live(self, side: int) -> I64:
        return np.arange(self.state[side * sw.SIDE + sw.R_HEAD], self._window_end(side))

    def _window_end(self, side: int) -> int:
        # Not R_POS: in the spilling mode that has moved on, past tuples that were not loaded.
        at = side * sw.SIDE
        return int(self.state[at + sw.R_HEAD] + self.state[at + sw.R_ACTIVE])

    def _moved(self, side: int, live: int) -> None:
        head = side * sw.SIDE + sw.R_HEAD
        if not self._spilling and self.state[sw.PICKED] == (SELECTED_S if side == 0 else SELECTED_R):
            self.state[sw.INNER] -= self.state[head]
        self.state[head] = 0

    def _spill(self) -> Pull:
        held = 1 if self.state[sw.S_ACTIVE] >= self.state[sw.R_ACTIVE] else 0
        spilled, picked = 1 - held, int(self.state[sw.PICKED])
        yield from self._match_memory(picked)
        self._spilling = True
        yield from self._stream_past(spilled, int(self.state[spilled * sw.SIDE + sw.R_POS]), self._live(held))
        self._spilling = False
        at = held * sw.SIDE
        self.state[at + sw.R_HEAD] = self.state[at + sw.R_POS]
        self.state[sw.USED] = self._weight(spilled, self._live(spilled))
        if picked == SELECTED_R + held:
            self.state[sw.PICKED] = NONE  # it has met everything there is
        else:
            self.state[sw.INNER] = self.state[at + sw.R_POS]

    def _match_memory(self, picked: int) -> Pull:
        """Step 2 of spilling: pairs of tuples that are both in memory, which nothing has compared yet."""
        self.state[sw.KEEP] = self.state[sw.R_HEAD] + (picked == SELECTED_R)
        self.state[sw.INNER] = self.state[sw.S_HEAD] + (picked == SELECTED_S)
        while True:
            r, s = (feed.rows for feed in self.feeds)
            out_r, out_s = self.output.out_r, self.output.out_s
            if forward_memory_step(self.state, r, s, self.rule, out_r, out_s) == sw.READY:
                return
            yield from self._flush()
