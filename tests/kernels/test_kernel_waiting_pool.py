"""The pool of waiting rows against a plain list: queue, chains, counters, finger and every way to choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.engine.kernels.arrays import int64s
from dovetail.joins.semistream.kernels import segment_match as matching
from dovetail.joins.semistream.kernels import waiting_pool as pools


def admit(pool: Any, rows: list[tuple[int, int, int]], now: int = 0) -> int:
    columns = [int64s(np.array([row[at] for row in rows], np.int64)) for at in range(3)]
    return pools.admit(pool, columns[0], columns[1], columns[2], 0, now)


def in_order(pool: Any) -> list[tuple[int, int, int]]:
    slots = np.empty(int(pool.meta[pools.LIVE]), np.int32)
    pools.waiting_slots(pool, slots)
    return [(int(pool.code[s]), int(pool.segment[s]), int(pool.ref[s])) for s in slots]


def settle(pool: Any, segment: int, codes: Any, how: int = matching.LEFT, room: int = 1000) -> list[tuple[int, int]]:
    out, scratch, pairs = (np.empty(room, np.int64), np.empty(room, np.int64)), matching.empty_scratch(64), []
    while pool.held[segment]:
        pool.meta[pools.LOADS] += 1
        waiting = int(pool.held[segment])
        n, *_ = matching.meet(pool, segment, waiting, True, int64s(codes), 0, scratch, how, out, 0, 10, False)
        pairs += list(zip(out[0][:n].tolist(), out[1][:n].tolist(), strict=True))
    return pairs


@pytest.mark.parametrize("seed", range(20))
def test_pool_is_a_queue_with_chains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots, segments = int(rng.integers(1, 30)), int(rng.integers(1, 8))
    pool, model, number = pools.empty_pool(slots, segments), [], 0
    for _ in range(60):
        rows = []
        for _ in range(int(rng.integers(0, 10))):
            code = int(rng.integers(0, 40))
            rows.append((code, code % segments, number))
            number += 1
        done = admit(pool, rows)
        assert done == min(len(rows), slots - len(model))
        model += rows[:done]
        assert in_order(pool) == model
        held = [sum(row[1] == s for row in model) for s in range(segments)]
        assert pool.held[:segments].tolist() == held
        check_choices(pool, model, held, float(rng.choice([0.1, 0.3, 0.5, 1.0])))
        if model and rng.random() < 0.7:
            segment = model[int(rng.integers(len(model)))][1]
            codes = (
                np.sort(rng.integers(0, 40, int(rng.integers(0, 50))))
                if rng.random() < 0.5
                else rng.integers(0, 40, 20)
            )
            mine = [row for row in model if row[1] == segment]
            expected = [(ref, at) for code, _, ref in mine for at in (np.flatnonzero(codes == code).tolist() or [-1])]
            assert settle(pool, segment, codes, room=60) == expected
            model = [row for row in model if row[1] != segment]
            assert in_order(pool) == model


def check_choices(pool: Any, model: list[Any], held: list[int], position: float) -> None:
    if not model:
        assert pools.choose(pool, pools.BY_OLDEST, position, 1 << 40, 0) == -1
        return
    oldest, wanted = model[0][1], min(int(position * len(model)), len(model) - 1)
    other = model[len(model) - 1 - wanted][1]
    assert pools.choose(pool, pools.BY_OLDEST, position, 1 << 40, 0) == oldest
    assert pools.choose(pool, pools.BY_POSITION, position, 1 << 40, 0) == other
    assert pools.choose(pool, pools.BY_GREEDY, position, 1 << 40, 0) == int(np.argmax(held))
    assert pools.choose(pool, pools.BY_POSITION, position, 0, 0) == oldest
    pool.meta[pools.TURN] = 1
    assert pools.choose(pool, pools.BY_ALTERNATE, position, 1 << 40, 0) == other
    assert pools.choose(pool, pools.BY_ALTERNATE, position, 1 << 40, 0) == oldest
    guarded = other if held[other] > held[oldest] else oldest
    assert pools.choose(pool, pools.BY_GUARDED, position, 1 << 40, 0) == guarded
    pool.meta[pools.TURN] = 0


@pytest.mark.parametrize("how", [matching.INNER, matching.LEFT, matching.SEMI, matching.ANTI])
def test_each_kind_of_join_gives_its_pairs(how: int) -> None:
    codes = np.array([3, 1, 3, 5])
    expected = {
        matching.INNER: [(10, 0), (10, 2), (12, 1)],
        matching.LEFT: [(10, 0), (10, 2), (11, -1), (12, 1)],
        matching.SEMI: [(10, 0), (12, 1)],
        matching.ANTI: [(11, -1)],
    }[how]
    for padding in ([], [90, 91, 92, 93, 94]):  # more master rows than waiting ones, and fewer
        pool = pools.empty_pool(8, 1)
        admit(pool, [(3, 0, 10), (4, 0, 11), (1, 0, 12)])
        assert settle(pool, 0, np.append(codes, padding).astype(np.int64), how) == expected


def test_checked_pairs_turn_wrong_ones_into_misses() -> None:
    refs, rows = np.array([7, 7, 8, 9, 9]), np.array([1, 2, -1, 3, 4])
    right = np.array([False, True, False, False, False])
    kept = {how: (refs.copy(), rows.copy()) for how in range(4)}
    ends = {how: matching.keep_checked(*kept[how], 0, 5, right, how) for how in range(4)}
    found = {how: list(zip(kept[how][0][: ends[how]], kept[how][1][: ends[how]], strict=True)) for how in range(4)}
    assert found[matching.INNER] == found[matching.SEMI] == [(7, 2)]
    assert found[matching.LEFT] == [(7, 2), (8, -1), (9, -1)]
    assert found[matching.ANTI] == [(8, -1), (9, -1)]


def test_durations_fall_into_buckets_of_powers_of_two() -> None:
    assert [pools.bucket(ns) for ns in (0, 1, 2, 3, 4, 1023, 1024)] == [0, 1, 2, 2, 3, 10, 11]


def test_bytes_announced_are_bytes_held() -> None:
    pool, scratch = pools.empty_pool(10, 3), matching.empty_scratch(100)
    assert sum(array.nbytes for array in pool) == pools.pool_bytes(10, 3)
    assert sum(array.nbytes for array in scratch) == matching.scratch_bytes(100)
