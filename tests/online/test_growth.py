"""Rows on disk are joined in work that grows with the rows: bytes or comparisons are counted, not seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators import ALGORITHMS

BUDGET = 256 << 10


def side(column: str, keys: Any) -> pa.Table:
    return pa.table({"k": keys, "at": np.arange(len(keys)) % 1000, column: np.arange(len(keys))})


def joined(spec: Any, left: pa.Table, right: pa.Table, drains: bool = False, counted: str = "run_bytes_read") -> int:
    """A count of the join, by default bytes that it read from runs by key; its answers are right."""
    budget, found = MemoryBudget(BUDGET), []
    with spec.open(budget, {"left": left.schema, "right": right.schema}) as operator:
        for start in range(0, max(len(left), len(right)), 2000):
            for name, table in (("left", left), ("right", right)):
                for batch in table.slice(start, 2000).combine_chunks().to_batches():
                    found += operator.push(name, batch)
            if drains and start % 8000 == 0:
                found += operator.drain()
        found += operator.finish()
    assert budget.peak <= budget.limit
    answer = pa.Table.from_batches(found, operator.schema).select(["a", "b"]).to_pandas()
    pairs = left.to_pandas().merge(right.to_pandas(), on="k")
    if spec.within is not None:
        pairs = pairs[(pairs["at_y"] - pairs["at_x"]).between(*spec.within[2:])]
    pd.testing.assert_frame_equal(in_order(answer), in_order(pairs[["a", "b"]]))
    return int(operator.metrics.value(counted))


def in_order(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs.astype("int64").sort_values(["a", "b"], ignore_index=True)


@pytest.mark.parametrize(
    ("name", "counted"), [("diner", "run_bytes_read"), ("pmj", "run_bytes_read"), ("xjoin", "comparisons")]
)
def test_twice_the_rows_are_about_twice_the_work(name: str, counted: str) -> None:
    """More rows may need one more pass over them; a nested loop would do four times the work.

    The partitions of XJoin on disk are joined without runs.
    """
    work = []
    for rows in (16_000, 32_000):
        keys = [np.random.default_rng([rows, n]).integers(0, rows, rows) for n in (0, 1)]
        work.append(joined(ALGORITHMS[name](on=("k",)), side("a", keys[0]), side("b", keys[1]), counted=counted))
    assert 0 < 2 * work[0] < work[1] <= 3 * work[0]


@pytest.mark.parametrize("within", [None, ("at", "at", -20, 20)])
@pytest.mark.parametrize("drains", [False, True])
def test_a_key_that_does_not_fit_in_memory_and_texts(within: Any, drains: bool) -> None:
    rng, rows = np.random.default_rng(5), 16_000
    left = np.where(rng.random(rows) < 0.5, 77, rng.integers(0, rows, rows))
    right = np.where(np.arange(rows) % 2000 == 0, 77, rng.integers(0, rows, rows))
    spec = ALGORITHMS["diner"](on=("k",), within=within)
    assert joined(spec, side("a", left), side("b", right), drains) > 0
    texts = [pa.array([f"key {key}" for key in keys.tolist()]) for keys in (left, right)]
    joined(spec, side("a", texts[0]), side("b", texts[1]), drains)
