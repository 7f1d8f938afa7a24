"""Interval joins on Spark DataFrames: what users call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from dovetail.interval.frame_plan import IntervalPlan, make_plan
from dovetail.interval.request import parse_request


def interval_join(
    left: DataFrame,
    right: DataFrame,
    left_interval: str | Sequence[str] = ("start", "end"),
    right_interval: str | Sequence[str] = ("start", "end"),
    relation: str | Iterable[str] = "overlapping",
    on: str | Sequence[str | tuple[str, str]] | None = None,
    condition: Any = None,
    how: str = "inner",
    closed: str | tuple[str, str] = "left",
    strict: bool = False,
    invalid: str = "error",
    algorithm: str = "auto",
    memory: int | str = "64MB",
    split_points: Sequence[Any] | None = None,
    partitions: int | None = None,
    keep: str = "all",
    columns: Sequence[str] | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
) -> DataFrame:
    return plan_interval_join(**locals()).frame()


def plan_interval_join(left: DataFrame, right: DataFrame, **arguments: Any) -> IntervalPlan:
    return make_plan(left, right, parse_request(**arguments))
