"""What runs in a task: the operator that this worker keeps for the plan, fed with rows until all are answered.

Operators stay in the worker between tasks and micro-batches, for the sake of their caches only: one that is lost, with
its worker or after a failure, is opened again and answers alike.
"""

from __future__ import annotations

import atexit
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.cost.reads import IoDone, dearer
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.decision import (
    Decision,
    decide,
    is_enough,
    looks_again,
    measured_sizes,
    moved,
    sample_of,
    specification,
)
from dovetail.joins.semistream.keys import KeyCodes, key_columns
from dovetail.joins.semistream.master.pages import Pages, Resting
from dovetail.joins.semistream.operators.base import SemiStreamOperator
from dovetail.joins.semistream.options import DeadLetter
from dovetail.joins.semistream.plan.task import EnrichTask, Where, open_letters, open_version, wanted_version
from dovetail.joins.semistream.sizes import FITTED
from dovetail.spark.arrow import Batches

_MOST = 4  # operators that a worker keeps, each with the budget of a task
_PEEKED = 4  # batches that are looked at before a stream's first rows decide


@dataclass(slots=True)
class Held:
    """An operator in this worker, the version it reads, why it is as it is, and what it had counted after a task.

    One that is `spent` answered all it was given, but is not to be used again.
    """

    operator: SemiStreamOperator
    pages: Pages
    decision: Decision
    tasks: int = 0
    spent: bool = False
    counted: Metrics = field(default_factory=Metrics)
    looked: IoDone = field(default_factory=IoDone)

    def io_ratio(self) -> float | None:
        """How many times dearer or cheaper than assumed reads were since this was asked last; None if they were not."""
        now = IoDone.by(self.pages.device)
        done, self.looked = now.since(self.looked), now
        return dearer(self.decision.io, done, self.pages)

    def close(self) -> None:
        """Free memory, files and connections."""
        try:
            self.operator.close()
        finally:
            self.pages.close()


_HELD: OrderedDict[str, Held] = OrderedDict()


def enrich_rows(task: EnrichTask, batches: Batches) -> Batches:
    """The answers of all rows of a task, from one version of the master data; every row is answered when it ends.

    Where rows without a match are kept, the last column is the number of the partition that rows come from.
    """
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    if first is None:
        return
    rows = map(task.stream_rows, chain([first], given))
    where, part = Where.here(), str(first.column(first.num_columns - 1)[0])
    held, head = _taken(task, where, [next(rows)], rows)
    try:
        yield from _answers(task, held, chain(head, rows), open_letters(task, where, part))
    except BaseException:
        held.close()  # half way through a batch: never used again
        raise
    _keep(task.plan, held)


def _answers(task: EnrichTask, held: Held, rows: Batches, letters: DeadLetters | None) -> Batches:
    watch, n_rows = Stopwatch(), 0
    with letters or nullcontext():
        for batch in rows:
            last, n_rows = batch, n_rows + batch.num_rows
            for found in watch.time(held.operator.push("stream", batch)):
                yield from _sorted_out(task, letters, found)
        for found in watch.time(held.operator.drain()):
            yield from _sorted_out(task, letters, found)
        if letters is not None:
            letters.commit()
    price = held.decision.price
    resplit = watch.call(partial(_resplit, task, held, last, n_rows))
    report = _report(held, watch)
    if price is not None and price.rate > 0:
        report.add_ns("serving_predicted", round(n_rows / price.rate * 1e9))
    if resplit:
        report.add("resplits", 1, unit="times")
    if letters is not None:
        report.add("dead_letters", letters.rows)
    task.sink.task(report)


