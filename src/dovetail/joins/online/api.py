"""Online joins of streams, or of batch DataFrames, on Spark: what users call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.rows.layout import key_pairs
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.answers import multi_schema
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Tree
from dovetail.joins.online.bucket_rule import hot_as_text
from dovetail.joins.online.graph import SIDES, Band, JoinGraph, Predicate, Term, join_graph, opened, pair_graph
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.plan.compared import named_pair, named_terms, pair_in_common_types, tree_in_common_types
from dovetail.joins.online.plan.plan import (
    End,  # noqa: F401  (it is in the type of an option)
    Inputs,
    Named,
    OnlinePlan,
    arrow_schema,
    with_collation_keys,
)
from dovetail.joins.online.plan.task import CHANGE_COLUMN
from dovetail.joins.online.request import MultiJoinOptions, MultiRequest, OnlineJoinOptions, Request
from dovetail.request import (
    Key,
    output_names,
    takes,
    wanted_columns,
)
from dovetail.spark.frames import arrow_type, check_names, column_of
from dovetail.spark.inputs import check_collations

_PAIR_BANDS = "both inputs and within=(left time, right time, timedelta, timedelta) on those columns"
_PAIR_RELATION = "a bound of both inputs' intervals, the start of each for most relations"
_BOUND_OF = "dovetail_bound_of_"
_TREE_BANDS = "all inputs and, between all that are joined, a band (first time, second time, timedelta, timedelta)"


@takes(OnlineJoinOptions)
def online_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Matching pairs of two streams, each pair once and as early as possible, as a lazy DataFrame.

    Args:
        left: A streaming or batch DataFrame. Rows of batch DataFrames arrive in the order they are read.
        right: One of the same kind.
        on: Equal columns: "k", ["k", "l"], or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        within: A band: ("price", 0.05), or ("l_price", "r_price", -0.05, 0.05): lo <= right - left <= hi; for dates and
            times, bounds are timedeltas, texts such as "-10 minutes", or seconds. It needs no equal columns with diner
            and pmj. If both columns have a watermark, rows that are too late are dropped and counted, and rows leave
            the state once none that may still come can match them.
        relation: The relation between the interval of a left row and that of a right row: "overlapping", "covers",
            "during", "before", "meets", ... or a set of them, as in `interval_join`. With equal columns in `on`, every
            algorithm takes it; without, diner and pmj. Null, empty and inverted intervals match nothing. If both inputs
            have a watermark on the start of their intervals (for some relations on the end), rows leave the state once
            no interval that may still come can stand in the relation to them. Give it, or `within`.
        left_interval: The columns of left's intervals: ("start", "end"), or one column of points, or of structs.
        right_interval: The same of right.
        strict: Allen's own relations: equal intervals do not start, end or cover each other.
        closed: The bounds that are part of the band, both by default: both, left (lo), right (hi) or neither; of
            intervals, left by default, or a pair of these, one per input. Points have both bounds.
        null_safe: Nulls of the columns in `on` equal each other, as `<=>` in Spark. A null in the column of a band or
            in an interval still matches nothing.
        how: inner, left, right, full, left_semi or left_anti, also by Spark's other names. A row without a partner
            comes once, when it leaves: when the watermark or `retain` rules out further matches, or at the end of
            input, and after all owed results. A semi join gives a row at its first match.
        algorithm: auto (diner), shj, dphj, xjoin, pmj, hmj, rpj, ehj or diner.
        memory: The budget of each task, which joins one partition; a task of a stream that has several partitions
            has it for each. Rows that do not fit go to disk, and are joined in pauses or at the end.
        partitions: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`, of
            a stream those that its checkpoint began with.
        wait: Silence on both inputs after which deferred work begins: the reactive phase. It is noticed at the next
            micro-batch. If input never resumes, that work is done; results that it cannot reach stay owed until the
            end.
        owed: "idle": deferred work waits for a pause or the end of input. With trigger(availableNow=True) a query ends
            after a pause; the next run gives the results that this pause does not reach. "batch": every micro-batch
            ends with nothing owed, so that the answers of such a query are complete; so do all joins other than inner.
        end_of_input: A column that is true on the last row of a side, or {"left": ..., "right": ...}. When
            both sides have ended, everything still owed is given and state is freed. A row that comes later fails the
            query. Batch DataFrames end by themselves.
        retain: "2 hours": rows leave the state when they came longer ago than this (and at most an eighth more),
            by the time of micro-batches; pairs of rows that came further apart are not given.
        with_phase: Add a column `_phase`: arriving, reactive or cleanup; unmatched for rows without a partner.
        hot: Keys with too many rows for one partition: [7, 9], or tuples where `on` has
            several columns. Their left rows are spread over all partitions by a hash of the whole row, right ones are
            copied to each (the other way round if how="right"): put the side with more of them on the left. Other keys
            stay in one partition.
        columns: The output columns, in order; other columns that are no keys never enter the join.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        Left's columns, then right's (semi and anti joins: left's only), in no order. If a stream restarts from its
        checkpoint, every pair still comes once, given a sink that commits whole micro-batches.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for streams without an end that have
            neither `retain` nor watermarks.
        ConfigError: for a session whose state store does not support this; `dovetail.configure` sets it up.
        UnsupportedError: for what this algorithm or session cannot do; the message names an alternative.

    >>> orders = spark.createDataFrame([(1, "lamp"), (2, "mat")], "order_id int, item string")
    >>> payments = spark.createDataFrame([(2, 30), (1, 25)], "order_id int, paid int")
    >>> dovetail.online_join(orders, payments, on="order_id", partitions=1).orderBy("order_id").collect()
    [Row(order_id=1, item='lamp', paid=25), Row(order_id=2, item='mat', paid=30)]
    """
    return _pair_plan(left, right, request).frame()


