"""Dense overlap: questions whose answers need no pairs, where there are some 500 pairs a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Params
from bench.cases.interval import PAIRS
from bench.context import BenchContext
from bench.rivals.intervals import Inputs, binned, exploded, overlap_counts
from dovetail.errors import DataError
from dovetail.joins.interval.api import count_overlaps, interval_count, interval_join, interval_topk
from dovetail.workloads import Exponential, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

TOP = 100
MEMORY = "256MB"  # an index of a million rows takes 112 bytes a row, and the rows themselves come with keep="first"


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    """The right input ends a tenth earlier, so that some left rows have no match and the anti join finds them."""
    rows, lengths = params["rows"], Exponential(params["mean_length"])
    left = RandomIntervals(rows, 100 * rows, lengths, seed=2 * seed + 1, padding=8)
    return left, RandomIntervals(rows, 90 * rows, lengths, seed=2 * seed + 2, padding=8)


DATA = Inputs(_sides, ("id", "start", "end", "filler"))


def expected(bench: BenchContext, params: Params) -> int:
    """The answer to the question of the point, from the inputs alone."""
    left, right = DATA.tables(bench, params)
    if params["question"] == "keep first":
        return first_starts(left, right)
    if params["question"] == "top 100":
        return longest_overlaps(left, right, TOP)
    counts = overlap_counts(left, right)
    weighted = int(counts @ (np.asarray(left["id"]) % 1000))
    answers = {"count": counts.sum(), "left_semi": (counts > 0).sum(), "left_anti": (counts == 0).sum()}
    return int(answers.get(params["question"], weighted))


def first_starts(left: pa.Table, right: pa.Table) -> int:
    """The sum, over left rows with a match, of the start of the first right row that overlaps.

    Among right rows in order of start, the first that ends after a left start is where the greatest end so far does.
    """
    order = np.lexsort((np.asarray(right["end"]), np.asarray(right["start"])))
    starts, reached = np.asarray(right["start"])[order], np.maximum.accumulate(np.asarray(right["end"])[order])
    at = np.searchsorted(reached, np.asarray(left["start"]), side="right")
    first = np.append(starts, np.iinfo(np.int64).max)[at]
    return int(first[first < np.asarray(left["end"])].sum())


def longest_overlaps(left: pa.Table, right: pa.Table, k: int, candidates: int = 4_000) -> int:
    """The sum of the k longest overlaps, from all pairs of the longest rows: no pair outlasts its shorter row."""
    bounds, shortest = [], 0
    for table in (left, right):
        start, end = np.asarray(table["start"]), np.asarray(table["end"])
        order = np.argsort(start - end, kind="stable")
        bounds.append((start[order[:candidates]], end[order[:candidates]]))
        shortest = max([shortest, *(end - start)[order[candidates : candidates + 1]]])
    (ls, le), (rs, re) = bounds
    overlaps = (np.minimum(le[:, None], re) - np.maximum(ls[:, None], rs)).ravel()
    top = np.sort(np.partition(overlaps, -k)[-k:])
    if top[0] < shortest:
        raise DataError(f"{candidates} rows a side do not hold the {k} longest overlaps; take more of them")
    return int(top.sum())


def _number(frame: DataFrame, sql: str) -> int:
    row = frame.agg(F.expr(sql)).first()
    return int(row[0]) if row else 0


_DOVETAIL: dict[str, Callable[[DataFrame, DataFrame], int]] = {
    "count": lambda left, right: interval_count(left, right, memory=MEMORY),
    "count_overlaps": lambda left, right: _number(
        count_overlaps(left, right, memory=MEMORY), "sum(n_overlaps * (id % 1000))"
    ),
    "left_semi": lambda left, right: interval_join(left, right, how="left_semi", memory=MEMORY).count(),
    "left_anti": lambda left, right: interval_join(left, right, how="left_anti", memory=MEMORY).count(),
    "keep first": lambda left, right: _number(
        interval_join(left, right, keep="first", memory=MEMORY, columns=["start_right"]), "sum(start_right)"
    ),
    "top 100": lambda left, right: sum(
        min(row["end"], row["end_right"]) - max(row["start"], row["start_right"])
        for row in interval_topk(left, right, k=TOP, memory=MEMORY).collect()
    ),
}


def _counted(left: DataFrame, pairs: DataFrame) -> int:
    every = left.join(pairs.groupBy("l_id").agg(F.count("*").alias("n")), F.expr("id = l_id"), "left")
    return _number(every, "sum(coalesce(n, 0) * (id % 1000))")


def _first(right: DataFrame, pairs: DataFrame) -> int:
    found = pairs.groupBy("l_id").agg(F.min_by("r_id", "r_start").alias("found"))
    return _number(found.join(right, F.expr("found = id")), "sum(start)")


def _longest(pairs: DataFrame) -> int:
    overlap = F.expr("least(l_end, r_end) - greatest(l_start, r_start)")
    rows = pairs.withColumn("overlap", overlap).orderBy(F.desc("overlap")).limit(TOP).collect()
    return sum(row["overlap"] for row in rows)


def _some(left: DataFrame, ids: DataFrame, how: str) -> int:
    return left.join(ids, F.expr("id = l_id"), how).count()


def _dovetail(left: DataFrame, right: DataFrame, params: Params, place: Path) -> int:
    return _DOVETAIL[params["question"]](left, right)


def _bins(left: DataFrame, right: DataFrame, params: Params, place: Path) -> int:
    """Bins as wide as the mean length, which is about where rows and candidates balance."""
    question, pairs = params["question"], binned(left, right, params["mean_length"])
    if question == "count":
        return pairs.count()
    if question == "count_overlaps":
        return _counted(left, pairs)
    if question == "keep first":
        return _first(right, pairs)
    return _longest(pairs) if question == "top 100" else _some(left, pairs.select("l_id").distinct(), question)


def _semi_bins(left: DataFrame, right: DataFrame, params: Params, place: Path) -> int:
    """A semi join inside each bin, which stops at a row's first match there; then every row once."""
    rows, others = (exploded(frame, side, params["mean_length"]) for frame, side in ((left, "l"), (right, "r")))
    met = rows.join(others, F.expr("l_bin = r_bin and l_start < r_end and r_start < l_end"), "left_semi")
    return _some(left, met.select("l_id").distinct(), params["question"])


_DUCKDB = {
    "count": "select count(*) from pairs",
    "count_overlaps": """
        select sum(n * (id % 1000)) from (
            select l.id, count(r.id) as n from l left join r on l.start < r."end" and r.start < l."end" group by l.id)
    """,
    "left_semi": 'select count(*) from l semi join r on l.start < r."end" and r.start < l."end"',
    "left_anti": 'select count(*) from l anti join r on l.start < r."end" and r.start < l."end"',
    "keep first": """
        select sum(r.start)
        from (select arg_min(r_id, r_start) as found from pairs group by l_id) join r on r.id = found
    """,
    "top 100": """
        select least(l_end, r_end) - greatest(l_start, r_start) as overlap, * from pairs order by overlap desc limit 100
    """,
}


def _duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> int:
    return sum(int(row[0]) for row in connection.execute(_DUCKDB[params["question"]]).fetchall())


ours, duckdb = DATA.spark(_dovetail), DATA.duckdb(_duckdb, PAIRS)
bins, semi_bins = DATA.spark(_bins), DATA.spark(_semi_bins)
