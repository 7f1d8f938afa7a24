"""Column functions on pairs of intervals, for select lists and orderings over a joined DataFrame."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

ColumnOrName = Column | str


def overlapping_interval(ls: ColumnOrName, le: ColumnOrName, rs: ColumnOrName, re: ColumnOrName) -> Column:
    """The common part of two overlapping intervals, as a struct of `start` and `end`: [max of starts, min of ends).

    Null if they do not overlap.
    Reference: get_overlapping_interval of Carman 2020, 3.4; docs/algorithms/interval.md, 1.1.
    """
    start, end = F.greatest(_column(ls), _column(rs)), F.least(_column(le), _column(re))
    return F.when(start < end, F.struct(start.alias("start"), end.alias("end")))


def interval_duration(start: ColumnOrName, end: ColumnOrName) -> Column:
    """How long an interval is: end minus start.

    Reference: duration_from_interval of Carman 2020, 3.4; docs/algorithms/interval.md, 1.1.
    """
    return _column(end) - _column(start)


def _column(given: ColumnOrName) -> Column:
    return F.col(given) if isinstance(given, str) else given
