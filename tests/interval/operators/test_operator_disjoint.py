"""Disjoint partitions: how rows are assigned, how they overflow, and how files keep them."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import expected, random_side, run, tuples

from dovetail.engine.kernels.arrays import int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels.partitions import LIMIT, NEXT, OPEN, assign_disjoint
from dovetail.joins.interval.kernels.sweep import heap_build, heap_pop, heap_push
from dovetail.joins.interval.operators import DisjointPartitionJoin
from dovetail.joins.interval.operators.disjoint_partition import DisjointStore
from dovetail.joins.interval.operators.partitioned import Storage
from dovetail.joins.interval.operators.spec import ROW
from dovetail.joins.interval.relation import Relation


def _assigned(rows: pa.RecordBatch, limit: int, keyed: bool) -> tuple[Any, Any]:
    state = np.zeros(4, np.int64)
    state[LIMIT] = limit
    parts = np.empty(rows.num_rows, np.int64)
    start, end, key = (int64s(rows.column(name).to_numpy()) for name in ("_start", "_end", "_key"))
    ends, refs = np.empty(limit, np.int64), np.empty(limit, np.int64)
    assign_disjoint(state, start, end, key if keyed else int64s([]), ends, refs, parts)
    return parts, state


@pytest.mark.parametrize("keyed", [False, True])
def test_no_two_rows_of_a_partition_overlap_and_partitions_are_as_few_as_possible(keyed: bool) -> None:
    rows = random_side(np.random.default_rng(3), 300, 100, 20, 4 if keyed else 1)
    parts, state = _assigned(rows, 300, keyed)
    start, end, key = (rows.column(name).to_numpy() for name in ("_start", "_end", "_key"))
    for part in range(state[NEXT]):
        mine = np.flatnonzero(parts == part)
        assert (end[mine][:-1] <= start[mine][1:]).all()
        assert np.unique(key[mine]).size == 1
    most = [max(((start <= t) & (t < end) & (key == k)).sum() for t in range(120)) for k in np.unique(key)]
    assert state[NEXT] == sum(most)


def test_a_row_that_fits_no_partition_overflows_when_none_may_be_opened() -> None:
    rows = random_side(np.random.default_rng(4), 200, 50, 20)
    parts, state = _assigned(rows, 3, False)
    assert state[OPEN] == state[NEXT] == 3
    ends = [0, 0, 0]  # a plain model: the partition that ends first takes the row, if it has ended
    for row, (start, end) in enumerate(
        zip(rows.column("_start").to_pylist(), rows.column("_end").to_pylist(), strict=True)
    ):
        if parts[row] < 0:
            assert min(ends) > start
        else:
            assert ends[parts[row]] <= start
            ends[parts[row]] = end
    assert 0 < (parts < 0).sum() < 200


@pytest.mark.parametrize("memory", [2, 3, 7, 30])
def test_overflow_passes_and_batches_lose_nothing(memory: int) -> None:
    rng = np.random.default_rng(memory)
    left, right = random_side(rng, 80, 40, 25, 3, "l"), random_side(rng, 80, 40, 25, 3, "r")
    relation = Relation.parse("overlapping")
    spec = DisjointPartitionJoin(relation=relation, keyed=True, frames=tuples(memory), emit="pairs")
    found, metrics = run(spec, left, right, 9)
    assert found == expected(relation, left, right, keyed=True)
    assert (metrics.value("overflow_passes") > 0) == (memory < 20)
    assert metrics.value("inner_batches") == pytest.approx(80 / max(1, memory - 1), abs=1)
    assert metrics.value("rows_read", "right") == 80
    assert metrics.value("rows_written", "left") == 80


def test_a_store_on_disk_gives_every_partition_whole_and_in_order() -> None:
    rows = random_side(np.random.default_rng(6), 200, 100, 20)
    rows = rows.append_column(ROW, pa.array(np.arange(200)))
    parts, state = _assigned(rows, 200, False)
    memory = MemoryBudget("1MB")
    store = DisjointStore(Storage("left", rows.schema, False, False, 3, 5, 1 << 20, memory, None))
    store.keys = [0] * int(state[NEXT])
    for first in range(0, 200, 20):
        store.add(rows.slice(first, 20), parts[first : first + 20])
        if first % 60 == 40:
            store.flush(np.arange(4))
    store.finish()
    loads = list(store.loads(2000))
    assert len(loads) > 3
    found = [
        (int(p), int(row))
        for load in loads
        for p, row in zip(np.repeat(load.part, np.diff(load.first)), load.ordinals, strict=True)
    ]
    assert found == sorted(zip(parts.tolist(), range(200), strict=True))
    assert store.rows_written == store.rows_read == 200
    assert store.frames_written >= 200 // 3
    store.close()
    assert memory.used == 0


def test_the_heap_gives_the_earliest_end_first() -> None:
    rng = np.random.default_rng(9)
    ends, refs, model = np.zeros(100, np.int64), np.zeros(100, np.int64), []
    for step in range(300):
        if model and (len(model) == 100 or rng.random() < 0.45):
            assert ends[0] == model[0][0]
            top = heap_pop(ends, refs, len(model))
            assert top in {ref for end, ref in model if end == model[0][0]}
            model.remove(next(entry for entry in model if entry[1] == top))
            heapq.heapify(model)
        else:
            end = int(rng.integers(0, 30))
            heap_push(ends, refs, len(model), end, step)
            heapq.heappush(model, (end, step))
    built = rng.integers(0, 50, 64)
    numbers = np.arange(64)
    heap_build(built, numbers, 64)
    drained = []
    for size in range(64, 0, -1):
        drained.append(int(built[0]))
        heap_pop(built, numbers, size)
    assert all(a <= b for a, b in itertools.pairwise(drained))
