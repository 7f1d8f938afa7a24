"""Collects statistics of both inputs: row counts, ranges, lengths and a sample, in one pass over the bounds.

One job without an exchange: the bounds of small inputs are read as they are; of larger inputs a sample is read, and
Spark aggregates all rows as they pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.kernels.arrays import F64, I64, AnyArray
from dovetail.joins.interval.plan.sides import Side, Sides, raise_inverted
from dovetail.joins.interval.request import Request
from dovetail.spark.frames import observation, observed, parallelism, quoted, read_small, unquoted
from dovetail.spark.hosts.sample import SAMPLE_ROWS, SEED, SMALL_BYTES
from dovetail.spark.inputs import known_bytes, plan_key, row_bytes

SMALL_ROWS = 1 << 18  # of a partition that is read whole: files may hold more rows than their size suggests
_WIDEST = 64  # times its bounds: a row of an input that may turn out to be small
MEASURED_TEXTS = 16  # times the budget: texts of a larger side, which can hardly fit, are not measured
_SAMPLED_EACH = 2048  # rows that the first tasks of all cores would sample together, were each to stop there
_POSITION = 2**33  # Spark numbers the rows of a partition in the low bits of monotonically_increasing_id
ROW_IN_PARTITION = f"monotonically_increasing_id() % {_POSITION}L"
_AGGREGATES = (
    "count(*) as rows",
    "count_if(ok) as usable",
    "count_if(inverted) as inverted",
    "min(start) as low",
    "max(start) as last_start",
    "max(end) as high",
    "sum(length) as length",
    "max(length) as max_length",
    "sum(kb) as key_bytes",
    "sum(tb) as text_bytes",
)
Question: TypeAlias = tuple[Any, ...]
"""The key of cached statistics of a DataFrame."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Positions of sampled usable rows of one side, and how many usable rows it stands for."""

    start: F64
    end: F64
    key: I64
    rows: int

    @property
    def weight(self) -> float:
        """Rows of the input for each row of the sample."""
        return self.rows / max(1, len(self.start))

    def thinned(self, most: int) -> Sample:
        """The first `most` rows of the sample, which stand for the same number of input rows."""
        return Sample(self.start[:most], self.end[:most], self.key[:most], self.rows)


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
    key_bytes: float = 0.0  # of texts in the keys of a row, on average
    text_bytes: int | None = None  # of all texts and nested values of all usable rows, where it was asked for


@dataclass(frozen=True)
class Inputs(Sides):
    """Both sides of a request with their statistics."""

    statistics: tuple[SideStatistics, SideStatistics]

    @classmethod
    def of(cls, sides: Sides) -> Inputs:
        """The sides with their statistics, which a small job collects."""
        request, left, right = sides.request, sides.left, sides.right
        return cls(request, left, right, collect_statistics(left, right, request))


# Statistics live as long as their DataFrame: a notebook explains, counts, then joins the same one.
_KEPT: WeakKeyDictionary[DataFrame, dict[Question, SideStatistics | int]] = WeakKeyDictionary()
# A DataFrame that is read again has the same plan. The oldest are evicted first.
_BY_PLAN: dict[tuple[object, Question], SideStatistics | int] = {}
_PLANS_KEPT = 64


def _recall(side: Side, question: Question) -> SideStatistics | int | None:
    """Cached statistics of this DataFrame, or of one with the same plan."""
    kept = _KEPT.setdefault(side.source, {})
    if question not in kept:
        plan = plan_key(side.source)
        known = None if plan is None else _BY_PLAN.get((plan, question))
        if known is None:
            return None
        kept[question] = known
    return kept[question]


def _remember(side: Side, question: Question, known: SideStatistics | int) -> None:
    _KEPT.setdefault(side.source, {})[question] = known
    plan = plan_key(side.source)
    # Inverted rows are looked for again: they may have been repaired.
    if plan is None or (isinstance(known, SideStatistics) and known.inverted):
        return
    _BY_PLAN[plan, question] = known
    while len(_BY_PLAN) > _PLANS_KEPT:
        del _BY_PLAN[next(iter(_BY_PLAN))]


