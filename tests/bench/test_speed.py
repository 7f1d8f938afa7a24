"""The speed goals: each row has a case, and each case runs at a tiny scale with the right answers from every rival."""

from __future__ import annotations

import pytest
from bench.case import Bound, Case, PointResult, RivalResult, Sample
from bench.cases import speed
from bench.catalogue import choose
from bench.context import BenchContext
from bench.harness import run_point

from dovetail.errors import PlanError

COLD = ("first-query", "first-micro-batch", "first-count", "short-memory", "demo")


def tiny(name: str) -> Case:
    table = speed.TABLES[name]
    few = speed.points(table["tiny"])
    return speed.case_of(name, table, {"small": few, "full": few})


def test_the_group_is_every_row_of_the_goals() -> None:
    names = [entry.name for entry in choose(["speed"])]
    assert {f"speed-{name}" for name in speed.TABLES} | {"scale-online"} == set(names)


def test_goals_speak_of_full_scale_and_of_rivals_that_are_there() -> None:
    for case in speed.CASES:
        assert all(bound.scale == "full" for bound in case.bounds)
        assert case.bounds


def test_crosses_have_every_combination() -> None:
    assert speed.points([{"a": [1, 2], "b": "x"}, {"a": 3, "b": ["y", "z"]}]) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "x"},
        {"a": 3, "b": "y"},
        {"a": 3, "b": "z"},
    ]


def test_an_unknown_answer_is_named() -> None:
    with pytest.raises(PlanError, match="wants the answer 'nobody'"):
        speed.case_of("first-query", speed.TABLES["first-query"] | {"answer": "nobody"})


def _result(name: str, *seconds: float) -> RivalResult:
    return RivalResult(name, samples=[Sample(n, s, 1, 0, 0) for n, s in enumerate(seconds, 1)])


def test_a_claim_against_several_is_against_the_best_of_each_round() -> None:
    rivals = {r.name: r for r in (_result("ours", 2.0, 3.0), _result("a", 1.0, 6.0), _result("b", 4.0, 2.0))}
    point = PointResult({}, 1, rivals)
    found = point.measure(Bound("c", "ours", 1.0, against="a | b"))
    assert found is not None
    assert (found.low, found.high) == (1.5, 2.0)
    less = point.measure(Bound("c", "ours", 1.0, against="a", less=True))
    assert less is not None
    assert (less.low, less.high) == (-3.0, 1.0)
    rivals["a"].status = rivals["b"].status = "sat out"
    assert point.measure(Bound("c", "ours", 1.0, against="a | b")) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", speed.TABLES)
def test_each_case_runs_at_a_tiny_scale(name: str) -> None:
    case = tiny(name)
    with BenchContext("small") as bench:
        for params in case.points["small"]:
            found = run_point(case, params, bench, 1)
            for rival in found.rivals.values():
                assert rival.status in ("ok", "sat out"), (params, rival.name, rival.reason)
            bench.next_point()
