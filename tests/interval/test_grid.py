"""Cells of two inequalities: a pair that matches shares exactly one cell, any other pair at most one; no Spark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.joins.interval.plan.grid import Axis, GridCells, GridSample

ROWS = 80


def made(seed: int, left_first: tuple[bool, bool]) -> GridSample:
    rng = np.random.default_rng(seed)
    left, right = np.round(rng.normal(0, 10, (2, ROWS, 2)))
    axes = tuple(Axis("", "", first) for first in left_first)
    return GridSample(axes, left, right, tuple(np.sort(np.concatenate([left, right]), axis=0).T))


def placed(grid: GridCells, side: str, values: np.ndarray) -> list[set[int]]:
    """The cells of each row, as the table of the side says."""
    table = grid._table(side, "cell", "cells")
    listed = dict(zip(table["cell"].to_pylist(), table["cells"].to_pylist(), strict=True))
    across, along = (np.searchsorted(grid.points[n], values[:, n], "right") for n in (0, 1))
    unseen = [-2] if side == grid.copied else [-1, -2]
    return [set(listed.get(int(cell), unseen)) for cell in across * (len(grid.points[1]) + 1) + along]


@pytest.mark.parametrize("copied", ["left", "right"])
@pytest.mark.parametrize("left_first", [(True, True), (True, False), (False, False)])
def test_pairs_that_match_share_one_cell(left_first: tuple[bool, bool], copied: str) -> None:
    sample = made(3, left_first)
    for cuts, known in ((4, 1), (16, 1), (16, 3)):
        grid = sample._grid((0, 1), cuts, copied, (ROWS, ROWS), 1.0, 1e-8)
        assert grid is not None
        grid = replace(grid, sources=grid.sources[::known], targets=grid.targets[::known])  # as if few were sampled
        left, right = placed(grid, "left", sample.left), placed(grid, "right", sample.right)
        for i, a in enumerate(sample.left):
            for j, b in enumerate(sample.right):
                matches = all(x <= y if first else x >= y for x, y, first in zip(a, b, left_first, strict=True))
                assert len(left[i] & right[j]) in ((1,) if matches else (0, 1))


def test_more_cells_where_columns_rise_together() -> None:
    rng = np.random.default_rng(5)
    up = (Axis("", "", True), Axis("", "", False))

    def sample(noise: float) -> GridSample:
        x = rng.uniform(0, 1000, (2, 20_000))
        sides = [np.column_stack([side, side + rng.uniform(0, noise, 20_000)]) for side in x]
        return GridSample(up, sides[0], sides[1], tuple(np.sort(np.concatenate(sides), axis=0).T))

    rows = (100_000, 100_000)
    narrow, wide = (sample(noise).cells((0, 1), rows, 1.0, 8e-9) for noise in (0.1, 100_000))
    assert narrow is not None
    assert wide is not None
    assert len(narrow.points[0]) > len(wide.points[0])
    assert narrow.candidates < 0.02 * rows[0] * rows[1]
    assert sample(1.0).best_pair() == (0, 1)
    assert GridSample(up, np.empty((0, 2)), np.empty((0, 2)), (np.empty(0),) * 2).cells((0, 1), rows, 1.0, 8e-9) is None
