"""The speed goals: each row has a case, and each case runs at a tiny scale with the right answers from every rival."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from bench.case import Bound, Case, PointResult, RivalResult, Sample
from bench.catalogue import case_of, choose, load_cases, points
from bench.context import BenchContext
from bench.harness import run_point

from bench import catalogue

TABLES = tomllib.loads(Path(catalogue.__file__).with_name("cases").joinpath("speed.toml").read_text())


def tiny(name: str) -> Case:
    table = {key: value for key, value in TABLES[name].items() if key not in ("small", "full", "claims")}
    return case_of(name, small=table["tiny"], full=table["tiny"], **table)


def test_the_group_is_every_row_of_the_goals() -> None:
    assert {*TABLES, "scale-online"} == {entry.name for entry in choose(["speed"])}


def test_goals_speak_of_full_scale() -> None:
    for name in TABLES:
        bounds = load_cases()[name].bounds
        assert bounds
        assert all(bound.scale == "full" for bound in bounds)


def test_crosses_have_every_combination() -> None:
    assert points([{"a": [1, 2], "b": "x"}, {"a": 3, "b": ["y", "z"]}]) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "x"},
        {"a": 3, "b": "y"},
        {"a": 3, "b": "z"},
    ]


def test_a_claim_of_several_is_one_of_each() -> None:
    claim = {"name": "{n} pays", "at_most": 1.0, "against": ["b", "c"], "where": {"n": [1, 2]}, "scale": "any"}
    told = {"way": "demonstration.demo"}
    made = case_of(
        "x",
        question="?",
        answer="demonstration.one",
        small=[{"n": [1, 2]}],
        full=[{"n": [1, 2]}],
        rivals={"a": told, "b": told, "c": told | {"rests": [["{n} is too many", "n > 1"]]}},
        claims=[claim],
    )
    assert [(b.name, b.against, b.scale) for b in made.bounds] == [
        (f"{n} pays", against, None) for against in ("b", "c") for n in (1, 2)
    ]
    assert [made.rivals[2].sits_out({"n": n}) for n in (1, 2)] == [None, "2 is too many"]


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


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TABLES)
def test_each_case_runs_at_a_tiny_scale(name: str) -> None:
    case = tiny(name)
    with BenchContext("small") as bench:
        for params in case.points["small"]:
            found = run_point(case, params, bench, 1)
            for rival in found.rivals.values():
                assert rival.status in ("ok", "sat out", "unavailable"), (params, rival.name, rival.reason)
            bench.next_point()


def test_all_at_small_scale_leaves_out_what_takes_hours() -> None:
    small, full = ({entry.name for entry in choose([], True, scale)} for scale in ("small", "full"))
    assert full - small == {"models-interval-exam", "scale-out", "speed-grid"}
    assert [entry.name for entry in choose(["speed-grid"], scale="small")] == ["speed-grid"]
