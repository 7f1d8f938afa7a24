"""A planned query: how it is executed and why, the DataFrame it gives, and what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.spark.arrow import map_in_arrow
from dovetail.spark.metrics import MetricsSink
from dovetail.xml.algebra.operators import DistributeResult, GroupBy, Join, Order
from dovetail.xml.algebra.walk import operators
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.last_task import COUNT, CUT, MARKER, TOTAL, Received
from dovetail.xml.execute.parts import Cut, Division, divided
from dovetail.xml.execute.result import Row
from dovetail.xml.execute.scan_work import Wanted
from dovetail.xml.execute.wire import STATE
from dovetail.xml.plan.rows import Builder, Rows, retype, run_rest, run_whole
from dovetail.xml.request import Route
from dovetail.xml.rules.order import Rewriting
from dovetail.xml.syntax.stack import deep_stack


@dataclass(frozen=True, slots=True)
class XQueryPlan:
    """A query that is planned but not run: `frame` gives the lazy DataFrame, `explain` says how it comes about.

    >>> dovetail.plan_xquery(spark, "1 to 3").frame().count()
    3
    """

    spark: SparkSession
    job: Job
    rewriting: Rewriting
    plan: DistributeResult
    row: Row
    partitions: int
    route: Route
    sinks: list[MetricsSink]

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        return self._built()[0]

    def metrics(self) -> Metrics:
        """What the last run measured: files, bytes, matching subtrees, skipped files."""
        together = Metrics()
        for sink in self.sinks:
            together.merge(sink.collect())
        return together

    @deep_stack()
    def explain(self) -> str:
        """The plan before and after the rules, which of them were applied, how each part is executed, Spark's plan."""
        frame, notes = self._built()
        steps = "\n".join(f"- {note}" for note in notes)
        return f"{self.rewriting.explain()}\nexecution\n\n{steps}\n\nSpark\n\n{_spark_plan(frame)}"

    @deep_stack()
    def _built(self) -> tuple[DataFrame, list[str]]:
        division = Division(self.plan, reason="as asked for")
        if self.route != "one_task":
            division = divided(self.plan, self.job.module, self.row.variables)
        if not division.cuts:
            return self._whole(), [f"one task runs the whole plan, documents are read one by one: {division.reason}"]
        builder = Builder(self.spark, self.job, self.sinks, self.partitions, by_tuples=self.route == "tuples")
        if division.rest is None:
            return self._direct(builder, division.cuts[0]), builder.notes
        return self._rest(builder, division, division.rest), builder.notes

    def _whole(self) -> DataFrame:
        task = partial(run_whole, self.job, self.plan, self.row, self.sinks[0])
        return map_in_arrow(self.spark.range(0, 1, 1, 1), task, from_arrow_schema(self.row.schema))

    def _direct(self, builder: Builder, cut: Cut) -> DataFrame:
        if not self.row.columns:
            return builder.rows(cut.part, Wanted(items=self.plan.variable)).frame
        rows = builder.rows(cut.part, Wanted(variables=self.row.variables))
        rows = rows if len(rows.orders) == 1 else builder.sorted(rows)
        task = partial(retype, self.row, rows.forms)
        return map_in_arrow(rows.frame, task, from_arrow_schema(self.row.schema))

    def _rest(self, builder: Builder, division: Division, rest: DistributeResult) -> DataFrame:
        frames, received = [self._marker()], []
        for number, cut in enumerate(division.cuts):
            rows = builder.rows(cut.part, _wanted(cut))
            received.append(Received(tuple(rows.forms.items()), cut.aggregate, rows.doubles))
            frames.append(_numbered(rows, number, received[-1]))
        builder.notes.append(
            f"one last task combines {len(received)} part(s) and runs the rest of the plan{_done_last(rest)}, "
            f"over at most {format_bytes(self.job.memory)} of rows"
        )
        frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        # What Spark aggregated is one partition already; a shuffle would be one stage more.
        one = frame.coalesce(1) if all(one.doubles for one in received) else frame.repartition(1)
        task = partial(run_rest, self.job.without_files(), rest, tuple(received), self.row)
        return map_in_arrow(one.sortWithinPartitions(CUT, "o"), task, from_arrow_schema(self.row.schema))

    def _marker(self) -> DataFrame:
        """One row of no part: adaptive execution drops an exchange without rows, and with it the last task."""
        return self.spark.range(0, 1, 1, 1).selectExpr(f"{MARKER} as {CUT}", "array(id) as o")


_LAST = {Order: "order by", GroupBy: "group by", Join: "a join"}


def _done_last(rest: DistributeResult) -> str:
    """What of the plan one task must do, if it takes all tuples together."""
    kinds = {type(operator) for operator in operators(rest)}
    found = [name for kind, name in _LAST.items() if kind in kinds]
    return f": {', '.join(found)}" if found else ""


def _wanted(cut: Cut) -> Wanted:
    return Wanted(variables=cut.variables) if cut.aggregate is None else Wanted(aggregate=cut.aggregate)


def _numbered(rows: Rows, number: int, received: Received) -> DataFrame:
    held = [f"v{one.number}" for one in rows.forms]
    if received.aggregate is not None:
        held = [COUNT, TOTAL] if received.doubles else [STATE]
    return rows.frame.selectExpr(f"{number} as {CUT}", f"array({', '.join(rows.orders)}) as o", *held)


def _spark_plan(frame: DataFrame) -> str:
    from dovetail.spark.connect import is_connect

    if is_connect(frame):
        return "(not shown over Spark Connect; call explain() of the DataFrame)"
    return str(frame._jdf.queryExecution().simpleString())