def collect_statistics(left: Side, right: Side, request: Request) -> tuple[SideStatistics, SideStatistics]:
    """Statistics of both sides; a `DataError` if there are inverted intervals and they are an error.

    They are kept with the DataFrame object, and for another one that reads the same files by the same plan. If the rows
    of a kept DataFrame have changed, then the plan fits the old rows; the answer is right, and inverted rows are still
    reported.
    """
    asked = [_Asked(left, False), _Asked(right, _keeps_rows(request, right))]
    missing = {(id(one.side.source), one.question): one for one in asked if one.known is None}
    if missing:
        for one, found in zip(missing.values(), _collected(list(missing.values())), strict=True):
            _remember(one.side, one.question, found)
    statistics = [one.known for one in asked]
    for one, known in zip(asked, statistics, strict=True):
        assert known is not None, "what was missing is collected"  # noqa: S101  (just above)
        if known.inverted and request.invalid == "error":
            raise_inverted(one.side, known.inverted)
    return tuple(statistics)  # type: ignore[return-value]  # two of them, none missing


def _keeps_rows(request: Request, right: Side) -> bool:
    """Whether an index with its rows may answer, so that their texts are best measured in the same pass."""
    one_match = request.keep != "all" and not request.left_only and request.condition is None
    return one_match and known_bytes(right.frame) <= MEASURED_TEXTS * request.memory


@dataclass(frozen=True, slots=True)
class _Asked:
    """A side whose statistics are requested, with or without the bytes of its texts."""

    side: Side
    texts: bool

    @property
    def question(self) -> Question:
        """The key of statistics beside the DataFrame: the columns that bound and key a row, types, how closed."""
        side = self.side
        types = [side.frame.schema[unquoted(key)].dataType.simpleString() for key in side.keys]
        return (*side.named, side.bound_type.simpleString(), side.closed, *types, self.texts)

    @property
    def known(self) -> SideStatistics | None:
        """Cached statistics, if any; those with texts also serve requests without them."""
        for question in dict.fromkeys((self.question, (*self.question[:-1], True))):
            known = _recall(self.side, question)
            if isinstance(known, SideStatistics):
                return known
        return None


_COUNT: Question = ("rows",)


def kept_row_counts(sides: tuple[Side, Side]) -> list[int]:
    """How many rows each side has, or had when it was first counted: it decides where they are counted."""
    known = [rows for side in sides if isinstance(rows := _recall(side, _COUNT), int)]
    if len(known) < len(sides):
        known = row_counts(sides)
        for side, rows in zip(sides, known, strict=True):
            _remember(side, _COUNT, rows)
    return known


def row_counts(sides: tuple[Side, Side]) -> list[int]:
    """How many rows each side has, counted by a job."""
    counts = [side.frame.selectExpr("count(*) as n", f"{number} as i") for number, side in enumerate(sides)]
    found = {row["i"]: row["n"] for row in counts[0].union(counts[1]).collect()}
    return [found[0], found[1]]


def _collected(asked: list[_Asked]) -> list[SideStatistics]:
    """The statistics of these sides from one job."""
    if sum(known_bytes(one.side.source) for one in asked) > SMALL_BYTES * _WIDEST:
        return _sampled(asked)
    rows = reduce(DataFrame.union, (_first_rows(one, number) for number, one in enumerate(asked)))
    if known_bytes(rows) <= SMALL_BYTES:
        columns = _columns(read_small(rows))
        if (columns["id"] % _POSITION).max(initial=0) < SMALL_ROWS:
            sides = [_of_side(columns, number) for number in range(len(asked))]
            return [_statistics(one, _totals(side), side, inf) for one, side in zip(asked, sides, strict=True)]
    return _sampled(asked)