@takes(OnlineJoinOptions)
def plan_online_join(left: DataFrame, right: DataFrame, request: Request) -> OnlinePlan:
    """The plan of `online_join` with the same arguments: `explain`, `frame`, `metrics`.

    >>> orders = spark.createDataFrame([(1, "lamp"), (2, "mat")], "order_id int, item string")
    >>> plan = dovetail.plan_online_join(orders, orders, on="order_id", partitions=2, memory="1MB")
    >>> print(plan.explain().splitlines()[0])
    OnlineJoin: 2 partitions of 1 MiB, owed=idle, wait=25 ms
    """
    return _pair_plan(left, right, request)


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
            has it for each. Rows that do not fit go to disk, and are joined in pauses or at the end.
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
        columns: The output columns, in order; other columns that are no keys never enter the join.
        suffixes: Added to names that several inputs have, by input: {"orders": "", "parts": "_of_part"}. By default
            such a name is preceded by the name of its input: orders_id, parts_id.
        rows: How many rows to expect of each input, if not the same: fewer copies are made of those with many.

    Returns:
        The columns of all inputs in the order given; rows are in no order. If a stream restarts from its checkpoint,
        every combination still comes once, given a sink that commits whole micro-batches.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for cycles, for inputs that nothing
            connects, and for streams without an end that have neither `retain` nor watermarks with bands of times.
        ConfigError: for a session whose state store does not support this; `dovetail.configure` sets it up.
        UnsupportedError: for what this algorithm or session cannot do; the message names an alternative.

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
    return _tree_plan(inputs, request).frame()


@takes(MultiJoinOptions)
def plan_online_multijoin(inputs: Mapping[str, DataFrame], request: MultiRequest) -> OnlinePlan:
    """The plan of `online_multijoin` with the same arguments: `explain`, `frame`, `metrics`.

    >>> orders = spark.createDataFrame([(1, "ada")], "id int, name string")
    >>> three = {"a": orders, "b": orders, "c": orders}
    >>> plan = dovetail.plan_online_multijoin(three, on=[("a.id", "b.id"), ("b.id", "c.id")], partitions=2)
    >>> print(plan.explain().splitlines()[0])
    OnlineJoin of 3 inputs: 2 partitions of 64 MiB, owed=idle, wait=25 ms
    """
    return _tree_plan(inputs, request)