def _resplit(task: EnrichTask, held: Held, rows: pa.RecordBatch, n_rows: int) -> bool:
    """Whether memory was split anew, because skew or cost of reads are no longer what they were when that was decided.

    `rows` are some of the `n_rows` that the task had.
    """
    held.tasks += 1
    if not looks_again(held.tasks) or task.request.tune != "model" or task.request.sizes is not None:
        return False
    sample = sample_of([rows], task.wiring.on, held.pages, n_rows)
    ratio, io = held.io_ratio(), held.decision.io
    if not moved(held.decision.exponent, sample, int(held.pages.starts[-1])) and (
        ratio is None or not is_enough(sample)
    ):
        return False
    request = replace(task.request, algorithm=held.decision.algorithm)
    schema = held.operator.stream.schema
    seen = io if ratio is None or io is None else io.times(ratio)
    held.decision = decide(request, task.wiring, held.pages, schema, sample, seen)
    held.looked = IoDone.by(held.pages.device)
    spec = specification(request, task.wiring, held.pages, held.decision.algorithm, held.decision.sizes)
    try:
        for _ in held.operator.resize(spec.fit(request.join_memory, schema)):
            pass
    except (BudgetExceeded, PlanError):  # these parts cannot change while it runs
        held.spent = True
    return True


def _sorted_out(task: EnrichTask, letters: DeadLetters | None, found: pa.RecordBatch) -> Batches:
    """The batch as the result has it, without the rows that go to the dead letters."""
    if isinstance(task.request.on_miss, DeadLetter):
        met = found.column(found.num_columns - 1)
        if letters is not None:
            letters.add(task.letter_rows(found.filter(pc.invert(met))))
        found = found.filter(met)
    if found.num_rows:
        yield task.answer_rows(found)


class Stopwatch:
    """Nanoseconds spent inside operators, not in waiting for rows or for who takes the answers."""

    def __init__(self) -> None:
        self.spent_ns = 0

    def call(self, function: Callable[[], bool]) -> bool:
        """What the function says, its time counted."""
        start = time.perf_counter_ns()
        found = function()
        self.spent_ns += time.perf_counter_ns() - start
        return found

    def time(self, batches: Batches) -> Batches:
        """The same batches."""
        while True:
            start = time.perf_counter_ns()
            batch = next(batches, None)
            self.spent_ns += time.perf_counter_ns() - start
            if batch is None:
                return
            yield batch


def _report(held: Held, watch: Stopwatch) -> Metrics:
    """What the operator did since the last report."""
    now = totals(held.operator)
    report = difference(now, held.counted)
    held.counted = now
    report.add_ns("serving", watch.spent_ns)
    return report


def totals(operator: SemiStreamOperator) -> Metrics:
    """Everything that an operator has counted since it was opened."""
    own, operator.metrics = operator.metrics, Metrics()
    try:
        found = operator.report()
    finally:
        operator.metrics = own
    found.peak("memory_peak", operator.budget.peak)
    for component, held in operator.budget.at_peak().items():
        found.peak("memory", held, component)
    return found


def difference(now: Metrics, before: Metrics) -> Metrics:
    """Counters as far as they grew, and peaks as they are."""
    known = {(e.name, e.side): e.value for e in before.entries()}
    found = Metrics()
    for entry in now.entries():
        if entry.kind == "peak":
            found.peak(entry.name, entry.value, entry.side, entry.unit)
        elif entry.value != known.get((entry.name, entry.side), 0):
            found.add(entry.name, entry.value - known.get((entry.name, entry.side), 0), entry.side, entry.unit)
    return found


def _taken(
    task: EnrichTask, where: Where, head: list[pa.RecordBatch], rows: Batches
) -> tuple[Held, list[pa.RecordBatch]]:
    """The operator of this plan on the version that the task must read, and the rows that were looked at."""
    held = _HELD.pop(task.plan, None)
    try:
        version = wanted_version(task, where)
        if held is not None and held.operator.stream.schema.equals(head[0].schema):
            if (version or task.store.version()) == held.pages.version:
                return held, head
            pages = open_version(task, where, version)
            if _adopted(task, held, pages):
                return held, head
            held = None
        elif held is not None:
            held.close()
            held = None
        return _opened(task, where, version, head, rows)
    except BaseException:
        if held is not None:
            held.close()
        raise


def _adopted(task: EnrichTask, held: Held, pages: Pages) -> bool:
    """Whether the operator took up the new version; if its parts no longer fit the budget, it is closed instead."""
    old = held.pages
    try:
        changed = task.store.changed(old.version, pages.version)
    except ConfigError:
        changed = None  # the old version is gone, so what differs cannot be told
    try:
        for _ in held.operator.adopt(pages, changed):
            pass
    except (BudgetExceeded, PlanError):
        held.close()
        pages.close()
        return False
    held.pages, held.looked = pages, IoDone.by(pages.device)
    old.close()
    return True


