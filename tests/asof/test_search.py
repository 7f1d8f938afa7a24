"""Searches in sorted runs equal a look at every entry, however times are spread over long runs."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.joins.asof.kernels.search import Runs, entries_after, entries_before

FAR = np.array([-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 0, 1, -1, 2**62, -(2**62), 2**53 + 1, 2**53, 2**53 - 1])


def times_of(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The times of entries and of rows that are looked up, among them ones before, between and after all entries."""
    if kind == "even":
        return rng.integers(0, n, n), rng.integers(-5, n + 5, 300)
    if kind == "far":
        return rng.choice(FAR, n), rng.choice(FAR, 300)
    if kind == "two clusters":
        return rng.integers(0, 2, n) * 2**40 + rng.integers(0, 9, n), rng.choice([-1, 4, 10, 2**39, 2**40 + 3], 300)
    if kind == "one time":
        return np.full(n, 7), rng.integers(5, 9, 300)
    return 2**60 + rng.integers(0, 300, n), 2**60 + rng.integers(-3, 305, 300)  # closer than doubles are there


@pytest.mark.parametrize("kind", ["even", "far", "two clusters", "one time", "rounded"])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 500, 3_000])
def test_entries_are_those_of_a_look_at_all(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    entries, at = times_of(kind, n, rng)
    keys, sought = rng.integers(0, 3, n), rng.integers(-1, 4, 300)
    order = np.lexsort((entries, keys))
    keys, entries = keys[order], entries[order].astype(np.int64)
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    runs = Runs.of(keys[starts], np.append(starts, n), entries)
    for exact in (True, False):
        before = entries_before(runs, sought, at.astype(np.int64), exact)
        after = entries_after(runs, sought, at.astype(np.int64), exact)
        for row, (key, time) in enumerate(zip(sought, at, strict=True)):
            own = np.flatnonzero(keys == key)
            earlier = own[(entries[own] <= time) if exact else (entries[own] < time)]
            later = own[(entries[own] >= time) if exact else (entries[own] > time)]
            assert before[row] == (earlier[-1] if len(earlier) else -1)
            assert after[row] == (later[0] if len(later) else -1)


def test_long_runs_have_slots_of_a_few_entries() -> None:
    times = np.sort(np.random.default_rng(1).integers(0, 10**9, 100_000))
    runs = Runs.of(np.zeros(1, np.int64), np.array([0, len(times)]), times)
    assert np.diff(runs.slots).max() < 30
    assert runs.slots.nbytes <= 2 * len(times) + 16  # of the bytes that an index holds for each row
