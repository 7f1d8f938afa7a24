"""Figures of joins in the names of the record: predictions of their plans, and measurements of their metrics."""

from __future__ import annotations

from typing import Any

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import UnsupportedError
from dovetail.joins.interval.api import IntervalPlan
from dovetail.joins.online.plan.plan import OnlinePlan
from dovetail.joins.semistream.plan.plan import EnrichPlan, measured_rate, predicted_rate
from dovetail.pipeline.steps.joins import Plan

RATE = "service rate of a task"
MEMORY = "memory of a task"
_PHASES = ("arriving", "reactive", "cleanup")


def budget_of(plan: Plan) -> int | None:
    """The budget of each task, in bytes."""
    if isinstance(plan, EnrichPlan):
        return plan.task.request.memory
    if isinstance(plan, OnlinePlan):
        return plan.task.request.memory
    if isinstance(plan, IntervalPlan):
        return plan.request.memory
    return None


def predictions(plan: Plan) -> list[tuple[str, str]]:
    """Predictions of a plan: algorithm, memory split, rate."""
    budget = budget_of(plan)
    memory = [] if budget is None else [(MEMORY, f"{format_bytes(budget)} at most")]
    if isinstance(plan, EnrichPlan):
        return [("algorithm", plan.decision.algorithm), *_enrich_predictions(plan), *memory]
    if isinstance(plan, OnlinePlan):
        partitions = f"{plan.buckets} of {format_bytes(plan.task.request.memory)}"
        return [("algorithm", plan.task.request.algorithm), ("partitions", partitions), *memory]
    if isinstance(plan, IntervalPlan):
        route = plan.route
        price = [] if route.seconds is None else [("seconds of one core", f"{route.seconds:.3g}")]
        return [("route", route.name), ("algorithm", route.algorithm), *price, *memory]
    return []


def _enrich_predictions(plan: EnrichPlan) -> list[tuple[str, str]]:
    price = plan.decision.price
    if price is None:
        return []
    rows = [(RATE, f"{price.rate:,.0f} rows/s")]
    if price.prediction is not None:
        rows += [(f"memory: {name}", format_bytes(int(size))) for name, size in price.prediction.memory if size >= 1]
    return rows


def collected(plan: Plan) -> Metrics:
    """Metrics of the plan so far; empty over Spark Connect."""
    try:
        return plan.metrics()
    except UnsupportedError:
        return Metrics()


def totals(plan: Plan, metrics: Metrics) -> dict[str, float]:
    """Totals and peaks of a join in the names of the record."""
    names = {entry.name for entry in metrics.entries()}
    found: dict[str, float] = {}
    if "answered_by_page" in names or "answered_by_cache" in names:
        found["cache_hits"] = metrics.value("answered_by_cache")
        found["cache_misses"] = metrics.value("answered_by_page") + metrics.value("misses")
        found["page_loads"] = metrics.value("loads")
    for spilled in ("bytes_written", "arrivals_spilled", "bytes_flushed"):
        if spilled in names:
            found["spilled_bytes"] = found.get("spilled_bytes", 0) + metrics.value(spilled)
    for phase in _PHASES:
        if f"results_{phase}" in names:
            found[f"results.{phase}"] = metrics.value(f"results_{phase}")
    return found | _memory(plan, metrics, names)


def _memory(plan: Plan, metrics: Metrics, names: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    peak = max(metrics.value("memory_peak"), metrics.value("memory") if "memory" in names else 0)
    if peak:
        found["memory_peak"] = peak
    parts = {e.side: e.value for e in metrics.entries() if e.name == "memory" and e.side is not None} or {"join": peak}
    over = max(1.0, sum(parts.values()) / peak) if peak else 1.0  # tasks have their peaks at different components
    found |= {f"memory.{name}": held / over for name, held in parts.items() if held}
    budget = budget_of(plan)
    return found if budget is None else found | {"memory_budget": budget}


def expected(metrics: Metrics) -> list[tuple[str, str]]:
    """Predictions that tasks make once they have seen rows; they replace those of the plan."""
    rate = predicted_rate(metrics)
    return [] if rate is None else [(RATE, f"{rate:,.0f} rows/s")]


def measured(plan: Plan, metrics: Metrics) -> dict[str, str]:
    """Measurements under the names of the predictions."""
    found: dict[str, Any] = {}
    rate = measured_rate(metrics)
    if rate is not None:
        found[RATE] = f"{rate:,.0f} rows/s"
    values = totals(plan, metrics)
    if "memory_peak" in values:
        found[MEMORY] = f"{format_bytes(int(values['memory_peak']))} at the peak"
    if "cache_hits" in values:
        answered = values["cache_hits"] + values["cache_misses"]
        found["answered from the cache"] = f"{values['cache_hits'] / max(1, answered):.1%}"
        found["page loads"] = f"{values['page_loads']:,.0f}"
    if "spilled_bytes" in values:
        found["spilled"] = format_bytes(int(values["spilled_bytes"]))
    hot = plan.hot_keys(metrics) if isinstance(plan, OnlinePlan) else []
    if hot:
        found["hot keys"] = "; ".join(hot)
    return found
