"""SQL with interval joins: `dovetail.sql(spark, query)`.

Interval predicates are recognised in the text, everything else stays Spark's own, letter by letter.
"""

from __future__ import annotations

from typing import Literal, overload

import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from dovetail.sql.calls import interval_calls
from dovetail.sql.plan import plan
from dovetail.sql.report import Report
from dovetail.sql.text import DIALECT, QUERY_WORDS, Source

__all__ = ["sql"]

UNREAD = Report(spark=[("the whole text", "it is not one SELECT query that sqlglot can read")])


@overload
def sql(spark: SparkSession, query: str, explain: Literal[False] = False) -> DataFrame: ...


@overload
def sql(spark: SparkSession, query: str, explain: Literal[True]) -> str: ...


def sql(spark: SparkSession, query: str, explain: bool = False) -> DataFrame | str:
    """The answer of a SQL query as an ordinary DataFrame, its interval joins planned as such.

    Recognised in ON (every join type) and in the WHERE of inner joins: `interval_<relation>(start, end, start, end)`
    for each relation of `interval_join`, and two comparisons that say overlap, `r.start < s.end and s.start < r.end`;
    `<=` and BETWEEN count touching bounds. Equalities between the sides become keys, other conditions stay conditions.
    The functions follow `interval_join`: empty intervals match nothing, inverted ones are an error. Comparisons keep
    SQL's meaning for every row, empty and inverted ones included. Whatever is not recognised goes to Spark as it was
    written. With `explain`, the result is a text that says what was recognised and what was left to Spark, and why.
    Planning runs small Spark jobs, as `interval_join` does.
    """
    source = _read(query)
    if source is None:
        return UNREAD.text() if explain else spark.sql(query)
    frame, report = plan(spark, source, interval_calls(source, spark.catalog.functionExists))
    return report.text() if explain else frame


def _read(query: str) -> Source | None:
    """The query in tokens; None for what is not one SELECT that sqlglot can read: Spark says what is wrong with it."""
    try:
        source = Source(query)
        words = [kind for kind in map(source.kind, range(len(source.tokens))) if kind is not TokenType.L_PAREN]
        if not words or words[0] not in QUERY_WORDS or TokenType.PIPE_GT in words:
            return None
        statements = [each for each in sqlglot.parse(query, dialect=DIALECT) if each is not None]
    except SqlglotError:
        return None
    return source if len(statements) == 1 and isinstance(statements[0], exp.Query) else None
