"""The streaming sweeps (sort-merge, time sweep, forward scan): windows, steps, and the spilling mode they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep_state as sw
from dovetail.joins.interval.kernels.sweep_spill import spill_step
from dovetail.joins.interval.operators.driver import IntervalOperator
from dovetail.joins.interval.operators.feed import Feed, Pull
from dovetail.joins.interval.operators.matched import Matched
from dovetail.joins.interval.operators.output import Output
from dovetail.joins.interval.operators.spec import SIDES, IntervalSpec


class SweepOperator(IntervalOperator):
    """Drives a sweep kernel: feeds its windows, takes its pairs, and spills one side when its memory is full.

    Inside, R and S are numbered 0 and 1. Rows of a window that are still active move to its front when it is refilled.
    """

    count_drops = True
    """Whether dropping a held tuple in the spilling mode counts as an unproductive comparison."""
    held_in_order = True
    """Whether held tuples are in start order in the spilling mode."""

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        self.rule, self.names = spec.rule(), SIDES[::-1] if spec.exchange else SIDES
        first, second = (self._feed(name) for name in self.names)
        self.feeds: tuple[Feed, Feed] = (first, second)
        self.output = self.own(
            Output(spec.emit, self.schema, self.feeds, spec.exchange, spec.track, self.shares, budget)
        )
        self.spills = [0, 0]
        self.state = np.zeros(sw.STATE_SIZE, np.int64)
        self.state[sw.KEYED], self.state[sw.STORE] = spec.keyed, self.output.stores

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

    @property
    def matched(self) -> Mapping[str, Matched]:
        """Of each tracked side, which rows have found a partner; complete after the last answer, until `close`."""
        return self.output.matched

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

    def _flush(self) -> Pull:
        n = int(self.state[sw.OUT])
        self.state[sw.OUT] = 0
        yield from self.output.take(n)

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
        """The spilling mode: rows of the spilled side from `first` on meet the held rows of the other; then rewind."""
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
        """Where the rows of a window end that a rewind leaves in it."""
        return int(self.state[side * sw.SIDE + sw.R_POS])

    def _weight(self, side: int, rows: I64) -> int:
        known = self.feeds[side].rows
        weighs = known.weight[rows + 1] - known.weight[rows] if known.weight.size else known.each * np.ones_like(rows)
        return int(weighs.sum())

    def _record(self) -> None:
        state, metrics = self.state, self.metrics
        metrics.add("comparisons_productive", state[sw.PRODUCTIVE], unit="comparisons")
        metrics.add("comparisons_unproductive", state[sw.UNPRODUCTIVE], unit="comparisons")
        metrics.add("pairs", state[sw.PRODUCTIVE] - state[sw.SUPPRESSED], unit="pairs", per_task=True)
        metrics.add("pairs_suppressed", state[sw.SUPPRESSED], unit="pairs")
        metrics.peak("active_peak", state[sw.PEAK_ACTIVE], unit="tuples")
        for feed, spills in zip(self.feeds, self.spills, strict=True):
            metrics.add("rows_in", feed.rows_in, feed.side)
            metrics.add("spills", spills, feed.side, unit="spills")
            metrics.add("rows_written", feed.rows_written, feed.side)
            metrics.add("rows_read", feed.rows_read, feed.side)
            metrics.add("bytes_written", feed.file.bytes_written, feed.side, unit="bytes")
            metrics.add("bytes_read", feed.file.bytes_read, feed.side, unit="bytes")
            if self.spec.frames:
                per_frame = self.spec.frames.tuples_per_frame
                metrics.add("frames_written", -(-feed.rows_written // per_frame), feed.side, unit="frames")
                metrics.add("frames_read", -(-feed.rows_read // per_frame), feed.side, unit="frames")