def _pair_plan(left: DataFrame, right: DataFrame, request: Request) -> OnlinePlan:
    """The plan of a request; an invalid request is an error before any job."""
    for name, frame in (("left", left), ("right", right)):
        check_names(f"{name} input", frame, name)
        arrow_schema(frame)
    left, right, request = named_pair(left, right, request)
    terms, shared = request.terms, {key.right for key in request.keys if key.shared}
    if request.how in ("left_semi", "left_anti"):
        names = {("left", name): name for name in left.columns}
    else:
        by_side = output_names(left.columns, right.columns, shared, request.suffixes)
        names = {(side, old): new for side, some in zip(SIDES, by_side, strict=True) for old, new in some.items()}
    wanted = wanted_columns(request.columns, list(names.values()))
    left, right, request, extra = _pair_by_collation(left, right, request)
    left, right, request, nested = _pair_by_intervals(left, right, request)
    left, right, request, cast = pair_in_common_types(left, right, request)
    request = _opened(left, request)
    graph = pair_graph(Predicate(request.on, request.within, request.null_safe))
    inputs = Inputs.of({"left": left, "right": right}, graph, terms, request.end_of_input)
    inputs.check(_PAIR_RELATION if isinstance(request.within, Intervals) else _PAIR_BANDS)
    _check_copies(request, inputs.partitions)
    schemas = {name: arrow_schema(frame) for name, frame in inputs.frames.items()}
    pair = Pair(request.on, request.within, how=request.how, null_safe=request.null_safe)
    pair.spec(terms.algorithm, SIDES, terms.with_phase).layout(schemas)  # refuses keys that do not fit the inputs
    kept = _kept(graph, schemas, names, wanted)
    pair = replace(pair, hot=hot_as_text(request.hot, request.on, kept["left"], request.null_safe))
    join = BucketJoin(terms.algorithm, pair, terms.memory, terms.with_phase, tuple(kept.items()))
    whole = request.columns is None and not extra and not nested and not cast
    return inputs.plan(join, _placing(request, inputs.partitions), Named(names, None if whole else wanted))


def _tree_plan(frames: Mapping[str, DataFrame], request: MultiRequest) -> OnlinePlan:
    """The plan of a request; an invalid request is an error before any job."""
    _check_frames(frames)
    for name, frame in frames.items():
        check_names(f"{name} input", frame, "inputs")
        arrow_schema(frame)
    request = replace(request, on=named_terms(frames, request.on))
    terms, graph = request.terms, join_graph(tuple(frames), request.on)
    names = _output_names(frames, request)
    wanted = wanted_columns(request.columns, list(names.values()))
    frames, on, extra = _tree_by_collation(frames, request.on, graph)
    frames, on, cast = tree_in_common_types(frames, on)
    graph = join_graph(tuple(frames), on)
    inputs = Inputs.of(frames, graph, terms, request.end_of_input)
    inputs.check(_TREE_BANDS)
    schemas = {name: arrow_schema(frame) for name, frame in frames.items()}
    graph.check(schemas)
    multi_schema(graph.names, schemas, terms.with_phase)  # refuses a column of the phase's name
    if any(name not in graph.names for name in request.rows or ()):
        raise PlanError(
            f"rows={request.rows!r}: give a number above 0 for some of {list(graph.names)}.", argument="rows"
        )
    kept = tuple(_kept(graph, schemas, names, wanted).items())
    tree = Tree(tuple(on), tuple(sorted((name, float(n)) for name, n in (request.rows or {}).items())))
    join = BucketJoin(terms.algorithm, tree, terms.memory, terms.with_phase, kept)
    whole = request.columns is None and not extra and not cast
    return inputs.plan(
        join, tree.cells(graph.names, inputs.partitions).explain(), Named(names, None if whole else wanted)
    )


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


def _kept(
    graph: JoinGraph, schemas: Mapping[str, pa.Schema], names: Mapping[tuple[str, str], str], wanted: Sequence[str]
) -> dict[str, pa.Schema]:
    """The columns of each input that the join needs: output columns and keys."""
    keys = {(graph.names[end.relation], c) for edge in graph.edges for end, some in edge.sides for c in some}
    keys |= {(name, CHANGE_COLUMN) for name in graph.names}
    return {
        name: pa.schema([f for f in schemas[name] if names.get((name, f.name)) in wanted or (name, f.name) in keys])
        for name in graph.names
    }


def _pair_by_collation(
    left: DataFrame, right: DataFrame, request: Request
) -> tuple[DataFrame, DataFrame, Request, bool]:
    """Inputs and request with collated keys replaced by columns of their key bytes, and whether there are any.

    If a key has one name on both sides, the answer has the left value, so that the right side omits it.
    """
    for a, b in key_pairs(request.on):
        if a in left.columns and b in right.columns:
            check_collations(left.schema[a], right.schema[b])
    left, mine = with_collation_keys(left, [key.left for key in request.keys])
    right, theirs = with_collation_keys(right, [key.right for key in request.keys])
    if not mine:
        return left, right, request, False
    if request.how in ("right", "full") and any(key.shared and key.left in mine for key in request.keys):
        raise UnsupportedError(
            f"how={request.how!r} with keys of a collation that both inputs call by one name, {sorted(mine)}, is not "
            f"possible; rename the column of one input and give on=[(left name, right name)].",
            argument="how",
        )
    if request.hot:
        raise PlanError(
            f"hot={request.hot!r} with keys of a collation, {sorted(mine)}, is not possible; leave hot out.",
            argument="hot",
        )
    right = right.drop(*(key.right for key in request.keys if key.shared and key.left in mine))
    keys = tuple(key if key.left not in mine else Key(mine[key.left], theirs[key.right], False) for key in request.keys)
    return left, right, replace(request, keys=keys), True


