"""Backlog and latency from what Spark tells of offsets."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.record.follow import Arrivals, lags


def source(type_: str, **values: Any) -> Arrivals:
    return Arrivals(Step("source", "s", type_, values, values, ()))


def test_a_workload_tells_how_far_it_has_come() -> None:
    arrivals = source("workload")
    first = {"numInputRows": 100, "endOffset": {"row": 100}, "latestOffset": {"row": 300}}
    assert arrivals.batch(first, at=10.0, done=11.0) == {
        "latency_p50_s": 1.0, "latency_p95_s": 1.0, "latency_p99_s": 1.0,
    }  # fmt: skip
    assert arrivals.backlog == 200
    second = {"numInputRows": 100, "endOffset": {"row": 200}, "latestOffset": {"row": 400}}
    waited = arrivals.batch(second, at=11.0, done=13.0)
    assert arrivals.backlog == 200
    assert arrivals.rate == pytest.approx(50.0)
    # Rows 100 to 200 came between 10 s and 11 s, when 300 were there: row 150 at 10.25 s.
    assert waited["latency_p50_s"] == pytest.approx(13 - 10.25)
    assert waited["latency_p99_s"] == pytest.approx(13 - 10.005)
    assert waited["latency_p50_s"] < waited["latency_p95_s"] < waited["latency_p99_s"]


def test_rows_without_backlog_came_since_the_batch_before() -> None:
    arrivals = source("csv")
    arrivals.batch({"numInputRows": 10, "metrics": None}, at=0.0, done=1.0)
    waited = arrivals.batch({"numInputRows": 10}, at=2.0, done=2.5)
    assert waited["latency_p50_s"] == pytest.approx(2.5 - 1.0)
    assert arrivals.backlog is None
    assert arrivals.batch({"numInputRows": 0}, at=3.0, done=3.5) == {}


def test_kafka_rate_and_files() -> None:
    kafka = source("kafka")
    kafka.batch(
        {"numInputRows": 3, "endOffset": {"t": {"0": 3, "1": 0}}, "latestOffset": {"t": {"0": 5, "1": 4}}}, 0.0, 1.0
    )
    assert kafka.backlog == 6
    progress = {"endOffset": {"t": {"0": 3, "10": 9}}, "latestOffset": {"t": {"10": 9, "2": 4, "0": 5}, "s": {"0": 1}}}
    found = [(lag.topic, lag.partition, lag.read, lag.newest, lag.behind) for lag in lags(progress)]
    assert found == [("s", 0, 0, 1, 1), ("t", 0, 3, 5, 2), ("t", 2, 0, 4, 4), ("t", 10, 9, 9, 0)]
    assert lags({"endOffset": 3}) == []
    rate = source("rate", rows_per_second=10)
    rate.batch({"numInputRows": 3, "endOffset": 2, "latestOffset": 5}, 0.0, 1.0)
    assert rate.backlog == 30
    files = source("parquet")
    files.batch({"numInputRows": 7, "metrics": {"numFilesOutstanding": "4"}}, 0.0, 1.0)
    assert files.backlog == 28
