"""The index way: rows of both sides exchanged by cell, and joined in tasks by the operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.joins.asof.plan.cells import CELL, Cells
from dovetail.joins.asof.plan.sides import Side
from dovetail.joins.asof.request import Request
from dovetail.joins.asof.spec import AsofJoin
from dovetail.joins.asof.task import LEFT, RIGHT, SIDE, AsofTask, join_task
from dovetail.spark.arrow import map_in_arrow, reported
from dovetail.spark.columns import RESERVED, quoted, unquoted
from dovetail.spark.metrics import MetricsSink


@dataclass(frozen=True, slots=True)
class IndexWay:
    """An as-of join by tasks that look left rows up in an index of the right rows of their cell."""

    request: Request
    tolerance: int | float | None
    cells: Cells
    sink: MetricsSink

    def answer(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> DataFrame:
        """The joined rows, with these columns of both sides."""
        spec = self._spec(left, right, left_out, right_out)
        left, right = left.pruned(left_out), right.pruned(right_out)
        places = _places(left.frame.schema, right.frame.schema)
        task = AsofTask(spec, *places, self.request.memory)
        fields = [
            _nullable(side.frame.schema[name]) for side, out in ((left, left_out), (right, right_out)) for name in out
        ]
        return map_in_arrow(
            self._placed(left, right, *places), partial(reported, join_task, task, self.sink), T.StructType(fields)
        )

    def _spec(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> AsofJoin:
        request = self.request
        return AsofJoin(
            on=(unquoted(left.on), unquoted(right.on)),
            by=tuple((unquoted(a), unquoted(b)) for a, b in zip(left.keys, right.keys, strict=True)),
            direction=request.direction,
            tolerance=self.tolerance,
            allow_exact=request.allow_exact,
            tie="any" if request.tie == "all" else request.tie,
            tie_order=tuple(unquoted(name) for name in right.order),
            how=request.how,
            left_columns=left_out,
            right_columns=right_out,
        )

    def _placed(self, left: Side, right: Side, mine_at: dict[str, str], theirs_at: dict[str, str]) -> DataFrame:
        """Both sides in one frame, in the columns that they share, each cell in a partition of its own."""
        mine = left.frame if self.request.how == "left" else left.frame.where(left.usable)
        columns = list(right.frame.columns)
        rows = self.cells.place(left, mine, list(left.frame.columns))
        others = self.cells.place(right, right.frame.where(right.usable), columns)
        others = self.cells.carry(right, others, columns, self.request.direction)
        every = {**_types(left.frame, mine_at), **_types(right.frame, theirs_at)}
        together = _tagged(rows, LEFT, mine_at, every).union(_tagged(others, RIGHT, theirs_at, every))
        return together.repartitionById(self.cells.count, F.col(CELL)).drop(CELL)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain()]


def _places(left: T.StructType, right: T.StructType) -> tuple[dict[str, str], dict[str, str]]:
    """Which column of the exchanged rows holds each column of a side; two of one type share one, to halve the rows."""
    mine = {field.name: f"{RESERVED}c{number}" for number, field in enumerate(left)}
    free = [(field.dataType, mine[field.name]) for field in left]
    theirs = {}
    for number, field in enumerate(right):
        place = next((each for each in free if each[0] == field.dataType), None)
        theirs[field.name] = f"{RESERVED}d{number}" if place is None else place[1]
        if place is not None:
            free.remove(place)
    return mine, theirs


def _types(frame: DataFrame, places: dict[str, str]) -> dict[str, str]:
    return {places[field.name]: field.dataType.simpleString() for field in frame.schema}


def _tagged(rows: DataFrame, tag: int, places: dict[str, str], every: dict[str, str]) -> DataFrame:
    """The rows with their side and their columns in their places, and nulls in the places of the other side alone."""
    own = {place: quoted(name) for name, place in places.items()}
    columns = (f"{own.get(place, f'cast(null as {kind})')} as {place}" for place, kind in every.items())
    return rows.selectExpr(f"cast({tag} as tinyint) as {SIDE}", CELL, *columns)


def _nullable(field: T.StructField) -> T.StructField:
    return T.StructField(field.name, field.dataType, True)
