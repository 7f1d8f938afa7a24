"""Overlap interval partition join (OIP): partitions by start and end slot, nested loops over pairs that can match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.cost.partitions import COMPARE_COST, FRAME_COST, choose_slots
from dovetail.joins.interval.cost.statistics import IntervalStatistics
from dovetail.joins.interval.kernels.partitions import any_may_match, join_slots
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.partitioned import Intake, Loaded, PartitionedOperator, RowQueue, Storage
from dovetail.joins.interval.operators.slot_store import Slots, SlotStore
from dovetail.joins.interval.operators.spec import END, START, IntervalSpec, slot_tests


class Survey:
    """Rows, earliest start, latest end, and durations of the pieces seen, in codes."""

    def __init__(self, halves: int) -> None:
        self.rows = self.begin = self.end = self.longest = self._total = 0
        self._halves = halves

    def add(self, piece: pa.RecordBatch) -> None:
        """Take in one piece."""
        # Python's numbers, not Arrow's: durations of codes that span the whole range of int64 do not fit it.
        start, end = piece.column(START), piece.column(END)
        begin, last = pc.min(start).as_py(), pc.max(end).as_py()
        lengths = pc.subtract(end.cast(pa.float64(), safe=False), start.cast(pa.float64(), safe=False))
        self.begin = min(self.begin, begin) if self.rows else begin
        self.end = max(self.end, last) if self.rows else last
        self.longest = max(self.longest, int(pc.max(lengths).as_py()))
        self._total += int(pc.sum(lengths).as_py())
        self.rows += piece.num_rows

    def statistics(self, begin: int, end: int) -> IntervalStatistics:
        """The same as statistics of the cost model, in instants, over the range of both inputs."""
        scale = 1 << self._halves
        longest = max(1.0, min(self.longest, end - begin) / scale)
        mean = min(longest, max(1.0, self._total / self.rows / scale))
        return IntervalStatistics(self.rows, begin / scale, end / scale, mean, longest, 1.0, start_max=end / scale)


_BLOCKS = 16


class OverlapPartitionOperator(PartitionedOperator):
    """An overlap-partition interval join in progress."""

    spec: OverlapPartitionJoin
    outer_frames = 2  # for the outer input and output

    def __init__(
        self,
        spec: OverlapPartitionJoin,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        spill_dir: Path | None,
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        self._tests = slot_tests(spec.relation, spec.halves, spec.shift, spec.exchange)
        self.slots = Slots(spec.slots or 1, *(spec.time_range or (0, 1)), spec.halves)
        self.stores: list[SlotStore] = []
        self._surveyed = 0

    def _partition(self) -> Pull:
        sources: list[Intake | RowQueue] = list(self.intakes)
        if self.spec.slots is None or self.spec.time_range is None:
            queues = [self.own(RowQueue("input", self._kept(intake))) for intake in self.intakes]
            yield from self._survey(queues)
            sources = list(queues)
        self.stores = [self.own(SlotStore(self._kept(intake), self.slots)) for intake in self.intakes]
        for side, source in enumerate(sources):
            yield from self._fill(side, source, sources[1:] if side == 0 else [])
            source.close()

    def _survey(self, queues: list[RowQueue]) -> Pull:
        """Read both inputs to the end, and choose the slots from what they hold."""
        found = []
        for intake, queue in zip(self.intakes, queues, strict=True):
            survey = Survey(self.spec.halves)
            while (piece := (yield from intake.next())) is not None:
                survey.add(piece)
                queue.add(piece)
                if sum(q.weight for q in queues) > self.capacity:
                    for q in queues:
                        q.spill()
            intake.close()
            found.append(survey)
        self._surveyed = sum(queue.file.rows for queue in queues)
        self.slots = self._chosen(*found)

    def _chosen(self, r: Survey, s: Survey) -> Slots:
        if not r.rows or not s.rows:
            return self.slots
        begin, end = self.spec.time_range or (min(r.begin, s.begin), max(r.end, s.end))
        frames = self.spec.frames
        per_frame = frames.tuples_per_frame if frames else self._kept(self.intakes[0]).block_rows
        costs = {"compare_cost": self.spec.compare_cost, "frame_cost": self.spec.frame_cost}
        count = self.spec.slots or choose_slots(r.statistics(begin, end), s.statistics(begin, end), per_frame, **costs)
        return Slots(count, begin, end, self.spec.halves)

    def _kept(self, intake: Intake) -> Storage:
        return self._storage(intake, 1, min(self.shares.segment, self.shares.blocking(0) // _BLOCKS))

    def _fill(self, side: int, source: Intake | RowQueue, later: list[Intake | RowQueue]) -> Pull:
        store, outer = self.stores[side], self.stores[0]
        while (piece := (yield from source.next())) is not None:
            store.add(piece)
            queued = sum(q.weight for q in (source, *later) if isinstance(q, RowQueue))
            if sum(s.weight for s in self.stores) + queued <= self.capacity:
                continue
            outer.spill()
            if side == 1 and store.weight + queued > self.capacity:
                store.spill()
        if side == 1:
            self._settle()

    def _settle(self) -> None:
        outer, inner = self.stores
        if inner.on_disk:
            outer.spill()
        outer.finish()
        inner.finish()

    def _join(self, inner: Loaded) -> Pull:
        """One block of the inner input with every block of the outer one that can match it."""
        for block, where in self.stores[0].blocks():
            if not any_may_match(block.part, block.key, inner.part, inner.key, self.slots.base, self._tests):
                continue
            outer = where if isinstance(where, Loaded) else self.stores[0].load(where)
            yield from self._meet(outer, inner, partial(self._join_slots, outer, inner))

    def _join_slots(self, outer: Loaded, inner: Loaded) -> int:
        return join_slots(
            self.state,
            outer.rows(),
            inner.rows(),
            self.rule,
            outer.part,
            outer.first,
            outer.key,
            inner.part,
            inner.first,
            inner.key,
            self.slots.base,
            self._tests,
            self.output.out_r,
            self.output.out_s,
        )

    def _record(self) -> None:
        super()._record()
        self.metrics.peak("slots", self.slots.count, unit="slots")
        self.metrics.add("rows_surveyed_on_disk", self._surveyed)
        for store in self.stores:
            self.metrics.add("rows_sorted_on_disk", store.sorted_rows, store.side)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPartitionJoin(IntervalSpec):
    """Rows are partitioned by the slots in which they start and end; pairs of partitions that can match are compared.

    Blocking. `time_range` (codes) is the range that is cut into `slots`; rows that reach outside it go to two special
    slots. Without `slots` their number comes from the formula, and without `time_range` the range of the data is taken;
    in both cases the inputs are first read to the end, onto disk if they do not fit. If the inner input does not fit,
    it is loaded block by block, and the outer one read once per block, only where a pair of partitions can match.
    Reference: Carman 2020, 3.3.4, 4.4.4 and 6.2.2; docs/algorithms/interval.md, 2.4 and 3.2.
    """

    slots: int | None = None
    time_range: tuple[int, int] | None = None
    compare_cost: float = COMPARE_COST
    frame_cost: float = FRAME_COST

    def __post_init__(self) -> None:
        # super() without arguments is lost on the copy of the class that slots=True makes
        IntervalSpec.__post_init__(self)
        Slots(self.slots or 1, *(self.time_range or (0, 1)))
        if self.compare_cost <= 0 or self.frame_cost < 0:
            raise PlanError(f"compare_cost={self.compare_cost}, frame_cost={self.frame_cost} must be above 0")

    def explain(self) -> str:
        """The specification in one line."""
        where = f" over [{self.time_range[0]}, {self.time_range[1]})" if self.time_range else ""
        return f"{IntervalSpec.explain(self)}, slots={self.slots or 'by formula'}{where}"

    operator: ClassVar[type[Any]] = OverlapPartitionOperator