def _pair_by_intervals(
    left: DataFrame, right: DataFrame, request: Request
) -> tuple[DataFrame, DataFrame, Request, bool]:
    """Inputs and request with columns for the bounds in structs, and whether there are any.

    An interval of one column that is no struct is a point, which has both of its bounds.
    """
    if not isinstance(intervals := request.within, Intervals):
        return left, right, request, False
    relation, frames, bounds, nested = intervals.relation, [left, right], list(intervals.bounds), False
    for side, (start, end) in enumerate(bounds):
        kind = frames[side].schema[start].dataType if start == end and start in frames[side].columns else None
        if isinstance(kind, T.StructType):
            if len(kind.fields) != 2:
                raise PlanError(
                    f"{SIDES[side]}_interval={start!r} is a struct of {len(kind.fields)} fields; give one of two, "
                    f"(start, end) columns, or a column of points.",
                    argument=f"{SIDES[side]}_interval",
                )
            added = (f"{_BOUND_OF}{start}_start", f"{_BOUND_OF}{start}_end")
            fields = [column_of(start).getField(f.name).alias(new) for f, new in zip(kind.fields, added, strict=True)]
            frames[side], bounds[side], nested = frames[side].select("*", *fields), added, True
        elif start == end:
            relation = replace(relation, **{f"{SIDES[side]}_closed": "both"})  # type: ignore[arg-type]  # one of two names
    found = replace(request, within=Intervals((bounds[0], bounds[1]), relation))
    return frames[0], frames[1], found, nested


def _tree_by_collation(
    inputs: Mapping[str, DataFrame], on: Sequence[tuple[Any, ...]], graph: JoinGraph
) -> tuple[Mapping[str, DataFrame], Sequence[Term], bool]:
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
    terms: list[Any] = [tuple(renamed.get(part, part) if isinstance(part, str) else part for part in t) for t in on]
    return {name: frame for name, (frame, _) in keyed.items()}, terms, bool(renamed)


def _opened(left: DataFrame, request: Request) -> Request:
    """The request with a band that has both of its bounds."""
    band = request.within
    if request.closed == "both" or not isinstance(band, Band) or band.left not in left.columns:
        return request
    return replace(request, within=opened(band, arrow_type(left.schema[band.left].dataType), request.closed))


def _check_copies(request: Request, partitions: int) -> None:
    """`UnsupportedError` for a full join whose rows would be copied: a copy does not know whether another matched."""
    if request.how == "full" and partitions > 1 and (request.hot or not request.on):
        alone = "a relation alone" if isinstance(request.within, Intervals) else "a band alone"
        what = f"hot={request.hot!r}" if request.hot else alone
        raise UnsupportedError(
            f"how='full' with {what} is not possible in {partitions} partitions, since rows of one side are copied; "
            f"give partitions=1{'' if request.hot else ', or equal columns in on='}, or union the left join with the "
            f"left_anti join of the inputs exchanged.",
            argument="how",
        )


def _placing(request: Request, partitions: int) -> str:
    if partitions == 1:
        return "one partition: no row is copied"
    keys = Predicate(request.on).pairs if request.on else ()
    if keys:
        shown = " and ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        if request.hot:
            once, other = SIDES if request.how != "right" else SIDES[::-1]
            rule = f"{once} rows of hot keys ({len(request.hot)}) are dealt out to all, {other} ones go to each"
            return f"partitions by hash of ({shown}); {rule}"
        return f"partitions by hash of ({shown}): no row is copied; one key is in one partition"
    copied, once = SIDES if request.how == "right" else SIDES[::-1]
    if isinstance(request.within, Intervals):
        return f"no equal columns: {once} rows are dealt out to all partitions, {copied} ones go to each"
    return f"partitions by cells of the band's column: a {copied} row is in two of them where its band crosses a border"