def _sampled(asked: list[_Asked]) -> list[SideStatistics]:
    """The statistics of large sides: Spark aggregates the rows while it samples them, without an exchange.

    A partition does not know its number of rows, so row i is taken with probability each / i: the sample grows with the
    logarithm of the partition, and can be thinned evenly when the numbers are known.
    """
    each = max(64, _SAMPLED_EACH // parallelism(asked[0].side.frame.sparkSession))
    taken = f"ok and chance * (1 + id % {_POSITION}L) < {each}"
    watched, parts = [], []
    for number, one in enumerate(asked):
        points = _points(one, number)
        watched.append(observation(points, f"side {number}"))
        passed = points.observe(watched[-1], *map(F.expr, _AGGREGATES))
        parts.append(
            passed.selectExpr("side", "id", "start", "end", "kh", "ok", f"rand({SEED}) as chance").where(taken)
        )
    sample = reduce(DataFrame.union, parts)
    columns = _columns(sample.toArrow())
    return [
        _statistics(one, observed(sample, watched[number]), _of_side(columns, number), each)
        for number, one in enumerate(asked)
    ]


def _columns(table: pa.Table) -> dict[str, AnyArray]:
    return {name: np.asarray(table[name].to_numpy()) for name in table.column_names}


def _of_side(columns: dict[str, AnyArray], number: int) -> dict[str, AnyArray]:
    chosen = columns["side"] == number
    return {name: column[chosen] for name, column in columns.items()}


def _points(asked: _Asked, number: int) -> DataFrame:
    """The bounds of a side as numbers, null in unusable rows; and the bytes of keys and texts in the others."""
    side = asked.side
    key = f"xxhash64({', '.join(side.keys)})" if side.keys else "0L"
    in_keys = " + ".join(_lengths(side, map(unquoted, side.keys))) or "0"
    in_rows = " + ".join(_lengths(side, side.frame.columns if asked.texts else ())) or "0"
    points = side.frame.selectExpr(
        f"{side.position(side.start)} as p0",
        f"{side.position(side.end)} as p1",
        f"{key} as kh",
        f"{side.usable} as ok",
        f"{side.inverted} as inverted",
        f"{in_keys} as kb",
        f"{in_rows} as tb",
        "monotonically_increasing_id() as id",
    )
    length = "if(isnan(p1 - p0), null, p1 - p0)"  # infinite ones may have none
    where_usable = {"start": "p0", "end": "p1", "length": length, "kb": "kb", "tb": "tb"}
    some = (f"if(ok, {value}, null) as {name}" for name, value in where_usable.items())
    return points.selectExpr(f"{number} as side", "id", "kh", "ok", "inverted", *some)


def _first_rows(asked: _Asked, number: int) -> DataFrame:
    """The points of a side; of each partition the first rows, and one more if there are too many."""
    return _points(asked, number).where(f"id % {_POSITION}L <= {SMALL_ROWS}")


def _totals(rows: dict[str, AnyArray]) -> dict[str, Any]:
    """The values of `_AGGREGATES`, computed from the rows themselves."""
    sums = {name: np.nansum(rows[name]) for name in ("length", "kb", "tb")}
    low = np.fmin.reduce(rows["start"], initial=np.nan)
    last_start, high, longest = (np.fmax.reduce(rows[name], initial=np.nan) for name in ("start", "end", "length"))
    return {
        "rows": len(rows["id"]),
        "usable": rows["ok"].sum(),
        "inverted": rows["inverted"].sum(),
        "low": low,
        "last_start": last_start,
        "high": high,
        "length": sums["length"],
        "max_length": longest,
        "key_bytes": sums["kb"],
        "text_bytes": sums["tb"],
    }


def _statistics(asked: _Asked, totals: dict[str, Any], rows: dict[str, AnyArray], each: float) -> SideStatistics:
    """The statistics of a side from its aggregates and a sample, row i of a partition taken with chance each / i."""
    usable = int(totals.get("usable") or 0)
    texts = int(totals.get("text_bytes") or 0) if asked.texts else None
    return SideStatistics(
        int(totals.get("rows") or 0),
        usable,
        int(totals.get("inverted") or 0),
        _number(totals.get("low")),
        _number(totals.get("last_start")),
        _number(totals.get("high")),
        _number(totals.get("length")) / max(1, usable),
        _number(totals.get("max_length")),
        float(row_bytes(asked.side.frame)),
        _evened(rows, each, usable),
        _number(totals.get("key_bytes")) / max(1, usable),
        texts,
    )


def _number(value: Any) -> float:
    """An aggregate as a float; 0 where there was nothing to aggregate."""
    return 0.0 if value is None or value != value else float(value)


def text_bytes(side: Side) -> int:
    """Bytes of all texts and nested values of a side, counted by a job; columns of fixed width are left out."""
    lengths = _lengths(side, side.frame.columns)
    if not lengths:
        return 0
    found = side.frame.where(side.usable).selectExpr(f"coalesce(sum({' + '.join(lengths)}), 0) as n").first()
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


def _evened(rows: dict[str, AnyArray], each: float, usable: int) -> Sample:
    """A uniform sample of usable rows, in random order, from rows taken with decreasing probability."""
    taken = np.flatnonzero(rows["ok"])
    taken = taken[np.argsort(rows["id"][taken])]  # the same rows give the same sample, whatever order they come in
    chance = np.minimum(1.0, each / (1.0 + rows["id"][taken] % _POSITION))
    wanted = min(chance.min(initial=1.0), SAMPLE_ROWS / max(1, usable))
    rng = np.random.default_rng(SEED)
    kept = taken[rng.permutation(np.flatnonzero(rng.random(len(chance)) * chance < wanted))]
    return Sample(rows["start"][kept], rows["end"][kept], rows["kh"][kept].astype(np.int64), usable)
