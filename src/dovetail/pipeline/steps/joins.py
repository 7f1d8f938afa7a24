"""Plans joins with the functions of their families; a check plans them on empty inputs, without a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.functions import FINITE, STREAMED
from dovetail.joins.asof import api as asof
from dovetail.joins.asof.request import AsofOptions
from dovetail.joins.interval import api as interval
from dovetail.joins.interval.request import JoinOptions
from dovetail.joins.online.api import plan_online_join, plan_online_multijoin
from dovetail.joins.semistream.api import plan_enrich
from dovetail.joins.semistream.decision import smallest
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.columns import plan_columns, ranged_request
from dovetail.joins.semistream.plan.condition import Conditioned
from dovetail.joins.semistream.plan.plan import make_plan
from dovetail.joins.semistream.request import EnrichOptions
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.requests import arguments_of
from dovetail.pipeline.steps.formats import with_remedy
from dovetail.pipeline.steps.masters import is_missing
from dovetail.pipeline.steps.sources import empty
from dovetail.rewrite import names_ours, plan_sql
from dovetail.spark.task_errors import spark_says
from dovetail.xml.api import plan_xquery


class Plan(Protocol):
    """A join that is planned but not run."""

    def frame(self) -> DataFrame:
        """The result, as a lazy DataFrame."""
        ...

    def explain(self) -> str:
        """The plan, and why it was chosen."""
        ...

    def metrics(self) -> Metrics:
        """Metrics of the last run."""
        ...


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of joins: frames and stores by the names of their steps."""

    spark: SparkSession
    pipeline: Pipeline
    frames: Mapping[str, DataFrame]
    stores: Mapping[str, MasterStore]


@dataclass(frozen=True, slots=True)
class FramePlan:
    """A step that has only its frame, such as one of SQL, which Spark plans and runs."""

    answer: DataFrame
    said: str

    def frame(self) -> DataFrame:
        """The result, as a lazy DataFrame."""
        return self.answer

    def explain(self) -> str:
        """The step and the columns of its result; Spark's own plan is not repeated here."""
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in self.answer.schema.fields)
        kind = "a stream" if self.answer.isStreaming else "a batch"
        return f"{self.said}, gives {kind} of ({columns})"

    def metrics(self) -> Metrics:
        """Empty: Spark itself counts the rows of such steps."""
        return Metrics()


def plan_join(given: Given, step: Step) -> Plan:
    """The plan of a join over its inputs; planning batch inputs may run small jobs."""
    arguments = arguments_of(given.pipeline, step)
    if step.type == "sql":
        return _sql(given, step)
    if step.type == "xquery":
        return plan_xquery(given.spark, arguments.pop("query"), **arguments)
    if "end_of_input" in arguments:
        arguments["end_of_input"] = _ends(arguments["end_of_input"])
    if step.type == "enrich":
        return plan_enrich(given.frames[step.values["stream"]], given.stores[step.values["master"]], **arguments)
    if step.type == "online_multijoin":
        return plan_online_multijoin(_named_inputs(given, step), **arguments)
    if step.type == "online_join":
        return plan_online_join(*_inputs(given, step), **arguments)
    function, inputs = FINITE[step.type], _inputs(given, step)
    if isinstance(step.values.get("limits"), str):
        arguments["limits"] = given.frames[step.values["limits"]]
    plan = function.plan()
    if plan is None:
        return FramePlan(function.call()(*inputs, **arguments), f"{step.type} of {', '.join(step.sources)}")
    planned: Plan = plan(*inputs, **arguments)
    return planned


def checked_join(given: Given, step: Step) -> DataFrame:
    """A frame with the columns of the join's result, over empty inputs; PlanError for what a run would refuse."""
    if step.type == "enrich":
        return _checked_enrich(given, step)
    if step.type in FINITE:
        _check_finite(given, step)
    if step.type == "interval_join":
        left, right = _inputs(given, step)
        return interval.empty_result(left, right, JoinOptions(**arguments_of(given.pipeline, step)).request())
    if step.type == "asof_join":
        left, right = _inputs(given, step)
        return asof.empty_result(left, right, AsofOptions(**arguments_of(given.pipeline, step)).request())
    return plan_join(given, step).frame()


def _checked_enrich(given: Given, step: Step) -> DataFrame:
    """A named algorithm with an even split needs no sample of the stream and gives the same columns."""
    rows, store = given.frames[step.values["stream"]], given.stores[step.values["master"]]
    request = ranged_request(EnrichOptions(**arguments_of(given.pipeline, step)).request(), store)
    if is_missing(given.pipeline.steps[step.values["master"]]):
        conditioned = request.condition is not None
        found = Conditioned.of(rows, store, request) if conditioned else plan_columns(rows, store, request)
        return empty(given.spark, found.output, rows.isStreaming)
    pages = store.at(None)
    try:
        named = request.algorithm if request.algorithm != "auto" else smallest(pages)
    finally:
        pages.close()
    tune = request.tune if request.sizes is not None else "off"
    return make_plan(rows, store, replace(request, algorithm=named, tune=tune)).frame()


def _inputs(given: Given, step: Step) -> list[DataFrame]:
    function = (STREAMED | FINITE)[step.type]
    return [given.frames[step.values[name]] for name in function.inputs]


def _check_finite(given: Given, step: Step) -> None:
    for name in (key for _, key in step.inputs):
        if given.frames[step.values[name]].isStreaming:
            raise PlanError(
                f"{name}: {step.values[name]!r} is a stream, and {step.type} needs finite inputs; read its source "
                "with stream = false, or write a sql step, which Spark can run on streams",
                argument=name,
            )


def _named_inputs(given: Given, step: Step) -> dict[str, DataFrame]:
    inputs = step.values["inputs"]
    pairs = inputs.items() if isinstance(inputs, Mapping) else ((name, name) for name in inputs)
    return {name: given.frames[source] for name, source in pairs}


def _ends(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: F.expr(text) for name, text in given.items()}
    return F.expr(given)


def _sql(given: Given, step: Step) -> FramePlan:
    """The query over views named as its steps; the views are dropped once Spark has analysed the query.

    Spark plans it, unless it has what only Dovetail does: ASOF JOIN, interval and table functions, or our hints.
    """
    query = step.values["query"]
    for name in step.sources:
        given.frames[name].createOrReplaceTempView(name)
    try:
        reads = ", ".join(step.sources) or "no step"
        if names_ours(given.spark, query):
            frame, report = plan_sql(given.spark, query)
            return FramePlan(frame, f"SQL by Dovetail: reads {reads}; {report}\n")
        return FramePlan(given.spark.sql(query), f"SQL by Spark: reads {reads}")
    except (AnalysisException, ParseException) as error:
        raise PlanError(
            f"query: Spark cannot resolve it: {with_remedy(given.spark, spark_says(error))}; correct it here",
            argument="query",
        ) from error
    finally:
        for name in step.sources:
            given.spark.catalog.dropTempView(name)
