"""Options of the sources as text, and the readers' bookkeeping, without a JVM."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from dovetail.errors import PlanError
from dovetail.workloads import BLOCK_ROWS, Master, ZipfStream, master, orders, relation, zipf_stream
from dovetail.workloads.arrivals import Bursty, parse_arrivals
from dovetail.workloads.options import split_options
from dovetail.workloads.source import READING, SOURCES, Reading, Rows, StreamReader, ZipfSource


def test_options_become_the_arguments_of_the_workload() -> None:
    given = {
        "rows": "10",
        "tupleBytes": "40",
        "EXPONENT": "0.5",
        "scattered": "True",
        "arrivals": "bursty",
        "partitions": "3",
    }
    workload, how = split_options(given, zipf_stream, READING)
    assert workload == ZipfStream(10, 100_000, 0.5, scattered=True, tuple_bytes=40, arrivals=Bursty())
    assert how == {"partitions": 3}


def test_words_and_optional_numbers() -> None:
    assert split_options({"order": "shuffled"}, master, READING)[0] == Master(100_000, order="shuffled")
    assert split_options({"set": "delays", "x": "20"}, relation, READING)[0] == relation("delays", x=20.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rowz": "3"}, "unknown option 'rowz': did you mean 'rows'. Allowed: absent, "),
        ({"partition": "3"}, "did you mean 'partitions'"),
        ({"rows": "many"}, "option rows must be a whole number, not 'many'"),
        ({"rows": "1.5"}, "option rows must be a whole number"),
        ({"exponent": "x"}, "option exponent must be a number"),
        ({"scattered": "yes"}, "Allowed: false, true"),
        ({"law": "discret"}, "did you mean 'discrete'"),
        ({"rows": "-5"}, "rows must be an integer >= 0, not -5"),
        ({"arrivals": "burst"}, "did you mean 'bursty'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        split_options(options, zipf_stream, READING)


def test_every_source_has_its_own_name_and_a_schema() -> None:
    assert len({source.name() for source in SOURCES}) == len(SOURCES)
    for source in SOURCES:
        built = source({})
        assert built.schema().fieldNames() == built.workload.schema.names


@pytest.mark.parametrize("partitions", [0, 1, 3, 50])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (5, 5), (0, 10), (7, 3 * BLOCK_ROWS)])
def test_partitions_cover_the_rows_once(partitions: int, start: int, stop: int) -> None:
    parts = Reading(partitions=partitions).ranges(start, stop)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(start, stop))
    assert all(part.stop > part.start for part in parts)
    assert not partitions or len(parts) <= partitions


def test_negative_reading_options_are_refused() -> None:
    with pytest.raises(PlanError, match="rows_per_batch must not be negative"):
        ZipfSource({"rowsPerBatch": "-1"})


def test_a_stream_advances_by_its_limit_and_stops_at_the_end() -> None:
    reader = StreamReader(orders(rows=25), Reading(rows_per_batch=10))
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    offset, seen = reader.initialOffset(), []
    for _ in range(4):
        after = reader.latestOffset(offset, ReadMaxRows(10))
        seen.append(after["row"])
        offset = after
    assert seen == [10, 20, 25, 25]
    assert reader.latestOffset({"row": 3}, ReadAllAvailable()) == {"row": 25}
    assert StreamReader(orders(rows=25), Reading()).getDefaultReadLimit() == ReadAllAvailable()
    assert reader.partitions({"row": 25}, {"row": 25}) == []


def test_a_rate_lets_rows_through_as_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("dovetail.workloads.source.time.monotonic", lambda: now[0])
    reader = StreamReader(orders(rows=1000), Reading(rows_per_second=10.0))
    assert reader.latestOffset({"row": 40}, ReadAllAvailable()) == {"row": 40}
    now[0] += 2.55
    assert reader.latestOffset({"row": 40}, ReadAllAvailable()) == {"row": 65}
    assert reader.latestOffset({"row": 40}, ReadMaxRows(5)) == {"row": 45}
    now[0] += 1e6
    assert reader.latestOffset({"row": 65}, ReadAllAvailable()) == {"row": 1000}


@pytest.mark.parametrize("pace", ["poisson(500, 4, 0.5)", "bursty(100000, 10)", "constant(250)"])
def test_a_pace_lets_each_row_through_at_its_time(pace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr("dovetail.workloads.source.time.monotonic", lambda: now[0])
    workload = orders(rows=3 * BLOCK_ROWS - 7, seed=11)
    blocks = [parse_arrivals(pace).times_us(11, "pace", b, BLOCK_ROWS, workload.rows) for b in range(3)]
    times = np.concatenate(blocks)[: workload.rows]
    for first in (0, 3, BLOCK_ROWS - 1, 2 * BLOCK_ROWS, workload.rows - 1):
        reader = StreamReader(workload, Reading(pace=pace))
        reader.latestOffset({"row": first}, ReadAllAvailable())  # the clock starts here
        for seconds in (0.0, 0.013, 1.7, 40.0, 1e5):
            now[0] += seconds
            arrived = int(np.searchsorted(times, times[first] + int((now[0] - 5.0) * 1e6), side="right"))
            assert reader.latestOffset({"row": first}, ReadAllAvailable()) == {"row": max(first, arrived)}
            assert reader.reportLatestOffset() == {"row": max(first, arrived)}
        now[0] = 5.0
    assert reader.latestOffset({"row": workload.rows}, ReadAllAvailable()) == {"row": workload.rows}


def test_a_pace_is_checked_at_once() -> None:
    with pytest.raises(PlanError, match="both say when rows arrive"):
        Reading(pace="bursty", rows_per_second=5.0)
    with pytest.raises(PlanError, match="burst"):
        Reading(pace="burst(3)")


def test_a_run_to_the_end_takes_no_notice_of_the_rate() -> None:
    reader = StreamReader(orders(rows=1000), Reading(rows_per_second=1e-6))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"row": 0}, ReadAllAvailable()) == {"row": 1000}


def test_a_replay_of_any_offsets_gives_the_same_rows() -> None:
    workload = orders(rows=1000, seed=3)
    readers = [StreamReader(workload, Reading(partitions=n)) for n in (1, 4)]
    for start, end in ((0, 10), (10, 700), (300, 1000)):
        once, again = (
            [row for part in r.partitions({"row": start}, {"row": end}) for b in r.read(part) for row in b.to_pylist()]
            for r in readers
        )
        assert once == again == workload.table(start, end).to_pylist()


def test_only_our_partitions_are_read() -> None:
    from pyspark.sql.datasource import InputPartition

    with pytest.raises(PlanError, match="must be Rows"):
        StreamReader(orders(rows=1), Reading()).read(InputPartition(1))
    assert repr(Rows(1, 2)) == "Rows(start=1, stop=2)"
