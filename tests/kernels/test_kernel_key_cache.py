"""The cache of keys against a plain dict, its ways to make room, hashes of text, and pages used last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.engine.kernels.arrays import int64s
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.joins.semistream.kernels import key_cache as caches
from dovetail.joins.semistream.kernels.key_cache import hits_until
from dovetail.joins.semistream.kernels.waiting_pool import LIVE, empty_pool


def offered(*columns: Any) -> caches.Candidates:
    return caches.Candidates(*(int64s(np.array(column, np.int64)) for column in columns))


def entries(cache: caches.KeyCache) -> dict[int, tuple[int, ...]]:
    n = int(cache.meta[caches.ENTRIES])
    columns = cache.code, cache.ref, cache.rows, cache.hits, cache.weight
    return {int(row[0]): tuple(map(int, row[1:])) for row in zip(*(c[:n] for c in columns), strict=True)}


@pytest.mark.parametrize("policy", [caches.TAKES_ANY, caches.TAKES_LEAST, caches.TAKES_SAMPLED])
@pytest.mark.parametrize("seed", range(6))
def test_keys_come_in_and_go_as_the_rule_says(seed: int, policy: int) -> None:
    rng = np.random.default_rng(seed)
    cache, threshold = caches.empty_cache(8, 200, 2), 2
    for _ in range(200):
        before, code = entries(cache), int(rng.integers(0, 60))
        waiting, weight = int(rng.integers(1, 12)), int(rng.integers(1, 60))
        took = np.empty(1, np.int64)
        n = caches.promote(cache, policy, offered([code], [code * 7], [1], [waiting], [weight], [0]), took)
        after = entries(cache)
        gone = set(before) - set(after)
        if code in before or waiting < threshold:
            assert n == 0
            assert after == before
        elif n:
            assert after[code] == (code * 7, 1, waiting, weight)
            assert gone == set() or len(before) == 8 or sum(e[3] for e in before.values()) + weight > 200
        if policy == caches.TAKES_LEAST and len(gone) == 1 and len(before) == 8:
            assert before[next(iter(gone))][2] == min(e[2] for e in before.values())
        if policy == caches.TAKES_SAMPLED:
            assert all(before[key][2] < waiting for key in gone)
        threshold += len(gone)
        assert int(cache.meta[caches.THRESHOLD]) == threshold
        assert sum(e[3] for e in after.values()) == int(cache.meta[caches.BYTES]) <= 200
        found = np.empty(60, np.int64)
        caches.entries_of(cache, int64s(np.arange(60)), found)
        assert {key for key in range(60) if found[key] >= 0} == set(after)
    caches.age(cache, 1)
    assert int(cache.meta[caches.THRESHOLD]) == max(2, threshold - 1)


def test_stream_rows_hit_wait_or_stop_at_a_full_pool() -> None:
    cache, pool = caches.empty_cache(4, 1000, 1), empty_pool(2, 3)
    caches.add_all(cache, *(int64s(np.array(c)) for c in ([5, 6], [100, 200], [2, 0], [1, 1], [10, 0], [0, -1])))
    codes, refs = int64s(np.array([5, 1, 6, 2, 5, 3])), int64s(np.arange(6) + 50)
    hits = np.empty(10, np.int64), np.empty(10, np.int64)
    segments = int64s(np.zeros(6, np.int64))
    row, n = caches.probe_admit(cache, pool, codes, segments, refs, 0, 6, hits, 0)
    assert (row, n, int(pool.meta[LIVE])) == (5, 3, 2)
    assert hits[0][:3].tolist() == [0, 2, 4]
    for how, expected in {
        0: [(50, 100), (50, 101), (54, 100), (54, 101)],
        1: [(50, 100), (50, 101), (52, -1), (54, 100), (54, 101)],
        2: [(50, 100), (54, 100)],
        3: [(52, -1)],
    }.items():
        out = np.empty(10, np.int64), np.empty(10, np.int64)
        done, at = caches.hit_pairs(cache, refs, hits, 0, n, how, out, 0)
        assert done == 3
        assert list(zip(out[0][:at].tolist(), out[1][:at].tolist(), strict=True)) == expected


def test_removal_keeps_the_others_findable() -> None:
    rng = np.random.default_rng(2)
    cache, model = caches.empty_cache(200, 10**9, 1), {}
    for step in range(2_000):
        code = int(rng.integers(0, 300))
        at = caches.find(cache, code)
        assert (at >= 0) == (code in model)
        if at >= 0 and rng.random() < 0.6:
            caches.remove(cache, at)
            del model[code]
        elif at < 0 and len(model) < 200:
            caches.add(cache, code, step, 1, 0, 1, 0)
            model[code] = step
    assert {code: entry[0] for code, entry in entries(cache).items()} == model


def test_bytes_announced_are_bytes_held() -> None:
    cache = caches.empty_cache(37, 1, 1)
    assert sum(array.nbytes for array in cache) == caches.cache_bytes(37)


def test_text_hashes_depend_on_bytes_and_length_and_folding_on_the_order() -> None:
    data = np.frombuffer(b"aabab\0", np.uint8)
    hashes = text_hashes(np.array([0, 1, 2, 4, 5, 5, 6], np.int32), data)
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 5
    assert text_hashes(np.array([0, 1], np.int64), data)[0] == hashes[0]
    one, two = np.array([1, 2]), np.array([2, 1])
    assert folded(one, two)[0] != folded(one, two)[1]


def test_pages_used_last_are_found_until_the_first_that_is_not_there() -> None:
    place, used = np.array([-1, 0, 1], np.int32), np.zeros(2, np.int64)
    pages = int64s(np.array([1, 2, 1, 0, 1]))
    assert hits_until(pages, 0, place, used, 10) == 3
    assert used.tolist() == [12, 11]
    assert hits_until(pages, 4, place, used, 20) == 5
