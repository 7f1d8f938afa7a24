"""Thousands of rows with text, hundreds of them active at once: all five algorithms agree at every budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import ALGORITHMS, cut, schemas

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.relation import Relation

ROWS = 2000


def _side(seed: int, name: str) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 10_000, ROWS))
    length = np.where(rng.random(ROWS) < 0.25, rng.integers(1, 6_000, ROWS), rng.integers(1, 40, ROWS))
    text = pa.array(["x" * int(n) for n in rng.integers(0, 60, ROWS)])
    batch = pa.record_batch({"_start": start, "_end": start + length, name: np.arange(ROWS), f"{name}_text": text})
    return batch.sort_by([("_start", "ascending"), ("_end", "ascending")])


LEFT, RIGHT = _side(1, "l"), _side(2, "r")


def _digest(relation: Relation) -> tuple[int, int]:
    """How many pairs, and a sum over their ordinals, by comparing all of them."""
    a, b = (LEFT.column(i).to_numpy()[:, None] for i in range(2))
    c, d = (RIGHT.column(i).to_numpy()[None, :] for i in range(2))
    x, y = np.arange(ROWS)[:, None], np.arange(ROWS)[None, :]
    ss, se, es, ee = (np.sign(p - q) + 1 for p, q in ((a, c), (a, d), (b, c), (b, d)))
    found = relation.table()[27 * ss + 9 * se + 3 * es + ee]
    return int(found.sum()), int((found * ((x * 7919 + y) % 100_003)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overlapping", "covered_by"])
def test_all_algorithms_agree_at_every_budget(name: str) -> None:
    relation = Relation.parse(name)
    wanted = _digest(relation)
    for algorithm in ALGORITHMS:
        for budget in ("64KB", "16MB"):
            assert _run(algorithm, relation, budget) == wanted, (algorithm, budget)


def _run(algorithm: Any, relation: Relation, budget: str) -> tuple[int, int]:
    memory = MemoryBudget(budget)
    pairs = total = 0
    with algorithm(relation=relation, emit="pairs").open(memory, schemas(LEFT, RIGHT)) as operator:
        for batch in operator.join(cut(LEFT, 100), cut(RIGHT, 130)):
            x, y = batch.column("left").to_numpy(), batch.column("right").to_numpy()
            pairs += batch.num_rows
            total += int(((x * 7919 + y) % 100_003).sum())
        spilled = operator.metrics.value("bytes_written")
    assert memory.peak <= memory.limit
    assert memory.used == 0
    if relation.only == "overlapping":
        assert (spilled > 0) == (budget == "64KB")
    return pairs, total
