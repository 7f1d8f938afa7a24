"""The operators that a worker keeps: used again, brought to new versions, dropped after failures, few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.frame.cases import page_store

from dovetail.engine.clock import VirtualClock, queued_ns
from dovetail.engine.metrics import Metrics
from dovetail.engine.storage.device import Device, DeviceModel
from dovetail.errors import ConfigError
from dovetail.joins.semistream.cost.reads import IoCosts, IoDone, dearer
from dovetail.joins.semistream.cost.setting import ReadCosts
from dovetail.joins.semistream.decision import Decision, Wiring
from dovetail.joins.semistream.master.page_file.reader import PageFile, PageFileSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.task import SESSIONS, EnrichTask, Session, add_growth, enrich_rows, stream_names
from dovetail.joins.semistream.request import EnrichOptions
from dovetail.joins.semistream.sizes import FITTED
from dovetail.joins.semistream.versions import VersionLog
from dovetail.spark.hosts.batch import reported


class Reports:
    """What tasks report, where a driver would collect it."""

    def __init__(self) -> None:
        self.all: list[Metrics] = []

    def task(self, metrics: Metrics) -> None:
        self.all.append(metrics)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    SESSIONS.close()
    yield
    SESSIONS.close()


def kept(plan: str) -> Session:
    """The session that this worker keeps for a plan."""
    return SESSIONS._kept[plan][2]


def words(word: str, keys: int = 200) -> pa.Table:
    return pa.table({"k": list(range(keys)), "word": [word] * keys})


def task_for(store: MasterStore, plan: str = "p", **asked: Any) -> EnrichTask:
    request = EnrichOptions(on="k", **{"memory": "256KB", "tune": "off", "algorithm": "cachejoin"} | asked).request()
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    names = stream_names(2)
    return EnrichTask(
        plan, store, request, Decision(request.algorithm, FITTED, "even split"),
        Wiring((names[1],), ("word",), request.how), 2, pa.schema([(n, pa.int64()) for n in names]), (0, 2),
        pa.schema([("id", pa.int64()), ("word", pa.string())]), schema, VersionLog("unused"), store.version(), False,
        Reports(),  # type: ignore[arg-type]  # all that tasks ask of a sink
    )  # fmt: skip


def batches(first: int = 0, rows: int = 100) -> list[pa.RecordBatch]:
    ids = list(range(first, first + rows))
    table = pa.table({"id": ids, "k": [n % 210 for n in ids]})
    return list(table.to_batches(max_chunksize=30))


def enriched(task: EnrichTask, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return reported(enrich_rows, task, task.sink, rows)


def words_of(task: EnrichTask, rows: list[pa.RecordBatch]) -> Counter[Any]:
    return Counter(word for batch in enriched(task, iter(rows)) for word in batch["word"].to_pylist())


def test_an_operator_serves_the_next_task_with_a_warm_cache(tmp_path: Path) -> None:
    task = task_for(page_store(tmp_path / "m.pages", words("w")))
    rows = [batch for _ in range(5) for batch in batches(rows=20)]
    assert words_of(task, rows) == {"w": 100}
    first = kept("p").operator
    assert words_of(task, rows) == {"w": 100}
    assert kept("p").operator is first
    reports: list[Metrics] = task.sink.all  # type: ignore[attr-defined]  # see Reports
    assert [report.value("rows") for report in reports] == [100, 100]
    assert reports[1].value("answered_by_cache") > reports[0].value("answered_by_cache")
    assert not first.waiting_rows


def test_a_new_version_is_taken_up_and_the_old_one_closed(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("old"))
    task = task_for(store)
    assert words_of(task, batches()) == {"old": 100}
    held = kept("p")
    page_store(tmp_path / "m.pages", words("new"))
    assert words_of(replace(task, version=store.version()), batches()) == {"new": 100}
    assert kept("p") is held
    assert words_of(task, batches()) == {"old": 100}


def test_a_version_too_large_for_the_sizes_opens_anew(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("small", keys=40))
    task = task_for(store, memory="40KB", algorithm="meshjoin")
    assert words_of(task, batches(rows=30)) == {"small": 30}
    page_store(tmp_path / "m.pages", words("large", keys=1500))
    later = replace(task, version=store.version())
    assert words_of(later, batches()) == {"large": 100}


@pytest.mark.parametrize("stop", ["failure", "limit"])
def test_an_operator_that_was_interrupted_is_not_used_again(tmp_path: Path, stop: str) -> None:
    store = page_store(tmp_path / "m.pages", words("w"))
    task = task_for(store)
    assert words_of(task, batches()) == {"w": 100}
    held = kept("p")

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise RuntimeError("the JVM went away")

    if stop == "failure":
        with pytest.raises(RuntimeError, match="went away"):
            list(enriched(task, rows()))
    else:
        answers: Any = enrich_rows(task, iter(batches()), Metrics())
        next(answers)
        answers.close()
    assert "p" not in SESSIONS._kept
    assert words_of(task, batches()) == {"w": 100}
    assert kept("p") is not held


def test_a_store_that_fails_leaves_nothing_behind_and_recovers(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("w", keys=3000))
    task = task_for(store, memory="64KB", algorithm="hybridjoin")
    rows_file = next((tmp_path / "m.pages" / "generation-1").glob("*.rows"))
    whole = rows_file.read_bytes()
    assert words_of(task, batches()) == {"w": 100}
    rows_file.write_bytes(whole[:100])
    with pytest.raises(ConfigError):
        words_of(task, batches())
    assert not SESSIONS._kept
    rows_file.write_bytes(whole)
    assert words_of(task, batches()) == {"w": 100}


def test_a_worker_keeps_few_operators(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("w"))
    for n in range(7):
        assert words_of(task_for(store, f"plan {n}"), batches()) == {"w": 100}
    assert list(SESSIONS._kept) == ["plan 3", "plan 4", "plan 5", "plan 6"]


def test_memory_is_split_anew_when_the_skew_moves(tmp_path: Path) -> None:
    """Even keys at first, which no cache helps; then few that all ask for."""
    store = page_store(tmp_path / "m.pages", words("w", keys=4000))
    task = replace(task_for(store, tune="model"), learns=True)
    rng = np.random.default_rng(1)
    even = [pa.record_batch({"id": np.arange(2000), "k": rng.integers(0, 4000, 2000)}) for _ in range(16)]
    skewed = [pa.record_batch({"id": np.arange(2000), "k": rng.zipf(1.5, 2000) % 4000}) for _ in range(16)]
    assert all(words_of(task, [rows]) == {"w": 2000} for rows in even[:5])
    before = kept("p").operator.sizes
    assert all(words_of(task, [rows]) == {"w": 2000} for rows in skewed)
    held = kept("p")
    reports: list[Metrics] = task.sink.all  # type: ignore[attr-defined]  # see Reports
    assert [at for at, report in enumerate(reports, 1) if report.value("resplits")] == [16]
    assert held.operator.sizes != before
    assert held.operator.budget.peak <= 256 << 10


class Priced(PageFileSource):
    """A page file on a simulated device whose price the test changes."""

    device = Device(DeviceModel("quick", seek_s=0.00001, bytes_per_s=5e6), VirtualClock())

    def open(self, version: str | None = None, device: Device | None = None) -> PageFile:
        return PageFileSource.open(self, version, self.device)


def test_memory_is_split_anew_when_reads_get_dearer(tmp_path: Path) -> None:
    """Even keys all the time; after some tasks every seek takes a thousand times as long: larger reads pay."""
    built = page_store(tmp_path / "m.pages", words("w", keys=60_000))
    store = replace(built, source=Priced(str(tmp_path / "m.pages")))
    task = replace(task_for(store, tune="model", algorithm="hybridjoin"), learns=True)
    rng, sizes = np.random.default_rng(1), []
    for n in range(20):
        if n == 6:
            Priced.device.model = DeviceModel("slow", seek_s=0.02, bytes_per_s=5e6)
        rows = pa.record_batch({"id": np.arange(1500), "k": rng.integers(0, 60_000, 1500)})
        assert words_of(task, [rows]) == {"w": 1500}
        sizes.append(kept("p").operator.sizes.per_segment or 0)
    reports: list[Metrics] = task.sink.all  # type: ignore[attr-defined]  # see Reports
    assert [at for at, report in enumerate(reports, 1) if report.value("resplits")] == [16]
    assert sizes[14] == sizes[0]
    assert sizes[16] == sizes[-1] > 2 * sizes[0]


def test_costs_of_reads_have_moved_only_if_much_was_read_and_far_from_assumed(tmp_path: Path) -> None:
    pages = page_store(tmp_path / "m.pages", words("w")).at()
    costs = IoCosts(ReadCosts.linear(0.001, 1e6))
    assert dearer(costs, IoDone(100, 100_000, 0.2), pages) is None  # as assumed
    assert dearer(costs, IoDone(100, 100_000, 1.0), pages) == pytest.approx(5.0)
    assert dearer(costs, IoDone(100, 100_000, 0.04), pages) == pytest.approx(0.2)
    assert dearer(costs, IoDone(1, 1_000, 0.019), pages) is None  # too little to tell
    assert dearer(None, IoDone(100, 100_000, 1.0), pages) is None
    twice = costs.times(2.0)
    assert twice.read.seconds(1000) == pytest.approx(2 * costs.read.seconds(1000))
    assert IoCosts(costs.read, 3e-6).times(2.0).look_up == pytest.approx(6e-6)
    pages.close()


def test_no_rows_open_nothing(tmp_path: Path) -> None:
    task = task_for(page_store(tmp_path / "m.pages", words("w")))
    assert list(enriched(replace(task, version="9-gone"), iter(batches(rows=0)))) == []


def test_micro_batches_much_larger_than_the_first_are_decided_for_again(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", words("w", keys=9_000))  # too many for a hash join
    task = replace(task_for(store, algorithm="auto", tune="model", memory="1MB"), learns=True)
    assert words_of(task, batches(rows=4)) == {"w": 4}
    first = kept("p")
    for _ in range(2):
        assert words_of(task, batches(rows=90)) == {"w": 90}
        assert kept("p") is first
    assert words_of(task, batches(rows=90)) == {"w": 90}
    assert "p" not in SESSIONS._kept
    assert words_of(task, batches(rows=90)) == {"w": 90}
    price = kept("p").decision.price
    assert price is not None
    assert price.setting is not None
    assert price.setting.batch_rows == 90


def test_reports_are_what_was_added() -> None:
    before, now = Metrics(), Metrics()
    before.add("rows", 3)
    now.add("rows", 10)
    now.add("loads", 2, unit="loads")
    now.peak("memory_peak", 7)
    found = Metrics()
    add_growth(found, now, before)
    assert (found.value("rows"), found.value("loads"), found.value("memory_peak")) == (7, 2, 7)


def test_waits_for_a_processor_only_grow() -> None:
    before = queued_ns()
    sum(range(100_000))
    assert 0 <= before <= queued_ns() < 1e15
