"""Frequent items: bounds of their counters beside plain counts, however they are merged."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.frequent import CAPACITY, FrequentItems, above_the_rest
from dovetail.engine.metrics import Metrics


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(1.05, 3.0), st.integers(1, 9), st.booleans())
def test_counters_are_within_their_bounds(seed: int, skew: float, parts: int, nested: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = [str(key) for key in rng.zipf(skew, 600) % 500]
    true, found = Counter(rows), [FrequentItems() for _ in range(3 if nested else 1)]
    for at, part in enumerate(np.array_split(np.array(rows), parts)):
        found[at % len(found)].add(Counter(part.tolist()), len(part))
    for other in found[1:]:
        found[0].merge(other)
    items = found[0]
    assert items.total == len(rows)
    assert len(items.counts) <= CAPACITY
    slack = len(rows) / (CAPACITY + 1)
    for item, n in true.items():
        assert n - slack <= items.counts.get(item, 0) <= n


def test_what_is_above_the_rest() -> None:
    assert above_the_rest(np.array([3, 1])).tolist() == [3, 1]
    counts = np.array([5] + [1] * CAPACITY)
    assert above_the_rest(counts).tolist() == [4] + [0] * CAPACITY


def test_metrics_add_them_up_and_keep_them_in_json() -> None:
    one, other = Metrics(), Metrics()
    one.count_items("keys", {"7": 3}, 4, "left")
    other.count_items("keys", {"7": 1, "'x'": 2}, 6, "left")
    for together in (Metrics().merge(one).merge(other), Metrics().merge(other).merge(one)):
        again = Metrics.from_json(together.to_json())
        for found in (together, again):
            items = found.frequent("keys", "left")
            assert (items.total, items.counts) == (10, {"7": 4, "'x'": 2})
            assert str(found).splitlines()[-1] == "most frequent keys.left: 7 40.0%, 'x' 20.0%"
    assert one.frequent("keys", "left").total == 4
    assert Metrics().frequent("keys").share("7") == 0.0
    assert "frequent" not in Metrics().to_json()
