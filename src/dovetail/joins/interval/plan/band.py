"""Band joins: pairs whose columns differ by a bounded amount, as interval joins.

A band lo <= b - a <= hi is an overlap of the left interval [a + lo, a + hi] with the right point b. A band with one
limit is an inequality of two points: one is before the other. Of several bands the one that admits the smallest part of
the right values is joined so; the others are conditions of a match. Of several inequalities two are joined by a grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from math import inf
from operator import and_
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame  # noqa: F401  (Column is in the type of an option)
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.keys import MOST_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.interval.api import IntervalPlan, make_plan
from dovetail.joins.interval.plan.choose import choose_grid, may_use_grid
from dovetail.joins.interval.plan.grid import Axis, GridSample
from dovetail.joins.interval.plan.sides import as_column, is_wide_decimal
from dovetail.joins.interval.plan.text import TextCodes, names_in_pairs
from dovetail.joins.interval.request import Band, BandOptions, BandRequest
from dovetail.request import Distance, known_column, takes
from dovetail.spark.frames import find_column, quoted, units
from dovetail.spark.inputs import (
    BOUND_TYPES,
    check_input,
    check_texts,
    common_type,
    distance_units,
    is_text,
    type_with_codes,
)

_LEAST, _MOST = -(2**63), 2**63 - 1
_FARTHEST = 10**300  # of a limit that is priced


@dataclass(frozen=True, slots=True)
class BandPlan:
    """A band join that is planned but not run; `frame` gives the lazy DataFrame.

    >>> rows = spark.createDataFrame([(1,), (4,)], "x int")
    >>> dovetail.plan_band_join(rows, rows, within=("x", "x", 0, 3)).frame().count()
    3
    """

    bands: tuple[Band, ...]
    joined_by: int
    plan: IntervalPlan

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        return self.plan.frame()

    def explain(self) -> str:
        """The bands, the one that is joined by, and the plan of the interval join."""
        bands = " and ".join(map(str, self.bands))
        return f"BandJoin: {bands}; joined by {self.bands[self.joined_by]}\n{self.plan.explain()}"

    def metrics(self) -> Metrics:
        """The metrics of the last run, as those of an interval join."""
        return self.plan.metrics()


@takes(BandOptions)
def band_join(left: DataFrame, right: DataFrame, request: BandRequest) -> DataFrame:
    """Pairs of rows whose columns differ by a bounded amount, as a lazy DataFrame.

    Args:
        left: One input.
        right: The other.
        within: (a, b, low, high): pairs with low <= right.b - left.a <= high; None for no limit.
            So ("t", "t", 0, 5) finds right rows up to 5 after the left row, ("t", "t", -5, 0) those up to 5 before it,
            and ("t", "t", 0, None) all right rows at its time or later: a join by an inequality.
            Columns are numbers, decimals of up to 36 digits, dates, timestamps, times or day-time intervals, and for an
            inequality, limits 0 and None, texts. Limits are
            numbers, and for dates and times timedeltas, text such as "10 min" or "-1 hour", or seconds. A list of bands
            finds pairs within all of them. Null and NaN match nothing; floats are compared as a + low <= b and
            b <= a + high.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        closed: Which limits are included: both, left (low alone), right (high alone) or neither.
        condition: What else must hold for a pair: a Column or SQL text over the output columns.
        how: inner, left, right, full, left_semi or left_anti, or another name of Spark's for one of these.
        algorithm: As for `interval_join`.
        memory: The budget of each task.
        partitions: As for `interval_join`.
        route: As for `interval_join`.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, then right's; for semi and anti joins left's alone. Planning runs one small job over the
        columns, and one more to choose between several bands; `plan_band_join` shows the resulting plan.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> orders = spark.createDataFrame([("a", 10), ("b", 50)], "order string, day int")
    >>> visits = spark.createDataFrame([(1, 8), (2, 49), (3, 60)], "visit int, day int")
    >>> near = dovetail.band_join(orders, visits, within=("day", "day", -3, 0), columns=["order", "visit"])
    >>> near.orderBy("order").collect()
    [Row(order='a', visit=1), Row(order='b', visit=2)]
    """
    return make_band_plan(left, right, request).frame()


@takes(BandOptions)
def plan_band_join(left: DataFrame, right: DataFrame, request: BandRequest) -> BandPlan:
    """The plan of `band_join` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(1,), (4,)], "x int")
    >>> print(dovetail.plan_band_join(rows, rows, within=("x", "x", 0, 3)).explain().splitlines()[0])
    BandJoin: 0 <= right.x - left.x <= 3; joined by 0 <= right.x - left.x <= 3
    """
    return make_band_plan(left, right, request)


def make_band_plan(left: DataFrame, right: DataFrame, request: BandRequest) -> BandPlan:
    """The plan of a request over two DataFrames; runs small jobs for their statistics."""
    for name, frame in (("left", left), ("right", right)):
        check_input(name, frame, "a band join")
    mark = f"band_{uuid4().hex[:8]}_"
    options = request.join
    checked = options.request()
    names, places = names_in_pairs(left, right, checked)
    every = [_Ready.of(left, right, band, f"{mark}{n}", places) for n, band in enumerate(request.bands)]
    columns = [known_column("columns: the result", name, names, "columns") for name in checked.columns or names]
    one = left.selectExpr("*", *(column for band in every for column in band.left_columns))
    other = right.selectExpr("*", *(band.right_column for band in every))
    grid = None
    if len(every) > 1 and all(band.axis is not None for band in every) and may_use_grid(checked):
        grid = GridSample.of(one, other, [band.axis for band in every if band.axis is not None])
    pair = grid.best_pair() if grid is not None else (0, 0)
    chosen = pair[0] if grid is not None or len(every) == 1 else _narrowest(right, every)
    rest = [F.expr(band.holds) for number, band in enumerate(every) if number != chosen or band.texts is not None]
    rest += [] if options.condition is None else [as_column(options.condition)]
    condition = reduce(and_, rest) if rest else None
    joined = replace(options, **every[chosen].join, condition=condition, columns=columns).request()
    plan = make_plan(one, other, joined)
    if grid is not None:
        plan = replace(plan, decision=choose_grid(plan.inputs, plan.decision, grid, pair))
    return BandPlan(request.bands, chosen, plan)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A band as columns: the left limits `low` and `high`, and the right value `at`, in units."""

    name: str
    band: Band
    whole: bool  # whole numbers: a limit that is excluded is one unit further
    left_columns: tuple[str, str]
    right_column: str
    width: float
    texts: tuple[str, str] | None = None  # of text columns, which have codes in place of units: their names in a pair

    @property
    def join(self) -> dict[str, Any]:
        """The options of the interval join that finds the pairs of the band."""
        band, (low, high, at) = self.band, (f"{self.name}_{what}" for what in ("low", "high", "at"))
        if band.low is None or band.high is None:
            limit, relation, touches = (low, "before", "meets") if band.high is None else (high, "after", "met_by")
            reaches = self.whole or (band.with_low if band.high is None else band.with_high)
            names = (relation, touches) if reaches else relation
            return {"left_interval": (limit, limit), "right_interval": (at, at), "relation": names}
        closed = "both" if self.whole or band.closed == "both" else (band.closed, "both")
        return {"left_interval": (low, high), "right_interval": (at, at), "closed": closed}

    @property
    def axis(self) -> Axis | None:
        """The band as one axis of a grid, if it has one limit."""
        low, high = self.band.low, self.band.high
        if low is not None and high is not None:
            return None
        limit = f"{self.name}_{'low' if high is None else 'high'}"
        return Axis(f"cast({limit} as double)", f"cast({self.name}_at as double)", high is None)

    @property
    def holds(self) -> str:
        """SQL: the band holds for a pair."""
        units = self.whole and self.texts is None
        above, below = ("<=" if units or with_it else "<" for with_it in (self.band.with_low, self.band.with_high))
        low, high, at = (f"{self.name}_{what}" for what in ("low", "high", "at"))
        if self.texts is not None:
            low, high, at = self.texts[0], self.texts[0], self.texts[1]
        limits = (self.band.low, f"{low} {above} {at}"), (self.band.high, f"{at} {below} {high}")
        return " and ".join(sql for limit, sql in limits if limit is not None)

    @classmethod
    def of(
        cls, left: DataFrame, right: DataFrame, band: Band, name: str, places: tuple[dict[str, str], dict[str, str]]
    ) -> _Ready:
        a, b = find_column("left", left, band.left, "within"), find_column("right", right, band.right, "within")
        asked, other = left.schema[a].dataType, right.schema[b].dataType
        if is_text(asked) and is_text(other):
            return cls._of_texts((left, a), (right, b), band, name, (quoted(places[0][a]), quoted(places[1][b])))
        kind = _band_type(left, asked, other, f"{a!r} and {b!r}")
        whole = not isinstance(kind, (T.FloatType, T.DoubleType))
        low, high = _limits(band, kind, asked, whole)
        wide = kind if is_wide_decimal(kind) else None
        typed = [f"cast({quoted(column)} as {kind.simpleString()})" for column in (a, b)]
        values = typed if wide else [units(kind, value) for value in typed]
        ways = _whole_limits if whole else _float_limits
        limits = _decimal_limits(values[0], wide, low, high) if wide else ways(values[0], low, high)
        at = values[1] if whole else f"if(isnan({values[1]}), null, {values[1]})"
        width = inf if low is None or high is None else max(0.0, _as_double(high) - _as_double(low))
        columns = f"{limits[0]} as {name}_low", f"{limits[1]} as {name}_high"
        return cls(name, band, whole, columns, f"{at} as {name}_at", width)

    @classmethod
    def _of_texts(
        cls, left: tuple[DataFrame, str], right: tuple[DataFrame, str], band: Band, name: str, texts: tuple[str, str]
    ) -> _Ready:
        """A band of texts: an inequality or an equality. Runs a small job for what they begin with."""
        kinds = [frame.schema[column].dataType for frame, column in (left, right)]
        check_texts(f"within: {band.left!r} and {band.right!r}", kinds, "within")
        if any(limit not in (None, 0) for limit in (band.low, band.high)):
            raise PlanError(
                f"within: {band.left!r} and {band.right!r} are texts, which have an order but no differences; give 0 "
                "and None as limits.",
                argument="within",
            )
        codes = TextCodes.of([(frame, [quoted(column)]) for frame, column in (left, right)])
        a, b = (codes.sql(quoted(column)) for _, column in (left, right))
        width = float("inf") if band.low is None or band.high is None else 0.0
        return cls(name, band, True, (f"{a} as {name}_low", f"{a} as {name}_high"), f"{b} as {name}_at", width, texts)


