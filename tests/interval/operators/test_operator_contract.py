"""The contract of interval operators: what specifications print and refuse, what they emit, how hosts drive them."""

from __future__ import annotations

import doctest
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interval.operators.operator_cases import (
    ALGORITHMS,
    cut,
    expected,
    pairs_of,
    random_side,
    run,
    schemas,
    side,
    tuples,
)

from dovetail.engine.host import Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.operators import ForwardScanJoin, Frames, SortMergeJoin, TimeSweepJoin, slot_store
from dovetail.joins.interval.operators import spec as operator_spec
from dovetail.joins.interval.operators.spec import minimum_bytes
from dovetail.joins.interval.relation import Relation

OVERLAPPING = Relation.parse("overlapping")


def test_explain_is_one_line() -> None:
    assert (
        SortMergeJoin(relation=OVERLAPPING).explain()
        == "SortMergeJoin: relation=overlapping, outer=left, any order, emit=rows"
    )
    spec = TimeSweepJoin(
        relation=Relation.parse("covered_by"), range_start=5, keyed=True, emit="pairs", track=("left",), frames=Frames()
    )
    assert spec.explain() == (
        "TimeSweepJoin: relation=covered_by, outer=right, outer first, range from 5, keyed, emit=pairs, track=left, "
        "capacity=768 tuples"
    )


def test_sweeps_exchange_the_inputs_when_the_relation_says_that_the_right_one_starts_first() -> None:
    for spec in (TimeSweepJoin, ForwardScanJoin):
        assert not spec(relation=Relation.parse("covers"), swapped=True).exchange
        assert spec(relation=Relation.parse("overlapped_by")).exchange
        assert spec(relation=OVERLAPPING, swapped=True).exchange
    assert SortMergeJoin(relation=Relation.parse("covered_by")).exchange is False
    assert SortMergeJoin(relation=Relation.parse("covered_by"), swapped=True).exchange is True


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wrong_requests_are_refused_when_they_are_made(algorithm: Any) -> None:
    for relation in ("before", "after", "meets", "met_by", ("overlapping", "meets")):
        with pytest.raises(PlanError, match="share no point"):
            algorithm(relation=Relation.parse(relation))
    for wrong in ({"emit": "all"}, {"track": ("up",)}, {"halves": 2}, {"shift": -1}):
        with pytest.raises(PlanError, match=next(iter(wrong))):
            algorithm(relation=OVERLAPPING, **wrong)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"tuple_bytes": 9000}, {"reserved": 256}, {"reserved": -1}])
def test_frames_that_hold_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match="frame"):
        Frames(**wrong)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_schemas_must_have_the_code_columns(algorithm: Any) -> None:
    good, memory = side([1], [2], name="l"), MemoryBudget("1MB")
    spec = algorithm(relation=OVERLAPPING)
    with pytest.raises(PlanError, match="'_end'"):
        spec.open(memory, {"left": good.schema, "right": good.select(["_start", "l"]).schema})
    with pytest.raises(PlanError, match="'_key'"):
        replace(spec, keyed=True).open(memory, {"left": good.schema, "right": good.drop_columns(["_key"]).schema})
    with pytest.raises(PlanError, match="takes"):
        spec.open(memory, {"left": good.schema})
    codes = good.select(["_start", "_end"])
    with pytest.raises(PlanError, match="payload column"):
        spec.open(memory, schemas(codes, codes))
    with pytest.raises(PlanError, match="schema"), spec.open(memory, schemas(good, good)) as operator:
        list(operator.join([good], [codes]))
    assert memory.used == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_count_gives_no_rows_and_the_right_number(algorithm: Any) -> None:
    rng = np.random.default_rng(1)
    left, right = random_side(rng, 60, 50, 20, name="l"), random_side(rng, 60, 50, 20, name="r")
    found, metrics = run(algorithm(relation=OVERLAPPING, emit="count"), left, right, 7)
    assert found == []
    assert metrics.value("pairs") == len(expected(OVERLAPPING, left, right))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("emit", ["rows", "pairs", "count"])
