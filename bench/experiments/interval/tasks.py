"""Runs over one, two and four Spark tasks: speed-up and scale-up. The query is the source's: 100 longest overlaps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.context import BenchContext
from bench.experiments.interval.runs import AMPLE, JOINS, ROWS_A_BATCH, Side, TopOverlaps, pairs
from dovetail.engine.exchange.delivery import CELL, SIDES, opened
from dovetail.engine.kernels.arrays import int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.interval.cell_join import CellJoin
from dovetail.joins.interval.operators import OPERATORS, Frames
from dovetail.joins.interval.relation import SideColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Spread:
    """A run over tasks: wall time of the whole job, and what the tasks counted together."""

    seconds: float
    pairs: int
    spills: int
    frames: int
    slowest_join: float


@dataclass(frozen=True, slots=True)
class TopTask:
    """The work of a task: the cell join as the library places it, the algorithm's memory, and k."""

    cell: CellJoin
    frames: Frames | None = None
    k: int = 100


def frame(bench: BenchContext, side: Side, tasks: int) -> DataFrame:
    """A side as a DataFrame that `tasks` tasks read; the same side gives the same one, so that it is made once.

    Its rows are dealt out by number over Parquet files, as if distributed by a key.
    """
    _, read = bench.once(("frame", id(side)), lambda: (side, _written(bench, side)))  # the side lives as long as its id
    return bench.once(("frame", id(side), tasks), lambda: read.coalesce(tasks))


def _written(bench: BenchContext, side: Side, files: int = 4) -> DataFrame:
    placed_over = Path(tempfile.mkdtemp(dir=bench.scratch))
    table = pa.Table.from_batches([side.rows]).rename_columns({"_start": "start", "_end": "end"})
    for number in range(files):
        pq.write_table(table.take(np.arange(number, table.num_rows, files)), placed_over / f"{number}.parquet")
    return bench.spark.read.parquet(str(placed_over))


@dataclass(frozen=True, slots=True)
class Placed:
    """Both inputs in the ranges of `tasks` tasks, and the join of each task, but for the algorithm."""

    frame: DataFrame
    cell: CellJoin
    tasks: int


def placed_over(left: DataFrame, right: DataFrame, points: list[int], relation: str = "overlapping") -> Placed:
    """The inputs cut at the points, as the library cuts them."""
    from dovetail.joins.interval.api import plan_interval_join
    from dovetail.joins.interval.plan.ranges import RangesRoute

    tasks = len(points) + 1
    how: dict[str, Any] = {"split_points": points} if points else {"partitions": 1}
    how |= {"relation": relation, "algorithm": "sort_merge", "route": "streaming"}
    plan = plan_interval_join(left, right, **how)
    if not isinstance(plan.route, RangesRoute) or plan.route.cells.ranges != tasks:
        raise DataError(f"{tasks} tasks were asked for; the plan is\n{plan.explain()}")
    return Placed(*plan.route.inner_tasks(*plan.inputs.checked()), tasks)


def spread(placed: Placed, name: str, expected: int, frames: Frames | None = None, times: int = 2) -> Spread:
    """The quickest of `times` runs of one join over the tasks; DataError for a wrong number of pairs."""
    task = TopTask(replace(placed.cell, algorithm=JOINS[name]), frames)
    found = min((_timed(placed.frame, task, placed.tasks) for _ in range(times)), key=lambda one: one.seconds)
    if found.pairs != expected:
        raise DataError(f"{name} on {placed.tasks} tasks found {found.pairs:,} pairs; there are {expected:,}.")
    return found


def _timed(placed: DataFrame, task: TopTask, tasks: int) -> Spread:
    from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

    from dovetail.spark.frames import map_in_arrow

    kinds: dict[str, T.DataType] = {name: T.LongType() for name in ("pairs", "spills", "frames")}
    kinds |= {"seconds": T.DoubleType(), "top": T.ArrayType(T.LongType())}
    schema = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
    began = time.perf_counter()
    rows = map_in_arrow(placed, partial(top_task, task), schema).collect()
    np.sort(np.concatenate([np.asarray(row["top"], np.int64) for row in rows]))[-task.k :]
    seconds = time.perf_counter() - began
    if len(rows) != tasks:
        raise DataError(f"{len(rows)} of {tasks} tasks had rows to join.")
    total = {column: sum(row[column] for row in rows) for column in ("pairs", "spills", "frames")}
    return Spread(seconds, total["pairs"], total["spills"], total["frames"], max(row["seconds"] for row in rows))


