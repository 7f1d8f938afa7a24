"""The record of a run: bounded, exact in its totals, safe with threads, and the same after it was saved."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from dovetail.errors import DataError, PlanError
from dovetail.pipeline.record.watch import MOST_SAMPLES, Lag, Node, Watch

NODES = [Node("orders", "source", "rate", "10 rows/s"), Node("out", "sink", "memory")]


def _watch() -> Watch:
    return Watch("shop", NODES, [("orders", "out")])


def _json(watch: Watch) -> object:
    return json.loads(json.dumps({**watch._content(), "seconds": round(watch.seconds, 3)}))


def test_samples_are_thinned_and_the_newest_total_is_exact() -> None:
    watch = _watch()
    for rows in range(5 * MOST_SAMPLES):
        watch.add("orders", {"rows_in": rows})
    samples = watch.samples("orders")
    assert len(samples) <= MOST_SAMPLES
    assert samples[0].values == {"rows_in": 0.0}
    assert samples[-1].values == {"rows_in": 5 * MOST_SAMPLES - 1}
    assert [s.at for s in samples] == sorted(s.at for s in samples)
    assert watch.samples("orders", since=samples[-2].at)[-1:] == samples[-1:]
    assert watch.samples("out") == []


def test_latest_joins_the_newest_values_and_leaves_out_what_is_no_number() -> None:
    watch = _watch()
    watch.add("out", {"rows_in": 1, "batch_s": float("nan")})
    watch.add("out", {"rows_in": 2, "batch": 7})
    assert watch.latest("out") == {"rows_in": 2.0, "batch": 7.0}


def test_measured_stands_beside_predicted() -> None:
    watch = _watch()
    watch.predict("out", [("service", "10 rows/s"), ("memory", "4 MiB")])
    watch.measured("out", {"memory": "3 MiB", "spills": "0"})
    assert watch.explained("out") == [
        ("service", "10 rows/s", None),
        ("memory", "4 MiB", "3 MiB"),
        ("spills", "", "0"),
    ]
    assert watch.explained("orders") == []


def test_states() -> None:
    watch = _watch()
    seen: list[str] = [watch.state]
    watch.run()
    seen.append(watch.state)
    with pytest.raises(PlanError, match="ends as"):
        watch.end("running")
    watch.end("stopped")
    watch.end("failed")
    watch.run()
    assert [*seen, watch.state] == ["starting", "running", "stopped"]


def test_a_saved_record_is_the_same(tmp_path: Path) -> None:
    watch = _watch()
    watch.run()
    watch.add("orders", {"rows_in": 3})
    watch.predict("out", [("service", "10 rows/s")])
    watch.lag("orders", [Lag("t", 0, 3, 9)])
    watch.lag("orders", [Lag("t", 0, 4, 9), Lag("t", 1, 2, 2)])
    watch.error("out", "lost")
    watch.error(None, "all lost")
    watch.end("failed")
    again = Watch.load(watch.save(tmp_path / "deep" / "watch.json"))
    assert _json(again) == _json(watch)
    assert again.seconds == pytest.approx(watch.seconds)
    assert again.samples("orders") == watch.samples("orders")
    assert again.explained("out") == watch.explained("out")
    assert [lag.behind for lag in again.lags("orders")] == [5, 0]
    assert again.lags("out") == []
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["watch.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "other", "version": 1}', '{"format": "dovetail-watch", "version": 1}']
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "watch.json"
    path.write_text(text)
    with pytest.raises(DataError, match="no record of a run"):
        Watch.load(path)


def test_unknown_steps_and_loose_edges_are_refused() -> None:
    with pytest.raises(PlanError, match="no step 'other'"):
        _watch().add("other", {})
    with pytest.raises(PlanError, match="edges"):
        Watch("shop", NODES, [("orders", "nowhere")])
    with pytest.raises(PlanError, match="distinct"):
        Watch("shop", [*NODES, NODES[0]], [])
    with pytest.raises(PlanError, match="kind of step"):
        Node("x", "table", "csv")  # type: ignore[arg-type]  # the error is the test


def test_many_threads_may_write() -> None:
    watch = _watch()

    def write() -> None:
        for rows in range(500):
            watch.add("orders", {"rows_in": rows})
            watch.samples("orders")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(watch.samples("orders")) == 2_000
