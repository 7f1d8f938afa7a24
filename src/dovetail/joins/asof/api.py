"""As-of joins on Spark DataFrames: the public functions, and a join as a plan with its explanation and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.keys import NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.asof.plan.index import IndexWay
from dovetail.joins.asof.plan.sides import Side, index_obstacle, prepare
from dovetail.joins.asof.plan.window import WindowWay
from dovetail.joins.asof.request import AsofOptions, Request
from dovetail.request import takes, wanted_columns
from dovetail.spark.frames import RESERVED, quoted, unquoted
from dovetail.spark.hosts.cells import fitting_cells
from dovetail.spark.hosts.sample import SMALL_BYTES
from dovetail.spark.inputs import FLOATS, distance_units, known_bytes, rows_at_most
from dovetail.spark.task import MetricsSink

_AT = f"{RESERVED}matched"


@dataclass(frozen=True, slots=True)
class AsofPlan:
    """An as-of join that is planned but not run; `frame` gives the lazy DataFrame.

    >>> rows = spark.createDataFrame([(1,), (5,)], "t int")
    >>> dovetail.plan_asof_join(rows, rows, on="t").frame().count()
    2
    """

    request: Request
    left: Side
    right: Side
    way: IndexWay | WindowWay
    reason: str
    sink: MetricsSink

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        every = (*self.left.payload, *self.right.payload)
        wanted = wanted_columns(self.request.columns, every)
        mine = tuple(name for name in wanted if name in self.left.payload)
        theirs = tuple(name for name in wanted if name in self.right.payload)
        if self.request.tie == "all":
            return self._all_ties(mine, theirs).select(*map(quoted, wanted))
        answer = self._answer(mine, theirs)
        return answer if (*mine, *theirs) == tuple(wanted) else answer.select(*map(quoted, wanted))

    def _answer(self, mine: tuple[str, ...], theirs: tuple[str, ...]) -> DataFrame:
        return self.way.answer(self.left, self.right, mine, theirs)

    def _all_ties(self, mine: tuple[str, ...], theirs: tuple[str, ...]) -> DataFrame:
        """Left rows with the time of their match, joined by Spark with all right rows at that time."""
        names = [f"{RESERVED}t{number}" for number in range(len(self.right.keys))]
        columns = [f"{self.right.on} as {_AT}", *(f"{k} as {n}" for k, n in zip(self.right.keys, names, strict=True))]
        times = self.right.frame.where(self.right.usable).selectExpr(*columns).distinct()
        right = Side("right", times, (_AT,), quoted(_AT), tuple(map(quoted, names)), (), self.right.kind)
        kept = tuple(dict.fromkeys((*mine, *(unquoted(key) for key in self.left.keys))))
        met = self.way.answer(self.left, right, kept, (_AT,))
        keys = zip(self.left.keys, self.right.keys, strict=True)
        same = " and ".join([f"{quoted(_AT)} = {self.right.on}", *(f"{a} = {b}" for a, b in keys)])
        return met.join(self.right.pruned(theirs).frame, F.expr(same), self.request.how)

    def explain(self) -> str:
        """The join, its algorithm, and the placement of rows."""
        request = self.request
        on = request.on.left if request.on.left == request.on.right else f"{request.on.left}={request.on.right}"
        keys = ", ".join(k.left if k.left == k.right else f"{k.left}={k.right}" for k in request.keys) or "none"
        order = f" by {', '.join(request.tie_order)}" if request.tie_order else ""
        within = "" if request.tolerance is None else f", tolerance={request.tolerance}"
        exact = "" if request.allow_exact else ", no exact matches"
        name = "index" if isinstance(self.way, IndexWay) else "window"
        lines = [
            f"AsofJoin: {request.direction} on {on}, keys={keys}{within}{exact}, ties={request.tie}{order}, "
            f"how={request.how}, memory={format_bytes(request.memory)} per task",
            f"algorithm: {name} ({self.reason})",
        ]
        return "\n".join([*lines, *self.way.explain()])

    def metrics(self) -> Metrics:
        """The metrics of the last run: rows placed, matched, spilled, and memory; none for window functions."""
        return Metrics().merge(self.sink.collect())


@takes(AsofOptions)
def asof_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Each left row with the last right row before it (or the next, or the nearest), as a lazy DataFrame.

    Args:
        left: The rows that are looked up.
        right: The rows that are found.
        on: The time column, by one name or as (left name, right name): a number, decimal, date, timestamp, time,
            day-time interval, or text by its bytes; both inputs are cast to Spark's common type. Null and NaN match
            nothing. Both times are in the result, the right one with a suffix if they have one name.
        by: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        direction: backward (the last right row at the time or before it), forward (the first one at it or after it) or
            nearest; of two that are equally near the earlier one, as in pandas.
        tolerance: The largest distance that still matches, itself included: a number, and for dates and times a
            timedelta, text such as "10 min", or seconds. None for any distance.
        allow_exact: Whether a right row at exactly the same time matches.
        ties: Which of several right rows at one time is taken. "any": one of them, the same in every run of the same
            call; "all": each of them, a row of the result for each; ("first", columns) or ("last", columns): the first
            or last by these right columns, nulls first.
        how: inner, or left, which keeps left rows without a match.
        algorithm: index (tasks look left rows up in sorted right rows), window (union and window functions of Spark's,
            for small inputs and types that only Spark has), or auto.
        memory: The budget of each task. Rows that do not fit are spilled.
        partitions: The number of partitions of the exchange; by default enough to make each fit the budget.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, then right's. Planning samples inputs that are not small by one job; `plan_asof_join` shows the
        resulting plan.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> trades = spark.createDataFrame([("A", 10, 100), ("A", 15, 200), ("B", 3, 300)], "stock string, t int, qty int")
    >>> quotes = spark.createDataFrame([("A", 9, 1.5), ("A", 14, 1.6), ("B", 4, 7.0)], "stock string, t int, p double")
    >>> dovetail.asof_join(trades, quotes, on="t", by="stock").orderBy("qty").collect()
    [Row(stock='A', t=10, qty=100, t_right=9, p=1.5), Row(stock='A', t=15, qty=200, t_right=14, p=1.6)]
    """
    return make_plan(left, right, request).frame()


