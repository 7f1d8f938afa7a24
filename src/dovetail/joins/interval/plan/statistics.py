"""Statistics of both inputs for planning: row counts, ranges, lengths and a sample, from one small Spark job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.kernels.arrays import AnyArray
from dovetail.joins.interval.bins import Sample
from dovetail.joins.interval.plan.sides import Side, raise_inverted
from dovetail.joins.interval.request import Request
from dovetail.spark.columns import quoted, unquoted
from dovetail.spark.connect import parallelism
from dovetail.spark.metrics import MetricsSink

SAMPLE_ROWS = 4096
_SAMPLED_EACH = 2048  # rows that the first tasks of all cores would sample together, were each to stop there
_POSITION = 2**33  # Spark numbers the rows of a partition in the low bits of monotonically_increasing_id
_AGGREGATES = (
    "count(*) as rows",
    "count_if(ok) as usable",
    "count_if(inverted) as inverted",
    "min(start) as low",
    "max(start) as last_start",
    "max(end) as high",
    "sum(end - start) as length",
    "max(end - start) as max_length",
    "sum(if(ok, kb, null)) as key_bytes",
    "max(kh) as key",
)
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
    """The statistics of these sides from one job: an aggregate in which each sampled row is a group of its own."""
    each = max(64, _SAMPLED_EACH // parallelism(sides[0].frame.sparkSession))
    grouped = reduce(DataFrame.union, (_grouped(side, number, each) for number, side in enumerate(sides))).toArrow()
    columns = {name: np.asarray(grouped[name].to_numpy()) for name in grouped.column_names}
    found = []
    for number, side in enumerate(sides):
        chosen = columns["side"] == number
        found.append(_statistics(side, {name: column[chosen] for name, column in columns.items()}, each))
    return found


def _statistics(side: Side, groups: dict[str, AnyArray], each: int) -> SideStatistics:
    rows, usable, inverted = (int(groups[name].sum()) for name in ("rows", "usable", "inverted"))
    low, last_start = _extreme(np.fmin, groups["low"]), _extreme(np.fmax, groups["last_start"])
    high, longest = _extreme(np.fmax, groups["high"]), _extreme(np.fmax, groups["max_length"])
    mean, key_bytes = (float(np.nansum(groups[name])) / max(1, usable) for name in ("length", "key_bytes"))
    width = float(sum(_width(field.dataType.typeName()) for field in side.frame.schema.fields))
    sample = _evened(groups, each, usable)
    return SideStatistics(rows, usable, inverted, low, last_start, high, mean, longest, width, sample, key_bytes)


def _extreme(of: np.ufunc, values: AnyArray) -> float:
    """The least or greatest of these values; 0 if there is none."""
    return float(np.nan_to_num(of.reduce(values, initial=np.nan), nan=0.0, posinf=np.inf, neginf=-np.inf))


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


def _grouped(side: Side, number: int, each: int) -> DataFrame:
    """A group for every sampled row, which its aggregates then describe, and one for all other rows of the side.

    A partition cannot know how many rows it will have, so row i is taken with a chance of each / i: what is taken
    grows with the logarithm of the partition, and can be thinned evenly when the numbers are known. All aggregates
    are of fixed width, which is what Spark compiles.
    """
    points = _points(side).selectExpr("*", "monotonically_increasing_id() as id", f"rand({_SEED}) as chance")
    taken = f"if(ok and chance * (1 + id % {_POSITION}L) < {each}, id, -1L)"
    return (
        points.selectExpr("*", f"{taken} as taken", "if(ok, p0, null) as start", "if(ok, p1, null) as end")
        .groupBy("taken")
        .agg(*map(F.expr, _AGGREGATES))
        .selectExpr(f"{number} as side", "*")
    )


def _evened(groups: dict[str, AnyArray], each: int, usable: int) -> Sample:
    """A uniform sample, in random order, from rows that were taken the rarer the later they came."""
    taken = np.flatnonzero(groups["taken"] >= 0)
    taken = taken[np.argsort(groups["taken"][taken])]  # the same rows give the same sample, whatever order they come in
    chance = np.minimum(1.0, each / (1.0 + groups["taken"][taken] % _POSITION))
    wanted = min(chance.min(initial=1.0), SAMPLE_ROWS / max(1, usable))
    rng = np.random.default_rng(_SEED)
    kept = taken[rng.permutation(np.flatnonzero(rng.random(len(chance)) * chance < wanted))]
    return Sample(groups["low"][kept], groups["high"][kept], groups["key"][kept].astype(np.int64), usable)


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
