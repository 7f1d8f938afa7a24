"""Online joins of many streams, or of batch DataFrames, on Spark: what users call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.joins.online.answers import multi_schema
from dovetail.joins.online.bucket_join import MultiBucketJoin
from dovetail.joins.online.graph import JoinGraph, join_graph
from dovetail.joins.online.lateness import lateness_of
from dovetail.joins.online.phases import PHASE_COLUMN
from dovetail.joins.online.plan.plan import (
    End,  # noqa: F401  (it is in the type of an option)
    OnlinePlan,
    arrow_schema,
    build_plan,
    check_inputs,
    partitions_of,
    watermarks,
    with_collation_keys,
)
from dovetail.joins.online.plan.task import CHANGE_COLUMN
from dovetail.joins.online.request import MultiJoinOptions, MultiRequest, Terms
from dovetail.request.columns import wanted_columns
from dovetail.request.options import takes
from dovetail.spark.collation import check_collations

_BANDS = "all inputs and, between all that are joined, a band (first time, second time, timedelta, timedelta)"


@takes(MultiJoinOptions)
def online_multijoin(inputs: Mapping[str, DataFrame], request: MultiRequest) -> DataFrame:
    """Matching combinations of rows of all inputs, each once and as early as possible, as a lazy DataFrame.

    Args:
        inputs: Streaming or batch DataFrames by name, all of one kind. Rows of batch DataFrames arrive in the order
            they are read.
        on: Predicates, each between two inputs: ("orders.id", "items.order_id") for equal columns, ("orders.at",
            "items.at", lo, hi) for lo <= items.at - orders.at <= hi. Two inputs may have several equal columns and one
            band. Together they must make a tree: a chain, a star or a snowflake. A null in any key matches nothing.
        algorithm: auto (miner), miner or mjoin.
        memory: The budget of each task, which joins one partition; a task of a stream that has several partitions
            has it for each. What does not fit goes to disk, and is joined in pauses or at the end.
        partitions: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`, of
            a stream those that its checkpoint began with. If one key is equal in all inputs, rows are placed by it.
            Otherwise partitions are the cells of a cube with an axis for each key, and rows of inputs without a key
            are copied along its axis; `explain` says how often.
        wait: Silence on all inputs after which deferred work begins, as for `online_join`.
        owed: "idle" or "batch", as for `online_join`.
        end_of_input: A column that is true on the last row of an input, or such columns by input. When all have ended,
            everything still owed is given and state is freed. A row that comes later fails the query.
        retain: "2 hours": rows leave the state when they came longer ago than this (and at most an eighth more), by
            the time of micro-batches; combinations of rows that came further apart are not given.
        with_phase: Add a column `_phase`: arriving, reactive or cleanup.
        columns: The columns of the answer that are wanted, in order; others that are no keys never enter the join.
        suffixes: Added to names that several inputs have, by input: {"orders": "", "parts": "_of_part"}. By default
            such a name is preceded by the name of its input: orders_id, parts_id.
        rows: How many rows to expect of each input, if not the same: fewer copies are made of those with many.

    Returns:
        The columns of all inputs in the order given; rows are in no order. Of a stream that restarts from its
        checkpoint every combination comes once, given a sink that takes a micro-batch as a whole.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for cycles, for inputs that nothing
            connects, and for streams without an end that have neither `retain` nor watermarks with bands of times.
        ConfigError: for a session that cannot keep state of this kind; `dovetail.configure` repairs it.
        UnsupportedError: for what this algorithm or session cannot do, with what can.

    >>> orders = spark.createDataFrame([(1, "ada")], "id int, name string")
    >>> items = spark.createDataFrame([(1, 7), (1, 8)], "order_id int, part int")
    >>> parts = spark.createDataFrame([(7, "lamp"), (8, "mat")], "id int, what string")
    >>> found = dovetail.online_multijoin(
    ...     {"orders": orders, "items": items, "parts": parts},
    ...     on=[("orders.id", "items.order_id"), ("items.part", "parts.id")],
    ...     columns=["name", "what"], partitions=1,
    ... )
    >>> found.orderBy("what").collect()
    [Row(name='ada', what='lamp'), Row(name='ada', what='mat')]
    """
    return make_plan(inputs, request).frame()


@takes(MultiJoinOptions)
def plan_online_multijoin(inputs: Mapping[str, DataFrame], request: MultiRequest) -> OnlinePlan:
    """The plan of `online_multijoin` with the same arguments: `explain`, `frame`, `metrics`.

    >>> orders = spark.createDataFrame([(1, "ada")], "id int, name string")
    >>> three = {"a": orders, "b": orders, "c": orders}
    >>> plan = dovetail.plan_online_multijoin(three, on=[("a.id", "b.id"), ("b.id", "c.id")], partitions=2)
    >>> print(plan.explain().splitlines()[0])
    OnlineJoin of 3 inputs: 2 partitions of 64 MiB, owed=idle, wait=25 ms
    """
    return make_plan(inputs, request)


def make_plan(inputs: Mapping[str, DataFrame], request: MultiRequest) -> OnlinePlan:
    """The plan of a request; an error for what cannot be right comes before any job."""
    _check_frames(inputs)
    terms, graph = request.terms, join_graph(tuple(inputs), request.on)
    names = _output_names(inputs, request)
    wanted = wanted_columns(request.columns, list(names.values()))
    inputs, on, extra = _by_collation(inputs, request.on, graph)
    graph = join_graph(tuple(inputs), on)
    lateness = lateness_of(graph, [watermarks(frame) for frame in inputs.values()])
    check_inputs(inputs, terms, request.end_of_input, lateness, _BANDS)
    schemas = {name: arrow_schema(frame) for name, frame in inputs.items()}
    graph.check(schemas)
    multi_schema(graph.names, schemas, terms.with_phase)  # refuses a column of the phase's name
    join = _join(graph, on, terms, _kept(graph, schemas, names, wanted), request.rows)
    answers = join.spec().schema(join.schemas)
    join.spec().fit(terms.memory, list(join.schemas.values()), {})  # a budget that is too small is refused here
    fields = _fields(inputs, join, names)
    every = request.columns is None and not extra
    columns = None if every else (*wanted, *([PHASE_COLUMN] if terms.with_phase else []))
    placing = join.cells(partitions_of(inputs, terms)).explain()
    return build_plan(inputs, join, terms, answers, fields, placing, lateness, request.end_of_input, columns)


def _check_frames(inputs: Mapping[str, DataFrame]) -> None:
    if not isinstance(inputs, Mapping) or not all(isinstance(frame, DataFrame) for frame in inputs.values()):
        raise PlanError(
            "inputs must be DataFrames by name: {'orders': orders, 'items': items, ...}.", argument="inputs"
        )


def _output_names(inputs: Mapping[str, DataFrame], request: MultiRequest) -> dict[tuple[str, str], str]:
    """The name in the answer of each column, by its input and its own name."""
    columns = [(name, column) for name, frame in inputs.items() for column in frame.columns]
    if request.suffixes is None:
        schemas = {name: arrow_schema(frame) for name, frame in inputs.items()}
        return dict(zip(columns, multi_schema(tuple(inputs), schemas, with_phase=False).names, strict=True))
    given = request.suffixes
    strange = [name for name in given if name not in inputs] if isinstance(given, Mapping) else [given]
    if strange or not all(isinstance(suffix, str) for suffix in given.values()):
        raise PlanError(f"suffixes={given!r}: give a text for some of {list(inputs)}.", argument="suffixes")
    often = Counter(column.lower() for _, column in columns)
    out = {at: at[1] + given.get(at[0], "") if often[at[1].lower()] > 1 else at[1] for at in columns}
    twice = sorted(name for name, n in Counter(out.values()).items() if n > 1)
    if twice:
        raise PlanError(
            f"columns {twice} would appear twice in the result with suffixes={given!r}; choose other suffixes.",
            argument="suffixes",
        )
    return out


def _by_collation(
    inputs: Mapping[str, DataFrame], on: Sequence[tuple[Any, ...]], graph: JoinGraph
) -> tuple[Mapping[str, DataFrame], Sequence[tuple[Any, ...]], bool]:
    """Inputs and predicates with collated keys compared by columns of their key bytes, and whether there are any."""
    used: dict[str, list[str]] = {name: [] for name in inputs}
    for edge in graph.edges:
        first, second = ((graph.names[end.relation], end.columns) for end in edge.ends)
        for a, b in zip(first[1], second[1], strict=True):
            if a in inputs[first[0]].columns and b in inputs[second[0]].columns:
                check_collations(inputs[first[0]].schema[a], inputs[second[0]].schema[b])
            used[first[0]].append(a)
            used[second[0]].append(b)
    keyed = {name: with_collation_keys(frame, dict.fromkeys(used[name])) for name, frame in inputs.items()}
    renamed = {f"{name}.{old}": f"{name}.{new}" for name, (_, keys) in keyed.items() for old, new in keys.items()}
    terms = [tuple(renamed.get(part, part) if isinstance(part, str) else part for part in term) for term in on]
    return {name: frame for name, (frame, _) in keyed.items()}, terms, bool(renamed)


def _kept(
    graph: JoinGraph, schemas: Mapping[str, pa.Schema], names: Mapping[tuple[str, str], str], wanted: Sequence[str]
) -> dict[str, pa.Schema]:
    """The columns of each input that the join needs: those of the answer that are wanted, and keys."""
    keys = {(graph.names[end.relation], c) for edge in graph.edges for end, some in edge.sides for c in some}
    keys |= {(name, CHANGE_COLUMN) for name in graph.names}
    return {
        name: pa.schema([f for f in schemas[name] if names.get((name, f.name)) in wanted or (name, f.name) in keys])
        for name in graph.names
    }


def _join(
    graph: JoinGraph,
    on: Sequence[tuple[Any, ...]],
    terms: Terms,
    kept: Mapping[str, pa.Schema],
    rows: Mapping[str, float] | None,
) -> MultiBucketJoin:
    for name, n in (rows or {}).items():
        if name not in graph.names or isinstance(n, bool) or not n > 0:
            raise PlanError(f"rows={rows!r}: give a number above 0 for some of {list(graph.names)}.", argument="rows")
    predicates: tuple[Any, ...] = tuple(tuple(term) for term in on)
    inputs = tuple((name, kept[name]) for name in graph.names)
    expected = tuple(sorted((name, float(n)) for name, n in (rows or {}).items()))
    return MultiBucketJoin(terms.algorithm, predicates, terms.memory, terms.with_phase, inputs, expected)


def _fields(
    inputs: Mapping[str, DataFrame], join: MultiBucketJoin, names: Mapping[tuple[str, str], str]
) -> list[T.StructField]:
    """The columns of the join's answer as Spark shall see them."""
    found = [(name, inputs[name].schema[f.name]) for name, schema in join.schemas.items() for f in schema]
    return [T.StructField(names.get((n, f.name), f"{n}_{f.name}"), f.dataType, f.nullable) for n, f in found]
