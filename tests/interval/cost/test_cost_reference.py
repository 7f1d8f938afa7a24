"""The reference runs themselves: every pair once, at every memory down to the smallest, never more than it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.interval.cost.reference import Counts, Table, forward_scan, overlap_matrix, sort_merge, time_sweep, union
from tests.interval.cost.reference_partitions import dip, disjoint_partitions, slotted

Join = Callable[..., Counts]


def random_table(rng: np.random.Generator) -> Table:
    n, span, longest = rng.integers((0, 1, 1), (25, 40, 20)).tolist()
    starts = rng.integers(0, span, n)
    return union(Table(starts, starts + rng.integers(1, longest + 1, n)))


@pytest.mark.parametrize(("join", "fewest"), [(sort_merge, 1), (time_sweep, 1), (forward_scan, 2)])
def test_streaming_joins_return_every_pair_once_within_memory(join: Join, fewest: int) -> None:
    rng = np.random.default_rng(17)
    spilled = 0
    for _ in range(600):
        r, s = random_table(rng), random_table(rng)
        hits = np.zeros((r.starts.size, s.starts.size), np.int8)
        capacity = int(rng.integers(fewest, 12))
        counts = join(r, s, capacity, hits)
        assert (hits == overlap_matrix(r, s)).all()
        assert counts.pairs == hits.sum()
        assert counts.peak <= capacity
        assert counts.written <= r.starts.size + s.starts.size
        spilled += counts.spills > 1
    assert spilled > 100


def test_dip_returns_every_pair_once_from_disjoint_partitions() -> None:
    rng = np.random.default_rng(19)
    for _ in range(300):
        r, s = random_table(rng), random_table(rng)
        hits = np.zeros((r.starts.size, s.starts.size), np.int8)
        pairs, _, _ = dip(r, s, hits)
        assert (hits == overlap_matrix(r, s)).all()
        assert pairs == hits.sum()
        parts = disjoint_partitions(r, int(rng.integers(1, 5)))
        assert sorted(parts.rows.tolist()) == list(range(r.starts.size))
        for p in range(parts.sizes.size):
            rows = parts.rows[parts.bounds[p] : parts.bounds[p + 1]]
            assert (r.starts[rows][1:] >= r.ends[rows][:-1]).all()


def test_oip_file_order_is_end_slot_up_start_slot_down() -> None:
    starts, ends = np.array([0, 0, 0, 5, 5, 10]), np.array([1, 6, 11, 6, 11, 11])
    parts = slotted(Table(starts, ends), 5)
    order = list(zip((parts.first + 1).tolist(), (parts.last + 1).tolist(), strict=True))
    assert order == [(1, 1), (2, 2), (1, 2), (3, 3), (2, 3), (1, 3)]
