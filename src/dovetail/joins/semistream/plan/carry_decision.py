"""What an owner's join in mode "carry" is like: decided from its first rows, and again when skew or costs move."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from dovetail.joins.semistream.carried import Plan
from dovetail.joins.semistream.cost.reads import IoDone, dearer
from dovetail.joins.semistream.decision import decide, is_enough, looks_again, moved, sample_of
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.plan.task import EnrichTask


def first_plan(task: EnrichTask, pages: Pages, batches: list[pa.RecordBatch]) -> Plan:
    """What the first rows lead to, where nothing is known of the stream when it is planned."""
    if not task.learns or not batches:
        return Plan.of(task.decision)
    sample = sample_of(batches, task.wiring.on, pages, None)
    return Plan.of(decide(task.request, task.wiring, pages, task.stream, sample))


def next_plan(
    task: EnrichTask, plan: Plan, turns: int, pages: Pages, rows: pa.RecordBatch, done: IoDone
) -> Plan | None:
    """Other sizes, if skew or cost of reads are no longer what they were when the plan was made; None if they are.

    `rows` are some of the micro-batch, `done` are the reads that it took.
    """
    request = task.request
    if not looks_again(turns) or request.tune != "model" or request.sizes is not None:
        return None
    sample, ratio = sample_of([rows], task.wiring.on, pages, None), dearer(plan.io, done, pages)
    if not moved(plan.exponent, sample, int(pages.starts[-1])) and (ratio is None or not is_enough(sample)):
        return None
    seen = plan.io if ratio is None or plan.io is None else plan.io.times(ratio)
    request = replace(request, algorithm=plan.algorithm)
    found = Plan.of(decide(request, task.wiring, pages, task.stream, sample, seen))
    return None if found == plan else found
