"""From a query to a DataFrame: block by block, innermost first, every interval or as-of join replaced by its rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import UnsupportedError
from dovetail.rewrite.block_plan import BlockPlan
from dovetail.rewrite.blocks import find_blocks
from dovetail.rewrite.calls import IntervalCall
from dovetail.rewrite.query import Query
from dovetail.rewrite.report import Report
from dovetail.rewrite.text import Patches, Source, escaped


def plan(spark: SparkSession, source: Source, calls: Sequence[IntervalCall]) -> tuple[DataFrame, Report]:
    """The answer of a query and what became of its joins.

    Spark first reads the query by itself, with interval functions as plain comparisons and as-of joins as joins by
    them: what is wrong with it is said in Spark's words, and the planned query must have the same columns.
    """
    reference = spark.sql(_for_spark(source, calls))
    query = Query(spark, source, calls)
    for block in find_blocks(source):
        BlockPlan(query, block).run()
    _all_planned(query)
    if query.asof_joins < len(source.asof):
        raise UnsupportedError(
            "an ASOF JOIN of this query cannot be planned here: its FROM has PIVOT, stands in a WITH RECURSIVE, or "
            "names two inputs alike. Give inputs aliases, or put the join in a subquery."
        )
    if not query.report.joins:
        return reference, query.report
    try:
        frame = query.run(query.patches.render())
        trouble = _difference(frame, reference)
    except AnalysisException as error:
        trouble = str(error).partition("\n")[0]
    if not trouble:
        return frame, query.report
    if calls or source.asof:
        raise UnsupportedError(f"the query around its joins cannot be kept: {trouble}. Put the join in a subquery.")
    query.report.leave_all(trouble)
    return reference, query.report


def _for_spark(source: Source, calls: Sequence[IntervalCall]) -> str:
    patches = Patches(source.text)
    for call in calls:
        patches.add(call.piece.span, escaped(call.comparisons()))
    for number in source.asof:  # the same columns, if not the same rows
        patches.add(source.piece(number, number + 1).span, "")
    return patches.render().format() if calls or source.asof else source.text


def _all_planned(query: Query) -> None:
    for call in query.calls:
        if call.piece.start not in query.planned_calls:
            reasons = "".join(f" {what}: {why}." for what, why in query.report.spark)
            raise UnsupportedError(
                f"{call.piece.text} cannot be planned here. An interval function must stand in the ON of a join, or in "
                "the WHERE of an inner one, alone or between ANDs, over the bounds of one input, then of the other."
                f"{reasons}"
            )


def _difference(frame: DataFrame, reference: DataFrame) -> str:
    ours, sparks = ([(f.name, f.dataType.simpleString()) for f in each.schema] for each in (frame, reference))
    return "" if ours == sparks else f"the columns would be {ours}, but Spark's are {sparks}"
