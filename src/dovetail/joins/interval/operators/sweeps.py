"""The three sweeps over sorted inputs, sort-merge (SM), time sweep (TS) and forward scan (FS), and their common part.

The common part is refilling the windows of both inputs, answers, and spilling one side past the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
from dovetail.joins.interval.kernels.sort_merge import merge_step
from dovetail.joins.interval.kernels.sweep import spill_step
from dovetail.joins.interval.kernels.time_sweep import rebuild, renumber, time_step
from dovetail.joins.interval.operators.driver import IntervalOperator, Pull
from dovetail.joins.interval.operators.feed import NO_ROWS, Feed
from dovetail.joins.interval.operators.spec import FirstIsOuterSpec, IntervalSpec


class SweepOperator(IntervalOperator):
    """Drives a sweep kernel: feeds its windows, takes its pairs, and spills one side when its memory is full.

    Rows of a window that are still active move to its front when it is refilled.
    """

    count_drops = True
    """Whether dropping a held tuple in the spilling mode counts as an unproductive comparison."""
    held_in_order = True
    """Whether held tuples are in start order in the spilling mode."""

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        first, second = (self._feed(name) for name in self.names)
        self.feeds: tuple[Feed, Feed] = (first, second)
        self.output = self._open_output(self.feeds)
        self.spills = [0, 0]
        self.state[sw.KEYED] = spec.keyed

    def _feed(self, name: str) -> Feed:
        by_tuples = self.spec.frames is not None
        return self.own(
            Feed(
                name,
                self.schemas[name],
                self.spec.keyed,
                self.shares.segment,
                by_tuples,
                self.budget,
                self.spill_dir,
            )
        )

    @abstractmethod
    def _step(self) -> int:
        """Call the kernel until it needs something."""

    @abstractmethod
    def _live(self, side: int) -> I64:
        """Window rows of a side that must survive its refill, in the order in which they will be numbered."""

    @abstractmethod
    def _moved(self, side: int, live: int) -> None:
        """A side's window was refilled; its `live` surviving rows now come first."""

    @abstractmethod
    def _spill(self) -> Pull:
        """Free memory by streaming one side past the active tuples of the other."""

    def _run(self) -> Pull:
        self._set_capacity()
        while (status := self._step()) != sw.DONE:
            yield from self._flush()
            if status == sw.MEMORY_FULL:
                yield from self._spill()
            elif status != sw.OUT_FULL:
                yield from self._refill(status - sw.NEED_R)
        yield from self._flush()

    def _refill(self, side: int) -> Pull:
        feed, at = self.feeds[side], side * sw.SIDE
        live = self._live(side)
        yield from feed.refill(live, int(self.state[at + sw.R_POS]))
        self.state[at + sw.R_POS] = live.size
        self.state[at + sw.R_ROWS] = feed.batch.num_rows
        self.state[at + sw.R_EOF] = feed.exhausted
        self._moved(side, live.size)
        self._set_capacity()

    def _set_capacity(self) -> None:
        frames = self.spec.frames
        waiting = sum(feed.waiting_bytes for feed in self.feeds)
        self.state[sw.CAPACITY] = self.shares.active(waiting) if frames is None else frames.tuples

    def _stream_past(self, spilled: int, first: int, held: I64) -> Pull:
        """The spilling mode: join the spilled side from row `first` on with the held rows of the other; then
        rewind."""
        feed, at = self.feeds[spilled], spilled * sw.SIDE
        self.spills[spilled] += 1
        mark = feed.start_spill(first)
        self.state[sw.INNER] = self.state[sw.KEEP] = 0
        while True:
            r, s = (f.rows for f in self.feeds)
            out_r, out_s = self.output.out_r, self.output.out_s
            how = self.count_drops, self.held_in_order
            status = spill_step(self.state, r, s, self.rule, spilled, *how, held, out_r, out_s)
            position = int(self.state[at + sw.R_POS])
            if status in (sw.FREED, sw.EXHAUSTED):
                break
            yield from self._flush()
            if status != sw.OUT_FULL:
                feed.save(position)
                yield from self._refill(spilled)
        feed.save(position)
        end = self._window_end(spilled)
        feed.rewind(mark, position, end)
        self.state[at + sw.R_POS] = self.state[at + sw.R_ROWS] = end
        self.state[at + sw.R_EOF] = 0
        self.state[(1 - spilled) * sw.SIDE + sw.R_ACTIVE] = self.state[sw.INNER] = self.state[sw.KEEP] = 0

    def _window_end(self, side: int) -> int:
        """The end of the window's rows that a rewind leaves in it."""
        return int(self.state[side * sw.SIDE + sw.R_POS])

    def _weight(self, side: int, rows: I64) -> int:
        known = self.feeds[side].rows
        weighs = known.weight[rows + 1] - known.weight[rows] if known.weight.size else known.each * np.ones_like(rows)
        return int(weighs.sum())

    def _record(self) -> None:
        super()._record()
        metrics = self.metrics
        metrics.peak("active_peak", self.state[sw.PEAK_ACTIVE], unit="tuples")
        for feed, spills in zip(self.feeds, self.spills, strict=True):
            metrics.add("rows_in", feed.rows_in, feed.side)
            metrics.add("spills", spills, feed.side, unit="spills")
            rows, size = (feed.rows_written, feed.rows_read), (feed.file.bytes_written, feed.file.bytes_read)
            self._record_files(feed.side, rows, size)


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
        # The current R tuple is joined with all of memory, but not with later S tuples: it is the first to be replayed.
        first = int(self.state[sw.R_POS])
        self.state[sw.R_POS] += 1
        yield from self._stream_past(0, first, self._active)
        self.state[sw.USED] = self.state[sw.PHASE] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SortMergeJoin(IntervalSpec):
    """Each row of the outer input is joined with the inner rows in memory, then loads the inner rows it still needs.

    The left input is outer, the right one with `swapped`. Memory holds inner rows only, and only the outer input is
    ever spilled. The relation decides when to stop loading and what to drop, in its tightest form.
    Reference: Carman 2020, 3.3.1 and table 6.4, corrected; docs/algorithms/interval.md, 2.1 and 3.1.
    """

    operator: ClassVar[type[Any]] = SortMergeOperator


