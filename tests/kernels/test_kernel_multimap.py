"""The hash multimap against a dict of lists."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from dovetail.engine.kernels.multimap import HashMultimap

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
HOSTILE = np.array(
    [LOW, LOW + 1, HIGH, HIGH - 1, 0, -1, 1, *(1 << k for k in range(1, 63)), *(-(1 << k) for k in range(63))]
)


class Model:
    """Entries of each key as (value, slot), oldest first."""

    def __init__(self) -> None:
        self.of = defaultdict(list)

    def pairs(self, keys):
        return [(row, value) for row, key in enumerate(keys) for value, _ in self.of.get(key, ())]

    def delete_slot(self, slot):
        for entries in self.of.values():
            for entry in entries:
                if entry[1] == slot:
                    entries.remove(entry)
                    return True
        return False


def agrees(found: HashMultimap, model: Model, keys: np.ndarray) -> None:
    rows, matches = found.probe(keys)
    assert list(zip(rows.tolist(), matches.tolist(), strict=True)) == model.pairs(keys.tolist())


def step(found: HashMultimap, model: Model, rng: np.random.Generator, pool: np.ndarray) -> None:
    keys = rng.choice(pool, rng.integers(0, 6))
    values = rng.integers(0, 5, len(keys))
    kind = rng.choice(["insert", "insert", "insert", "probe", "slots", "key"])
    if kind == "insert":
        slots = found.insert(keys, values)
        for key, value, slot in zip(keys.tolist(), values.tolist(), slots.tolist(), strict=True):
            model.of[key].append((value, slot))
    elif kind == "probe":
        agrees(found, model, keys)
    elif kind == "slots":
        slots = rng.integers(0, len(found._table.keys), 3)
        assert found.delete_slots(slots).tolist() == [model.delete_slot(slot) for slot in slots.tolist()]
    else:  # every entry of a key, so that its cell goes
        slots = [slot for key in keys[:1].tolist() for _, slot in model.of.pop(key, ())]
        assert found.delete_slots(np.array(slots, np.int64)).all()


@pytest.mark.parametrize(
    "pool", [HOSTILE, np.arange(3), np.arange(400) << 40, np.array([7])], ids=["hostile", "few", "strided", "one"]
)
def test_twelve_thousand_operations_agree_with_a_dict(pool):
    rng = np.random.default_rng(len(pool))
    found, model = HashMultimap(1), Model()
    for n in range(3_000):
        step(found, model, rng, pool)
        if n % 100 == 0:
            assert len(found) == sum(map(len, model.of.values()))
            agrees(found, model, np.unique(pool))
    agrees(found, model, np.unique(pool))


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(50_000) << 44,
        np.arange(50_000) * 2**32,
        np.zeros(50_000, np.int64),
        np.repeat([LOW, HIGH], 25_000),
        np.random.default_rng(1).permutation(50_000),
        -np.arange(50_000),
    ],
    ids=["overflowing shift", "low bits zero", "all equal", "both ends", "shuffled", "negative"],
)
def test_large_batches_of_hostile_keys(keys):
    found = HashMultimap()
    slots = np.concatenate([found.insert(part, part ^ 1) for part in np.array_split(keys, 7)])
    distinct, counts = np.unique(keys, return_counts=True)
    assert len(found) == len(keys)
    assert np.array_equal(np.bincount(found.probe(distinct)[0]), counts)
    rows, values = found.probe(distinct[:40])
    assert np.array_equal(rows, np.repeat(np.arange(len(distinct[:40])), counts[:40]))
    assert np.array_equal(values, distinct[rows] ^ 1)
    assert found.delete_slots(np.random.default_rng(2).permutation(slots)).all()
    assert (len(found), len(found.probe(distinct)[0])) == (0, 0)


def test_no_cluster_grows_long_on_any_stride():
    for shift in range(0, 48, 4):
        found = HashMultimap()
        found.insert(np.arange(20_000) << shift, np.arange(20_000))
        taken = np.flatnonzero(found._table.cells[:, 1])
        runs = np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1)
        assert max(map(len, runs)) < 200, shift


def test_values_of_a_key_keep_their_order_and_chunks_add_up():
    found = HashMultimap()
    found.insert(np.array([5, 6, 5, 5, 6]), np.array([1, 2, 3, 4, 5]))
    keys = np.array([6, 9, 5, 5])
    whole = found.probe(keys)
    assert whole[0].tolist() == [0, 0, 2, 2, 2, 3, 3, 3]
    assert whole[1].tolist() == [2, 5, 1, 3, 4, 1, 3, 4]
    for size in (1, 2, 3, 7, 8, 100):
        pieces = list(found.probe_chunks(keys, size))
        assert all(len(rows) == size for rows, _ in pieces[:-1])
        assert np.array_equal(np.concatenate([rows for rows, _ in pieces]), whole[0])
        assert np.array_equal(np.concatenate([values for _, values in pieces]), whole[1])


def test_empty_map_and_empty_batches():
    found, none = HashMultimap(), np.empty(0, np.int64)
    for pairs in (found.probe(none), found.probe(np.array([1, 2]))):
        assert [len(part) for part in pairs] == [0, 0]
    assert found.insert(none, none).tolist() == []
    assert list(found.probe_chunks(np.array([1]), 5)) == []
    assert found.delete_slots(np.array([0])).tolist() == [False]


def test_memory_is_exact():
    rng = np.random.default_rng(4)
    found = HashMultimap()
    for size in (0, 1, 10, 1_000, 30_000, 5):
        found.insert(rng.integers(LOW, HIGH, size), np.zeros(size, np.int64))
        assert found.nbytes == sum(array.nbytes for array in found._table)


def test_deleted_slots_are_used_again():
    found = HashMultimap()
    slots = found.insert(np.arange(1_000), np.arange(1_000))
    before = found.nbytes
    for _ in range(20):
        found.delete_slots(slots)
        slots = found.insert(np.arange(1_000) * 3, np.arange(1_000))
    assert found.nbytes == before
    assert found.probe(np.array([0, 1, 3]))[0].tolist() == [0, 2]


def test_wrong_input_is_refused():
    found = HashMultimap()
    with pytest.raises(ValueError, match="2 keys but 1 values"):
        found.insert(np.array([1, 2]), np.array([1]))
    with pytest.raises(IndexError, match="slots from 0 to 99"):
        found.delete_slots(np.array([0, 99]))
    with pytest.raises(IndexError, match="slots from -1"):
        found.delete_slots(np.array([-1]))
    with pytest.raises(TypeError, match="safe"):
        found.insert(np.array([1.5]), np.array([1]))
    with pytest.raises(ValueError, match="max_pairs is 0"):
        next(found.probe_chunks(np.array([1]), 0))
    with pytest.raises(OverflowError, match="at most 2147483647"):
        found._make_room(2**31)