def top_task(task: TopTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: join its cell and keep the longest overlaps; one row out, none for a cell without rows."""
    delivered = list(batches)
    if not delivered:
        return
    cell = task.cell
    sides = [
        _side_rows(delivered, cell, side, columns) for side, columns in zip(SIDES, (cell.left, cell.right), strict=True)
    ]
    began = time.perf_counter()
    spec = _spec(task, int(delivered[0][CELL][0].as_py()))
    left, right = ((int64s(side["_start"].to_numpy()), int64s(side["_end"].to_numpy())) for side in sides)
    top = TopOverlaps(left, right, task.k)
    with spec.open(MemoryBudget(AMPLE), dict(zip(("left", "right"), (s.schema for s in sides), strict=True))) as join:
        for answer in join.join(*(side.to_batches(max_chunksize=ROWS_A_BATCH) for side in sides)):
            top.offer(answer["left"].to_numpy(), answer["right"].to_numpy())
        metrics = join.metrics
    row = {
        "pairs": top.pairs,
        "spills": metrics.value("spills"),
        "frames": metrics.value("frames_written") + metrics.value("frames_read"),
        "seconds": time.perf_counter() - began,
        "top": top.best.tolist(),
    }
    yield pa.RecordBatch.from_pylist([row])


def _spec(task: TopTask, cell: int) -> Any:
    told = task.cell
    begins = None
    if told.once and told.split_points is not None and cell > 0:
        begins = int(told.split_points[cell - 1].as_py())
    return OPERATORS[told.algorithm](
        relation=told.relation, swapped=told.swapped, range_start=begins, emit="pairs", frames=task.frames
    )


def _side_rows(delivered: list[pa.RecordBatch], cell: CellJoin, side: str, columns: SideColumns) -> pa.Table:
    """The rows of one side from all packets, by start, as the operators name them."""
    assert cell.schemas is not None, "a join without keys has packets"  # noqa: S101  (by the plan)
    found = [rows for batch in delivered for name, rows in opened(batch, cell.schemas) if name == side]
    names = {columns.start: "_start", columns.end: "_end"}
    rows = pa.Table.from_batches(found, cell.schemas[side])
    return rows.rename_columns([names.get(name, name) for name in rows.column_names]).sort_by("_start").combine_chunks()


Seconds = dict[str, dict[int, Spread]]
"""The times of each line, by the number of tasks."""


@dataclass(frozen=True, slots=True)
class Work:
    """Two inputs and the relation and memory of their join."""

    left: Side
    right: Side
    relation: str = "overlapping"
    frames: Frames | None = None


Lines = Mapping[str, tuple[str, Callable[[int], Work]]]
"""The joins that are compared: for each name a join, and its work for a number of tasks."""


def over_tasks(bench: BenchContext, lines: Lines, tasks: Sequence[int]) -> Seconds:
    """Every line over more and more tasks; of all joins in turn one run is enough at small scale, otherwise two."""
    found: Seconds = {name: {} for name in lines}
    times = 2 if bench.scale == "full" or len({join for join, _ in lines.values()}) == 1 else 1
    first = next(iter(lines))
    for n in tasks:
        for name, (join, make) in lines.items():
            work = make(n)
            key = (id(work.left), id(work.right), work.relation, n)
            placed, expected, _ = bench.once(("placed", key), partial(_prepared, bench, work, n))
            if name == first or (times == 1 and n == tasks[0]):  # Spark compiles, workers start and load
                bench.once(("warm", join, key), partial(spread, placed, join, expected, work.frames, times=1))
            found[name][n] = spread(placed, join, expected, work.frames, times)
    return found


def _prepared(bench: BenchContext, work: Work, tasks: int) -> tuple[Placed, int, Work]:
    """The work cut for `tasks` tasks, which also read it, and its pairs; the work lives as long as its key."""
    left, right = (frame(bench, side, tasks) for side in (work.left, work.right))
    starts = work.left.starts
    points = [int(starts[starts.size * i // tasks]) for i in range(1, tasks)]  # as many starts fall to each task
    placed = placed_over(left, right, points, work.relation)
    return placed, pairs(work.left, work.right, work.relation), work
