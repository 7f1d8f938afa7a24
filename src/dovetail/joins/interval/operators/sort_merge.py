"""Sort-merge interval join (SM): keeps only S tuples that the current R tuple or a later one can match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sort_merge import merge_step
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.spec import IntervalSpec
from dovetail.joins.interval.operators.sweep import NO_ROWS, SweepOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class SortMergeJoin(IntervalSpec):
    """Each row of the outer input meets the inner rows in memory, then loads the inner rows it still needs.

    The left input is outer, the right one with `swapped`. Memory holds inner rows only, and only the outer input is
    ever spilled. The relation decides when to stop loading and what to drop, in its tightest form.
    Reference: Carman 2020, 3.3.1 and table 6.4, corrected; docs/algorithms/interval.md, 2.1 and 3.1.
    """

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> SortMergeOperator:
        """The running join."""
        return SortMergeOperator(self, budget, schemas, spill_dir)


class SortMergeOperator(SweepOperator):
    """A sort-merge interval join in progress."""

    count_drops = False

    def __init__(
        self, spec: SortMergeJoin, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        self._active: I64 = np.empty(0, np.int64)

    def _step(self) -> int:
        r, s = (feed.rows for feed in self.feeds)
        return merge_step(self.state, r, s, self.rule, self._active, self.output.out_r, self.output.out_s)

    def _live(self, side: int) -> I64:
        return self._active[: self.state[sw.S_ACTIVE]] if side == 1 else NO_ROWS

    def _moved(self, side: int, live: int) -> None:
        if side == 1:
            self._active = np.arange(self.feeds[1].batch.num_rows)

    def _spill(self) -> Pull:
        # The current R tuple has met all of memory, but not the S tuples to come: it is the first one to be replayed.
        first = int(self.state[sw.R_POS])
        self.state[sw.R_POS] += 1
        yield from self._stream_past(0, first, self._active)
        self.state[sw.USED] = self.state[sw.PHASE] = 0
