"""The plain hash join: one read of all master rows, no row waits; refused where they do not fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.operators.memory_pages import MemoryPages
from tests.semistream.operators.stream_cases import answers, random_case, run

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators import HashJoin


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_answers_are_those_of_the_definition(kind: str, how: str) -> None:
    """Also where hashed keys collide, and where there is no master row at all."""
    for seed in range(12):
        case = random_case(seed, kind)
        for bits in (64, 3):
            got = run(HashJoin(pages=case.pages, on=case.on, how=how, hash_bits=bits), case, "2MB")  # type: ignore[arg-type]
            assert got.bag == case.expected(how)
            assert got.budget.peak <= got.budget.limit


def test_the_master_data_is_read_once() -> None:
    case = random_case(1)
    got = run(HashJoin(pages=case.pages, on=case.on), case, "2MB")
    assert got.metrics.value("loads") == 1
    assert len(case.batches()) > 1


def _pages(rows: int) -> MemoryPages:
    return MemoryPages(pa.table({"k": np.arange(rows), "v": np.arange(rows)}), ("k",), 10)


def test_master_data_that_does_not_fit_is_refused() -> None:
    stream = pa.schema([("k", pa.int64())])
    assert HashJoin(pages=_pages(1_000), on=("k",)).fit(1 << 20, stream).per_segment == 100
    with pytest.raises(PlanError, match="cannot hold all 100,000 master rows"):
        HashJoin(pages=_pages(100_000), on=("k",)).fit(1 << 20, stream)


def test_a_new_version_is_read_and_one_that_is_too_large_is_refused() -> None:
    stream = pa.record_batch({"k": np.array([1, 15, 15])})
    with HashJoin(pages=_pages(10), on=("k",)).open(MemoryBudget(1 << 20), {"stream": stream.schema}) as join:
        assert sorted(answers(join.push("stream", stream))) == [(1, 1)]
        assert answers(join.adopt(_pages(20))) == []
        assert sorted(answers(join.push("stream", stream))) == [(1, 1), (15, 15), (15, 15)]
        with pytest.raises(PlanError, match="cannot hold all"):
            list(join.adopt(_pages(100_000)))
