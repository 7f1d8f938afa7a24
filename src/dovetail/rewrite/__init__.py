"""Runs SQL with interval and as-of joins: `dovetail.sql(spark, query)`.

Interval predicates and ASOF JOIN are recognised in the text. Everything else goes to Spark as it was written.

* `parameters`: values in place of `:name` and `?`. `statement`: EXPLAIN, INSERT and others around one query.
* `tables`: table functions, which are planned first.
* `text`: the query as tokens, without its `hints` for joins. `blocks`: its SELECT blocks and their FROM clauses.
* `names`: columns of the inputs. `conditions`: conditions of joins, and interval joins recognised in them.
* `plan`: plans each block. `query`: the state of a query while it is planned.
* `interval`, `inequality` and `asof`: plan one join.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal, overload

from pyspark.sql import DataFrame, SparkSession
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from dovetail.errors import DovetailError, PlanError
from dovetail.rewrite.conditions import called_functions, interval_calls
from dovetail.rewrite.parameters import Arguments, bound
from dovetail.rewrite.plan import plan_query
from dovetail.rewrite.query import NO_PREDICATE, Report, Views
from dovetail.rewrite.statement import AROUND, CHANGES, REST, WHOLE_TEXT, Statement, plan_statement, select_first
from dovetail.rewrite.tables import plan_tables, table_calls
from dovetail.rewrite.text import QUERY_WORDS, Source, explained
from dovetail.spark.catalyst import install_rule, uninstall_rule
from dovetail.spark.frames import is_connect

__all__ = ["install", "names_ours", "plan_sql", "sql", "uninstall"]


@overload
def sql(
    spark: SparkSession, query: str, *, args: Arguments | None = None, explain: Literal[False] = False
) -> DataFrame: ...


@overload
def sql(spark: SparkSession, query: str, *, args: Arguments | None = None, explain: Literal[True]) -> str: ...


def sql(spark: SparkSession, query: str, *, args: Arguments | None = None, explain: bool = False) -> DataFrame | str:
    """The result of a SQL query as a DataFrame; its interval and as-of joins are planned as such.

    Recognised in ON (every join type) and in the WHERE of inner joins: `interval_<relation>(start, end, start, end)`
    for each relation of `interval_join`, and two comparisons that say overlap, `r.start < s.end and s.start < r.end`;
    `<=` and BETWEEN count touching bounds. Other inequalities, `r.x < s.y`, alone or several, are joined by as bands of
    `band_join` with one limit. Equalities between the sides become keys, other conditions stay conditions.
    The functions follow `interval_join`: empty intervals match nothing, inverted ones are an error. Comparisons keep
    SQL's meaning for every row, empty and inverted ones included. Whatever is not recognised goes to Spark as it was
    written. With `explain`, the result is a text that says what was recognised and what was left to Spark, and why.
    Planning runs small Spark jobs, as `interval_join` does.

    `a ASOF [LEFT] JOIN b ON a.k = b.k AND a.t >= b.t` is an as-of join as DuckDB writes it: each row of a with the last
    row of b at its time or before it; `>` leaves out the very same time, `<=` and `<` look forward. As Spark writes it,
    `a [LEFT] ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k`, or USING (k), is read, too.

    A hint says how the joins of its SELECT run: `SELECT /*+ interval_join(memory='64MB', algorithm='dip') */ ...`
    takes `memory`, `algorithm`, `route` and `partitions`, and `asof_join(...)` all of these but `route`.

    Functions over finite DataFrames are table functions: `FROM interval_join(TABLE a, (SELECT ...), how => 'left')`
    takes the inputs of `interval_join`, then its options by name, with constants for values; the limits of
    `interval_complement` may be a table, `limits => TABLE shifts`. They may stand in other statements, too: in CREATE
    TABLE ... AS, INSERT, and queries with `|>`. ASOF JOIN and interval functions may stand in EXPLAIN, INSERT, CREATE
    TABLE ... AS and CREATE TEMPORARY VIEW v AS, too.

    `args` are values of parameters: a mapping for `:name`, a sequence for `?`. They become literals, never text of the
    query.

    >>> spark.createDataFrame([(1, 0, 5), (2, 7, 9)], "id int, a int, b int").createOrReplaceTempView("spans")
    >>> query = "select l.id, r.id as other from spans l join spans r on interval_before(l.a, l.b, r.a, r.b)"
    >>> dovetail.sql(spark, query).collect()
    [Row(id=1, other=2)]
    """
    if not isinstance(query, str):
        raise PlanError(f"query={query!r} is no text; give the SQL query as a string.", argument="query")
    try:
        text = bound(query, args)
        if explain:
            return _report(spark, text).text()
        frame, report = _planned(spark, text, {})
    except DovetailError as error:
        error.argument = "query"  # it may name an option of a join, which a user of SQL has not given
        raise
    if report.spark != [WHOLE_TEXT] or query.lstrip("( \t\r\n").lower().startswith(("select", "with")):
        _warn(report)
    return frame


def install(spark: SparkSession, *, rule: bool = True) -> None:
    """Let `spark.sql(query)` of this session plan interval and as-of joins as `dovetail.sql` does, and more by a rule.

    Queries with frames in braces, most statements that are not queries, and joins that `dovetail.sql` leaves to Spark
    go to Spark as before; so does a query whose interval join cannot be planned here, unless it uses functions that
    Spark does not have. `dovetail.uninstall` takes it back.

    `rule` adds a rule to Spark's optimizer that plans large range joins over bins, whatever they are written with:
    `DataFrame.join`, EXISTS, statements with parameters. The answers are those of Spark. The rule is compiled by the
    first call on a machine, which takes some ten seconds. A warning says why, where it cannot be used; over Spark
    Connect it belongs to the server. `dovetail.explain_joins` shows what it does.

    >>> dovetail.install(spark)
    >>> spark.range(3).selectExpr("id as start", "id + 2 as end").createOrReplaceTempView("stays")
    >>> spark.sql("select start, n_overlaps from count_overlaps(stays, stays) where start = 0").collect()
    [Row(start=0, n_overlaps=2)]
    >>> dovetail.uninstall(spark)
    """
    theirs = type(spark).sql

    @functools.wraps(theirs)
    def ours(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803  (Spark's own name)
        if kwargs:
            return theirs(spark, sqlQuery, args, **kwargs)
        if args and _read(sqlQuery) is None and not names_ours(spark, sqlQuery):
            return theirs(spark, sqlQuery, args)
        try:
            frame, report = _planned(spark, bound(sqlQuery, args), {})
        except DovetailError as error:
            if names_ours(spark, sqlQuery):
                error.argument = "sqlQuery"
                raise  # Spark knows less of it, and would log an error of its own
            return theirs(spark, sqlQuery, args)
        return frame if report.joins or report.tables or not args else theirs(spark, sqlQuery, args)

    vars(spark)["sql"] = ours
    trouble = install_rule(spark) if rule and not is_connect(spark) else None
    if trouble:
        warnings.warn(f"dovetail.install changes spark.sql only, not DataFrame.join: {trouble}", stacklevel=2)


def uninstall(spark: SparkSession) -> None:
    """Let `spark.sql` of this session be Spark's own again, without our rule in its optimizer.

    >>> dovetail.uninstall(spark)  # does nothing where `dovetail.install` was not called
    """
    vars(spark).pop("sql", None)
    uninstall_rule(spark)


def plan_sql(spark: SparkSession, query: str) -> tuple[DataFrame, str]:
    """The result of `sql`, and what it says with `explain`."""
    try:
        frame, report = _planned(spark, query, {})
    except DovetailError as error:
        error.argument = "query"
        raise
    return frame, report.text()


def names_ours(spark: SparkSession, query: str) -> bool:
    """Whether the text has what only Dovetail plans: ASOF JOIN, interval functions, table functions, our hints."""
    try:
        source = Source(query[explained(query) :])
    except SqlglotError:
        return False
    except DovetailError:  # a hint of ours that is wrong
        return True
    users = spark.catalog.functionExists
    called = (name for name in called_functions(source, known=False) if not users(name))
    return bool(source.asof or source.hints or next(called, None) or table_calls(spark, source))


def _planned(spark: SparkSession, query: str, views: Views) -> tuple[DataFrame, Report]:
    """The result of a query over views that it names, and the report."""
    source = _read(query)
    if source is None:
        statement = _statement(spark, query, views)
        return statement.run(spark), statement.report
    source, tables = plan_tables(spark, source, lambda text, seen: _planned(spark, text, views | seen)[0])
    calls = interval_calls(source, spark.catalog.functionExists)
    frame, report = plan_query(spark, source, calls, views | {name: table.frame for name, table in tables.items()})
    report.tables = [table.text for table in tables.values()]
    return frame, report


def _statement(spark: SparkSession, query: str, views: Views) -> Statement:
    return plan_statement(spark, query, views, functools.partial(_planned, spark))


def _report(spark: SparkSession, query: str) -> Report:
    """The report about a query; a statement is not run for it."""
    return _statement(spark, query, {}).report if _read(query) is None else _planned(spark, query, {})[1]


def _warn(report: Report) -> None:
    """Warn about range joins that are left to Spark; Python shows the same warning once."""
    for what, why in report.spark:
        if not why.startswith(NO_PREDICATE) and (what, why) not in (REST, AROUND):
            warnings.warn(f"dovetail.sql leaves this to Spark: {what}: {why}", stacklevel=3)


def _read(query: str) -> Source | None:
    """The query in tokens; None for what is not one SELECT in tokens that sqlglot knows.

    Spark checks the query itself, before anything is planned.
    """
    try:
        source = Source(select_first(query))
    except SqlglotError:
        return None
    words = [kind for kind in map(source.kind, range(len(source.tokens))) if kind is not TokenType.L_PAREN]
    if not words or words[0] not in QUERY_WORDS or TokenType.PIPE_GT in words:
        return None
    outside = [source.kind(number) for number in source.whole().top()]
    while outside[-1] is TokenType.SEMICOLON:
        outside.pop()
    return None if any(kind in (TokenType.SEMICOLON, *CHANGES) for kind in outside) else source
