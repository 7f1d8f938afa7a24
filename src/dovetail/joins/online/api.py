"""Online joins of two streams, or of two batch DataFrames, on Spark: what users call."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.layout import key_pairs
from dovetail.errors import PlanError
from dovetail.joins.online.answers import with_phase as schema_with_phase
from dovetail.joins.online.bucket_join import BucketJoin
from dovetail.joins.online.bucket_rule import hot_as_text
from dovetail.joins.online.graph import pair_graph
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
from dovetail.joins.online.predicate import Predicate
from dovetail.joins.online.request import OnlineJoinOptions, Request
from dovetail.request.columns import Key, output_names, wanted_columns
from dovetail.request.options import takes
from dovetail.spark.collation import check_collations

_BANDS = "both inputs and within=(left time, right time, timedelta, timedelta) on those columns"


@takes(OnlineJoinOptions)
def online_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Matching pairs of two streams, each pair once and as early as possible, as a lazy DataFrame.

    Args:
        left: A streaming or batch DataFrame. Rows of batch DataFrames arrive in the order they are read.
        right: One of the same kind.
        on: Equal columns: "k", ["k", "l"], or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        within: A band: ("price", 0.05), or ("l_price", "r_price", -0.05, 0.05): lo <= right - left <= hi. It needs no
            equal columns with diner and pmj. If both columns have a watermark, rows that are too late are dropped and
            counted, and rows leave the state once none that may still come can match them.
        how: inner.
        algorithm: auto (diner), shj, dphj, xjoin, pmj, hmj, rpj, ehj or diner.
        memory: The budget of each task, which joins one partition; a task of a stream that has several partitions
            has it for each. What does not fit goes to disk, and is joined in pauses or at the end.
        partitions: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`, of
            a stream those that its checkpoint began with.
        wait: Silence on both inputs after which deferred work begins: the reactive phase. It is noticed at the next
            micro-batch. If input never resumes, that work is done, and what it cannot reach is owed to the end.
        owed: "idle": deferred work waits for a pause or the end of input. Such a query never ends by itself, not even
            with trigger(availableNow=True), if the algorithm has a reactive phase. "batch": every micro-batch ends with
            nothing owed, which trigger(availableNow=True) needs.
        end_of_input: A column that is true on the last row of a side, or {"left": ..., "right": ...}. When
            both sides have ended, everything still owed is given and state is freed. A row that comes later fails the
            query. Batch DataFrames end by themselves.
        retain: "2 hours": rows leave the state when they came longer ago than this (and at most an eighth more),
            by the time of micro-batches; pairs of rows that came further apart are not given.
        with_phase: Add a column `_phase`: arriving, reactive or cleanup.
        hot: Keys with so many rows that one partition should not have them all: [7, 9], or tuples where `on` has
            several columns. Left rows of these are dealt out to all partitions by a hash of the whole row, right ones
            are copied to each: put the side with more of them on the left. Other keys stay in one partition.
        columns: The output columns wanted, in order; others that are no keys never enter the join.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        Left's columns, then right's, in no order. Of a stream that restarts from its checkpoint every pair comes once,
        given a sink that takes a micro-batch as a whole.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for streams without an end that have
            neither `retain` nor watermarks.
        ConfigError: for a session that cannot keep state of this kind; `dovetail.configure` repairs it.
        UnsupportedError: for what this algorithm or session cannot do, with what can.

    >>> orders = spark.createDataFrame([(1, "lamp"), (2, "mat")], "order_id int, item string")
    >>> payments = spark.createDataFrame([(2, 30), (1, 25)], "order_id int, paid int")
    >>> dovetail.online_join(orders, payments, on="order_id", partitions=1).orderBy("order_id").collect()
    [Row(order_id=1, item='lamp', paid=25), Row(order_id=2, item='mat', paid=30)]
    """
    return make_plan(left, right, request).frame()


