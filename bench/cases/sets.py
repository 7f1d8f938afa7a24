"""Nearest rows, coverage and merging within 24 keys of text, beside polars-bio and window functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Params, Prepare, Run, prepared
from bench.cases.interval_rivals import named
from bench.context import BenchContext
from bench.rivals.intervals import Answer, Inputs
from dovetail.engine.kernels.arrays import I64
from dovetail.joins.nearest.api import interval_nearest
from dovetail.joins.sets.api.clusters import interval_merge
from dovetail.joins.sets.api.cover import interval_coverage
from dovetail.workloads import Exponential, RandomIntervals, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = 24
_COLUMNS = ["key", "start", "end"]


class _Named(Inputs):
    """Inputs whose keys are texts, as those of genomes are."""

    def tables(self, bench: BenchContext, params: Params) -> tuple[pa.Table, pa.Table]:
        def make() -> tuple[pa.Table, pa.Table]:
            left, right = Inputs.tables(self, bench, params)
            return named(left), named(right)

        return bench.once("named tables", make)


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], Exponential(params["mean_length"])
    left, right = (RandomIntervals(rows, 10 * rows, lengths, keys=_KEYS, seed=2 * seed + n) for n in (1, 2))
    return left, right


INPUTS = _Named(_sides)
_Set = tuple[I64, I64]


def _by_key(bench: BenchContext, params: Params) -> Iterator[tuple[_Set, _Set]]:
    """Starts and ends of the left and of the right rows of each key."""
    sides = []
    for table in INPUTS.tables(bench, params):
        keys = np.asarray(table["key"].cast(pa.int64()))
        sides.append((keys, np.asarray(table["start"]), np.asarray(table["end"])))
    for key in range(1, _KEYS + 1):
        left, right = ((start[keys == key], end[keys == key]) for keys, start, end in sides)
        yield left, right


def _union(start: I64, end: I64, apart: bool = False) -> _Set:
    """The union of intervals as disjoint ones, in order; those that touch are one, unless they stay `apart`."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    new = np.append(True, start[1:] >= reach[:-1] if apart else start[1:] > reach[:-1])
    last = np.append(np.flatnonzero(new)[1:] - 1, len(start) - 1)
    return start[new], reach[last]


def distances(bench: BenchContext, params: Params) -> int:
    """The sum of the distances of all left rows to their nearest right row."""
    total = 0
    for (start, end), right in _by_key(bench, params):
        starts, ends = np.sort(right[0]), np.sort(right[1])
        begun, over = np.searchsorted(starts, end, "left"), np.searchsorted(ends, start, "right")
        far = np.int64(2**62)
        after = np.append(starts, far)[begun] - end
        before = start - np.append(-far, ends)[over]
        total += int(np.where(begun > over, 0, np.minimum(before, after)).sum())
    return total


def covered(bench: BenchContext, params: Params) -> int:
    """The sum of what the right rows cover of each left row."""

    def below(points: I64, starts: I64, ends: I64) -> I64:
        """How much of the union lies below each point."""
        totals = np.concatenate(([0], np.cumsum(ends - starts)))
        at = np.searchsorted(starts, points, "left")
        return totals[at] - np.maximum(0, np.append(-1, ends)[at] - points)

    total = 0
    for (start, end), right in _by_key(bench, params):
        union = _union(*right)
        total += int((below(end, *union) - below(start, *union)).sum())
    return total


def groups(bench: BenchContext, params: Params) -> int:
    """The number of left rows once those that overlap are merged: as polars-bio, which keeps touching ones apart."""
    return sum(len(_union(*left, apart=True)[0]) for left, _ in _by_key(bench, params))


def _total(frame: DataFrame, column: str) -> int:
    row = frame.agg(F.sum(column)).first()
    return int(row[0]) if row else 0


def _nearest(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    return _total(interval_nearest(left, right, on="key", memory=params["memory"]), "distance")


def _coverage(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    return _total(interval_coverage(left, right, on="key", memory=params["memory"]), "covered")


def _merge(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    return int(interval_merge(left, on="key", gap=None, memory=params["memory"]).count())


def _merge_by_hand(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    """As users of Spark write it: the largest end before each row, where groups begin, and how many began so far."""
    by = "over (partition by key order by start, end rows between unbounded preceding and {})"
    before = left.selectExpr("key", "start", "end", f"max(end) {by.format('1 preceding')} as reach")
    begun = before.selectExpr("*", f"sum(if(start < reach, 0, 1)) {by.format('current row')} as number")
    return int(begun.groupBy("key", "number").agg(F.min("start"), F.max("end")).count())


nearest, coverage = INPUTS.spark(_nearest), INPUTS.spark(_coverage)
merge, merge_by_hand = INPUTS.spark(_merge), INPUTS.spark(_merge_by_hand)


def polars_bio(function: str, source: str) -> Prepare:
    """polars-bio's function of this name, with its inputs in memory or from Parquet files, which it reads again."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        import polars
        import polars_bio as rival

        rival.set_option("datafusion.bio.coordinate_system_zero_based", "true")  # ends are exclusive
        read = _from_files if source == "Parquet" else _in_memory
        sides = [read(polars, bench, params, number) for number in (0, 1)]
        call = _CALLS[function]
        return lambda: call(*(side() for side in sides))

    return prepare


def _in_memory(polars: Any, bench: BenchContext, params: Params, number: int) -> Callable[[], Any]:
    table = polars.from_arrow(INPUTS.tables(bench, params)[number])
    return lambda: table


def _from_files(polars: Any, bench: BenchContext, params: Params, number: int) -> Callable[[], Any]:
    path = INPUTS.files(bench, params)[number]
    return lambda: polars.scan_parquet(f"{path}/*.parquet")


def _their_nearest(left: Any, right: Any) -> int:
    import polars_bio as rival

    found = rival.nearest(left, right, cols1=_COLUMNS, cols2=_COLUMNS, output_type="polars.DataFrame")
    return int(found["distance"].sum())


def _their_coverage(left: Any, right: Any) -> int:
    import polars_bio as rival

    found = rival.coverage(left, right, cols1=_COLUMNS, cols2=_COLUMNS, output_type="polars.DataFrame")
    return int(found["coverage"].sum())


def _their_merge(left: Any, right: Any) -> int:
    import polars_bio as rival

    return int(rival.merge(left, cols=_COLUMNS, output_type="polars.DataFrame").height)


_CALLS: dict[str, Callable[[Any, Any], int]] = {
    "nearest": _their_nearest,
    "coverage": _their_coverage,
    "merge": _their_merge,
}
