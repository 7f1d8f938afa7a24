"""The smallest and the largest key of all: every algorithm ends, and finds their pairs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dovetail.engine.host import run_local
from dovetail.joins.online.graph import Band
from dovetail.joins.online.operators import ALGORITHMS

KEYS = [2**63 - 1, 0, -(2**63), 2**63 - 1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("keys", [KEYS[:1], KEYS[2:3], KEYS], ids=str)
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_extreme_keys_are_joined(algorithm: str, keys: list[int]) -> None:
    options: list[dict[str, Any]] = [{"on": ("k",)}]
    if algorithm in ("diner", "pmj"):
        options.append({"within": Band("k", "k", 0, 0)})
    for given in options:
        sides = {side: [pa.record_batch({"k": pa.array(keys), side: range(len(keys))})] for side in ("left", "right")}
        found = run_local(ALGORITHMS[algorithm](**given), sides, "256KB").table().select(["left", "right"])
        expected = [(a, b) for a in range(len(keys)) for b in range(len(keys)) if keys[a] == keys[b]]
        assert sorted((row["left"], row["right"]) for row in found.to_pylist()) == expected
