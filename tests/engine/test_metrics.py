"""Metrics: sums, maxima and skew that come out the same in whatever order tasks are merged."""

from __future__ import annotations

import pickle
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.metrics import Metrics
from dovetail.errors import DataError


def task(rows: int, peak: int, ns: int) -> Metrics:
    metrics = Metrics()
    metrics.add("rows_in", rows, side="left", per_task=True)
    metrics.add("rows_in", rows * 2, side="right", per_task=True)
    metrics.add("pairs", rows * 3, unit="pairs")
    metrics.peak("memory", peak)
    metrics.add_ns("probe", ns)
    return metrics


def test_one_task_adds_up_its_own_counts() -> None:
    metrics = Metrics()
    for n in (1, 2, 3):
        metrics.add("rows_in", n, side="left", per_task=True)
        metrics.peak("memory", 10 - n)
    assert metrics.as_dict() == {"memory": 9, "rows_in.left": 6, "rows_in.left.skew": 1.0}
    assert metrics.tasks == 1


def test_tasks_merge_counters_by_sum_peaks_by_max_timers_by_both() -> None:
    total = Metrics()
    for rows, peak, ns in ((10, 7, 100), (20, 9, 50), (90, 8, 300)):
        total.merge(task(rows, peak, ns))
    assert total.tasks == 3
    assert total.value("rows_in", "left") == 120
    assert total.value("rows_in") == 360
    assert total.value("memory") == 9
    assert total.value("probe") == 450
    assert total.as_dict()["probe.max"] == 300
    assert total.skew("rows_in", "left") == 90 / 20
    assert total.skew("pairs") is None
    assert total.value("never recorded") == 0


def test_merging_is_independent_of_order_and_grouping() -> None:
    parts = [task(1, 5, 7), task(4, 3, 9), task(2, 8, 1)]
    texts = set()
    for order in permutations(parts):
        flat = Metrics()
        for part in order:
            flat.merge(part)
        nested = Metrics().merge(order[0]).merge(Metrics().merge(order[1]).merge(order[2]))
        texts |= {flat.to_json(), nested.to_json()}
    assert len(texts) == 1


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=6), st.integers(0, 6))
def test_json_in_the_middle_changes_nothing(tasks: list[tuple[int, int, int]], cut: int) -> None:
    direct, left, right = Metrics(), Metrics(), Metrics()
    for i, numbers in enumerate(tasks):
        direct.merge(task(*numbers))
        (left if i < cut else right).merge(task(*numbers))
    again = Metrics.from_json(left.to_json()).merge(Metrics.from_json(right.to_json()))
    assert again.to_json() == direct.to_json()
    assert pickle.loads(pickle.dumps(again)).to_json() == direct.to_json()  # noqa: S301  (our own bytes)


def test_recording_after_merging_counts_as_one_more_task() -> None:
    total = Metrics().merge(task(10, 1, 1))
    total.add("rows_in", 30, side="left", per_task=True)
    total.add("rows_in", 30, side="left", per_task=True)
    assert total.tasks == 2
    assert total.as_dict()["rows_in.left"] == 70
    assert total.skew("rows_in", "left") == 60 / 35


def test_skew_of_idle_tasks() -> None:
    idle = Metrics()
    idle.add("x", 0, per_task=True)
    assert idle.skew("x") == 1.0
    busy = Metrics()
    busy.add("x", 5, per_task=True)
    assert Metrics().merge(idle).merge(idle).merge(idle).merge(busy).skew("x") == float("inf")


def test_one_name_has_one_meaning() -> None:
    metrics = Metrics()
    metrics.add("memory", 1, unit="bytes")
    for wrong in (lambda: metrics.add("memory", 1, unit="rows"), lambda: metrics.peak("memory", 1)):
        with pytest.raises(ValueError, match="Use another name"):
            wrong()
    other = Metrics()
    other.peak("memory", 3)
    with pytest.raises(ValueError, match="Use another name"):
        Metrics().merge(other).merge(metrics)


def test_the_table_shows_units_sides_and_notes() -> None:
    metrics = task(1000, 2048, 1_500_000_000)
    metrics.note("simulated device hdd")
    text = str(Metrics().merge(metrics).merge(metrics))
    assert [line.split() for line in text.splitlines()] == [
        ["metric", "side", "value", "largest", "task", "skew"],
        ["memory", "2", "KiB"],
        ["pairs", "6,000", "pairs", "3,000", "pairs"],
        ["probe", "3.000", "s", "1.500", "s"],
        ["rows_in", "left", "2,000", "rows", "1,000", "rows", "1.00"],
        ["rows_in", "right", "4,000", "rows", "2,000", "rows", "1.00"],
        ["note:", "simulated", "device", "hdd"],
    ]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"tasks":1,"notes":[],"entries":[{"name":"x"}]}', "null"])
def test_text_that_is_not_metrics_is_a_data_error(text: str) -> None:
    with pytest.raises(DataError, match="not metrics"):
        Metrics.from_json(text)