def test_matched_rows_are_remembered(algorithm: Any, emit: str) -> None:
    rng = np.random.default_rng(2)
    left, right = random_side(rng, 45, 300, 6, 2, name="l"), random_side(rng, 37, 300, 6, 2, name="r")
    spec = algorithm(relation=OVERLAPPING, keyed=True, emit=emit, track=("left", "right"), frames=tuples(2))
    pairs = expected(OVERLAPPING, left, right, keyed=True)
    with spec.open(MemoryBudget("1MB"), schemas(left, right)) as operator:
        list(operator.join(cut(left, 7), cut(right, 7)))
        for name, batch, met in (("left", left, {i for i, _ in pairs}), ("right", right, {j for _, j in pairs})):
            wanted = np.isin(np.arange(batch.num_rows), list(met))
            mask = operator.matched[name].mask
            assert mask(0, batch.num_rows).tolist() == wanted.tolist()
            assert mask(3, 20).tolist() == wanted[3:23].tolist()
            assert not mask(1000, 5).any()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("order", ["random", "round_robin", "sequential"])
def test_any_order_of_pushing_gives_the_same(algorithm: Any, order: Any) -> None:
    rng = np.random.default_rng(4)
    left, right = random_side(rng, 300, 200, 60, name="l"), random_side(rng, 300, 200, 60, name="r")
    budget = 2 * minimum_bytes(left.schema, right.schema)
    inputs = {"left": cut(left, 11), "right": cut(right, 23)}
    spec = algorithm(relation=OVERLAPPING)
    answers = run_local(spec, inputs, budget, Schedule(order, pause_chance=0.1))
    assert pairs_of(answers) == expected(OVERLAPPING, left, right)
    assert answers.budget.peak <= budget


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_operator_runs_once(algorithm: Any) -> None:
    left, right = side([1], [2], name="l"), side([1], [2], name="r")
    with algorithm(relation=OVERLAPPING).open(MemoryBudget("1MB"), schemas(left, right)) as operator:
        assert pairs_of(operator.join([left], [right])) == [(0, 0)]
        with pytest.raises(PlanError, match="already"):
            list(operator.join([left], [right]))
    with (
        algorithm(relation=OVERLAPPING).open(MemoryBudget("1MB"), schemas(left, right)) as operator,
        pytest.raises(PlanError, match="'middle'"),
    ):
        operator.push("middle", left)


@pytest.mark.parametrize("module", [operator_spec, slot_store])
def test_examples_in_docstrings_run(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


interval = st.tuples(st.integers(0, 15), st.integers(1, 9), st.integers(0, 2))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    st.lists(interval, max_size=14),
    st.lists(interval, max_size=14),
    st.sampled_from(ALGORITHMS),
    st.sampled_from(["overlapping", "overlaps", "overlapped_by", "covers", "covered_by", "ends"]),
    st.integers(1, 5),
    st.sampled_from([1, 2, 7]),
    st.booleans(),
)
def test_any_small_input_equals_brute_force(
    left_rows: Any, right_rows: Any, algorithm: Any, name: str, memory: int, rows: int, keyed: bool
) -> None:
    def made(given_rows: list[tuple[int, int, int]], column: str) -> pa.RecordBatch:
        starts, ends = [s for s, _, _ in given_rows], [s + d for s, d, _ in given_rows]
        return side(starts, ends, [k for _, _, k in given_rows] if keyed else None, column)

    left, right, relation = made(left_rows, "l"), made(right_rows, "r"), Relation.parse(name)
    spec = algorithm(relation=relation, frames=tuples(memory), keyed=keyed, emit="pairs")
    assert run(spec, left, right, rows)[0] == expected(relation, left, right, keyed=keyed)
