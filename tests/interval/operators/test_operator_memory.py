"""The interval operators inside byte budgets: right answers and an honest peak down to the smallest legal budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import ALGORITHMS, STREAMING, cut, expected, random_side, run, schemas

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.interval.operators.spec import minimum_bytes
from dovetail.joins.interval.relation import Relation

OVERLAPPING = Relation.parse("overlapping")


def _crowded(seed: int = 3, n: int = 240) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Hundreds of rows that are active at once."""
    rng = np.random.default_rng(seed)
    return random_side(rng, n, 240, 160, name="l"), random_side(rng, n, 240, 160, name="r")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relation", ["overlapping", "covers", "overlapped_by"])
@pytest.mark.parametrize(("times", "rows"), [(1, 7), (2, 2), (40, 50)])
def test_budgets_from_the_smallest_to_generous(algorithm: Any, relation: str, times: int, rows: int) -> None:
    left, right = _crowded()
    budget = times * minimum_bytes(left.schema, right.schema)
    found, metrics = run(algorithm(relation=Relation.parse(relation)), left, right, rows, budget)
    assert found == expected(Relation.parse(relation), left, right)
    if relation == "overlapping" and times != 2:  # else some hold all that they need and some do not
        assert (metrics.value("bytes_written") > 0) == (times == 1)
    assert 0 < metrics.value("memory_peak") <= budget


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_less_than_the_minimum_is_refused_with_the_minimum(algorithm: Any) -> None:
    left, right = _crowded(n=2)
    least = minimum_bytes(left.schema, right.schema)
    spec = algorithm(relation=OVERLAPPING)
    with pytest.raises(PlanError, match=f"{least} bytes"):
        spec.open(MemoryBudget(least - 1), schemas(left, right))
    with pytest.raises(PlanError, match="1 KiB"):
        spec.open(MemoryBudget("1KB"), schemas(left, right))
    assert run(spec, left, right, budget=least)[0] == expected(OVERLAPPING, left, right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_of_very_different_size(algorithm: Any) -> None:
    left, right = _crowded(n=200)
    long = pa.array(["x" * (2000 if i % 40 == 0 else 3) for i in range(200)])
    left = left.set_column(4, "l_text", long)
    found, metrics = run(algorithm(relation=OVERLAPPING), left, right, 10, 45_000)
    assert found == expected(OVERLAPPING, left, right)
    assert metrics.value("bytes_written") > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_that_cannot_be_held_is_an_error_and_leaves_nothing(algorithm: Any, tmp_path: Path) -> None:
    left, right = _crowded(n=3000)
    memory = MemoryBudget(minimum_bytes(left.schema, right.schema))
    operator = algorithm(relation=OVERLAPPING).open(memory, schemas(left, right), tmp_path)
    with operator, pytest.raises(BudgetExceeded, match="smaller batches"):
        list(operator.join([left], [right]))
    assert memory.used == 0
    assert not list(tmp_path.rglob("*replay*"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("stop", ["end", "midway", "failure"])
def test_spill_files_are_removed(algorithm: Any, stop: str, tmp_path: Path) -> None:
    left, right = _crowded()
    memory = MemoryBudget(minimum_bytes(left.schema, right.schema))
    operator = algorithm(relation=OVERLAPPING).open(memory, schemas(left, right), tmp_path)
    answers = operator.join(cut(left, 20), _failing(right) if stop == "failure" else cut(right, 20))
    if stop == "end":
        list(answers)
        assert operator.metrics.value("bytes_written") > 0
    elif stop == "midway":
        next(batch for batch in answers if any(tmp_path.rglob("*.*")))
    else:
        with pytest.raises(OSError, match="lost the input"):
            list(answers)
    operator.close()
    operator.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert memory.used == 0


def _failing(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from cut(batch.slice(0, 180), 20)
    raise OSError("lost the input")


@pytest.mark.parametrize("algorithm", STREAMING)
def test_the_first_answer_comes_before_the_inputs_end(algorithm: Any) -> None:
    left, right = _crowded()
    taken = []

    def watched(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for piece in cut(batch, 10):
            taken.append(piece.num_rows)
            yield piece

    with algorithm(relation=OVERLAPPING).open(MemoryBudget("1MB"), schemas(left, right)) as operator:
        next(operator.join(watched(left), watched(right)))
    assert sum(taken) <= 40


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_answers_come_in_batches_of_bounded_size(algorithm: Any) -> None:
    left, right = _crowded()
    budget = MemoryBudget(100_000)
    with algorithm(relation=OVERLAPPING).open(budget, schemas(left, right)) as operator:
        sizes = [batch.nbytes for batch in operator.join(cut(left, 50), cut(right, 50))]
    assert max(sizes) <= 100_000 // 8
    assert len(sizes) > 100
