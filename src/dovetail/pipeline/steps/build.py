"""Builds the DataFrames of a pipeline, separately for each sink, so that each sink has a query of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.plan import EnrichPlan
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.steps.joins import Given, Plan, plan_join
from dovetail.pipeline.steps.masters import open_master
from dovetail.pipeline.steps.sources import load_source, watermarked


@dataclass(slots=True)
class Lineage:
    """The frames, stores and plans of a sink and of all steps that it reads."""

    sink: Step
    steps: list[Step]
    frames: dict[str, DataFrame] = field(default_factory=dict)
    sources: dict[str, DataFrame] = field(default_factory=dict)
    stores: dict[str, MasterStore] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    @property
    def frame(self) -> DataFrame:
        """The rows that the sink writes."""
        return self.frames[self.sink.values["from"]]

    @property
    def streams(self) -> bool:
        """Whether the sink writes a stream."""
        return self.frame.isStreaming


def build_lineage(
    spark: SparkSession,
    pipeline: Pipeline,
    sink: Step,
    observe: bool = True,
    dead_letter_writers: Mapping[str, str] | None = None,
) -> Lineage:
    """The frames that a sink reads; page files that are missing are built.

    With `observe`, Spark counts the rows of each join of a stream, under the step's name. `dead_letter_writers` has for
    each join with dead letters the sink whose query writes them.
    """
    steps = pipeline.ordered(sink.name)
    lineage = Lineage(sink, steps)
    for step in steps:
        if step.kind == "source":
            lineage.sources[step.name] = lineage.frames[step.name] = load_source(spark, step)
        elif step.kind == "master":
            source = step.values.get("build", {}).get("from")
            lineage.stores[step.name] = open_master(step, lineage.frames.get(source))
        elif step.kind == "join":
            plan = plan_join(Given(spark, pipeline, lineage.frames, lineage.stores), step)
            if isinstance(plan, EnrichPlan) and (dead_letter_writers or {}).get(step.name, sink.name) != sink.name:
                plan = plan.without_dead_letters()
            lineage.plans[step.name] = plan
            frame = watermarked(plan.frame(), step)
            lineage.frames[step.name] = _counted(frame, step, pipeline, sink) if observe else frame
    return lineage


def _counted(frame: DataFrame, step: Step, pipeline: Pipeline, sink: Step) -> DataFrame:
    """The frame with its rows counted by Spark, unless it is read twice: a plan may have an observation once."""
    once = frame.isStreaming and _paths(pipeline, sink, step.name) == 1
    return frame.observe(step.name, F.count(F.lit(1)).alias("rows")) if once else frame


def _paths(pipeline: Pipeline, step: Step, target: str) -> int:
    """Number of paths from a step back to the target."""
    if step.name == target:
        return 1
    return sum(_paths(pipeline, pipeline.steps[name], target) for name in step.sources)