def _opened(
    task: EnrichTask, where: Where, version: str | None, head: list[pa.RecordBatch], rows: Batches
) -> tuple[Held, list[pa.RecordBatch]]:
    pages = open_version(task, where, version)
    try:
        decision = task.decision
        if task.learns or task.request.tune == "measure":
            head = [*head, *islice(rows, _PEEKED - 1)]
            decision = _learned(task, pages, head)
        operator = open_operator(task, pages, head[0].schema, decision)
        return Held(operator, pages, decision, looked=IoDone.by(pages.device)), head
    except BaseException:
        pages.close()
        raise


def _learned(task: EnrichTask, pages: Pages, head: list[pa.RecordBatch]) -> Decision:
    """The decision that the first rows lead to."""
    schema, decision = head[0].schema, task.decision
    if task.learns:
        whole = len(head) < _PEEKED
        n = sum(batch.num_rows for batch in head)
        sample = sample_of(head, task.wiring.on, pages, n if whole else None)
        decision = decide(task.request, task.wiring, pages, schema, sample)
    if task.request.tune == "measure":
        decision = measured_sizes(task.request, task.wiring, pages, head, decision)
    return decision


def open_operator(task: EnrichTask, pages: Pages, schema: pa.Schema, decision: Decision) -> SemiStreamOperator:
    """The running join in a budget of its own; sizes that this version has no room for are fitted."""
    budget = MemoryBudget(task.request.join_memory, "enrich")
    spec = specification(task.request, task.wiring, pages, decision.algorithm, decision.sizes)
    try:
        return spec.open(budget, {"stream": schema})
    except (BudgetExceeded, PlanError):
        if decision.origin in ("explicit", "carried"):
            raise
        budget = MemoryBudget(task.request.join_memory, "enrich")
        return replace(spec, sizes=FITTED).open(budget, {"stream": schema})


def _keep(plan: str, held: Held) -> None:
    """Keep the operator for the next task; of more plans than a worker keeps, the one unused for longest goes."""
    other = _HELD.pop(plan, None)
    if other is not None:
        other.close()
    if held.spent:
        held.close()
        return
    if isinstance(held.pages, Resting):
        held.pages.rest()
    _HELD[plan] = held
    while len(_HELD) > _MOST:
        _HELD.popitem(last=False)[1].close()


@atexit.register
def forget() -> None:
    """Close every operator that this process keeps."""
    while _HELD:
        _HELD.popitem()[1].close()


def owned_rows(task: EnrichTask, owners: int, batches: Batches) -> Batches:
    """Rows with, in front, the number of the owner of their home page."""
    where, pages = Where.here(), None
    try:
        for batch in batches:
            if pages is None:
                pages = open_version(task, where, wanted_version(task, where))
            owner = owners_of(task, pages, task.stream_rows(batch), owners, where.partition)
            yield pa.RecordBatch.from_arrays([pa.array(owner), *batch.columns], names=["owner", *batch.schema.names])
    finally:
        if pages is not None:
            pages.close()


def owners_of(
    task: EnrichTask, pages: Pages, rows: pa.RecordBatch, owners: int, partition: int
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The owner of each row: pages are dealt to owners in equal runs, keys that no page has by their hash.

    Rows with a null in their key match nothing and never wait. They go to the owner of this task's number: the same
    one when Spark runs the task again with its rows in another order.
    """
    types = [pages.schema.field(name).type for name in pages.key]
    key = key_columns(rows, task.wiring.on, types)
    home = pages.home(key)
    n_pages = max(1, len(pages.starts) - 1)
    found = home * owners // n_pages
    if (home < 0).any():
        codes, valid = KeyCodes(types, null_safe=task.request.null_safe).encode(key)
        found = np.where(home >= 0, found, np.where(valid, codes % owners, partition % owners))
    return found.astype(np.int32)
