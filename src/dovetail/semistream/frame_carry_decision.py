"""What an owner's join in mode "carry" is like: decided from rows and costs of reads, logged, the same in a replay.

The sink skips a micro-batch that it has. Were a replay to split memory otherwise, because reads then took another time,
other rows would wait after it: some would be lost, some come twice. So a decision is an entry of the version log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dovetail.semistream.carried import Plan
from dovetail.semistream.decision import decide, is_enough, looks_again, moved, sample_of
from dovetail.semistream.frame_task import EnrichTask, Where
from dovetail.semistream.io_costs import IoDone, dearer
from dovetail.semistream.master.pages import Pages


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner of pages in one micro-batch, who decides for its join."""

    task: EnrichTask
    where: Where
    number: int

    def first(self, pages: Pages, batches: list[pa.RecordBatch]) -> Plan:
        """What the first rows lead to, where nothing is known of the stream when it is planned."""
        task = self.task
        if not task.learns or not batches:
            return Plan.of(task.decision)

        def found() -> Any:
            sample = sample_of(batches, task.wiring.on, pages, None)
            return Plan.of(decide(task.request, task.wiring, pages, task.stream, sample)).to_json()

        return self._logged(found)

    def again(self, plan: Plan, turns: int, pages: Pages, rows: pa.RecordBatch, done: IoDone) -> Plan | None:
        """Other sizes, if skew or cost of reads are no longer what they were when the plan was made; None if they are.

        `rows` are some of the batch, `done` are the reads that it took.
        """
        request = self.task.request
        if not looks_again(turns) or request.tune != "model" or request.sizes is not None:
            return None

        def found() -> Any:
            return self._moved(plan, pages, rows, done).to_json()

        now = self._logged(found)
        return None if now == plan else now

    def _moved(self, plan: Plan, pages: Pages, rows: pa.RecordBatch, done: IoDone) -> Plan:
        task = self.task
        sample, ratio = sample_of([rows], task.wiring.on, pages, None), dearer(plan.io, done, pages)
        if not moved(plan.exponent, sample, int(pages.starts[-1])) and (ratio is None or not is_enough(sample)):
            return plan
        seen = plan.io if ratio is None or plan.io is None else plan.io.times(ratio)
        request = replace(task.request, algorithm=plan.algorithm)
        return Plan.of(decide(request, task.wiring, pages, task.stream, sample, seen))

    def _logged(self, found: Callable[[], Any]) -> Plan:
        batch = self.where.batch
        return Plan.from_json(found() if batch is None else self.task.log.decided(batch, self.number, found))
