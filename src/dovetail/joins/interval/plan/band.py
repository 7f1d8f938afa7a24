"""Band joins: pairs whose columns differ by a bounded amount, as interval joins.

A band lo <= b - a <= hi is an overlap of the left interval [a + lo, a + hi] with the right point b. Of several bands
the one that admits the smallest part of the right values is joined so; the others are conditions of a match.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql import (
    Column,
    DataFrame,
)
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.keys import NARROW_DIGITS
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.interval.api import IntervalPlan, make_plan
from dovetail.joins.interval.plan.sides import as_column
from dovetail.joins.interval.request import Band, BandOptions, BandRequest
from dovetail.request import known_column, output_names, takes
from dovetail.spark.frames import find_column, quoted, units
from dovetail.spark.inputs import BOUND_TYPES, check_input, common_type, distance_units, type_with_codes

_LEAST, _MOST = -(2**63), 2**63 - 1


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
        bands = " and ".join(map(_shown, self.bands))
        chosen = _shown(self.bands[self.joined_by])
        return f"BandJoin: {bands}; joined by {chosen}\n{self.plan.explain()}"

    def metrics(self) -> Metrics:
        """The metrics of the last run, as those of an interval join."""
        return self.plan.metrics()


@takes(BandOptions)
def band_join(left: DataFrame, right: DataFrame, request: BandRequest) -> DataFrame:
    """Pairs of rows whose columns differ by a bounded amount, as a lazy DataFrame.

    Args:
        left: One input.
        right: The other.
        within: (a, b, low, high): pairs with low <= right.b - left.a <= high, both limits included; None for no limit.
            So ("t", "t", 0, 5) finds right rows up to 5 after the left row, ("t", "t", -5, 0) those up to 5 before it.
            Columns are numbers, decimals of up to 18 digits, dates, timestamps, times or day-time intervals. Limits are
            numbers, and for dates and times timedeltas, text such as "10 min" or "-1 hour", or seconds. A list of bands
            finds pairs within all of them. Null and NaN match nothing; floats are compared as a + low <= b and
            b <= a + high.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
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
    every = [_Ready.of(left, right, band, f"{mark}{number}") for number, band in enumerate(request.bands)]
    options = request.join
    checked = options.request()
    shared = {find_column("right", right, key.right, "on") for key in checked.keys if key.shared}
    mine, theirs = output_names(left.columns, right.columns, shared, checked.suffixes)
    names = list(left.columns) if checked.left_only else [*mine.values(), *theirs.values()]
    columns = [known_column("columns: the result", name, names, "columns") for name in checked.columns or names]
    chosen = 0 if len(every) == 1 else _narrowest(right, every)
    rest = [F.expr(band.holds) for number, band in enumerate(every) if number != chosen]
    rest += [] if options.condition is None else [as_column(options.condition)]
    joined = replace(
        options,
        left_interval=(every[chosen].low, every[chosen].high),
        right_interval=(every[chosen].at, every[chosen].at),
        condition=_all(rest),
        columns=columns,
    ).request()
    one = left.selectExpr("*", *(column for band in every for column in band.left_columns))
    other = right.selectExpr("*", *(band.right_column for band in every))
    return BandPlan(request.bands, chosen, make_plan(one, other, joined))


@dataclass(frozen=True, slots=True)
class _Ready:
    """A band as columns: the left limits `low` and `high`, and the right value `at`, in units."""

    name: str
    left_columns: tuple[str, str]
    right_column: str
    width: float

    @property
    def low(self) -> str:
        return f"{self.name}_low"

    @property
    def high(self) -> str:
        return f"{self.name}_high"

    @property
    def at(self) -> str:
        return f"{self.name}_at"

    @property
    def holds(self) -> str:
        """SQL: the band holds for a pair."""
        return f"{self.low} <= {self.at} and {self.at} <= {self.high}"

    @classmethod
    def of(cls, left: DataFrame, right: DataFrame, band: Band, name: str) -> _Ready:
        a, b = find_column("left", left, band.left, "within"), find_column("right", right, band.right, "within")
        asked = left.schema[a].dataType
        kind = _band_type(left, asked, right.schema[b].dataType, f"{a!r} and {b!r}")
        low = None if band.low is None else -distance_units("within", -band.low, kind, asked)
        high = None if band.high is None else distance_units("within", band.high, kind, asked)
        values = [units(kind, f"cast({quoted(column)} as {kind.simpleString()})") for column in (a, b)]
        if isinstance(kind, (T.FloatType, T.DoubleType)):
            limits = _float_limits(values[0], low, high)
            at = f"if(isnan({values[1]}), null, {values[1]})"
        else:
            limits, at = _whole_limits(values[0], low, high), values[1]
        width = float("inf") if low is None or high is None else float(high) - float(low)
        columns = f"{limits[0]} as {name}_low", f"{limits[1]} as {name}_high"
        return cls(name, columns, f"{at} as {name}_at", width)


def _band_type(frame: DataFrame, left: T.DataType, right: T.DataType, what: str) -> T.DataType:
    """The type in which the columns are compared."""
    known = all(isinstance(kind, BOUND_TYPES) for kind in (left, right))
    kind = common_type(frame, f"within: {what}", left, right, "within") if known else T.StringType()
    if not known or (isinstance(kind, T.DecimalType) and kind.precision > NARROW_DIGITS):
        raise PlanError(
            f"within: {what} have types {left.simpleString()} and {right.simpleString()}; use numbers, decimals of up "
            f"to {NARROW_DIGITS} digits, dates, timestamps, times or day-time intervals, or cast them.",
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

    first, last = (
        f"if({value} is null, null, cast({least} as bigint))",
        f"if({value} is null, null, cast({most} as bigint))",
    )
    if low is not None:
        first = f"if({moved(low)} > {most}, null, cast(greatest({moved(low)}, {least}) as bigint))"
    if high is not None:
        last = f"if({moved(high)} < {least}, null, cast(least({moved(high)}, {most}) as bigint))"
    return first, last


def _narrowest(right: DataFrame, bands: list[_Ready]) -> int:
    """The band that admits the smallest part of the right values, by the spread of most of them; one job."""
    spread = [f"percentile_approx({band.right_column.rpartition(' as ')[0]}, array(0.05, 0.95))" for band in bands]
    row = right.selectExpr(*(f"{each} as s{number}" for number, each in enumerate(spread))).collect()[0]
    parts = []
    for number, band in enumerate(bands):
        low, high = row[number] or (0, 0)
        parts.append(band.width / max(1e-300, float(high) - float(low)))
    return parts.index(min(parts))


def _all(conditions: list[Column]) -> Column | None:
    whole = None
    for condition in conditions:
        whole = condition if whole is None else whole & condition
    return whole


def _shown(band: Band) -> str:
    low = "" if band.low is None else f"{band.low} <= "
    high = "" if band.high is None else f" <= {band.high}"
    return f"{low}right.{band.right} - left.{band.left}{high}"
