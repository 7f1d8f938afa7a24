"""Copies of right rows: of every chunk each cell of a hot key gets the last rows before it, and the first after it."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.kernels.arrays import int64s
from dovetail.joins.asof.cells import Carried
from dovetail.joins.asof.operator import AsofJoin, Direction, Tie

HOT, OTHER = 5, 9
REACH = {HOT: (2, 6), OTHER: (7, 9)}


def _wanted(rows: list[tuple[str, int, int, int]], direction: str, tie: str) -> set[tuple[int, int]]:
    """By definition: for each cell of a key, of other cells the row at the last time before it, or the first after."""
    pick = min if tie == "first" else max
    found = set()
    for key, (first, last) in REACH.items():
        for name in {row[0] for row in rows if row[1] == key}:
            own = [(n, row) for n, row in enumerate(rows) if row[:2] == (name, key)]
            for cell in range(first, last + 1):
                before = [(row[3], n) for n, row in own if row[2] < cell]
                after = [(row[3], n) for n, row in own if row[2] > cell]
                if direction != "forward" and before:
                    found.add((pick(n for time, n in before if time == max(before)[0]), cell))
                if direction != "backward" and after:
                    found.add((pick(n for time, n in after if time == min(after)[0]), cell))
    return found


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("tie", ["first", "last"])
@pytest.mark.parametrize("n", [0, 1, 3, 40, 400])
def test_the_ends_go_to_the_cells_that_lack_them(n: int, direction: Direction, tie: Tie) -> None:
    rng = random.Random(n)  # noqa: S311  (test data)
    rows = []
    for _ in range(n):  # two keys of one hash, and a key that is not hot
        key = rng.choice([HOT, OTHER, 1])
        first, last = REACH.get(key, (0, 1))
        cell = rng.randint(first, last)
        rows.append((rng.choice("ab"), key, cell, 10 * cell + rng.randrange(4)))
    columns = {"k": pa.array([r[0] for r in rows], pa.string()), "h": pa.array([r[1] for r in rows], pa.int64())}
    columns |= {"t": pa.array([r[3] for r in rows], pa.int32()), "n": pa.array(range(n), pa.int64())}
    spec = AsofJoin(
        on=("t", "t"), by=(("k", "k"),), direction=direction, tie=tie, tie_order=("n",),
        left_columns=(), right_columns=("n",),
    )  # fmt: skip
    carried = Carried(spec, ("k", "t", "n"), "h", REACH)
    cells = int64s(np.array([r[2] for r in rows], np.int64))
    found, targets = carried.copies(pa.RecordBatch.from_pydict(columns), cells)
    copies = list(zip(found.tolist(), targets.tolist(), strict=True))
    assert len(copies) == len(set(copies))
    assert set(copies) == _wanted(rows, direction, tie)
