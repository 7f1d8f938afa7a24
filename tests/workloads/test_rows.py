"""The guarantees of every workload: the same rows in any batch size, any range, any process; examples that run."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import pickle
import pkgutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dovetail import workloads
from dovetail.errors import PlanError
from dovetail.workloads import BLOCK_ROWS, Workload

N = 2 * BLOCK_ROWS + 1234

WORKLOADS: dict[str, Workload] = {
    "zipf": workloads.zipf_stream(rows=N, domain=5000, arrivals="poisson(1000, 4, 0.3)", seed=1, tuple_bytes=40),
    "bursty": workloads.zipf_stream(rows=N, domain=10**9, arrivals="bursty(1000, 6)", seed=2, scattered=True),
    "drift": workloads.zipf_stream(rows=N, domain=100, drift_rows=20_000, absent=0.1, seed=3),
    "master": workloads.master(domain=N, seed=4, order="frequency", tuple_bytes=30),
    "master with defects": workloads.master(domain=N, seed=5, order="shuffled", missing=0.1, nulls=0.1),
    "lambda intervals": workloads.lambda_intervals(time_range=5000, classes="5x5, 10x100", padding=3),
    "intervals": workloads.intervals(rows=N, lengths="0.5 pareto(1.1) + 0.5 fixed(3)", keys=9, hot_share=0.3, seed=6),
    "orders": workloads.orders(rows=N, seed=7),
    "products": workloads.products(products=N, seed=8),
    "shipments": workloads.shipments(rows=N, seed=9),
    "promotions": workloads.promotions(rows=N, seed=10),
    **{f"relation {name}": workloads.relation(name, rows=N, seed=12) for name in workloads.RELATION_SETS},
}

everyone = pytest.mark.parametrize("name", WORKLOADS)


def stored(table: pa.Table) -> bytes:
    """The bytes of the rows as an Arrow stream of one batch, which no slicing or chunking can change."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@everyone
def test_batch_size_does_not_change_the_bytes(name: str) -> None:
    workload = WORKLOADS[name]
    whole = workload.table()
    assert whole.num_rows == workload.rows
    for size in (1000, BLOCK_ROWS - 1, 10**9):
        batches = list(workload.batches(batch_rows=size))
        assert all(batch.num_rows == min(size, workload.rows) for batch in batches[:-1])
        assert stored(pa.Table.from_batches(batches)) == stored(whole)


@everyone
def test_any_range_is_that_part_of_the_whole(name: str) -> None:
    workload = WORKLOADS[name]
    whole = workload.table()
    rng = np.random.default_rng(1)
    edges = {
        0,
        1,
        BLOCK_ROWS - 1,
        BLOCK_ROWS,
        BLOCK_ROWS + 1,
        workload.rows,
        *rng.integers(0, workload.rows, 3).tolist(),
    }
    for start in edges:
        for stop in edges:
            part = workload.table(start, stop)
            assert part.equals(whole.slice(start, max(0, stop - start))), (start, stop)


def test_batches_of_one_row() -> None:
    few = workloads.orders(rows=7, seed=1)
    assert [batch.num_rows for batch in few.batches(batch_rows=1)] == [1] * 7
    assert stored(pa.Table.from_batches(few.batches(batch_rows=1))) == stored(few.table())


@pytest.mark.parametrize("name", ["bursty", "drift", "intervals"])
def test_fewer_rows_are_a_prefix_of_more(name: str) -> None:
    workload = WORKLOADS[name]
    fewer = replace(workload, rows=BLOCK_ROWS + 10)  # type: ignore[type-var]  # every workload is a dataclass
    assert fewer.table().equals(workload.table(0, BLOCK_ROWS + 10))


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "lambda intervals"])
def test_another_seed_gives_other_rows(name: str) -> None:
    workload = WORKLOADS[name]
    other = replace(workload, seed=99)  # type: ignore[type-var]  # every workload is a dataclass
    assert not other.table().equals(workload.table())


@everyone
def test_a_copy_sent_to_another_process_is_the_same(name: str) -> None:
    workload = WORKLOADS[name]
    assert pickle.loads(pickle.dumps(workload)) == workload  # noqa: S301  (our own bytes)


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from dovetail import workloads as w; "
        "print(hashlib.sha256(w.zipf_keys(100_000, 10**7, 0.9, 3, scattered=True).tobytes()).hexdigest())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {
        hashlib.sha256(workloads.zipf_keys(100_000, 10**7, 0.9, 3, scattered=True).tobytes()).hexdigest()
    }


def test_no_rows_are_an_empty_table() -> None:
    table = workloads.intervals(rows=0).table()
    assert table.num_rows == 0
    assert table.schema.names == ["id", "key", "start", "end"]


def test_a_bad_range_is_refused() -> None:
    with pytest.raises(PlanError, match="start must not be negative"):
        list(workloads.orders(rows=3).batches(-1))
    with pytest.raises(PlanError, match="batch_rows must be an integer >= 1"):
        list(workloads.orders(rows=3).batches(batch_rows=0))
    with pytest.raises(PlanError, match="rows must be an integer >= 0"):
        workloads.orders(rows=-1)


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(workloads.__path__, "dovetail.workloads.")])
def test_documented_examples_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_overview_runs() -> None:
    result = doctest.testmod(workloads)
    assert result.attempted > 0
    assert result.failed == 0