@takes(AsofOptions)
def plan_asof_join(left: DataFrame, right: DataFrame, request: Request) -> AsofPlan:
    """The plan of `asof_join` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(1, 1), (1, 5)], "k int, t int")
    >>> plan = dovetail.plan_asof_join(rows, rows, on="t", by="k", tolerance=2, allow_exact=False, memory="16MB")
    >>> print(plan.explain().splitlines()[0])
    AsofJoin: backward on t, keys=k, tolerance=2, no exact matches, ties=any, how=inner, memory=16 MiB per task
    """
    return make_plan(left, right, request)


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> AsofPlan:
    """The plan of a request; inputs that are not small are sampled by one job."""
    mine, theirs, tolerance, obstacle = _asked(left, right, request)
    sink = MetricsSink(left.sparkSession)
    small = None if obstacle else _reason_by_size(left, right, request)
    reason = obstacle or small or ("named by the user" if request.algorithm == "window" else None)
    if reason is not None:
        stored = small is not None and all(rows_at_most(frame) is not None for frame in (left, right))
        return AsofPlan(request, mine, theirs, WindowWay(request, tolerance, one_task=stored), reason, sink)
    cells, reason = fitting_cells(mine, theirs, bool(request.keys), request.partitions, request.memory)
    return AsofPlan(request, mine, theirs, IndexWay(request, tolerance, cells, sink), reason, sink)


def empty_result(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """A frame with the columns of the result over inputs without rows; no job, and what planning refuses is refused."""
    mine, theirs, tolerance, _ = _asked(left, right, request)
    sink = MetricsSink(left.sparkSession)
    return AsofPlan(request, mine, theirs, WindowWay(request, tolerance), "no rows", sink).frame()


def _asked(left: DataFrame, right: DataFrame, request: Request) -> tuple[Side, Side, int | float | None, str | None]:
    """Both sides, checked against the request, the tolerance in units, and why only Spark can join them, if so."""
    mine, theirs = prepare(left, right, request)
    asked = left.schema[_column(left, request.on.left)].dataType
    tolerance = None
    if request.tolerance is not None:
        tolerance = min(_farthest(mine.kind), distance_units("tolerance", request.tolerance, mine.kind, asked))
    obstacle = index_obstacle(mine, theirs)
    if obstacle is not None and request.algorithm == "index":
        raise PlanError(f"algorithm='index': {obstacle}; use 'window' or 'auto'.", argument="algorithm")
    return mine, theirs, tolerance, obstacle


def _farthest(kind: T.DataType) -> int | float:
    """The largest distance of two times of this type in units: of 64-bit codes, of 38 digits, or any number."""
    if isinstance(kind, FLOATS):
        return inf
    is_wide = isinstance(kind, T.DecimalType) and kind.precision > NARROW_DIGITS
    return 10**38 - 1 if is_wide else 2**64 - 1


def _reason_by_size(left: DataFrame, right: DataFrame, request: Request) -> str | None:
    """Why window functions are taken for inputs that tasks could join: they are small."""
    if request.algorithm != "auto" or request.partitions is not None:
        return None
    sizes = known_bytes(left), known_bytes(right)
    if max(sizes) > SMALL_BYTES or sum(sizes) > request.memory:
        return None
    return f"for inputs of {format_bytes(sizes[0])} and {format_bytes(sizes[1])} it takes less than to start tasks"


def _column(frame: DataFrame, name: str) -> str:
    return next(column for column in frame.columns if column.lower() == name.lower())
