"""What the two blocking, partition-based joins share: inputs read to the end, a pair buffer, and counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep_state as sw
from dovetail.joins.interval.operators.driver import IntervalOperator
from dovetail.joins.interval.operators.feed import Pull
from dovetail.joins.interval.operators.intake import Intake
from dovetail.joins.interval.operators.loaded import nothing_loaded
from dovetail.joins.interval.operators.matched import Matched
from dovetail.joins.interval.operators.output import Output
from dovetail.joins.interval.operators.spec import SIDES, IntervalSpec


class PartitionedOperator(IntervalOperator):
    """A join that partitions R, then S, and joins pairs of partitions. Inside, R and S are numbered 0 and 1."""

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        self.rule, self.names = spec.rule(), SIDES[::-1] if spec.exchange else SIDES
        r, s = (self.own(Intake(name, schemas[name], self.shares.segment, budget)) for name in self.names)
        self.intakes: tuple[Intake, Intake] = (r, s)
        empty = (nothing_loaded(r.schema), nothing_loaded(s.schema))
        self.output = self.own(Output(spec.emit, self.schema, empty, spec.exchange, spec.track, self.shares, budget))
        self.state = np.zeros(sw.STATE_SIZE, np.int64)
        self.state[sw.STORE] = self.output.stores

    @property
    def matched(self) -> Mapping[str, Matched]:
        """Of each tracked side, which rows have found a partner; complete after the last answer, until `close`."""
        return self.output.matched

    @property
    def capacity(self) -> int:
        """What rows in memory may weigh: tuples if frames are given, else bytes."""
        frames = self.spec.frames
        return frames.tuples if frames else self.shares.blocking(sum(intake.waiting_bytes for intake in self.intakes))

    def _flush(self) -> Pull:
        n = int(self.state[sw.OUT])
        self.state[sw.OUT] = 0
        yield from self.output.take(n)

    def _record(self) -> None:
        state, metrics = self.state, self.metrics
        metrics.add("comparisons_productive", state[sw.PRODUCTIVE], unit="comparisons")
        metrics.add("comparisons_unproductive", state[sw.UNPRODUCTIVE], unit="comparisons")
        metrics.add("pairs", state[sw.PRODUCTIVE] - state[sw.SUPPRESSED], unit="pairs", per_task=True)
        metrics.add("pairs_suppressed", state[sw.SUPPRESSED], unit="pairs")
        for intake in self.intakes:
            metrics.add("rows_in", intake.rows_in, intake.side)
