"""Buckets as Spark runs them, without a JVM: state stays as large as what is retained, and is of one join only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.online.frame.cases import bag

from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Tree
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.plan.buckets import OnlineBuckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import Terms
from dovetail.spark.hosts.stateful import Buckets

SCHEMAS = [pa.schema([("k", pa.int64()), (name, pa.int64())]) for name in "abc"]
BUCKET = 0
HEADER = (-1,)


class Kept:
    """A sink that keeps what was told."""

    def __init__(self) -> None:
        self.metrics = Metrics()

    def task(self, metrics: Metrics) -> None:
        """Take it in."""
        self.metrics.merge(metrics)


def two(memory: int = 64 << 10) -> BucketJoin:
    return BucketJoin("diner", Pair(("k",)), memory, False, (("left", SCHEMAS[0]), ("right", SCHEMAS[1])))


def three() -> BucketJoin:
    inputs = tuple(zip("abc", SCHEMAS, strict=True))
    return BucketJoin("miner", Tree((("a.k", "b.k"), ("b.k", "c.k"))), 128 << 10, False, inputs)


def answers_of(join: BucketJoin) -> pa.Schema:
    """The columns of the answers."""
    spec = join.spec()
    return spec.layout(join.schemas).schema if isinstance(spec, OnlineJoin) else spec.schema(join.schemas)


@contextmanager
def running(join: BucketJoin, retain_ms: int | None, owed: str) -> Iterator[tuple[TwsTester, Kept]]:
    """A bucket as Spark would run it, and what it counts."""
    terms = Terms("diner", join.memory, 1, 25, owed, retain_ms, False)
    sink, schema = Kept(), answers_of(join)
    task = OnlineTask("plan", join, terms, 1, False, schema, schema, sink)  # type: ignore[arg-type]  # `task` is all it needs
    yield TwsTester(Buckets(OnlineBuckets(task)), timeMode="ProcessingTime", outputMode="Append"), sink


def micro_batch(batches: list[pa.RecordBatch], now_ms: int, rule: str = '{"buckets": 1}') -> pd.DataFrame:
    """Rows of each side as they come from the shuffle."""
    return pd.DataFrame(
        {
            "side": range(len(batches)), "part": 0, "number": 0, "ends": False, "dropped": 0, "now_ms": now_ms,
            "rows": [batch.serialize().to_pybytes() for batch in batches], "n": [b.num_rows for b in batches],
            "rule": rule,
        }
    )  # fmt: skip


def rows_at(step: int, inputs: int, n: int = 20) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(step)
    keys = [rng.integers(0, 40, n) for _ in range(inputs)]
    return [
        pa.RecordBatch.from_arrays([pa.array(k), pa.array(np.arange(n) + 100 * step)], schema=SCHEMAS[side])
        for side, k in enumerate(keys)
    ]


def test_a_bucket_that_owes_nothing_has_no_timer() -> None:
    for memory, timers in ((4 << 20, 0), (32 << 10, 1)):
        with running(two(memory), None, "idle") as (buckets, _):
            for step in range(1, 4):
                buckets.setProcessingTime(1000 * step)
                buckets.testInPandas(BUCKET, micro_batch(rows_at(step, 2, 400), 1000 * step))
                assert len(list(buckets.handle.listTimers())) == timers * (step > 1), (memory, step)


@pytest.mark.parametrize(("make", "owed"), [(two, "batch"), (three, "idle")])
def test_state_of_a_long_stream_stays_as_it_is(make: Any, owed: str) -> None:
    """A micro-batch a second, the last ten seconds are retained."""
    join, sizes, pieces = make(), list[int](), list[int]()
    with running(join, 10_000, owed) as (buckets, sink):
        for step in range(1, 81):
            buckets.setProcessingTime(1000 * step)
            buckets.testInPandas(BUCKET, micro_batch(rows_at(step, len(join.names)), 1000 * step))
            buckets.setProcessingTime(1000 * step + 500)  # a pause
            stored = buckets.peekMapState("events", BUCKET)
            header = json.loads(stored.pop(HEADER)[0])
            sizes.append(sum(len(data[0]) for data in stored.values()))
            pieces.append(len(stored))
            assert sum(span[1] for span in header["spans"]) == sizes[-1]
    assert max(sizes[20:]) <= 1.3 * max(sizes[:20])
    assert max(pieces) <= 48
    assert 0.9 * max(sizes) < sink.metrics.value("bucket_state") <= max(sizes)
    assert sink.metrics.value("bucket_rows") == 80 * 20 * len(join.names)


def test_pieces_are_few_where_nothing_leaves_and_rebuild_the_join() -> None:
    join, given = two(1 << 20), list[dict[str, Any]]()
    schema = join.spec().layout(join.schemas).schema
    stored: dict[Any, Any] = {}
    header: dict[str, Any] = {}
    for first in (0, 45):
        with running(join, 10**9, "batch") as (buckets, _):
            if header:
                buckets.updateMapState("events", BUCKET, stored | {HEADER: (json.dumps(header).encode(),)})
            for step in range(first, first + 45):
                out = buckets.testInPandas(BUCKET, micro_batch(rows_at(step, 2), 1000 * step))
                for data in out["rows"] if len(out) else ():
                    given += pa.ipc.read_record_batch(pa.py_buffer(data), schema).to_pylist()
            stored = buckets.peekMapState("events", BUCKET)
            header = json.loads(stored.pop(HEADER)[0]) | {"nonce": "of a process that is gone"}
            assert len(stored) <= 34
    sides = [[row for step in range(90) for row in rows_at(step, 2)[side].to_pylist()] for side in (0, 1)]
    wanted = Counter((a["k"], a["a"], b["b"]) for a in sides[0] for b in sides[1] if a["k"] == b["k"])
    assert bag(given) == wanted


def test_state_of_another_join_is_refused() -> None:
    with running(two(), 10**9, "batch") as (buckets, _):
        buckets.testInPandas(BUCKET, micro_batch(rows_at(1, 2), 1000))
        stored = buckets.peekMapState("events", BUCKET)
    other = BucketJoin("diner", Pair((("k", "b"),)), 64 << 10, False, (("left", SCHEMAS[0]), ("right", SCHEMAS[1])))
    with running(other, 10**9, "batch") as (buckets, _):
        buckets.updateMapState("events", BUCKET, stored)
        with pytest.raises(
            ConfigError, match=r"the state of another online join: on: .*'k', 'k'.* there, .*'k', 'b'.* here"
        ):
            buckets.testInPandas(BUCKET, micro_batch(rows_at(2, 2), 2000))
