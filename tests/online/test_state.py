"""The plain parts: pages of rows, the directory of blocks, the nested loop's positions, the curve of results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.clock import VirtualClock
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.online.answers import Progress
from dovetail.joins.online.blocks import Directory, Entry
from dovetail.joins.online.operators.block_loop import Odometer
from dovetail.joins.online.row_pages import RowPages

Met = Counter[tuple[int, int]]


def test_pages_keep_what_is_alive_and_little_else() -> None:
    rng = np.random.default_rng(1)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    refs = np.zeros(2000, np.int64)
    budget = MemoryBudget(1 << 20)
    pages = RowPages(schema, budget.reserve("rows"), refs, page_bytes=4000)
    alive: dict[int, int] = {}
    free = list(range(2000))
    for step in range(300):
        n = int(rng.integers(1, 20))
        slots = np.array([free.pop() for _ in range(n)], np.int32)
        ids = np.arange(step * 100, step * 100 + n)
        batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array([f"row {i}" for i in ids])], schema=schema)
        first = pages.add(batch, slots)
        refs[slots] = first + np.arange(n)
        pages.settle(first)
        alive |= dict(zip(slots.tolist(), ids.tolist(), strict=True))
        gone = rng.choice(list(alive), max(0, len(alive) - 150), replace=False).astype(np.int64)
        pages.forget(refs[gone])
        for slot in gone.tolist():
            del alive[slot]
            free.append(slot)
        pages.tidy()
    some = np.array(sorted(alive), np.int64)
    assert sorted(pages.slots().tolist()) == some.tolist()
    twice = np.concatenate([some, some[::-1]])
    found = pages.gather(refs[twice])
    assert found.column("id").to_pylist() == [alive[slot] for slot in twice.tolist()]
    assert found.column("text").to_pylist() == [f"row {alive[slot]}" for slot in twice.tolist()]
    assert pages.held <= 1.3 * found.slice(0, len(some)).nbytes + 4000
    assert len(pages._pages) < 20
    pages.close()
    assert budget.used == 0


@pytest.mark.parametrize("limit", [1 << 20, 3000])
def test_the_directory_moves_to_a_file_when_the_budget_is_small(limit: int) -> None:
    budget = MemoryBudget(limit)
    directory = Directory(budget.reserve("directory"))
    for number in range(500):
        directory.append(Entry(number, number + 1, number % 7, 0, -number, number, 8, 9))
    directory.bury([17])
    assert directory.is_in_file == (limit == 3000)
    assert directory[17] == Entry(17, 18, 3, 0, -17, 17, 8, 9, 1)
    assert directory.column("dts").tolist() == list(range(1, 501))
    directory.regroup(5)
    assert set(directory.column("group").tolist()) == {5}
    assert len(directory) == 500
    directory.close()
    assert budget.used == 0


def test_the_nested_loop_meets_every_pair_of_blocks_once_however_it_is_cut() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sizes, met, loop = [0, 0], Met(), Odometer([0, 0])
        for _ in range(int(rng.integers(1, 8))):
            sizes[0] += int(rng.integers(0, 4))
            sizes[1] += int(rng.integers(0, 4))
            _run(loop, sizes, met, int(rng.integers(1, 10)), rng)
        _run(loop, sizes, met, 10**9, rng)
        assert met == Counter({(i, j): 1 for i in range(sizes[0]) for j in range(sizes[1])}), seed


def _run(loop: Odometer, sizes: list[int], met: Counter[tuple[int, int]], units: int, rng: np.random.Generator) -> None:
    most = int(rng.integers(1, 5))
    while units > 0 and loop.ready(sizes, lambda _: most, lambda outer: [1 - outer]):
        (inner,) = loop.current
        for number in loop.batch:
            met[(number, inner) if loop.outer == 0 else (inner, number)] += 1
        loop.advance(0)
        units -= 1
        if rng.random() < 0.1 and units < 1000:  # blocks flushed to make room
            sizes[int(rng.integers(2))] += 1


def test_the_curve_of_results_stays_small_and_tells_when_they_came() -> None:
    clock = VirtualClock()
    progress = Progress(clock)
    for _ in range(100_000):
        progress.arrived += 1
        clock.advance_ns(1000)
        progress.gave("arriving", 1)
    progress.gave("cleanup", 100_000)
    marks = progress.marks()
    assert marks[10][0] == pytest.approx(20_000, rel=0.02)
    assert marks[10][1] == pytest.approx(20_000_000, rel=0.02)
    assert marks[90] == (100_000, 100_000_000)
    assert len(str(progress._points)) < 30_000
    metrics = Metrics()
    progress.record(metrics)
    assert metrics.value("arrivals_to_90_percent") == 100_000
    assert Progress(clock).marks() == {}
