"""Online joins of many streams, or of batch DataFrames, on Spark: what users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.joins.online.multiway.answers import multi_schema
from dovetail.joins.online.multiway.bucket_join import MultiBucketJoin
from dovetail.joins.online.multiway.graph import JoinGraph, join_graph
from dovetail.joins.online.multiway.lateness import multi_lateness
from dovetail.joins.online.multiway.registry import MULTIWAY
from dovetail.joins.online.phases import PHASE_COLUMN
from dovetail.joins.online.plan.pack import CHANGE_COLUMN
from dovetail.joins.online.plan.plan import (
    End,
    OnlinePlan,
    arrow_schema,
    buckets_of,
    build_plan,
    check_inputs,
    watermarks,
    with_collation_keys,
)
from dovetail.joins.online.request import Terms, parse_terms
from dovetail.spark.collation import check_collations

_BANDS = "all inputs and, between all that are joined, a band (first time, second time, timedelta, timedelta)"


def online_multijoin(
    inputs: Mapping[str, DataFrame],
    on: Sequence[tuple[Any, ...]],
    algorithm: str = "miner",
    memory: int | str = "64MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: End = None,
    retain: str | float | None = None,
    with_phase: bool = False,
    columns: Sequence[str] | None = None,
    rows: Mapping[str, float] | None = None,
) -> DataFrame:
    """Matching combinations of rows of all inputs, each once and as early as possible, as a lazy DataFrame.

    Args:
        inputs: Streaming or batch DataFrames by name, all of one kind. Rows of batch DataFrames arrive in the order
            they are read.
        on: Predicates, each between two inputs: ("orders.id", "items.order_id") for equal columns, ("orders.at",
            "items.at", lo, hi) for lo <= items.at - orders.at <= hi. Two inputs may have several equal columns and one
            band. Together they must make a tree: a chain, a star or a snowflake. A null in any key matches nothing.
        algorithm: miner or mjoin.
        memory: The budget of each bucket. What does not fit goes to disk, and is joined in pauses or at the end.
        buckets: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`, of a
            stream those that its checkpoint began with. If one key is equal in all inputs, rows are placed by it.
            Otherwise buckets are the cells of a cube with an axis for each key, and rows of inputs without a key are
            copied along its axis; `explain` says how often.
        wait: Silence on all inputs after which deferred work begins, as for `online_join`.
        owed: "idle" or "batch", as for `online_join`.
        end_of_input: A column that is true on the last row of an input, or such columns by input. When all have ended,
            everything still owed is given and state is freed. A row that comes later fails the query.
        retain: "2 hours": rows leave the state when they came longer ago than this (and at most an eighth more), by
            the time of micro-batches; combinations of rows that came further apart are not given.
        with_phase: Add a column `_phase`: arriving, reactive or cleanup.
        columns: The columns of the answer that are wanted, in order; others that are no keys never enter the join.
        rows: How many rows to expect of each input, if not the same: fewer copies are made of those with many.

    Returns:
        The columns of all inputs in the order given; a name that several inputs have is preceded by the name of its
        input in each of them: orders_id, parts_id. In no order. Of a stream that restarts from its checkpoint every
        combination comes once, given a sink that takes a micro-batch as a whole.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for cycles, for inputs that nothing
            connects, and for streams without an end that have neither `retain` nor watermarks with bands of times.
        ConfigError: for a session that cannot keep state of this kind; `dovetail.configure` repairs it.
        UnsupportedError: for what this algorithm or session cannot do, with what can.
    """
    return plan_online_multijoin(
        inputs, on, algorithm, memory, buckets, wait, owed, end_of_input, retain, with_phase, columns, rows
    ).frame()


def plan_online_multijoin(
    inputs: Mapping[str, DataFrame],
    on: Sequence[tuple[Any, ...]],
    algorithm: str = "miner",
    memory: int | str = "64MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: End = None,
    retain: str | float | None = None,
    with_phase: bool = False,
    columns: Sequence[str] | None = None,
    rows: Mapping[str, float] | None = None,
) -> OnlinePlan:
    """The plan of `online_multijoin` with the same arguments: `explain`, `frame`, `metrics`."""
    terms = parse_terms(tuple(MULTIWAY), algorithm, memory, buckets, wait, owed, retain, with_phase)
    inputs, on, columns = _by_collation(inputs, on, _graph(inputs, on), columns)
    graph = _graph(inputs, on)
    lateness = multi_lateness(graph, [watermarks(frame) for frame in inputs.values()])
    check_inputs(inputs, terms, end_of_input, lateness, _BANDS)
    schemas = {name: arrow_schema(frame) for name, frame in inputs.items()}
    graph.check(schemas)
    kept = _kept(graph, schemas, terms, columns)
    join = _join(graph, on, terms, kept, rows)
    answers = join.spec().schema(join.schemas)
    join.spec().fit(terms.memory, join.schemas, {})  # a budget that is too small is refused here
    fields = _fields(graph, inputs, schemas, join)
    chosen = None if columns is None else (*columns, *([PHASE_COLUMN] if terms.with_phase else []))
    placing = join.cells(buckets_of(inputs, terms)).explain()
    return build_plan(inputs, join, terms, answers, fields, placing, lateness, end_of_input, chosen)


def _by_collation(
    inputs: Mapping[str, DataFrame], on: Sequence[tuple[Any, ...]], graph: JoinGraph, columns: Sequence[str] | None
) -> tuple[Mapping[str, DataFrame], Sequence[tuple[Any, ...]], Sequence[str] | None]:
    """Inputs, predicates and columns of the answer with collated keys compared by columns of their key bytes."""
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
    if not renamed:
        return inputs, on, columns
    if columns is None:
        own = {name: arrow_schema(frame) for name, frame in inputs.items()}
        columns = multi_schema(graph.names, own, with_phase=False).names
    terms = [tuple(renamed.get(part, part) if isinstance(part, str) else part for part in term) for term in on]
    return {name: frame for name, (frame, _) in keyed.items()}, terms, columns


def _graph(inputs: Mapping[str, DataFrame], on: Sequence[tuple[Any, ...]]) -> JoinGraph:
    if not isinstance(inputs, Mapping) or not all(isinstance(frame, DataFrame) for frame in inputs.values()):
        raise PlanError("inputs must be DataFrames by name: {'orders': orders, 'items': items, ...}.")
    if isinstance(on, str) or not all(isinstance(term, (tuple, list)) for term in on):
        raise PlanError(f"on={on!r}: give a list of predicates such as ('orders.id', 'items.order_id').")
    return join_graph(tuple(inputs), [tuple(term) for term in on])


def _kept(
    graph: JoinGraph, schemas: Mapping[str, pa.Schema], terms: Terms, columns: Sequence[str] | None
) -> dict[str, pa.Schema]:
    """The columns of each input that the join needs: those of the answer that are wanted, and keys."""
    names = multi_schema(graph.names, schemas, with_phase=False).names
    multi_schema(graph.names, schemas, terms.with_phase)  # refuses a column of the phase's name
    unknown = sorted(set(columns or ()) - set(names))
    if unknown or (columns is not None and (not columns or len(set(columns)) < len(columns))):
        raise PlanError(f"columns={columns!r}: give some of {names}, each once.")
    wanted, at = set(names if columns is None else columns), iter(names)
    keys = {(graph.names[end.relation], c) for edge in graph.edges for end, some in edge.sides for c in some}
    keys |= {(name, CHANGE_COLUMN) for name in graph.names}
    return {
        name: pa.schema(
            [f for f, out in [(f, next(at)) for f in schemas[name]] if out in wanted or (name, f.name) in keys]
        )
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
            raise PlanError(f"rows={rows!r}: give a number above 0 for some of {list(graph.names)}.")
    predicates: tuple[Any, ...] = tuple(tuple(term) for term in on)
    inputs = tuple((name, kept[name]) for name in graph.names)
    expected = tuple(sorted((name, float(n)) for name, n in (rows or {}).items()))
    return MultiBucketJoin(terms.algorithm, predicates, terms.memory, terms.with_phase, inputs, expected)


def _fields(
    graph: JoinGraph, inputs: Mapping[str, DataFrame], schemas: Mapping[str, pa.Schema], join: MultiBucketJoin
) -> list[T.StructField]:
    """The columns of the answer as Spark shall see them, by the names that they have if none is left out."""
    at, kept = iter(multi_schema(graph.names, schemas, with_phase=False).names), join.schemas
    every = [(name, field, next(at)) for name in graph.names for field in inputs[name].schema]
    return [T.StructField(out, f.dataType, f.nullable) for name, f, out in every if f.name in kept[name].names]
