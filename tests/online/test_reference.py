"""Decisions of the operators are those of tuple-at-a-time joins, whatever the batches: the same pairs online."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.reference import DinerReference, HashedReference, random_arrivals
from tests.online.schedules import EVERY, pairs_of

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.sizes import Sizes

POLICIES = {"oldest": "oldest", "xjoin": "XJoin", "dphj": "DPHJ", "hmj": "HMJ", "rpj": "RPJ", "ehj": "EHJ"}


def expected(reference: Any, rows: list[tuple[int, int]]) -> Counter[Any]:
    """The reference's pairs by the number of each row on its side."""
    numbers, seen = {}, [0, 0]
    for side, key in rows:
        reference.arrive(side, key)
        numbers[reference.order[-1]] = seen[side]
        seen[side] += 1
    return Counter((numbers[a], numbers[b]) for a, b in reference.pairs)


def online(name: str, rows: list[tuple[int, int]], batch_rows: int, **options: Any) -> Counter[Any]:
    """The pairs that an operator gives while rows arrive, in batches of one side of at most `batch_rows` rows."""
    spec = EVERY[name](**options)
    schema = {side: pa.schema([("k", pa.int64()), (c, pa.int64())]) for side, c in (("left", "a"), ("right", "b"))}
    out: list[pa.RecordBatch] = []
    with spec.open(MemoryBudget(1 << 20), schema) as operator:
        at, seen = 0, [0, 0]
        while at < len(rows):
            side, stop = rows[at][0], at
            while stop < len(rows) and rows[stop][0] == side and stop - at < batch_rows:
                stop += 1
            keys = [key for _, key in rows[at:stop]]
            columns = [pa.array(keys, pa.int64()), pa.array(np.arange(seen[side], seen[side] + len(keys)))]
            name_of = ("left", "right")[side]
            out += operator.push(name_of, pa.RecordBatch.from_arrays(columns, schema=schema[name_of]))
            seen[side] += len(keys)
            at = stop
    return pairs_of(out)


@pytest.mark.parametrize("band", [(0, 0), (-2, 1)])
def test_diner_gives_the_pairs_of_the_tuple_at_a_time_reference(band: tuple[int, int]) -> None:
    for seed in range(10):
        rng = np.random.default_rng([seed, 3])
        memory, block = int(rng.integers(10, 60)), int(rng.integers(1, 9))
        rows = random_arrivals(rng, 400, int(rng.integers(2, 60)), float(rng.uniform(0, 2)))
        if seed % 4 == 3:
            rows.sort(key=lambda row: row[1])
        want = expected(DinerReference(memory, block, band, seed), rows)
        options: dict[str, Any] = {"on": ("k",)} if band == (0, 0) else {"within": ("k", "k", *band)}
        sizes = Sizes(memory_rows=memory, block_rows=block)
        got = online("diner", rows, int(rng.choice([1, 7, 50])), sizes=sizes, seed=seed, **options)
        assert got == want, seed
        assert want.total() > 0


@pytest.mark.parametrize("name", list(POLICIES))
def test_hash_joins_give_the_pairs_of_the_tuple_at_a_time_reference(name: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng([seed, 4])
        memory, block, buckets = int(rng.integers(10, 60)), int(rng.integers(1, 9)), int(rng.integers(1, 8))
        rows = random_arrivals(rng, 400, int(rng.integers(2, 60)), float(rng.uniform(0, 2)))
        ageing = float(rng.choice([0.9, 1.0]))
        reference = HashedReference(POLICIES[name], memory, block, 1 if name == "oldest" else buckets, ageing)
        want = expected(reference, rows)
        options: dict[str, Any] = {"ageing": ageing} if name == "rpj" else {}
        sizes = Sizes(memory_rows=memory, block_rows=block, partitions=buckets)
        got = online(name, rows, int(rng.choice([1, 7, 50])), on=("k",), sizes=sizes, **options)
        assert got == want, seed
        assert want.total() > 0