@takes(OnlineJoinOptions)
def plan_online_join(left: DataFrame, right: DataFrame, request: Request) -> OnlinePlan:
    """The plan of `online_join` with the same arguments: `explain`, `frame`, `metrics`.

    >>> orders = spark.createDataFrame([(1, "lamp"), (2, "mat")], "order_id int, item string")
    >>> plan = dovetail.plan_online_join(orders, orders, on="order_id", partitions=2, memory="1MB")
    >>> print(plan.explain().splitlines()[0])
    OnlineJoin: 2 partitions of 1 MiB, owed=idle, wait=25 ms
    """
    return make_plan(left, right, request)


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> OnlinePlan:
    """The plan of a request; an error for what cannot be right comes before any job."""
    terms, end = request.terms, request.end_of_input
    shared = {key.right for key in request.keys if key.shared}
    names = output_names(left.columns, right.columns, shared, request.suffixes)
    wanted = wanted_columns(request.columns, [*names[0].values(), *names[1].values()])
    left, right, request, extra = _by_collation(left, right, request)
    inputs, graph = {"left": left, "right": right}, pair_graph(Predicate(request.on, request.within))
    lateness = lateness_of(graph, [watermarks(frame) for frame in inputs.values()])
    check_inputs(inputs, terms, end, lateness, _BANDS)
    join = BucketJoin(
        terms.algorithm, request.on, request.within, terms.memory, terms.with_phase,
        arrow_schema(left), arrow_schema(right),
    )  # fmt: skip
    spec = join.spec()
    layout = spec.layout(join.schemas)
    if request.columns is not None:
        join = _pruned(join, names, wanted)
        layout = spec.layout(join.schemas)
    join = replace(join, hot=hot_as_text(request.hot, request.on, join.left))
    spec.fit(terms.memory, list(join.schemas.values()), {})  # a budget that is too small is refused here
    answers = schema_with_phase(layout, terms.with_phase)
    fields = [(names[0].get(name, name), left.schema[name]) for name in layout.left]
    fields += [(names[1].get(name, f"{name}_right"), right.schema[name]) for name in layout.right]
    named = [T.StructField(name, field.dataType, field.nullable) for name, field in fields]
    placing = _placing(request, partitions_of(inputs, terms))
    columns = (*wanted, *([PHASE_COLUMN] if terms.with_phase else []))
    every = request.columns is None and not extra
    return build_plan(inputs, join, terms, answers, named, placing, lateness, end, None if every else columns)


def _pruned(join: BucketJoin, names: tuple[dict[str, str], dict[str, str]], wanted: tuple[str, ...]) -> BucketJoin:
    """The join of the columns that are wanted, and of those that say which rows match."""
    band = [] if join.within is None else [(join.within.left, join.within.right)]
    keys = [*key_pairs(join.on), *band]
    kept = []
    for schema, out, needed in zip((join.left, join.right), names, zip(*keys, strict=True), strict=True):
        some = [f for f in schema if out.get(f.name) in wanted or f.name in (*needed, CHANGE_COLUMN)]
        kept.append(pa.schema(some))
    return replace(join, left=kept[0], right=kept[1])


def _by_collation(left: DataFrame, right: DataFrame, request: Request) -> tuple[DataFrame, DataFrame, Request, bool]:
    """Inputs and request with collated keys replaced by columns of their key bytes, and whether there are any.

    Of a key that both sides call by one name the answer has the left value, which the right side then need not carry.
    """
    for a, b in key_pairs(request.on):
        if a in left.columns and b in right.columns:
            check_collations(left.schema[a], right.schema[b])
    left, mine = with_collation_keys(left, [key.left for key in request.keys])
    right, theirs = with_collation_keys(right, [key.right for key in request.keys])
    if not mine:
        return left, right, request, False
    if request.hot:
        raise PlanError(
            f"hot={request.hot!r} with keys of a collation, {sorted(mine)}, is not possible; leave hot out.",
            argument="hot",
        )
    right = right.drop(*(key.right for key in request.keys if key.shared and key.left in mine))
    keys = tuple(key if key.left not in mine else Key(mine[key.left], theirs[key.right], False) for key in request.keys)
    return left, right, replace(request, keys=keys), True


def _placing(request: Request, partitions: int) -> str:
    if partitions == 1:
        return "one partition: no row is copied"
    keys = Predicate(request.on).pairs if request.on else ()
    if keys:
        shown = " and ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        if request.hot:
            rule = f"left rows of hot keys ({len(request.hot)}) are dealt out to all, right ones go to each"
            return f"partitions by hash of ({shown}); {rule}"
        return f"partitions by hash of ({shown}): no row is copied; one key is in one partition"
    return "partitions by cells of the band's column: a right row is in two of them where its band crosses a border"
