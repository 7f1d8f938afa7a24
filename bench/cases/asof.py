"""As-of joins: the last row before each row, within keys, with a hot key, and without keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Params
from bench.context import BenchContext
from bench.rivals.intervals import Answer, Inputs, to_sink
from dovetail.joins.asof.api import asof_join
from dovetail.workloads import RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

KEYS = {"none": 1, "1,000": 1_000, "one hot": 1_000}


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    hot = 0.5 if params["keys"] == "one hot" else 0.0
    rows, keys = params["rows"], KEYS[params["keys"]]
    left, right = (RandomIntervals(rows, 100 * rows, keys=keys, hot_share=hot, seed=2 * seed + n) for n in (1, 2))
    return left, right


INPUTS = Inputs(_sides)


def expected(bench: BenchContext, params: Params) -> int:
    """Left rows of which the key has a right row in time: from the first time of each key."""
    left, right = INPUTS.tables(bench, params)
    first = np.full(max(KEYS.values()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, right["key"].to_numpy(), right["start"].to_numpy())
    return int((left["start"].to_numpy() >= first[left["key"].to_numpy()]).sum())


def _dovetail(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    return to_sink(lambda: asof_join(left, right, on="start", by="key" if params["keys"] != "none" else None))


def _window(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    """The join as users of Spark write it: both inputs in one, and the last right values over all rows before."""
    theirs = [f"r_{name}" for name in right.columns]
    mine = left.selectExpr("*", "1 as side", *(f"cast(null as bigint) as {name}" for name in theirs))
    others = [f"cast(null as bigint) as {name}" for name in left.columns if name not in ("key", "start")]
    renamed = [f"{name} as r_{name}" for name in right.columns]
    rows = mine.unionByName(right.selectExpr("key", "start", "0 as side", *others, *renamed))
    by = ["key"] if params["keys"] != "none" else []
    window = Window.partitionBy(*by).orderBy("start", "side").rowsBetween(Window.unboundedPreceding, 0)
    last = [F.last(name, ignorenulls=True).over(window).alias(name) for name in theirs]
    found = rows.select(*left.columns, "side", *last).where("side = 1 and r_id is not null").drop("side")
    return to_sink(lambda: found)


def _duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    keys = "l.key = r.key and" if params["keys"] != "none" else ""
    query = f"select count(*), sum(r.id) from l asof join r on {keys} l.start >= r.start"  # noqa: S608  (our own text)
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


ours, window, duckdb = INPUTS.spark(_dovetail), INPUTS.spark(_window), INPUTS.duckdb(_duckdb)
