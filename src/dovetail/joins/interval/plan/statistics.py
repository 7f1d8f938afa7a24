"""Statistics of both inputs for planning: row counts, ranges, lengths and a sample, from two small Spark jobs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.arrays import AnyArray
from dovetail.joins.interval.bins import Sample
from dovetail.joins.interval.plan.sides import Side, quoted, raise_inverted, unquoted
from dovetail.joins.interval.request import Request
from dovetail.spark.connect import parallelism
from dovetail.spark.metrics import MetricsSink

SAMPLE_ROWS = 4096
_SAMPLED_EACH = 2048  # rows that the first tasks of all cores would sample together, were each to stop there
_POSITION = 2**33  # Spark numbers the rows of a partition in the low bits of monotonically_increasing_id
_SEED = 20  # fixed: the same inputs give the same plan, and Spark finds the code it compiled for it


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """Row counts of one side, the range and lengths of its intervals, and a uniform sample of its usable rows.

    Positions are doubles that grow with the bounds; `row_bytes` is the width of a row in Arrow form by its types.
    """

    rows: int
    usable: int
    inverted: int
    low: float
    last_start: float
    high: float
    mean_length: float
    max_length: float
    row_bytes: float
    sample: Sample
    key_bytes: float = 0.0  # of texts in the keys, measured


@dataclass(frozen=True, slots=True)
class Inputs:
    """Both sides of a request with what is known of them, and where tasks report what they measure."""

    request: Request
    left: Side
    right: Side
    statistics: tuple[SideStatistics, SideStatistics]
    sink: MetricsSink

    def checked(self) -> tuple[Side, Side]:
        """Both sides with `invalid` applied, and without rows that can neither match nor appear."""
        return self.left.checked(self.request.invalid), self.right.checked(self.request.invalid)


# Statistics live as long as their DataFrame: a notebook explains, counts, then joins the same one.
_KEPT: WeakKeyDictionary[DataFrame, dict[tuple[Any, ...], SideStatistics]] = WeakKeyDictionary()


def collect_statistics(left: Side, right: Side, invalid: str) -> tuple[SideStatistics, SideStatistics]:
    """Statistics of both sides; a `DataError` if there are inverted intervals and they are an error.

    They are kept with the DataFrame object, which usually describes the same rows the next time. If the rows have
    changed, as those of a database may, then the plan fits the old rows; the answer is right, and inverted rows are
    still reported.
    """
    missing = {_question(side): side for side in (left, right) if _question(side) not in _kept(side)}
    if missing:
        for side, found in zip(missing.values(), _collected(list(missing.values())), strict=True):
            _kept(side)[_question(side)] = found
    statistics = tuple(_kept(side)[_question(side)] for side in (left, right))
    for side, found in zip((left, right), statistics, strict=True):
        if found.inverted and invalid == "error":
            raise_inverted(side, found.inverted)
    return statistics[0], statistics[1]


# How many rows a DataFrame has decides where they are counted, not what the answer is.
_ROWS: WeakKeyDictionary[DataFrame, int] = WeakKeyDictionary()


def kept_row_counts(sides: tuple[Side, Side]) -> list[int]:
    """How many rows each side has, or had when it was first counted."""
    if not all(side.source in _ROWS for side in sides):
        for side, rows in zip(sides, row_counts(sides), strict=True):
            _ROWS[side.source] = rows
    return [_ROWS[side.source] for side in sides]


def row_counts(sides: tuple[Side, Side]) -> list[int]:
    """How many rows each side has, counted by a job."""
    counts = [side.frame.selectExpr("count(*) as n", f"{number} as i") for number, side in enumerate(sides)]
    found = {row["i"]: row["n"] for row in counts[0].union(counts[1]).collect()}
    return [found[0], found[1]]


def _kept(side: Side) -> dict[tuple[Any, ...], SideStatistics]:
    return _KEPT.setdefault(side.source, {})


def _question(side: Side) -> tuple[Any, ...]:
    """What statistics depend on: the DataFrame, which of its columns bound and key a row, as what type, how closed."""
    types = [side.frame.schema[unquoted(key)].dataType.simpleString() for key in side.keys]
    return id(side.source), side.named, side.bound_type.simpleString(), side.closed, *types


def _collected(sides: list[Side]) -> list[SideStatistics]:
    """The statistics of these sides from two plain jobs, side by side.

    One job would be slower: an aggregate that also collects rows leaves Spark's compiled path.
    """
    spark = sides[0].frame.sparkSession
    each = max(64, _SAMPLED_EACH // parallelism(spark))
    taken = reduce(DataFrame.union, (_draw(side, number, each) for number, side in enumerate(sides)))
    summary = reduce(DataFrame.union, (_summary(side, number) for number, side in enumerate(sides)))
    with ThreadPoolExecutor(1) as thread:
        drawing = thread.submit(inheritable_thread_target(spark)(taken.toArrow))  # the caller's job group goes along
        summaries = {row["side"]: row for row in summary.collect()}
        drawn = drawing.result()
    columns = {name: np.asarray(drawn[name].to_numpy()) for name in drawn.column_names}
    found = []
    for number, side in enumerate(sides):
        chosen = columns["side"] == number
        sample = _evened({name: column[chosen] for name, column in columns.items()}, each, summaries[number])
        found.append(_statistics(side, summaries[number], sample))
    return found


def _statistics(side: Side, row: Row, sample: Sample) -> SideStatistics:
    low, last_start, high, mean, longest = (
        float(row[name] or 0.0) for name in ("low", "last_start", "high", "mean_length", "max_length")
    )
    width = float(sum(_width(field.dataType.typeName()) for field in side.frame.schema.fields))
    counts = row["rows"], row["usable"], row["inverted"]
    key_bytes = float(row["key_bytes"] or 0.0)
    return SideStatistics(*counts, low, last_start, high, mean, longest, width, sample, key_bytes)


def text_bytes(side: Side) -> int:
    """Bytes of all texts and nested values of a side, counted by a job; what has a fixed width is left out."""
    total = " + ".join(_lengths(side, side.frame.columns)) or "0"
    found = side.frame.where(side.usable).selectExpr(f"coalesce(sum({total}), 0) as n").first()
    return int(found["n"])  # type: ignore[index]  # an aggregate has a row


def _lengths(side: Side, columns: Iterable[str]) -> list[str]:
    """SQL: the bytes of each of these columns that has no fixed width."""
    kinds = {column: side.frame.schema[column].dataType for column in columns}
    whole = (T.StringType, T.BinaryType)
    return [
        f"coalesce(octet_length({quoted(c) if isinstance(kind, whole) else f'cast({quoted(c)} as string)'}), 0)"
        for c, kind in kinds.items()
        if isinstance(kind, (*whole, T.StructType, T.ArrayType, T.MapType))
    ]


def _summary(side: Side, number: int) -> DataFrame:
    return _points(side).selectExpr(
        f"{number} as side",
        "count(*) as rows",
        "count_if(ok) as usable",
        "count_if(inverted) as inverted",
        "min(if(ok, p0, null)) as low",
        "max(if(ok, p0, null)) as last_start",
        "max(if(ok, p1, null)) as high",
        "avg(if(ok, p1 - p0, null)) as mean_length",
        "max(if(ok, p1 - p0, null)) as max_length",
        "avg(if(ok, kb, null)) as key_bytes",
    )


def _draw(side: Side, number: int, each: int) -> DataFrame:
    """Usable rows with their position in their partition, the rarer the later they come.

    A partition cannot know how many rows it will have, so row i is taken with a chance of each / i: what is taken
    grows with the logarithm of the partition, and can be thinned evenly when the numbers are known.
    """
    position = f"monotonically_increasing_id() % {_POSITION}L"
    points = _points(side).selectExpr("*", f"{position} as position", f"rand({_SEED}) as chance")
    taken = points.where(f"ok and chance * (1 + position) < {each}")
    return taken.selectExpr(f"{number} as side", "p0", "p1", "kh", "position")


def _evened(taken: dict[str, AnyArray], each: int, row: Row) -> Sample:
    """A uniform sample, in random order, from rows that were taken the rarer the later they came."""
    usable = row["usable"]
    chance = np.minimum(1.0, each / (1.0 + taken["position"]))
    wanted = min(chance.min(initial=1.0), SAMPLE_ROWS / max(1, usable))
    rng = np.random.default_rng(_SEED)
    kept = rng.permutation(np.flatnonzero(rng.random(len(chance)) * chance < wanted))
    return Sample(taken["p0"][kept], taken["p1"][kept], taken["kh"][kept].astype(np.int64), usable)


def _points(side: Side) -> DataFrame:
    key = f"xxhash64({', '.join(side.keys)})" if side.keys else "0L"
    texts = " + ".join(_lengths(side, map(unquoted, side.keys))) or "0"
    return side.frame.selectExpr(
        f"{side.position(side.start)} as p0",
        f"{side.position(side.end)} as p1",
        f"{key} as kh",
        f"{side.usable} as ok",
        f"{side.inverted} as inverted",
        f"{texts} as kb",
    )


def _width(kind: str) -> int:
    """Bytes of a value in Arrow form; strings and nested values are taken at 32."""
    widths = {"boolean": 1, "byte": 1, "tinyint": 1, "short": 2, "smallint": 2, "integer": 4, "int": 4, "float": 4}
    widths |= {"date": 4, "long": 8, "bigint": 8, "double": 8, "timestamp": 8, "timestamp_ntz": 8, "decimal": 16}
    return widths.get(kind.split("(", maxsplit=1)[0], 8 if kind.startswith("interval") else 32)