class TimeSweepOperator(SweepOperator):
    """A time-sweep interval join in progress."""

    held_in_order = False  # the last active tuple replaces one that ends

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSweepJoin(FirstIsOuterSpec):
    """Starts come from the inputs, ends from a heap; a starting row is joined with all active rows of the other side.

    Makes no unproductive comparison in memory when sharing a point is the relation. A relation in which one input
    always starts first holds only that input. When memory is full, the side with fewer active rows is spilled past the
    other.
    Reference: Carman 2020, 3.3.2 and 6.2.2; docs/algorithms/interval.md, 2.2 and 3.2.
    """

    operator: ClassVar[type[Any]] = TimeSweepOperator


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
            self.state[sw.PICKED] = NONE  # it is joined with all rows
        else:
            self.state[sw.INNER] = self.state[at + sw.R_POS]

    def _match_memory(self, picked: int) -> Pull:
        """Step 2 of spilling: pairs of tuples that are both in memory and were not compared yet."""
        self.state[sw.KEEP] = self.state[sw.R_HEAD] + (picked == SELECTED_R)
        self.state[sw.INNER] = self.state[sw.S_HEAD] + (picked == SELECTED_S)
        while True:
            r, s = (feed.rows for feed in self.feeds)
            out_r, out_s = self.output.out_r, self.output.out_s
            if forward_memory_step(self.state, r, s, self.rule, out_r, out_s) == sw.READY:
                return
            yield from self._flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardScanJoin(FirstIsOuterSpec):
    """The row with the smallest start scans forward over the other input, from its own start to its own end.

    Only rows loaded ahead of their turn are held, in start order, so answers come in runs of neighbouring rows. A
    relation in which one input always starts first selects rows of that input only and holds the other.
    Reference: Carman 2020, 3.3.3 and 6.2.2; docs/algorithms/interval.md, 2.3 and 3.2.
    """

    operator: ClassVar[type[Any]] = ForwardScanOperator
