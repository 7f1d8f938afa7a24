"""From a declared pipeline to DataFrames: for each sink its own, so that its query is a query of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.plan import EnrichPlan
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.steps.joins import Given, Plan, plan_join
from dovetail.pipeline.steps.masters import open_master
from dovetail.pipeline.steps.sources import load_source, watermarked

Saying = Callable[[str], None]


@dataclass(slots=True)
class Lineage:
    """What one sink writes and how it comes about: the frames and plans of all steps before it."""

    sink: Step
    steps: list[Step]
    frames: dict[str, DataFrame] = field(default_factory=dict)
    sources: dict[str, DataFrame] = field(default_factory=dict)
    stores: dict[str, MasterStore] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    @property
    def frame(self) -> DataFrame:
        """What the sink takes."""
        return self.frames[self.sink.values["from"]]

    @property
    def streams(self) -> bool:
        """Whether the sink takes a stream."""
        return self.frame.isStreaming


def build_lineage(
    spark: SparkSession, pipeline: Pipeline, sink: Step, observe: bool = True, letters: Mapping[str, str] | None = None
) -> Lineage:
    """The frames that lead to a sink; page files that are missing are built on the way.

    With `observe`, Spark counts the rows that each join of a stream gives, under the step's name. `letters` has for
    each join that keeps dead letters the sink whose query writes them.
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
            if isinstance(plan, EnrichPlan) and (letters or {}).get(step.name, sink.name) != sink.name:
                plan = plan.without_dead_letters()
            lineage.plans[step.name] = plan
            frame = watermarked(plan.frame(), step)
            lineage.frames[step.name] = _counted(frame, step, pipeline, sink) if observe else frame
    return lineage


def _counted(frame: DataFrame, step: Step, pipeline: Pipeline, sink: Step) -> DataFrame:
    """The frame with its rows counted by Spark, unless it is read twice: Spark wants a count to be in a plan once."""
    once = frame.isStreaming and _paths(pipeline, sink, step.name) == 1
    return frame.observe(step.name, F.count(F.lit(1)).alias("rows")) if once else frame


def _paths(pipeline: Pipeline, step: Step, target: str) -> int:
    """How many ways lead from a step back to the target."""
    if step.name == target:
        return 1
    return sum(_paths(pipeline, pipeline.steps[name], target) for name in step.sources)
