"""The sorted index against a sorted list of (key, arrival, value)."""

from __future__ import annotations

import bisect

import numpy as np
import pytest

from dovetail.kernels.sorted_index import SortedIndex
from dovetail.kernels.sorted_leaves import USED

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
HOSTILE = np.array([LOW, LOW + 1, HIGH, HIGH - 1, 0, -1, 1, *(1 << k for k in range(1, 63, 3))])


class Model:
    """Rows as (key, arrival, value) in order."""

    def __init__(self) -> None:
        self.rows, self.arrivals = [], 0

    def insert(self, keys, values):
        for key, value in zip(keys, values, strict=True):
            bisect.insort(self.rows, (key, self.arrivals, value))
            self.arrivals += 1

    def within(self, low, high):
        return [row for row in self.rows if low <= row[0] <= high]

    def delete(self, key, value):
        for row in self.rows:
            if row[0] == key and row[2] == value:
                self.rows.remove(row)
                return True
        return False


def as_pairs(columns) -> list[tuple[int, int]]:
    return list(zip(columns[0].tolist(), columns[1].tolist(), strict=True))


def agrees(index: SortedIndex, model: Model) -> None:
    assert len(index) == len(model.rows)
    assert as_pairs(index.items()) == [(key, value) for key, _, value in model.rows]
    assert index.bounds == ((model.rows[0][0], model.rows[-1][0]) if model.rows else None)
    used, ix = int(index._ix.meta[USED]), index._ix
    assert sorted(ix.order.tolist()) == list(range(len(ix.order)))
    assert all(ix.sizes[ix.order[at]] > 0 and ix.keys[ix.order[at], 0] == ix.firsts[at] for at in range(used))


def take(model: Model, rows) -> list[tuple[int, int]]:
    gone = set(rows)
    model.rows = [row for row in model.rows if row not in gone]
    return [(key, value) for key, _, value in rows]


def change(index: SortedIndex, model: Model, rng: np.random.Generator, pool: np.ndarray, kind: str) -> None:
    keys = rng.choice(pool, rng.integers(0, 8))
    values = rng.integers(0, 4, len(keys))
    some = int(rng.integers(0, 9))
    if kind == "insert":
        index.insert(keys, values)
        model.insert(keys.tolist(), values.tolist())
    elif kind == "delete":
        expected = [model.delete(*pair) for pair in zip(keys.tolist(), values.tolist(), strict=True)]
        assert index.delete_pairs(keys, values).tolist() == expected
    elif kind == "low":
        assert as_pairs(index.evict_low(some)) == take(model, model.rows[:some])
    elif kind == "high":
        assert as_pairs(index.evict_high(some)) == take(model, model.rows[max(0, len(model.rows) - some) :])
    else:
        low, high = sorted(rng.choice(pool, 2).tolist())
        low = max(low, high - 3) if rng.random() < 0.8 else low
        assert as_pairs(index.delete_range(low, high)) == take(model, model.within(low, high))


def look(index: SortedIndex, model: Model, rng: np.random.Generator, pool: np.ndarray) -> None:
    low, high = rng.choice(pool, (2, 4))
    found = [model.within(*bounds) for bounds in zip(low.tolist(), high.tolist(), strict=True)]
    expected = [(at, row[2]) for at, rows in enumerate(found) for row in rows]
    assert index.count(low, high).tolist() == [len(rows) for rows in found]
    assert as_pairs(index.probe(low, high)) == expected
    pieces = list(index.probe_chunks(low, high, 3))
    assert [pair for piece in pieces for pair in as_pairs(piece)] == expected
    assert index.contains(low).tolist() == [bool(model.within(key, key)) for key in low.tolist()]
    assert as_pairs(index.between(int(low[0]), int(high[0]))) == [(key, value) for key, _, value in found[0]]