def _limits(
    band: Band, kind: T.DataType, asked: T.DataType, whole: bool
) -> tuple[int | float | None, int | float | None]:
    """The limits in units; of whole numbers the first and the last that are included."""

    def limit(given: Distance, included: bool, low: bool) -> int | float:
        if included or not whole:
            return distance_units("within", given, kind, asked, up=low)
        return distance_units("within", given, kind, asked, up=not low) + (1 if low else -1)  # the next one inside

    low = None if band.low is None else limit(band.low, band.with_low, True)
    return low, None if band.high is None else limit(band.high, band.with_high, False)


def _band_type(frame: DataFrame, left: T.DataType, right: T.DataType, what: str) -> T.DataType:
    """The type in which the columns are compared."""
    known = all(isinstance(kind, BOUND_TYPES) for kind in (left, right))
    kind = common_type(frame, f"within: {what}", left, right, "within") if known else T.StringType()
    if not known or (isinstance(kind, T.DecimalType) and kind.precision > MOST_DIGITS - 2):  # sums have two more
        raise PlanError(
            f"within: {what} have types {left.simpleString()} and {right.simpleString()}; use numbers, decimals of up "
            f"to {MOST_DIGITS - 2} digits, dates, timestamps, times or day-time intervals, or cast them.",
            argument="within",
        )
    return type_with_codes(frame, f"within: {what}", kind, "within")


