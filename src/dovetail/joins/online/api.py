"""Online joins of two streams, or of two batch DataFrames, on Spark: what users call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.layout import key_pairs
from dovetail.errors import PlanError
from dovetail.joins.online.answers import with_phase as schema_with_phase
from dovetail.joins.online.bucket_join import BucketJoin
from dovetail.joins.online.hot_keys import hot_as_text
from dovetail.joins.online.lateness import Lateness
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
from dovetail.joins.online.predicate import Band, Predicate
from dovetail.joins.online.request import Request, parse_request
from dovetail.spark.collation import check_collations

_BANDS = "both inputs and within=(left time, right time, timedelta, timedelta) on those columns"


def online_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str | tuple[str, str]] | None = None,
    within: Band | Sequence[Any] | None = None,
    how: str = "inner",
    algorithm: str = "diner",
    memory: int | str = "32MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: End = None,
    retain: str | float | None = None,
    with_phase: bool = False,
    hot: Sequence[Any] | None = None,
) -> DataFrame:
    """Matching pairs of two streams, each pair once and as early as possible, as a lazy DataFrame.

    Args:
        left: A streaming or batch DataFrame. Rows of batch DataFrames arrive in the order they are read.
        right: One of the same kind.
        on: Equal columns: "k", ["k", "l"], or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result; other names that both sides have get "_right" on the right.
        within: A band: ("price", 0.05), or ("l_price", "r_price", -0.05, 0.05): lo <= right - left <= hi. It needs no
            equal columns with diner and pmj. If both columns have a watermark, rows that are too late are dropped and
            counted, and rows leave the state once none that may still come can match them.
        how: inner.
        algorithm: shj, dphj, xjoin, pmj, hmj, rpj, ehj or diner.
        memory: The budget of each bucket. What does not fit goes to disk, and is joined in pauses or at the end.
        buckets: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`, of a
            stream those that its checkpoint began with.
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
        hot: Keys with so many rows that one bucket should not have them all: [7, 9], or tuples where `on` has several
            columns. Left rows of these are dealt out to all buckets by a hash of the whole row, right ones are copied
            to each: put the side with more of them on the left. Other keys stay in one bucket.

    Returns:
        Left's columns, then right's, in no order. Of a stream that restarts from its checkpoint every pair comes once,
        given a sink that takes a micro-batch as a whole.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for streams without an end that have
            neither `retain` nor watermarks.
        ConfigError: for a session that cannot keep state of this kind; `dovetail.configure` repairs it.
        UnsupportedError: for what this algorithm or session cannot do, with what can.
    """
    return plan_online_join(
        left, right, on, within, how, algorithm, memory, buckets, wait, owed, end_of_input, retain, with_phase, hot
    ).frame()


def plan_online_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str | tuple[str, str]] | None = None,
    within: Band | Sequence[Any] | None = None,
    how: str = "inner",
    algorithm: str = "diner",
    memory: int | str = "32MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: End = None,
    retain: str | float | None = None,
    with_phase: bool = False,
    hot: Sequence[Any] | None = None,
) -> OnlinePlan:
    """The plan of `online_join` with the same arguments: `explain`, `frame`, `metrics`."""
    request = parse_request(on, within, how, algorithm, memory, buckets, wait, owed, retain, with_phase)
    left, right, request, extra = _by_collation(left, right, request, hot)
    terms, inputs = request.terms, {"left": left, "right": right}
    lateness = _lateness(left, right, request.within)
    check_inputs(inputs, terms, end_of_input, lateness, _BANDS)
    join = BucketJoin(
        terms.algorithm, request.on, request.within, terms.memory, terms.with_phase,
        arrow_schema(left), arrow_schema(right),
    )  # fmt: skip
    spec = join.spec()
    layout = spec.layout(join.schemas)
    join = replace(join, hot=hot_as_text(hot, request.on, join.left))
    spec.fit(terms.memory, list(join.schemas.values()), {})  # a budget that is too small is refused here
    answers = schema_with_phase(layout, terms.with_phase)
    fields = [left.schema[name] for name in layout.left] + [right.schema[name] for name in layout.right]
    named = [T.StructField(n, f.dataType, f.nullable) for n, f in zip(layout.schema.names, fields, strict=True)]
    placing = _placing(request, buckets_of(inputs, terms), hot)
    columns = tuple(name for name in answers.names if name not in extra) if extra else None
    return build_plan(inputs, join, terms, answers, named, placing, lateness, end_of_input, columns)


def _by_collation(
    left: DataFrame, right: DataFrame, request: Request, hot: Sequence[Any] | None
) -> tuple[DataFrame, DataFrame, Request, set[str]]:
    """Inputs and request with collated keys replaced by columns of their key bytes, and the names of these.

    Of a key that both sides call by one name the answer has the left value, which the right side then need not carry.
    """
    pairs = key_pairs(request.on)
    for a, b in pairs:
        if a in left.columns and b in right.columns:
            check_collations(left.schema[a], right.schema[b])
    left, mine = with_collation_keys(left, [a for a, _ in pairs])
    right, theirs = with_collation_keys(right, [b for _, b in pairs])
    if not mine:
        return left, right, request, set()
    if hot:
        raise PlanError(f"hot={hot!r} with keys of a collation, {sorted(mine)}, is not possible; leave hot out.")
    right = right.drop(*(key for key in request.on if isinstance(key, str) and key in mine))
    on = tuple(key if a not in mine else (mine[a], theirs[b]) for key, (a, b) in zip(request.on, pairs, strict=True))
    extra = {*mine.values(), *theirs.values(), *(f"{name}_right" for name in theirs.values())}
    return left, right, replace(request, on=on), extra


def _placing(request: Request, buckets: int, hot: Sequence[Any] | None) -> str:
    if buckets == 1:
        return "one bucket: no row is copied"
    keys = Predicate(request.on).pairs if request.on else ()
    if keys:
        shown = " and ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        if hot:
            rule = f"left rows of hot keys ({len(hot)}) are dealt out to all, right ones go to each"
            return f"buckets by hash of ({shown}); {rule}"
        return f"buckets by hash of ({shown}): no row is copied; one key is in one bucket"
    return "buckets by cells of the band's column: a right row is in two of them where its band crosses a border"


def _lateness(left: DataFrame, right: DataFrame, band: Band | None) -> Lateness | None:
    """What a watermark on both columns of the band says; None if they have none, or if these are batches."""
    if band is None or not isinstance(band.lo, timedelta):
        return None
    mine, theirs = watermarks(left), watermarks(right)
    if band.left not in mine or band.right not in theirs:
        return None
    return Lateness.of(band, (mine[band.left], theirs[band.right]))
