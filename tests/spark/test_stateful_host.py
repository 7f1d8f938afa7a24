"""The stateful host with a join of its own, without a JVM: packets, order, timers, and state that has a format."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from dovetail.errors import ConfigError
from dovetail.spark.hosts import stateful
from dovetail.spark.hosts.exchange import Exchange, Homes, label, pack
from dovetail.spark.hosts.stateful import Arrivals, BucketCall, Buckets

ROWS = pa.schema([("n", pa.int64())])
HEADER = (-1,)


class Modulo:
    """Rows by their number, but for negative ones."""

    count, rule = 3, '{"modulo": 3}'

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        n = rows.column(0).to_numpy()
        kept = np.flatnonzero(n >= 0)
        order = kept[np.argsort(n[kept] % 3, kind="stable")]
        return order, n[order] % 3, int((n < 0).sum())


@dataclass(frozen=True)
class Sums:
    """The sum of a bucket's numbers so far; a second after a micro-batch also its negative."""

    calls_all: bool = False
    marked: bool = False
    chunk_bytes: int = 1 << 20
    state_name: str = "sums"
    state_format: int = 7
    arrival_bytes: int | None = None

    def exchange(self) -> AbstractContextManager[Exchange]:
        return nullcontext(Modulo())

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def answer(self, call: BucketCall) -> Iterator[pa.RecordBatch]:
        head = call.state.load()
        total = 0 if head is None else int(call.state.piece(0))
        if call.arrived is None:
            yield numbers(-total)
        else:
            total += sum(sum(batch.column(0).to_pylist()) for batch in call.arrived.batches(ROWS))
            call.state.wake_ms = call.now_ms + 1000
            yield numbers(total)
        call.state.put(0, str(total).encode())
        call.state.store({"calls": 1 + (head or {"calls": 0})["calls"]})


def numbers(*found: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(found, pa.int64())], schema=ROWS)


def packets(join: Sums, *batches: pa.RecordBatch) -> pd.DataFrame:
    return pd.concat([batch.to_pandas() for batch in pack(join, True, 0, iter(batches))]).assign(now_ms=5000)


def started(join: Sums) -> TwsTester:
    return TwsTester(Buckets(join, ["c0"]), timeMode="ProcessingTime", outputMode="Append")


def test_a_bucket_gets_its_rows_in_order_and_is_woken_once() -> None:
    join, buckets = Sums(), started(Sums())
    buckets.setProcessingTime(5000)
    for times in (1, 2):
        some = packets(join, numbers(1, 4, 2), numbers(-1, 7))
        some = some[some["bucket"] == label(1)].drop(columns="bucket")
        assert buckets.testInPandas(label(1), some)["c0"].tolist() == [12 * times]
    assert len(list(buckets.handle.listTimers())) == 1
    assert buckets.setProcessingTime(6001)["c0"].tolist() == [-24]
    assert not len(buckets.setProcessingTime(9000))
    stored = buckets.peekMapState("sums", label(1))
    assert json.loads(stored[HEADER][0]) == {"layout": 1, "format": 7, "timer": None, "calls": 3}
    assert stored[(0,)] == (b"24",)


@pytest.mark.parametrize(("calls_all", "called"), [(False, [0, 0, 1]), (True, [0, 0, 1, 2])])
def test_the_first_bucket_hears_of_all_batches_and_others_if_asked(calls_all: bool, called: list[int]) -> None:
    found = packets(Sums(calls_all, chunk_bytes=1), numbers(1, 4, -5), numbers(-7, -8))
    assert sorted(found["bucket"]) == sorted(label(bucket) for bucket in called)
    assert (found["dropped"].sum(), found["n"].sum(), set(found["rule"])) == (3, 2, {'{"modulo": 3}'})


def test_the_end_of_an_input_is_told_to_all_buckets() -> None:
    marked = pa.record_batch({"n": [3, 6], "end": [False, True]})
    found = packets(Sums(marked=True), marked)
    assert found[found["ends"]]["bucket"].tolist() == [label(bucket) for bucket in range(3)]
    assert found[~found["ends"]]["n"].tolist() == [2]


@pytest.mark.parametrize(("part", "number"), [("layout", 0), ("format", 6)])
def test_state_of_another_format_is_refused(part: str, number: int) -> None:
    buckets = started(Sums())
    some = packets(Sums(), numbers(3)).drop(columns="bucket")
    buckets.testInPandas(label(0), some)
    stored = buckets.peekMapState("sums", label(0))
    stored[HEADER] = (json.dumps(json.loads(stored[HEADER][0]) | {part: number}).encode(),)
    buckets.updateMapState("sums", label(0), stored)
    with pytest.raises(ConfigError, match=r"state of format (0\.7|1\.6), and this version .* reads format 1\.7"):
        buckets.testInPandas(label(0), some)


def test_a_piece_that_is_missing_is_told() -> None:
    buckets = started(Sums())
    some = packets(Sums(), numbers(3)).drop(columns="bucket")
    buckets.testInPandas(label(0), some)
    stored = buckets.peekMapState("sums", label(0))
    other = started(Sums())
    other.updateMapState("sums", label(0), {HEADER: stored[HEADER]})
    with pytest.raises(ConfigError, match="piece 0 of the state is missing"):
        other.testInPandas(label(0), some)


@pytest.mark.parametrize("limit", [0, 3, 1 << 20, None])
def test_arrivals_beyond_their_share_wait_on_disk(tmp_path: Path, limit: int | None) -> None:
    names = [(n, part, side) for n in range(4) for part in range(3) for side in range(2)]
    rows = {name: numbers(*name) for name in names}
    size = len(rows[names[0]].serialize())
    limit = limit if limit is None else min(limit * size, 1 << 20)
    order = random.Random(1).sample(names, len(names))  # noqa: S311  (an order, not a secret)
    with Arrivals(limit, tmp_path) as arrived:
        for number, part, side in order:
            data: dict[str, Any] = {"number": number, "part": part, "side": side, "now_ms": 7 + number, "n": 3}
            bytes_ = rows[number, part, side].serialize().to_pybytes()
            arrived.take(pd.DataFrame([data | {"dropped": 0, "ends": False, "rule": "", "rows": bytes_}]))
        assert limit is None or arrived.held_bytes <= limit
        assert (arrived.spilled_bytes > 0) == (limit is not None and limit < len(names) * size)
        assert (arrived.latest_ms, arrived.is_empty) == (10, False)
        assert [packet[:3] for packet in arrived.packets] == names
        assert list(arrived.batches(ROWS)) == [rows[name] for name in names]
        assert arrived.held_bytes == 0
    assert not list(tmp_path.rglob("arrivals*"))


def test_types_that_pandas_does_not_have_as_they_are_travel_packed() -> None:
    from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

    plain = T.StructType().add("a", T.LongType()).add("b", T.DecimalType(10, 2))
    assert stateful.is_flat(plain)
    assert not stateful.is_flat(T.StructType().add("a", T.ArrayType(T.LongType())))


def test_the_interpreter_of_the_driver_loads_no_kernels() -> None:
    """Spark starts it for every new query, to ask for the state variables."""
    code = (
        "import sys, pickle, dovetail.spark.hosts.stateful; assert 'numba' not in sys.modules; "
        "assert pickle.loads(sys.stdin.buffer.read()).state_name == 'sums'; assert 'tests' not in sys.modules"
    )
    pickled = pickle.dumps(Buckets(Sums()))
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
