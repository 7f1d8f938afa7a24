"""SSIJ: rows collect until memory is full, and then every segment that one of them needs is loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.kernels.waiting_pool import BY_SEGMENT, choose
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.base import Rows
from dovetail.joins.semistream.operators.resident import WithResidents
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import FOREVER, Limits
from dovetail.joins.semistream.sizes import Part, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssij(SemiStreamJoin):
    """Three phases: input is collected (a pushed batch), met with resident segments, and kept where that fails; when
    memory is full all segments that are needed are loaded one after the other until nothing waits.

    Resident are the segments with the most requests, which count half after every join phase. With `sizes.together`
    above 1 the segments of a join phase are loaded so many at a time, in the same order.
    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.5. Which segments stay is ours.
    """

    parts: ClassVar[tuple[Part, ...]] = ("waiting", "resident")

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> CollectAndJoin:
        """The running join with these sizes."""
        return CollectAndJoin(self, budget, stream, shape, sizes)


class CollectAndJoin(WithResidents):
    """The running join."""

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """The online phase, with a join phase whenever memory is full or a row has waited for too long."""
        start, n = 0, len(rows.codes)
        while start < n:
            start, found = self._split(rows, start)
            yield from self.online(rows, found)
            if start < n:
                yield from self.join_phase()
        if self.waiting.overdue(self.spec.max_residence, self._clock.now_ns()):
            yield from self.join_phase()

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """Load every segment that a row waits for, in the order of the master data."""
        while self.waiting_rows:
            yield from self.work_together()

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The next segments in order that rows wait for."""
        return self.waiting.pick(BY_SEGMENT, 0.0, None, self.now_ns(), limits)

    def choose(self) -> int:
        """The next segment in order that a row waits for, or -1."""
        return choose(self.waiting.pool, BY_SEGMENT, 0.0, FOREVER, 0)

    def serve(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load and answer; when nothing waits any more the phase is over, and requests count half."""
        yield from super().serve(segment)
        if not self.waiting_rows:
            self.requests *= 0.5

    def served_together(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """When nothing waits any more the phase is over, and requests count half."""
        super().served_together(picked, asked, offsets)
        if not self.waiting_rows:
            self.requests *= 0.5
