"""Spools: rows come back in order from memory or disk, inside the budget, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact, compact_bytes, held_bytes, nbytes
from dovetail.engine.storage.spool import Spool
from dovetail.errors import BudgetExceeded

ROWS = pa.record_batch(
    {
        "n": pa.array(range(500)),
        "t": pa.array([None if n % 7 == 0 else "t" * (n % 11) for n in range(500)]),
        "l": pa.array([[n] * (n % 3) for n in range(500)]),
        "b": pa.array([None if n % 5 == 0 else n % 2 == 0 for n in range(500)]),
        "s": pa.array([{"x": n, "y": str(n)} for n in range(500)]),
        "d": pa.array(["red", "green"] * 250).dictionary_encode(),
    }
)


def test_copies_hold_no_more_than_was_reserved() -> None:
    for start, length in np.random.default_rng(0).integers(0, 500, (300, 2)):
        piece = ROWS.slice(start, length)
        own = compact(piece)
        assert own.equals(piece)
        assert held_bytes(own) <= compact_bytes(piece)
        assert nbytes(piece) <= compact_bytes(piece)
    assert compact(ROWS) is ROWS
    assert held_bytes(ROWS.slice(3, 1)) == held_bytes(ROWS) > 100 * nbytes(ROWS.slice(3, 1))


@pytest.mark.parametrize("size", [1, 3, 50, 500])
@pytest.mark.parametrize("limit", ["8KB", "32KB", "1MB"])
def test_rows_come_back_in_order_again_and_again(tmp_path: Path, size: int, limit: str) -> None:
    budget = MemoryBudget(limit)
    spool = Spool(ROWS.schema, budget.child("rows", budget.limit // 2), budget, budget.limit // 8, "left", tmp_path)
    for start in range(0, 500, size):
        spool.append(ROWS.slice(start, size))
    for _ in range(2):
        assert pa.concat_batches(list(spool.read())).to_pylist() == ROWS.to_pylist()
    assert spool.rows == 500
    assert spool.spilled == (limit != "1MB")
    assert budget.peak <= budget.limit
    spool.close()
    assert budget.used == 0
    assert list(tmp_path.iterdir()) == []


def test_many_small_batches_make_few_blocks(tmp_path: Path) -> None:
    table = pa.record_batch({"n": range(2000)})
    budget = MemoryBudget("64KB")
    spool = Spool(table.schema, budget.child("rows", "2KB"), budget, 4096, "left", tmp_path)
    for start in range(2000):
        spool.append(table.slice(start, 1))
    assert pa.Table.from_batches(spool.read()).num_rows == 2000
    assert spool.spill.blocks < 40
    spool.close()


def test_a_row_too_large_to_read_is_refused(tmp_path: Path) -> None:
    budget = MemoryBudget("4KB")
    spool = Spool(pa.schema({"t": pa.string()}), budget.child("rows", "1KB"), budget, 512, "left", tmp_path)
    spool.append(pa.record_batch({"t": ["x" * 10_000]}))
    with pytest.raises(BudgetExceeded, match="'left block'"):
        list(spool.read())
    spool.close()
    assert budget.used == 0
