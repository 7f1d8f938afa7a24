"""Plans table functions in FROM: `SELECT * FROM interval_merge(TABLE stays, on => 'room')`.

A call is planned by the function of the same name, and a view with its rows takes its place in the text. Inputs come
first: `TABLE name`, a name, or a query in parentheses, which see the WITH of the query around them. Options follow, by
name; Spark computes their values as constants.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import TokenType as T

from dovetail.errors import PlanError
from dovetail.functions import FINITE, Function
from dovetail.request import nearest
from dovetail.rewrite.blocks import Block, find_blocks, within
from dovetail.rewrite.names import Names
from dovetail.rewrite.query import Views, run
from dovetail.rewrite.text import BRACKETS, QUERY_WORDS, Patches, Piece, Source, escaped, select_from
from dovetail.spark.frames import quoted
from dovetail.spark.task_errors import spark_says

_BEFORE = (T.FROM, T.JOIN, T.COMMA, T.L_PAREN, T.TABLE)
_ALIAS = (T.ALIAS, T.VAR, T.IDENTIFIER, T.TABLE_SAMPLE)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table function, and its call as it was written."""

    frame: DataFrame
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A table function in the FROM of a block: its inputs, and its options as they were written."""

    function: Function
    piece: Piece
    inputs: list[Piece]
    options: dict[str, str]
    tables: dict[str, Piece]  # options that are tables


def plan_tables(
    spark: SparkSession, source: Source, run: Callable[[str, Views], DataFrame], anywhere: bool = False
) -> tuple[Source, dict[str, Table]]:
    """The query with views in place of its table functions, and these views.

    A function of the user's with one of our names is theirs. `run` runs the query of an input over the views so far.
    With `anywhere` the text is another statement, or a query that begins with FROM: calls stand in any part of it.
    """
    if not _may_call(source):
        return source, {}
    patches, tables = Patches(source.written), dict[str, Table]()
    names = Names(token.text for token in source.tokens)
    blocks, done = find_blocks(source), set[int]()
    if anywhere:
        blocks.append(Block(source, 0, len(source.tokens), source.whole(), None, (), False))
    for block in blocks:
        for call in _calls(block):
            if call.piece.start in done or spark.catalog.functionExists(call.function.name):
                continue
            done.add(call.piece.start)
            views = {name: table.frame for name, table in tables.items()}

            def read(piece: Piece, call: Call = call, block: Block = block, views: Views = views) -> DataFrame:
                query = within(block, select_from(patches.render(piece.span)), patches)
                return _read(call, lambda: run(query.format(), views))

            view = names.fresh("dovetail_table")
            frames = [read(piece) for piece in call.inputs]
            given = {name: read(piece) for name, piece in call.tables.items()}
            rows = call.function.call()(*frames, **_values(spark, call), **given)
            tables[view] = Table(rows, " ".join(call.piece.text.split()))
            alias = "" if source.kind(call.piece.stop) in _ALIAS else f" AS {call.function.name}"
            patches.add(call.piece.span, escaped(quoted(view) + alias))
    return Source(patches.render().format()) if tables else source, tables


def table_calls(spark: SparkSession, source: Source) -> list[str]:
    """The names of our table functions that the text calls, without those that are functions of the user."""
    numbers = range(len(source.tokens) - 1)
    called = (n for n in numbers if source.kind(n + 1) is T.L_PAREN and source.kind(n - 1) in _BEFORE)
    names = (source.tokens[n].text for n in called if source.tokens[n].text.lower() in FINITE)
    return [name for name in names if not spark.catalog.functionExists(name)]


def _read(call: Call, run: Callable[[], DataFrame]) -> DataFrame:
    """The rows of an input; a `PlanError` if it names a column that it does not have, such as one of another input."""
    try:
        return run()
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            raise
        raise PlanError(
            f"{call.piece.text}: an input is read by itself, so that it cannot name columns of the query around it "
            "(LATERAL, correlated subqueries); join with that query outside, or give the column as a key in `on`. "
            f"Spark says: {spark_says(error)}."
        ) from error


def _may_call(source: Source) -> bool:
    """Whether a name of ours stands before a bracket, and all brackets are closed; otherwise Spark reports the text."""
    named = (
        token.text.lower() in FINITE and number + 1 in source.partner for number, token in enumerate(source.tokens)
    )
    return any(named) and all(source.kind(n) not in BRACKETS or n in source.partner for n in range(len(source.tokens)))


def _calls(block: Block) -> Iterator[Call]:
    """The table functions in the FROM of a block, not those of queries inside it."""
    if block.relations is None:
        return
    source = block.source
    for number in reversed(list(block.own())):  # calls that are inputs of others first
        inside = block.relations.start <= number < block.relations.stop
        called = source.kind(number + 1) is T.L_PAREN and source.kind(number - 1) in _BEFORE
        if inside and called and source.tokens[number].text.lower() in FINITE:
            yield _call(source.piece(number, source.partner[number + 1] + 1))


def _call(piece: Piece) -> Call:
    """The call, or a `PlanError` that says how it is written."""
    source, function = piece.source, FINITE[piece.source.tokens[piece.start].text.lower()]
    body = source.piece(piece.start + 2, piece.stop - 1)
    parts = body.split(body.find(T.COMMA)) if body.start < body.stop else []
    named = [source.kind(part.start + 1) is T.FARROW for part in parts]
    n_inputs = len(function.inputs)
    if named != [False] * n_inputs + [True] * (len(parts) - n_inputs):
        given = ", ".join(f"TABLE {each}" for each in function.inputs)
        raise PlanError(
            f"{piece.text}: {function.name} takes {n_inputs} input{'s' if n_inputs > 1 else ''} and then options by "
            f"name, as in {function.name}({given}, memory => '64MB')."
        )
    named_options = [_option(function, part) for part in parts[n_inputs:]]
    options = dict(named_options)
    if len(options) < len(named_options):
        raise PlanError(f"{piece.text}: an option is given twice.")
    tables = {name: _relation(value) for name, value in options.items() if _is_table(function, name, value)}
    constants = {name: value.text for name, value in options.items() if name not in tables}
    return Call(function, piece, list(map(_relation, parts[:n_inputs])), constants, tables)


def _is_table(function: Function, name: str, value: Piece) -> bool:
    """Whether the value of an option is a table: TABLE t, or a query in parentheses where the option takes tables."""
    inside = value.inside()
    written = value.first_kind() is T.TABLE
    takes = "DataFrame" in str(inspect.signature(function.options()).parameters[name].annotation)
    if written and not takes:
        raise PlanError(f"{function.name}: {name} is a constant, not a table.")
    return written or (takes and inside is not None and inside.first_kind() in QUERY_WORDS)


def _relation(part: Piece) -> Piece:
    """An input as it stands in FROM: without the word TABLE, and a name without parentheses."""
    if part.first_kind() is T.TABLE and part.stop - part.start > 1:
        part = part.source.piece(part.start + 1, part.stop)
    inside = part.inside()
    return part if inside is None or inside.first_kind() in QUERY_WORDS else inside


def _option(function: Function, part: Piece) -> tuple[str, Piece]:
    source, name = part.source, part.source.tokens[part.start].text.lower()
    known = list(inspect.signature(function.options()).parameters)
    if name not in known:
        near = nearest(name, known)
        hint = "" if near is None else f"; did you mean {near!r}?"
        raise PlanError(f"{function.name} has no option {name!r}{hint} Options: {', '.join(known)}.")
    if part.start + 2 == part.stop:
        raise PlanError(f"{function.name}: the value of {name!r} is not a constant; it is missing.")
    return name, source.piece(part.start + 2, part.stop)


def _values(spark: SparkSession, call: Call) -> dict[str, Any]:
    """The options: texts, numbers, true and false, dates and times, intervals, arrays, structs and maps."""
    if not call.options:
        return {}
    try:
        row = run(spark, escaped(f"SELECT {', '.join(call.options.values())}"), {}).first()
    except PySparkException as error:
        raise PlanError(
            f"{call.piece.text}: the value of an option is not a constant, such as 'k', 5, array('a', 'b'), "
            "struct('t', 't', 0, 5) for values of several types, or interval '1' hour. "
            f"Spark says: {spark_says(error)}."
        ) from error
    return {name: _plain(value) for name, value in zip(call.options, row or (), strict=True)}


def _plain(value: Any) -> Any:
    """The value with structs as tuples; decimals are exact."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
