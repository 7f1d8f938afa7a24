"""A route: one way to run an interval join, which answers it, counts its pairs and ranks them.

The questions below are answered by forming pairs; a route that needs none answers them itself.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.interval.plan.cells import WHOLE, Cells, CellsJoin
from dovetail.joins.interval.plan.sides import Side, Sides
from dovetail.spark.frames import RESERVED, quoted

_COUNTED, _MATCHED = f"{RESERVED}counted", f"{RESERVED}matched"


class Route:
    """What all routes have and do; `seconds` is the predicted time of one core, where there is a price."""

    __slots__ = ()

    inputs: Sides
    name: str
    algorithm: str
    reason: str
    cells: Cells | None
    seconds: float | None

    @abstractmethod
    def answer(self, left: Side, right: Side) -> DataFrame:
        """The joined rows of checked sides."""

    @abstractmethod
    def match(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> DataFrame:
        """Rows in the same cell joined as by `rows.join(others, ..., how)`; `once`: a pair comes out of one cell."""

    @abstractmethod
    def explain(self) -> list[str]:
        """The placement of rows, a line each."""

    def counts(self, left: Side, right: Side) -> DataFrame:
        """The left rows of checked sides with the number of their matches."""
        return self.aggregate(left, right, f"count({_MATCHED})", COUNT)

    def aggregate(self, left: Side, right: Side, value: str, name: str) -> DataFrame:
        """The left rows of checked sides with an SQL aggregate of their matches."""
        columns = F.first(F.struct(*map(quoted, left.frame.columns))).alias(WHOLE)
        tagged = replace(left, frame=left.frame.withColumn(_COUNTED, F.monotonically_increasing_id()))
        marked = replace(right, frame=right.frame.withColumn(_MATCHED, F.lit(1)))
        pairs = self._join(tagged, marked).answer("left")
        return pairs.groupBy(_COUNTED).agg(columns, F.expr(value).alias(name)).select(f"{WHOLE}.*", name)

    def total(self) -> int:
        """The number of pairs."""
        return self.answer(*self.inputs.checked()).count()

    def top(self, k: int) -> DataFrame:
        """The `k` pairs that overlap longest, longest first."""
        left, right = self.inputs.checked()
        end = f"least({left.measure(left.end)}, {right.measure(right.end)})"
        overlap = F.expr(f"{end} - greatest({left.measure(left.start)}, {right.measure(right.start)})")
        return self.answer(left, right).orderBy(overlap.desc()).limit(k)

    def add_measured(self, metrics: Metrics) -> Metrics:
        """The metrics, with those reported by the tasks of the last run."""
        return metrics.merge(self.inputs.sink.collect())

    def _join(self, left: Side, right: Side) -> CellsJoin:
        return CellsJoin(left, right, self.cells, self.match)
