"""Sizes by trial: the first rows run through the join with a few of them, and the quickest stay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.semistream.cost import Sizes as ModelSizes
from dovetail.joins.semistream.cost import tune
from dovetail.joins.semistream.cost.operator_sizes import operator_sizes
from dovetail.joins.semistream.decision import Decision, Wiring, sample_of, setting_for, specification
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.request import Request

TRIALS = 8
_NO_RATE = float("-inf")


def measured_sizes(
    request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision
) -> Decision:
    """The decision with the sizes that served these rows quickest; trials start where the model finds the best."""
    sample = sample_of(rows, wiring.on, pages, sum(batch.num_rows for batch in rows))
    setting, skew = setting_for(request, pages, rows[0].schema, sample)

    def rate(sizes: ModelSizes) -> float:
        found = operator_sizes(decision.algorithm, sizes, setting)
        return _rate(request, wiring, pages, rows, replace(decision, sizes=found))

    try:
        tuned = tune(decision.algorithm, setting, measure=rate, trials=TRIALS)
    except PlanError:
        return decision
    sizes = operator_sizes(decision.algorithm, tuned.sizes, setting)
    return replace(decision, sizes=sizes, origin=f"measured in {len(tuned.trials)} trials", skew=skew)


def _rate(request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision) -> float:
    """Rows per second over these rows, everything answered; minus infinity for sizes that do not fit."""
    spec = specification(request, wiring, pages, decision.algorithm, decision.sizes)
    try:
        start = time.perf_counter()
        with spec.open(MemoryBudget(request.join_memory, "trial"), {"stream": rows[0].schema}) as operator:
            for batch in rows:
                for _ in operator.push("stream", batch):
                    pass
            for _ in operator.drain():
                pass
    except (BudgetExceeded, PlanError):
        return _NO_RATE
    n_rows: int = sum(batch.num_rows for batch in rows)
    return n_rows / (time.perf_counter() - start)