def _float_limits(value: str, low: float | None, high: float | None) -> tuple[str, str]:
    ends = (low, "double('-inf')"), (high, "double('inf')")
    sums = [open_end if limit is None else f"{value} + double('{limit!r}')" for limit, open_end in ends]
    return f"if(isnan({value}), null, {sums[0]})", f"if(isnan({value}), null, {sums[1]})"


def _whole_limits(value: str, low: int | float | None, high: int | float | None) -> tuple[str, str]:
    """SQL: the limits as bigints; a limit beyond them that no value reaches is null, another is the last bigint."""
    least, most = (f"cast('{limit}' as decimal(20, 0))" for limit in (_LEAST, _MOST))

    def moved(limit: int | float) -> str:
        bounded = max(-(2**65), min(2**65, int(limit)))
        return f"(cast({value} as decimal(20, 0)) + cast('{bounded}' as decimal(20, 0)))"

    first, last = (f"cast({limit} as bigint)" for limit in (least, most))
    if low is not None:
        first = f"if({moved(low)} > {most}, null, cast(greatest({moved(low)}, {least}) as bigint))"
    if high is not None:
        last = f"if({moved(high)} < {least}, null, cast(least({moved(high)}, {most}) as bigint))"
    first, last = (f"if({value} is null, null, {limit})" for limit in (first, last))
    return first, last


def _decimal_limits(value: str, kind: T.DecimalType, low: float | None, high: float | None) -> tuple[str, str]:
    """SQL: the limits of decimals without codes, exactly: one that no value reaches stays one."""
    most, digits = 10 ** (kind.precision + 1) - 1, f"decimal({kind.precision + 1}, {kind.scale})"

    def moved(limit: float | None) -> str:
        if limit is None:
            return f"cast(null as {digits})"
        bounded = f"cast('{max(-most, min(most, int(limit)))}e-{kind.scale}' as {digits})"
        return f"{value} + {bounded}"

    return moved(low), moved(high)


def _as_double(limit: int | float | Decimal) -> float:
    """A limit as a double that is finite, whatever its digits."""
    return float(max(-_FARTHEST, min(_FARTHEST, limit)))


def _narrowest(right: DataFrame, bands: list[_Ready]) -> int:
    """The band that admits the smallest part of the right values, by the spread of most of them; one job."""
    spread = [f"percentile_approx({band.right_column.rpartition(' as ')[0]}, array(0.05, 0.95))" for band in bands]
    row = right.selectExpr(*(f"{each} as s{number}" for number, each in enumerate(spread))).collect()[0]
    parts = []
    for number, band in enumerate(bands):
        low, high = row[number] or (0, 0)
        parts.append(band.width / max(1e-300, float(high) - float(low)))
    return parts.index(min(parts))
