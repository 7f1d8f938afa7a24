"""Cells that tasks find are those after the last boundary that a row reaches, whatever the type of its time."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.joins.asof.cells import ByTime

INF = float("inf")
DAY = datetime(2020, 5, 1)
TIMES: list[tuple[pa.DataType, list[Any], list[float]]] = [
    (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1], [-(2.0**63), -1.0, 0.0, 7.0, 2.0**63]),
    (pa.float32(), [-INF, -0.0, 0.5, INF], [-INF, 0.0, 0.5, INF]),
    (pa.date32(), [date(1969, 12, 31), date(1970, 1, 2)], [-1.0, 1.0]),
    (pa.timestamp("us", "UTC"), [DAY, DAY + timedelta(microseconds=1)], [1588291200.0, 1588291200.000001]),
    (pa.duration("us"), [timedelta(seconds=-2), timedelta(milliseconds=5)], [-2.0, 0.005]),
    (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("3.07")], [-1.5, 3.07]),
]


@pytest.mark.parametrize(("kind", "values", "positions"), TIMES, ids=[str(kind) for kind, *_ in TIMES])
def test_a_row_at_a_boundary_is_behind_it(kind: pa.DataType, values: list[Any], positions: list[float]) -> None:
    rows = pa.RecordBatch.from_pydict({"t": pa.array(values, kind)})
    placement = ByTime((0,) * len(positions), tuple(positions), "t", None, None)
    assert placement.cells(rows).tolist() == list(range(1, len(values) + 1))


def test_hot_keys_are_cut_by_time_and_others_between_keys() -> None:
    rng = np.random.default_rng(5)
    edges = [(-4, -INF), (2, -INF), (2, 5.0), (2, 9.0), (3, -INF), (8, 1.0)]
    hashes, times = rng.integers(-6, 10, 500), rng.integers(-3, 12, 500)
    rows = pa.RecordBatch.from_pydict({"t": times, "h": hashes})
    placement = ByTime(tuple(h for h, _ in edges), tuple(p for _, p in edges), "t", "h", None)
    expected = [sum(edge <= (h, t) for edge in edges) for h, t in zip(hashes, times, strict=True)]
    assert placement.cells(rows).tolist() == expected


def test_rows_that_cannot_match_go_where_they_are_sent() -> None:
    rows = pa.RecordBatch.from_pydict({"t": pa.array([1.0, None, float("nan"), 4.0]), "cell": [-1, 3, 0, -1]})
    assert ByTime((0, 0), (2.0, 3.0), "t", None, "cell").cells(rows).tolist() == [0, 3, 0, 2]
