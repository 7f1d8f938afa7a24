"""The partition-based join: rows wait by segment; a segment is loaded when enough wait for it or memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.waiting_pool import OLDEST, fullest
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.base import Rows
from dovetail.joins.semistream.operators.resident import WithResidents
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import Limits
from dovetail.joins.semistream.sizes import Part, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedJoin(SemiStreamJoin):
    """Rows of resident segments are answered at once, others wait in a list for each segment.

    A segment is loaded when `threshold` rows wait for it (default: twice the average when memory is full). When memory
    is full the longest lists are served until only `low_water` of it is in use. Without `max_residence` rows of a
    segment that is rarely asked for wait until then, or until input pauses. With `sizes.together` above 1 the longest
    lists are served so many at a time; a list that reaches the threshold is still served alone.
    Low water and age are ours.
    Reference: Naeem 2012, 2.4.3; Naeem 2011, 2; Naeem 2014, 2; docs/algorithms/semistream.md, 2.4.
    """

    threshold: int | None = None
    low_water: float = 0.9
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "resident")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        if not 0 <= self.low_water < 1 or (self.threshold is not None and self.threshold < 1):
            raise PlanError(
                f"threshold={self.threshold}, low_water={self.low_water}: a segment needs at least one waiting row; "
                f"low_water is a share from 0 to below 1."
            )

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> WaitBySegment:
        """The running join with these sizes."""
        return WaitBySegment(self, budget, stream, shape, sizes)

    def options(self) -> list[str]:
        """When segments are loaded."""
        return [f"threshold={self.threshold or 'fitted'}", f"low_water={self.low_water:g}"]


class WaitBySegment(WithResidents):
    """The running join."""

    spec: PartitionedJoin

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        average = -(-self.waiting.slots // max(1, self.segments.wanted))
        self.threshold = self.spec.threshold or 2 * average

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Answer, or let wait; load where a list is long enough, and the longest ones when memory is full."""
        start, n = 0, len(rows.codes)
        while start < n:
            stop, found = self._split(rows, start)
            yield from self.online(rows, found)
            last = int(rows.segments[stop - 1]) if stop > start else -1
            if stop > start and not self._there[last] and self.waiting.pool.held[last] >= self.threshold:
                yield from self.serve(last)
            elif stop < n:
                yield from self._relieve()
            start = stop
            yield from self._serve_overdue()
        yield from self._serve_overdue()

    def _relieve(self) -> Iterator[pa.RecordBatch]:
        """Serve the longest lists until occupancy has fallen to the low-water mark, at least one."""
        low = int(self.spec.low_water * self.waiting.slots)
        yield from self.work_together(len(self.waiting) - low)
        while len(self.waiting) > self.spec.low_water * self.waiting.slots:
            yield from self.work_together(len(self.waiting) - low)

    def _serve_overdue(self) -> Iterator[pa.RecordBatch]:
        bound = self.spec.max_residence
        while bound is not None and self.waiting_rows:
            oldest = int(self.waiting.pool.meta[OLDEST])
            late = bound.loads is not None and self.waiting.loads - int(self.waiting.pool.born[oldest]) >= bound.loads
            if not late and not self.waiting.overdue(bound, self._clock.now_ns()):
                return
            yield from self.serve(int(self.waiting.pool.segment[oldest]))

    def choose(self) -> int:
        """The segment that most rows wait for."""
        return fullest(self.waiting.pool.held) if self.waiting_rows else -1

    def pick(self, limits: Limits) -> tuple[I64, I64]:
        """The segments that most rows wait for."""
        wanted = np.flatnonzero(self.waiting.pool.held)
        longest = wanted[np.argsort(-self.waiting.pool.held[wanted], kind="stable")]
        return self.waiting.take(int64s(longest), limits)

    def serve(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load and answer; requests count half after as many loads as there are segments."""
        yield from super().serve(segment)
        if self.waiting.loads % max(1, self.segments.wanted) == 0:
            self.requests *= 0.5

    def served_together(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Requests count half after as many loads as there are segments."""
        super().served_together(picked, asked, offsets)
        every = max(1, self.segments.wanted)
        self.requests *= 0.5 ** (self.waiting.loads // every - (self.waiting.loads - len(picked)) // every)
