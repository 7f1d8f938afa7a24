"""Plans statements that hold one query: `INSERT INTO t SELECT ... ASOF JOIN ...`, EXPLAIN, CREATE TABLE ... AS.

The query is planned by itself, and a view with its rows takes its place in the statement, which Spark runs. Queries
that begin with FROM are written with SELECT first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import TokenType as T
from sqlglot.errors import SqlglotError

from dovetail.errors import UnsupportedError
from dovetail.rewrite.blocks import CLAUSES, SET_OPERATORS
from dovetail.rewrite.conditions import called_functions
from dovetail.rewrite.names import Names
from dovetail.rewrite.query import Report, Views, run
from dovetail.rewrite.tables import plan_tables, table_calls
from dovetail.rewrite.text import QUERY_WORDS, Patches, Piece, Source, escaped, explained, select_from
from dovetail.spark.frames import quoted

WHOLE_TEXT = ("the whole text", "it is not one SELECT query in words that are known here")
REST = ("the rest of the text", "outside of a SELECT query only table functions are planned")
AROUND = ("the statement around the query", "Spark runs it with the rows that were planned")
_LATER = re.compile(r"\b(view|cache)\b", re.IGNORECASE)  # statements whose query runs when they are over
_TEMPORARY = re.compile(
    r"\s*create\s+(?P<replace>or\s+replace\s+)?(?P<scope>global\s+|local\s+)?temp(orary)?\s+view\s+"
    r"(?P<name>`(?:[^`]|``)+`|\w+)\s+as\s*",
    re.IGNORECASE,
)
CHANGES = (T.INSERT, T.UPDATE, T.DELETE, T.MERGE)
_BEFORE_A_QUERY = (T.FROM, T.JOIN, T.COMMA, T.L_PAREN, T.IN, T.EXISTS, T.ALIAS, T.ALL, T.DISTINCT, *SET_OPERATORS)

Planned = Callable[[str, Views], tuple[DataFrame, Report]]


@dataclass(frozen=True, slots=True)
class Statement:
    """The text that Spark runs, the views that it names, and the report."""

    text: str
    views: Views
    report: Report
    temporary: re.Match[str] | None = None  # of a view that is to be made of the one frame in `views`

    def run(self, spark: SparkSession) -> DataFrame:
        """Its result."""
        if self.temporary is None:
            return run(spark, self.text, self.views)
        (frame,) = self.views.values()
        name = self.temporary["name"].strip("`").replace("``", "`")
        shared = (self.temporary["scope"] or "").strip().lower() == "global"
        if self.temporary["replace"]:
            (frame.createOrReplaceGlobalTempView if shared else frame.createOrReplaceTempView)(name)
        else:
            (frame.createGlobalTempView if shared else frame.createTempView)(name)
        return spark.createDataFrame([], StructType())


def plan_statement(spark: SparkSession, query: str, views: Views, planned: Planned) -> Statement:
    """A statement that is not one SELECT query, with the queries in it that have our joins planned.

    `UnsupportedError` for joins in it that Spark does not know, and for statements that would keep a view of ours.
    """
    start = explained(query)
    if start:
        return _explained(spark, query[:start], query[start:], views, planned)
    try:
        source = Source(query)
    except SqlglotError:
        return Statement(escaped(query), views, Report(spark=[WHOLE_TEXT]))
    words = [*called_functions(source), *(["ASOF JOIN"] if source.asof else [])]
    temporary = _TEMPORARY.match(query)
    if words or (temporary and table_calls(spark, source)):
        return _around(source, temporary, words, views, planned)
    read, tables = plan_tables(spark, source, lambda text, seen: planned(text, views | seen)[0], anywhere=True)
    if not tables:
        return Statement(escaped(query), views, Report(spark=[WHOLE_TEXT]))
    if _keeps(query):
        raise _kept(next(iter(tables.values())).text)
    found = views | {name: table.frame for name, table in tables.items()}
    return Statement(escaped(read.text), found, Report(tables=[table.text for table in tables.values()], spark=[REST]))


def _explained(spark: SparkSession, word: str, text: str, views: Views, planned: Planned) -> Statement:
    """EXPLAIN of a query that is planned, or of a statement, which is not run for it."""
    if not _is_query(text):
        inner = plan_statement(spark, text, views, planned)
        if inner.temporary is not None:
            raise UnsupportedError("EXPLAIN does not make a temporary view of joins of ours; explain its query.")
        return replace(inner, text=escaped(word) + inner.text)
    frame, report = planned(text, views)
    if not report.joins and not report.tables:
        return Statement(escaped(word + text), views, Report(spark=[WHOLE_TEXT]))
    view = "dovetail_query"
    report.spark.append(AROUND)
    return Statement(escaped(word) + select_from(quoted(view)), {view: frame}, report)


def _is_query(text: str) -> bool:
    try:
        source = Source(select_first(text))
    except SqlglotError:
        return False
    top = [source.kind(number) for number in source.whole().top()] if source.tokens else []
    return bool(top) and _begins(source, 0) and not any(kind in (*CHANGES, T.PIPE_GT) for kind in top)


def _around(
    source: Source, temporary: re.Match[str] | None, words: list[str], views: Views, planned: Planned
) -> Statement:
    """The statement with its query planned."""
    query = _query(source)
    if query is None:
        what = words[0] if words else "a table function"
        raise UnsupportedError(
            f"{what} is planned in one query alone, or in the query of EXPLAIN, INSERT or CREATE TABLE ... AS, "
            "without |>. Give dovetail.sql the query, and write its DataFrame: .writeTo('t').create(), "
            ".write.insertInto('t'), or .createOrReplaceTempView('v')."
        )
    start, stop = query.span
    kept = source.text[:start]
    if temporary is None and _keeps(kept):
        raise _kept(words[0])
    frame, report = planned(source.written[start:stop], views)  # with its hints
    view = Names(token.text for token in source.tokens).fresh("dovetail_query")
    text = f"{escaped(kept)}{select_from(quoted(view))}{escaped(source.text[stop:].rstrip(' ;' + chr(10)))}"
    report.spark.append(AROUND)
    return Statement(text, {view: frame}, report, temporary)


def _keeps(text: str) -> bool:
    return bool(_LATER.search(text.partition("(")[0]))


def _kept(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: a view or a cached table cannot keep what Dovetail plans, only a temporary view without columns can. "
        "Use CREATE TEMPORARY VIEW v AS or CREATE TABLE ... AS, or give dovetail.sql the query alone and name its "
        "DataFrame: .createOrReplaceTempView('v')."
    )


def _query(source: Source) -> Piece | None:
    """The query of a statement; None if there is not one."""
    kinds, top = source.kind, list(source.whole().top())
    while kinds(top[-1]) is T.SEMICOLON:
        top.pop()
    if any(kinds(number) in (T.PIPE_GT, T.SEMICOLON, T.UPDATE, T.DELETE, T.MERGE) for number in top):
        return None
    start = next((number for number in top if _begins(source, number)), 0)
    if start == 0 or any(kinds(number) in CHANGES for number in top if number > start):
        return None
    return source.piece(start, source.partner.get(top[-1], top[-1]) + 1)


def _begins(source: Source, number: int) -> bool:
    kind = source.kind
    if kind(number) is T.WITH:
        return kind(number + 1) is T.RECURSIVE or kind(number + 2) in (T.ALIAS, T.L_PAREN)
    return kind(number) in (T.SELECT, T.FROM) or (
        kind(number) is T.L_PAREN and kind(number + 1) in (*QUERY_WORDS, T.FROM)
    )


def select_first(query: str) -> str:
    """The query with `FROM a SELECT b WHERE c` as `SELECT b FROM a WHERE c`; a FROM alone gives all columns.

    Unchanged, if it has several SELECTs for one FROM, or |>.
    """
    source = Source(query)
    if not source.asof and not called_functions(source):
        return query
    for start, stop in _regions(source):
        changed = _turned(source, start, stop)
        if changed is not None:
            patches = Patches(source.written)
            patches.add(source.piece(start, stop).span, escaped(changed))
            return select_first(patches.render().format())  # one at a time: they may stand inside each other
    return query


def _regions(source: Source) -> list[tuple[int, int]]:
    """Parts of the text, as token numbers, that may be a query: the text itself, the sides of UNION, subqueries."""
    number = len(source.tokens)
    while number and source.kind(number - 1) is T.SEMICOLON:
        number -= 1
    found = [(a + 1, b) for a, b in source.partner.items() if source.kind(a - 1) in _BEFORE_A_QUERY or a == 0]
    wholes = (source.piece(a, b) for a, b in [(0, number), *found] if a < b)
    sides = (side for whole in wholes for side in whole.split(_set_operators(whole)))
    return [(side.start + (source.kind(side.start) in (T.ALL, T.DISTINCT)), side.stop) for side in sides]


def _set_operators(piece: Piece) -> list[int]:
    return [number for number in piece.top() if piece.source.kind(number) in SET_OPERATORS]


def _turned(source: Source, start: int, stop: int) -> str | None:
    if source.kind(start) is not T.FROM:
        return None
    piece = source.piece(start, stop)
    top = list(piece.top())
    selects = [number for number in top if source.kind(number) is T.SELECT]
    if len(selects) > 1 or any(source.kind(number) in (T.PIPE_GT, T.INSERT) for number in top):
        return None
    text, tokens = source.written, source.tokens
    body = selects[0] if selects else next((n for n in top if source.kind(n) in CLAUSES), stop)
    tables = source.piece(start, body).span
    end = tokens[stop - 1].end + 1
    if not selects:
        return f"SELECT * {text[tables[0] : end]}"
    clause = next((n for n in top if n > body and _is_clause(source, n)), stop)
    until = tokens[clause].start if clause < stop else end
    return f"{text[tokens[body].start : until]} {text[slice(*tables)]} {text[until:end]}".rstrip()


def _is_clause(source: Source, number: int) -> bool:
    return source.kind(number) in CLAUSES or (source.kind(number) is T.LATERAL and source.kind(number + 1) is T.VIEW)
