"""Rows that leave the state of a bucket under watermarks, without a JVM: never before their last pair."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.online.frame.test_online_long import BUCKET, HEADER, Kept, answers_of

from dovetail.joins.interval.relation import Relation
from dovetail.joins.online import bucket_state, events
from dovetail.joins.online.bucket_join import BucketJoin, Pair
from dovetail.joins.online.graph import SIDES, Band, Predicate, pair_graph
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.lateness import lateness_of
from dovetail.joins.online.plan.buckets import OnlineBuckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import Terms
from dovetail.spark.hosts.resident import client
from dovetail.spark.hosts.stateful import Buckets

SECOND = 1_000_000
BAND = Band("at", "at", timedelta(seconds=-3), timedelta(seconds=5))
TIME = pa.timestamp("us", "UTC")
SCHEMAS = [pa.schema([(name, pa.int64()), ("at", TIME), ("end", TIME)]) for name in "ab"]
Rows = list[tuple[int, int]]


class Stream:
    """A bucket under a watermark of a minute, its rows so far, and the pairs that it gave."""

    near: ClassVar[Band | Intervals] = BAND

    def ends(self, times: list[int]) -> list[int]:
        """A second column of times."""
        return times

    def match(self, at: int, bt: int) -> bool:
        """Whether two rows match."""
        return -3 * SECOND <= bt - at <= 5 * SECOND

    def __init__(
        self, retain_ms: int | None = None, algorithm: str = "diner", memory: int = 1 << 20, owed: str = "batch"
    ) -> None:
        self.join, self.owed = (
            BucketJoin(algorithm, Pair((), self.near), memory, False, tuple(zip(SIDES, SCHEMAS, strict=True))),
            owed,
        )
        self.buckets = self.run_with(retain_ms, 60_000)
        self.came: tuple[Rows, Rows] = ([], [])
        self.found: Counter[tuple[int, int]] = Counter()
        self.schema = self.join.spec().layout(self.join.schemas).schema

    def run_with(self, retain_ms: int | None, delay_ms: int) -> TwsTester:
        """The bucket in a run of its own."""
        terms = Terms("diner", self.join.memory, 1, 25, self.owed, retain_ms, False)
        lateness = lateness_of(pair_graph(Predicate((), self.near)), 2 * [{"at": delay_ms}])
        schema, self.counts = answers_of(self.join), Kept()
        task = OnlineTask("leaving", self.join, terms, 1, False, schema, schema, self.counts, lateness)  # type: ignore[arg-type]  # `task` is all it needs
        return TwsTester(Buckets(OnlineBuckets(task)), timeMode="ProcessingTime", outputMode="Append")

    def restart(self, delay_ms: int, stored: Any = None) -> None:
        """A new run with another delay of watermarks, from what is stored."""
        stored = stored or self.buckets.peekMapState("events", BUCKET)
        self.buckets = self.run_with(None, delay_ms)
        self.buckets.updateMapState("events", BUCKET, stored)

    def repeat(self, now_ms: int, chunks: list[tuple[int, list[int]]], forgets: bool) -> None:
        """A micro-batch whose state is lost, and again: it gives the same pairs."""
        stored, found, counts = (
            self.buckets.peekMapState("events", BUCKET),
            self.found,
            [len(rows) for rows in self.came],
        )
        self.found = Counter()
        self.batch(now_ms, chunks)
        first, self.found = self.found, Counter()
        for rows, n in zip(self.came, counts, strict=True):
            del rows[n:]
        if forgets:
            client._POOL.close()
        self.restart(60_000, stored)
        self.batch(now_ms, chunks)
        assert self.found == first
        self.found = found + first

    def batch(self, now_ms: int, chunks: list[tuple[int, list[int]]]) -> None:
        """A micro-batch of (side, times) chunks."""
        lines: list[dict[str, Any]] = []
        for number, (side, times) in enumerate(chunks):
            rows = [(len(self.came[side]) + n, at) for n, at in enumerate(times)]
            self.came[side].extend(rows)
            columns = [pa.array([n for n, _ in rows]), pa.array(times, TIME), pa.array(self.ends(times), TIME)]
            data = pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[side]).serialize().to_pybytes()
            lines.append({"side": side, "part": 0, "number": number, "rows": data, "n": len(rows)})
        self._run(lines, now_ms, ends=False)

    def end(self, now_ms: int) -> None:
        """The end of both sides."""
        self._run([{"side": side, "part": 0, "number": 0, "rows": None, "n": 0} for side in (0, 1)], now_ms, ends=True)

    def _run(self, lines: list[dict[str, Any]], now_ms: int, ends: bool) -> None:
        frame = pd.DataFrame(lines).assign(ends=ends, dropped=0, now_ms=now_ms, rule='{"buckets": 1}')
        out = self.buckets.testInPandas(BUCKET, frame)
        for data in out["rows"] if len(out) else ():
            answer = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema).to_pydict()
            self.found.update(zip(answer["a"], answer["b"], strict=True))

    @property
    def pieces(self) -> int:
        return len(self.buckets.peekMapState("events", BUCKET)) - 1

    def check(self) -> None:
        """Every pair that matches once, and what can match nothing any more is gone."""
        left, right = self.came
        wanted = Counter((a, b) for a, at in left for b, bt in right if self.match(at, bt))
        missing, extra = (wanted - self.found).total(), (self.found - wanted).total()
        assert (missing, extra) == (0, 0), f"of {wanted.total()} pairs"
        assert json.loads(self.buckets.peekMapState("events", BUCKET)[HEADER][0])["first"] > 0


class Sessions(Stream):
    """Intervals of up to 50 seconds that match if they overlap; rows may leave once the watermark passes their end."""

    near: ClassVar[Band | Intervals] = Intervals((("at", "end"), ("at", "end")), Relation.parse("overlapping"))

    def ends(self, times: list[int]) -> list[int]:
        """The end of each interval, which depends on its start."""
        return [at + 1 + at * 7919 % (50 * SECOND) for at in times]

    def match(self, at: int, bt: int) -> bool:
        """Whether two intervals overlap."""
        (end,), (other,) = self.ends([at]), self.ends([bt])
        return at < other and bt < end


@pytest.mark.parametrize("retain_ms", [None, 10**9])
def test_a_burst_of_several_pieces_stays_for_as_long_as_its_own_rows_match(
    monkeypatch: pytest.MonkeyPatch, retain_ms: int | None
) -> None:
    """Forty quiet micro-batches, then a burst from far ahead: the watermark reaches it while its matches still come."""
    monkeypatch.setattr(events, "_PIECE", 16 << 10)
    stream, minute = Stream(retain_ms), 60 * SECOND
    for number in range(40):
        stream.batch(1000 * number, [(side, [number * SECOND // 100]) for side in (0, 1)])
    ahead = 100 * minute
    burst = [ahead + n * SECOND for n in range(1000)]
    stream.batch(50_000, [(0, burst[at : at + 100]) for at in range(0, 1000, 100)])
    for number, at in enumerate(range(0, 1000, 50)):
        stream.batch(51_000 + 1000 * number, [(1, burst[at : at + 50]), (0, [burst[at]])])
    stream.batch(200_000, [(side, [ahead + 100 * minute]) for side in (0, 1)])
    stream.batch(201_000, [(side, [ahead + 100 * minute]) for side in (0, 1)])
    stream.check()


@pytest.mark.parametrize("quiet", [40, 255, 256, 257])
def test_a_row_from_far_ahead_stays_however_many_pieces_there_are(monkeypatch: pytest.MonkeyPatch, quiet: int) -> None:
    """A piece a micro-batch; one left row is ten minutes ahead, and its match comes when the right side is there."""
    monkeypatch.setattr(bucket_state, "_OPEN", 1)
    stream = Stream()
    for number in range(quiet):
        stream.batch(200 * number, [(side, [number * SECOND // 100]) for side in (0, 1)])
    stream.batch(200 * quiet, [(0, [600 * SECOND]), (1, [6 * SECOND])])
    assert stream.pieces == quiet + 1
    for number, at in enumerate((*range(7, 20), *range(50, 700, 50), 10_000, 10_001)):
        stream.batch(10**6 + 200 * number, [(side, [at * SECOND]) for side in (0, 1)])
    stream.check()


def test_a_watermark_does_not_go_back_where_delays_grow() -> None:
    """Rows that it has passed are late and counted: their partners may have left."""
    stream = Stream()
    for number in range(6):
        stream.batch(1000 * number, [(side, [100 * number * SECOND]) for side in (0, 1)])
    stream.restart(delay_ms=600_000)
    stream.batch(10_000, [(1, [at * SECOND for at in (100, 450)])])  # it may be repeated: by the delay before, 440
    stream.batch(11_000, [(1, [at * SECOND for at in (200, 402, 500)])])
    assert stream.counts.metrics.value("late_rows", "right") == 3
    rows = stream.came[1]
    rows[-5:] = [rows[-4], rows[-1]]
    stream.check()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [64 << 10, 1 << 20])
@pytest.mark.parametrize("algorithm", ["diner", "pmj"])
@pytest.mark.parametrize("owed", ["batch", "idle"])
@pytest.mark.parametrize("kind", [Stream, Sessions])
def test_rows_leave_in_any_run_and_repeated_micro_batches_give_the_same(
    monkeypatch: pytest.MonkeyPatch, kind: type[Stream], owed: str, algorithm: str, memory: int, seed: int
) -> None:
    """Rows up to half a minute late, restarts, micro-batches whose state is lost, and tails that are soon too long."""
    monkeypatch.setattr(bucket_state, "_SHORT_TAIL", 4 << 10)
    rng, stream = np.random.default_rng(seed), kind(None, algorithm, memory, owed)
    for number in range(25):
        newest = (number + 1) * 30 * SECOND
        chunks = [(side, (newest - rng.integers(0, 30 * SECOND, 60)).tolist()) for side in (0, 1)]
        chance = rng.random()
        if chance < 0.2:
            client._POOL.close()
        if chance < 0.5 and number:
            stream.repeat(1000 * number, chunks, forgets=chance > 0.35)
        else:
            stream.batch(1000 * number, chunks)
    ends = [(side, [at * SECOND]) for side in (0, 1) for at in (10_000, 20_000)]
    for number, chunk in enumerate(ends):
        stream.batch(10**6 + number, [chunk])
    stream.end(2 * 10**6)
    stream.check()
