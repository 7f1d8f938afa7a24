"""Enriches streams and batches from master data on Spark: the public functions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame  # noqa: F401  (Column is in the type of an option)

from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.plan import EnrichPlan, make_plan
from dovetail.joins.semistream.request import EnrichOptions, Request
from dovetail.request import takes


@takes(EnrichOptions)
def enrich(rows: DataFrame, master: MasterStore, request: Request) -> DataFrame:
    """Rows with the master rows of their key, as a lazy DataFrame; of a stream, every row exactly once.

    Args:
        rows: A streaming or batch DataFrame.
        master: The master data.
        on: The key: "k", ["k"], or [("column", "master column")]: the store's whole key, or part of it, which costs a
            page file its index. One of them may be a range, ("value", ("first", "last")), of a page file built with
            these `bounds`: the value lies in the master's range. Types of whole numbers and decimals may differ, as may
            float and double. Null keys match nothing, unless `null_safe`. A key given by one name appears once in the
            result.
        how: inner, left, left_semi or left_anti. A key with several master rows gives several answers.
        algorithm: auto, inlj, meshjoin, r_meshjoin, partitioned, ssij, hybridjoin, x_hybridjoin,
            optimised_x_hybridjoin, cachejoin or sscj; or hash_join, a plain hash join of master data that fits in
            memory, which auto takes where it does.
        lookup: Which waiting row decides what is read next: oldest, alternate, guarded, or a position in (0, 1].
        cache: How CACHEJOIN's cache makes room: random, least_frequent or adaptive.
        mode: "per_batch": every micro-batch ends fully answered. "carry": rows may wait in the stream's checkpointed
            state for the next one, so that reads are shared by more rows; the master data must be a page file.
        memory: The budget of each task.
        tune: Sizes of the algorithm's parts: by "model", by "measure" on the first rows, "off" for an even split, or
            given: {"waiting": 10_000, "per_segment": 4}.
        on_miss: For inner joins, rows without a match: "drop", `dead_letter(path)` or, in mode "carry",
            `park(retry=..., deadline=...)`.
        freshness: When a newer version of the master data is adopted: "per_batch", `ttl("10 min")` or "pinned". Each
            micro-batch has one version, which is logged, so that a replay gives the same rows. Parquet files and
            databases keep no old versions: there a task takes what it finds, all its rows from one version. A batch
            DataFrame reads the version of when it was planned.
        exchange: "none", or "master": rows are first exchanged, so that each task reads only its own slice of the
            master data.
        columns: The output columns wanted, in order.
        suffixes: Added to the names that both sides have, stream first.
        versions: The directory of the version log, which driver and executors share; by default in or beside the store.
        max_wait: In mode "carry", the longest wait. The first micro-batch that starts this long after rows began to
            wait answers all waiting rows.
        null_safe: Null equals null, as one more value of a key. All master rows with a null in their key are read as
            one page; a page file must be built with `keep_nulls=True`. Keys of both sides must have one type.
        as_of: In mode "carry", the version that a row which waited is answered from: that of the micro-batch in which
            it is "answered", or of the one in which it was "admitted". For the latter, rows that wait are answered as
            soon as a newer version is adopted.
        condition: What else must hold for a stream row and a master row of its key to match: a Column or SQL text over
            the columns of an inner join's result, whatever `how` and `columns` are. A row whose master rows all fail
            it has no match. No aggregates or window functions; not with `park`; only for how="inner" with subqueries,
            and on a store without an index.
        at: The stream's column of times, for master rows that are valid for some time: only those match that are valid
            then, so that a row whose master rows of its key are all valid at other times has no match. A null time
            matches nothing.
        valid: The master's columns of the first time and the end of validity; ("valid_from", "valid_to") unless given.
            A null first time means since ever, a null end still valid. Numbers, dates, timestamps and text will do.
        closed: Which bounds belong to the interval: left, right, both or neither; by default the first for validity,
            both for ranges.
        overlap: If several master rows match one stream row at a time or by a range: "error", a `DataError` that names
            them, before `condition` is looked at; or "all" of them.

    Returns:
        The stream's columns, then the master's; for semi and anti joins the stream's alone. Planning a batch DataFrame
        may run a small job to sample its keys; `plan_enrich` shows what it led to.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        ConfigError: when the store cannot be read. In a task it fails the task; it is never taken for a miss.
        DataError: with overlap="error", in a task, for a stream row that several master rows match.

    >>> products = spark.createDataFrame([(7, "lamp"), (8, "mat")], "product int, name string")
    >>> store = dovetail.MasterStore.build(products, f"{place}/products.pages", key="product")
    >>> orders = spark.createDataFrame([(1, 7), (2, 9)], "order_id int, product int")
    >>> dovetail.enrich(orders, store, on="product", how="left", memory="4MB").orderBy("order_id").collect()
    [Row(order_id=1, product=7, name='lamp'), Row(order_id=2, product=9, name=None)]

    >>> bands = spark.createDataFrame([(0, 100, "letter"), (101, None, "parcel")], "least int, most int, tariff string")
    >>> store = dovetail.MasterStore.build(bands, f"{place}/bands.pages", bounds=("least", "most"))
    >>> sent = spark.createDataFrame([(1, 250)], "id int, grams int")
    >>> dovetail.enrich(sent, store, on=("grams", ("least", "most")), columns=["id", "tariff"], memory="4MB").collect()
    [Row(id=1, tariff='parcel')]
    """
    return make_plan(rows, master, request).frame()


@takes(EnrichOptions)
def plan_enrich(rows: DataFrame, master: MasterStore, request: Request) -> EnrichPlan:
    """The plan of `enrich` with the same arguments: `explain`, `frame`, `metrics`.

    >>> products = spark.createDataFrame([(7, "lamp"), (8, "mat")], "product int, name string")
    >>> store = dovetail.MasterStore.build(products, f"{place}/products.pages", key="product")
    >>> orders = spark.createDataFrame([(1, 7), (2, 9)], "order_id int, product int")
    >>> plan = dovetail.plan_enrich(orders, store, on="product", algorithm="hybridjoin", memory="4MB", tune="off")
    >>> print(plan.explain().splitlines()[0])
    Enrich: how=inner, mode=per_batch, memory=4 MiB per task, on_miss=drop, freshness=per_batch, exchange=none
    """
    return make_plan(rows, master, request)
