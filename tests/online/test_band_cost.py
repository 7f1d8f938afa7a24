"""A key with a band: a probe costs what it matches, in memory, in pauses and at the end, not what lies in the band."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.restarts import steps
from tests.online.schedules import EVERY

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.sizes import Sizes

ROWS, KEYS, SECONDS = 4000, 400, 1000
"""Within 60 s of a row there are some 480 rows of the other side, of which one or two have its key."""
BAND = (timedelta(seconds=-60), timedelta(seconds=60))


def events(column: str, seed: int, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, SECONDS, rows)).astype("datetime64[s]").astype("datetime64[us]")
    return pa.table({"k": rng.integers(0, KEYS, rows), "t": pa.array(at), column: np.arange(rows)})


TABLES = {"left": events("a", 1), "right": events("b", 2)}
SCHEMAS = {side: table.schema for side, table in TABLES.items()}


def matches(*tables: pa.Table) -> int:
    """Combinations in which each row has the key of the row before it and is within 60 s of it."""
    found = np.ones(tables[0].num_rows, np.int64)
    for mine, theirs in pairwise(tables):
        keys = mine["k"].to_numpy()[:, None] == theirs["k"].to_numpy()[None, :]
        apart = mine["t"].to_numpy()[:, None] - theirs["t"].to_numpy()[None, :]
        found = found @ (keys & (abs(apart) <= np.timedelta64(60, "s")))
    return int(found.sum())


FOUND = matches(*TABLES.values())


def driven(operator: Any, tables: dict[str, pa.Table], step: int = 200) -> int:
    """How many answers there are, with a pause after each round."""
    given = 0
    for start in range(0, max(table.num_rows for table in tables.values()), step):
        for side, table in tables.items():
            piece = table.slice(start, step).combine_chunks().to_batches()[0]
            given += sum(batch.num_rows for batch in operator.push(side, piece))
        given += sum(batch.num_rows for batch in operator.idle(steps(3)))
    return given + sum(batch.num_rows for batch in operator.finish())


@pytest.mark.parametrize("memory", [ROWS * 3, 900])
@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].bands])
def test_a_probe_of_sorted_rows_costs_what_it_matches(name: str, memory: int) -> None:
    spec = EVERY[name](on=("k",), within=("t", "t", *BAND), sizes=Sizes(memory_rows=memory, block_rows=100))
    budget = MemoryBudget("4MB")
    with spec.open(budget, SCHEMAS) as operator:
        assert driven(operator, TABLES) == FOUND
        compared = operator.metrics.value("comparisons")
    assert compared <= 3 * FOUND + 2 * (2 * ROWS + rows_read(operator, 100))
    assert budget.peak <= budget.limit


def rows_read(operator: Any, block_rows: int) -> int:
    """Rows of blocks that were read; each costs a search."""
    return block_rows * operator.metrics.value("blocks_read")


@pytest.mark.parametrize("name", [name for name in EVERY if not EVERY[name].bands and name != "shj"])
def test_rows_on_disk_of_a_join_that_hashes_cost_what_they_match(name: str) -> None:
    """While rows arrive all rows of a key are looked at; blocks that meet are sorted by key and band."""
    spec = EVERY[name](on=("k",), within=("t", "t", *BAND), sizes=Sizes(memory_rows=900, block_rows=100, partitions=4))
    with spec.open(MemoryBudget("4MB"), SCHEMAS) as operator:
        assert driven(operator, TABLES) == FOUND
        compared = operator.metrics.value("comparisons")
    per_key = 2 * ROWS // KEYS
    assert compared <= 3 * FOUND + 2 * (2 * ROWS * per_key + rows_read(operator, 100))


def few(column: str, seed: int, rows: int = 600) -> pa.Table:
    """As `events`, with 60 rows of each key in each input, some seven of which are within 60 s of a row."""
    return events(column, seed, rows).set_column(0, "k", pa.array(np.arange(rows) % 10))


CHAIN = (("a.k", "b.k"), ("a.t", "b.t", *BAND), ("b.k", "c.k"), ("b.t", "c.t", *BAND))
OTHER = (("a.k", "b.k"), ("a.t", "b.t", *BAND), ("b.j", "c.j"), ("b.t", "c.t", *BAND))


@pytest.mark.parametrize("on", [CHAIN, OTHER], ids=["one key", "two keys"])
@pytest.mark.parametrize("memory", [2000, 400])
@pytest.mark.parametrize("name", list(MULTIWAY))
def test_a_probe_of_many_inputs_costs_what_it_matches(name: str, memory: int, on: tuple[Any, ...]) -> None:
    tables = {c: few("id", seed) for seed, c in enumerate("abc")}
    tables = {c: table.append_column("j", table["k"]) for c, table in tables.items()}
    spec = MULTIWAY[name](inputs=("a", "b", "c"), on=on, sizes=Sizes(memory_rows=memory, block_rows=50, partitions=2))
    with spec.open(MemoryBudget("4MB"), {c: table.schema for c, table in tables.items()}) as operator:
        found = driven(operator, tables, 50)
        compared = operator.metrics.value("comparisons")
    assert found == matches(*tables.values())
    probes = 3 * 600 + rows_read(operator, 50)
    if spec.graph.is_common:  # a chain of the hash table has all rows of a key, and each pair walks one
        probes = 60 * (probes + matches(tables["a"], tables["b"]) + matches(tables["b"], tables["c"]))
    assert compared <= 3 * found + probes
