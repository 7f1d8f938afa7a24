"""Failures around an online join: disks that are full or slow, a source that never resumes, changed rows."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from tests.online.frame.cases import bag
from tests.online.frame.test_online_hosted import LEFT, PAIRS, RIGHT, Joins, drained, join_of, rows_of
from tests.online.frame.test_online_long import BUCKET, micro_batch, running
from tests.online.multiway.test_multi_hosted import bucket_join, tables_of

from dovetail.errors import ConfigError, DataError
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Running
from dovetail.joins.online.events import Event, Piece, pack_events
from dovetail.spark.hosts.exchange import pack


def pushes(start: int, n: int) -> list[Event]:
    tables = (LEFT.slice(start, n), RIGHT.slice(start, n))
    return [Event("push", side, rows=t.combine_chunks().to_batches()[0].serialize()) for side, t in enumerate(tables)]


@pytest.mark.parametrize("algorithm", ["diner", "hmj", "pmj"])
def test_a_full_disk_fails_the_micro_batch_and_its_next_attempt_goes_on(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, join = Joins(), join_of(algorithm)
    log, given = list[Piece](), list[list[bytes]]()
    before, real = "", os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    calls = [pushes(0, 200), pushes(200, 200), [Event("finish")]]
    for number, events in enumerate(calls):
        if number == 1:
            monkeypatch.setattr(os, "pwrite", full)
            with pytest.raises(ConfigError, match=r"no room to spill in .* free space there"):
                drained(pool.call("b", before, "lost", join, events, lambda: iter(log)))
            monkeypatch.setattr(os, "pwrite", real)
        answers, report = drained(pool.call("b", before, f"n{number}", join, events, lambda: iter(log)))
        assert report["replayed"] == (number < 2)
        given.append(answers)
        log.append(Piece(pack_events(events), settled=False))
        before = f"n{number}"
    assert rows_of(join, given) == PAIRS


def test_a_multiway_join_tells_that_the_disk_is_full_and_leaves_no_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = (("a.x", "b.x"), ("b.y", "c.y"))
    tables = tables_of(on, 900, domain=3000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    join = Running(bucket_join(on, tables, "miner"))
    written = [0]
    real = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        written[0] += 1
        if written[0] > 3:
            raise OSError(errno.EFBIG, "File too large")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    events = [
        Event("push", r, rows=t.slice(s, 100).combine_chunks().to_batches()[0].serialize())
        for s in range(0, 900, 100) for r, t in enumerate(tables.values())
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="no room to spill"):
        list(chain.from_iterable(join.apply(event) for event in events))
    join.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert join.operator.budget.used == 0


def test_a_slow_disk_delays_the_hand_over_by_one_unit_of_work_only(monkeypatch: pytest.MonkeyPatch) -> None:
    join, real, reads = Running(join_of("diner")), os.preadv, [0]
    slow_s = 0.003

    def slow(fd: int, buffers: Any, offset: int) -> int:
        reads[0] += 1
        time.sleep(slow_s)
        return real(fd, buffers, offset)

    for event in pushes(0, 400):
        list(join.apply(event))
    monkeypatch.setattr(os, "preadv", slow)
    outer = join.operator.spec.sizes.outer_blocks  # type: ignore[attr-defined]  # of every two-way join
    for _ in range(5):
        reads[0] = 0
        list(join.operator.idle(lambda: True))
        assert 1 <= reads[0] <= outer + 1
    assert join.operator.metrics.value("handover_delay") >= slow_s * 1e9
    join.close()


def test_a_source_that_never_resumes_gets_all_that_pauses_can_give_and_loses_nothing() -> None:
    """Pauses go on until nothing is left to do; days later the end comes, and everything that was owed."""
    join = join_of("diner")
    schema = join.spec().layout(join.schemas).schema
    found = list[dict[str, Any]]()

    def take(out: Any) -> int:
        rows = [r for data in out["rows"] for r in pa.ipc.read_record_batch(pa.py_buffer(data), schema).to_pylist()]
        found.extend(rows)
        return len(rows)

    with running(join, None, "idle") as (buckets, sink):
        batches = [table.combine_chunks().to_batches()[0] for table in (LEFT, RIGHT)]
        buckets.setProcessingTime(500)  # a bucket's first micro-batch always ends with nothing owed
        assert not len(buckets.testInPandas(BUCKET, micro_batch([batch.slice(0, 1) for batch in batches], 500)))
        buckets.setProcessingTime(1000)
        take(buckets.testInPandas(BUCKET, micro_batch([batch.slice(1) for batch in batches], 1000)))
        assert sum(take(out) for ms in range(1025, 2000, 25) if len(out := buckets.setProcessingTime(ms))) > 0
        assert not list(buckets.handle.listTimers())  # there is nothing left to wait for
        end = micro_batch([batch.slice(0, 0) for batch in batches], 10**9)
        end["rows"], end["ends"] = None, True
        take(buckets.testInPandas(BUCKET, end))
    assert bag(found) == PAIRS
    assert sink.metrics.value("results_reactive") > 0
    assert sink.metrics.value("results_cleanup") > 0


def test_rows_that_change_others_are_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("_change_type", pa.string())])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["insert", "update_postimage"])], schema=schema)
    join = BucketJoin("diner", Pair(("k",)), 1 << 20, False, (("left", schema), ("right", schema)))
    with running(join, None, "idle") as (buckets, _):
        task = buckets.processor.join.task
    with pytest.raises(DataError, match=r"left has rows with _change_type .*'update_postimage'.* = 'insert'"):
        list(pack(task, True, 0, iter([rows])))
    assert len(list(pack(task, True, 0, iter([rows.slice(0, 1)])))) == 1


def test_one_hot_key_is_seen_in_what_is_measured() -> None:
    counts: Counter[int] = Counter()
    spread = join_of("diner").bucket_rule(4)
    hot = pa.table({"k": [7] * 90 + list(range(10)), "a": range(100)}, schema=LEFT.schema)
    counts.update(spread.homes(0, hot.to_batches()[0]).buckets.tolist())
    assert max(counts.values()) >= 90
