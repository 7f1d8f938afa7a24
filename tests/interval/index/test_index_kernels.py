"""The array kernels under the index: orders, ranks, permutations asked about ranges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dovetail.engine.kernels.arrays import int64s
from dovetail.engine.kernels.sort import is_sorted, sorted_copy, stable_order
from dovetail.joins.interval.kernels.search import members, members_by_table, positions_below, sum_below
from dovetail.joins.interval.kernels.wavelet import largest_between, smallest_between, wavelet

EDGE = 2**63 - 1
RANGES = [(0, 1), (0, 5), (-3, 300), (-(2**40), 2**40), (-EDGE - 1, EDGE), (EDGE - 4, EDGE)]


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("rows", [0, 1, 2, 300])
def test_orders_are_sorted_and_stable(low, high, rows):
    values = np.random.default_rng(rows).integers(low, high, rows, endpoint=True)
    assert np.array_equal(sorted_copy(values), np.sort(values))
    assert is_sorted(sorted_copy(values))
    assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))
    within = np.random.default_rng(1).permutation(rows)
    assert np.array_equal(stable_order(values, within), within[np.argsort(values[within], kind="stable")])


def test_sum_below_counts_pairs():
    rng = np.random.default_rng(2)
    probes, values = np.sort(rng.integers(0, 20, 50)), np.sort(rng.integers(0, 20, 70))
    assert sum_below(probes, values, inclusive=False) == (values < probes[:, None]).sum()
    assert sum_below(probes, values, inclusive=True) == (values <= probes[:, None]).sum()


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("presorted", [False, True])
def test_positions_below_stay_in_their_segment(inclusive, presorted):
    rng = np.random.default_rng(4)
    offsets = np.array([0, 0, 40, 41, 100])
    values = np.concatenate([np.sort(rng.integers(0, 30, stop - at)) for at, stop in pairwise(offsets)])
    segment, probe = rng.integers(-1, 4, 200), rng.integers(-2, 33, 200)
    order = np.lexsort((probe, segment)) if presorted else rng.permutation(200)
    found = positions_below(*map(int64s, (values, offsets, segment, probe)), inclusive, int64s(order))
    for at, here, sought in zip(found, segment, probe, strict=True):
        if here < 0:
            assert at == 0
        else:
            part = values[offsets[here] : offsets[here + 1]]
            assert at == offsets[here] + np.searchsorted(part, sought, side="right" if inclusive else "left")


@pytest.mark.parametrize("rows", [1, 2, 3, 31, 32, 33, 64, 100])
def test_permutations_answer_for_ranges(rows):
    rng = np.random.default_rng(rows)
    numbers = rng.permutation(rows)
    words = wavelet(int64s(numbers))
    words.flags.writeable = False
    for _ in range(200):
        first, stop = np.sort(rng.integers(0, rows, 2, endpoint=True))
        low, high = rng.integers(0, rows, 2, endpoint=True)
        inside = [number for number in numbers[first:stop] if low <= number < high]
        assert smallest_between(words, rows, first, stop, low, high) == min(inside, default=-1)
        assert largest_between(words, rows, first, stop, low, high) == max(inside, default=-1)


def test_members_are_found_by_search_and_by_table():
    distinct, keys = np.array([-EDGE - 1, -4, 0, 7, EDGE]), np.array([0, EDGE, -EDGE - 1, 1, -5, 7, 8])
    assert members(int64s(keys), int64s(distinct)).tolist() == [2, 4, 0, -1, -1, 3, -1]
    assert members_by_table(int64s(keys), 7, int64s([9, -1])).tolist() == [-1, -1, -1, -1, -1, 9, -1]