@pytest.mark.parametrize("leaf_rows", [4, 9, 256])
@pytest.mark.parametrize("pool", [HOSTILE, np.arange(5), np.arange(-300, 300)], ids=["hostile", "few", "many"])
def test_thirteen_thousand_operations_agree_with_a_list(leaf_rows, pool):
    rng = np.random.default_rng(leaf_rows)
    index, model = SortedIndex(leaf_rows), Model()
    for n in range(1_500):
        kind = rng.choice(["insert", "insert", "insert", "look", "look", "delete", "low", "high", "range"])
        if kind == "look":
            look(index, model, rng, pool)
        else:
            change(index, model, rng, pool, kind)
        if n % 50 == 0:
            agrees(index, model)
    agrees(index, model)


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(20_000),
        np.arange(20_000)[::-1],
        np.zeros(20_000, np.int64),
        np.random.default_rng(5).integers(LOW, HIGH, 20_000),
        np.repeat([HIGH, LOW], 10_000),
        np.arange(20_000) << 40,
    ],
    ids=["ascending", "descending", "equal", "random", "both ends", "strided"],
)
@pytest.mark.parametrize("batch", [1, 37, 20_000])
def test_any_arrival_order_gives_sorted_rows(keys, batch):
    n = len(keys) if batch > 1 else 2_000
    index = SortedIndex()
    for at in range(0, n, batch):
        index.insert(keys[at : at + batch], np.arange(at, min(n, at + batch)))
    order = np.argsort(keys[:n], kind="stable")
    found = index.items()
    assert np.array_equal(found[0], keys[:n][order])
    assert np.array_equal(found[1], order)
    assert index.nbytes <= 16 * 4.5 * n + 10_000
    assert np.array_equal(index.evict_low(n // 3)[1], order[: n // 3])
    assert np.array_equal(index.evict_high(n // 3)[1], order[n - n // 3 :])
    assert np.array_equal(index.items()[1], order[n // 3 : n - n // 3])


def test_leaves_stay_filled_when_keys_fall_between():
    index = SortedIndex(16)
    index.insert(np.array([0, 1_000_000]), np.zeros(2, np.int64))
    for key in range(5_000, 0, -1):
        index.insert(np.array([key]), np.array([key]))
    assert int(index._ix.meta[USED]) <= 2 * len(index) / 16 * 1.2 + 2


def test_deleting_most_rows_joins_leaves():
    rng = np.random.default_rng(8)
    index = SortedIndex(32)
    index.insert(np.arange(10_000), np.arange(10_000))
    gone = rng.permutation(10_000)[:9_500]
    assert index.delete_pairs(gone, gone).all()
    assert np.array_equal(index.items()[0], np.setdiff1d(np.arange(10_000), gone))
    assert int(index._ix.meta[USED]) < 100
    before = index.nbytes
    index.compact()
    assert index.nbytes < before / 10
    assert np.array_equal(index.items()[0], np.setdiff1d(np.arange(10_000), gone))


def test_empty_index_and_empty_batches():
    index, none = SortedIndex(), np.empty(0, np.int64)
    index.insert(none, none)
    assert index.bounds is None
    assert index.count(np.array([LOW]), np.array([HIGH])).tolist() == [0]
    for pairs in (
        index.items(),
        index.evict_low(3),
        index.evict_high(3),
        index.between(1, 2),
        index.delete_range(1, 2),
    ):
        assert as_pairs(pairs) == []
    assert index.delete_pairs(np.array([1]), np.array([1])).tolist() == [False]
    assert as_pairs(index.probe(none, none)) == []
    index.insert(np.array([3]), np.array([4]))
    assert as_pairs(index.between(4, 3)) == []
    assert as_pairs(index.evict_high(1)) == [(3, 4)]


def test_memory_is_exact_and_foretold():
    rng = np.random.default_rng(9)
    index = SortedIndex()
    for size in (0, 1, 300, 1, 5_000, 100, 40_000):
        foretold = index.nbytes_after(size)
        index.insert(rng.integers(LOW, HIGH, size), np.zeros(size, np.int64))
        assert index.nbytes == sum(array.nbytes for array in index._ix) <= foretold


def test_wrong_input_is_refused():
    index = SortedIndex()
    with pytest.raises(ValueError, match="leaf_rows is 3"):
        SortedIndex(3)
    with pytest.raises(ValueError, match="1 keys but 2 values"):
        index.insert(np.array([1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="1 lower but 2 upper"):
        index.probe(np.array([1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="max_pairs is 0"):
        next(index.probe_chunks(np.array([1]), np.array([1]), 0))
