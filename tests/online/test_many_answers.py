"""Answers in batches that fit: any number of pairs at once, whatever the budget, and rows wider than those before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.schedules import EVERY

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import row_bytes
from dovetail.joins.online.operators import MULTIWAY

SIDE = 220
"""Rows of a side: with one key they are 48,400 pairs."""
BUDGETS = [1 << 20, 16 << 20, 128 << 20]
FITTING = [(name, limit) for name in EVERY for limit in BUDGETS if (name, limit) != ("shj", BUDGETS[0])]
"""Every join and budget but for the one that keeps all rows in memory, and says so."""


def rows(column: str, n: int, key: int, text: str) -> pa.RecordBatch:
    ids, keys = pa.array(np.arange(n)), pa.array(np.full(n, key))
    return pa.RecordBatch.from_pydict({"k": keys, column: ids, f"{column}_text": pa.array([text] * n)})


def counted(batches: Iterator[pa.RecordBatch], budget: MemoryBudget, found: list[Any]) -> None:
    """Take the answers one by one; a batch and all that is held besides fit in the budget."""
    for batch in batches:
        assert batch.nbytes <= budget.limit // 4
        found.append((batch.column("a").to_numpy(), batch.column("b").to_numpy()))


@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize(("name", "limit"), FITTING)
def test_many_pairs_of_wide_rows_fit_after_narrow_ones(name: str, limit: int, drains: bool) -> None:
    """The split of the budget is made when the first rows come, which have no text; pairs of 1 KB follow."""
    budget, found = MemoryBudget(limit), []
    narrow, wide = ([rows(c, n, key, t) for c in "ab"] for n, key, t in ((9, 1, ""), (SIDE, 2, "x" * 500)))
    with EVERY[name](on=("k",)).open(budget, {s: b.schema for s, b in zip(("left", "right"), wide, strict=True)}) as op:
        for side, batch in (("left", narrow[0]), ("left", wide[0]), ("right", wide[1])):
            counted(op.push(side, batch), budget, found)
        if drains:
            counted(op.drain(), budget, found)
        counted(op.finish(), budget, found)
    pairs = np.concatenate([a * SIDE + b for a, b in found])
    assert np.array_equal(np.sort(pairs), np.arange(SIDE * SIDE))
    assert budget.peak <= budget.limit


@pytest.mark.parametrize("limit", BUDGETS, ids=["1 MB", "16 MB", "128 MB"])
@pytest.mark.parametrize("name", list(MULTIWAY))
def test_many_combinations_of_wide_rows_fit_after_narrow_ones(name: str, limit: int) -> None:
    spec = MULTIWAY[name](inputs=("a", "b", "c"), on=(("a.k", "b.k"), ("b.k", "c.k")))
    budget, n, total = MemoryBudget(limit), 37, 0
    inputs = {c: rows(c, n, 2, "x" * 333) for c in "abc"}
    with spec.open(budget, {c: batch.schema for c, batch in inputs.items()}) as op:
        given = [op.push("a", rows("a", 9, 1, "")), *(op.push(c, batch) for c, batch in inputs.items()), op.finish()]
        for batches in given:
            for batch in batches:
                assert batch.nbytes <= limit // 4
                total += batch.num_rows
    assert total == n**3
    assert budget.peak <= budget.limit


@pytest.mark.parametrize("name", [name for name in EVERY if name != "shj"])
def test_a_pair_that_is_wider_than_its_share_makes_others_leave(name: str) -> None:
    """Memory is full of narrow rows when two rows of a seventh of the budget come, which match."""
    budget, found = MemoryBudget(1 << 20), []
    with EVERY[name](on=("k",)).open(
        budget, {s: rows(c, 1, 0, "").schema for s, c in zip(("left", "right"), "ab", strict=True)}
    ) as op:
        for at in range(12):
            counted(op.push("left", rows("a", 500, 10 + at, "y" * 200)), budget, [])
        counted(op.push("left", rows("a", 1, 2, "x" * 150_000)), budget, found)
        for batches in (op.push("right", rows("b", 1, 2, "z" * 150_000)), op.finish()):
            found += [batch.num_rows for batch in batches]
    assert sum(found) == 1
    assert budget.peak <= budget.limit


def test_the_bytes_of_each_row_add_up_to_those_of_all() -> None:
    rng = np.random.default_rng(1)
    text = pa.array([None if x == 3 else "t" * int(x) for x in rng.integers(0, 40, 50)])
    lists = pa.array([["u" * int(y) for y in rng.integers(0, 9, int(x))] for x in rng.integers(0, 4, 50)])
    columns = {
        "n": pa.array(np.arange(50)),
        "t": text,
        "l": lists,
        "s": pa.StructArray.from_arrays([text, lists], ["a", "b"]),
        "m": pa.array([[(int(x), "v" * int(x))] for x in rng.integers(0, 9, 50)], pa.map_(pa.int64(), pa.string())),
        "f": pa.array(rng.random((50, 3)).tolist(), pa.list_(pa.float64(), 3)),
        "v": text.cast(pa.string_view()),
        "d": text.dictionary_encode(),
    }
    for name, column in columns.items():
        whole = pa.RecordBatch.from_arrays([column], [name])
        for batch in (whole, whole.slice(7, 20)):
            sizes, alone = row_bytes(batch), [batch.slice(at, 1) for at in range(batch.num_rows)]
            plain = [row.cast(pa.schema([(name, pa.string())])) if name == "v" else row for row in alone]
            least = [row.nbytes - (0 if name != "d" else column.dictionary.nbytes) for row in plain]
            assert all(size >= one - 24 for size, one in zip(sizes.tolist(), least, strict=True)), name
            assert sizes.sum() <= 1.3 * sum(least) + 600, name
