"""The experiments of XQuery: every figure has one, wrong answers are errors, and what is timed is what ran last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from bench.case import Case, Outcome, Params, Rival, Run
from bench.catalogue import load_cases, load_experiments
from bench.context import BenchContext

from bench.experiments import xquery as timing
from dovetail.errors import DataError

CASE = load_cases()["xquery"]
PLACES = {f"figure 7.{n}" for n in range(5, 10)}


def test_every_figure_of_the_source_has_an_experiment() -> None:
    mine = [each for each in load_experiments().values() if each.family == "xquery"]
    assert sorted(place for each in mine for place in each.places) == sorted(PLACES)
    assert {each.ground for each in mine} == {"measured"}


def test_contestants_are_those_of_the_case() -> None:
    names = {rival.name for rival in CASE.rivals}
    assert {timing.ONE, timing.TWO, timing.QUARTER, timing.SAXON, timing.SPARK} == names


def answering(seconds: Iterator[float], answers: Iterator[int], log: list[str], name: str) -> Rival:
    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        def run() -> Outcome:
            log.append(name)
            return Outcome(next(answers), next(seconds), {"worker_mb": 5.0})

        yield run
        log.append(f"{name} closed")

    return Rival(name, prepare)


def contest(monkeypatch: pytest.MonkeyPatch, *rivals: Rival) -> None:
    points = {"small": [{"n": 1}], "full": [{"n": 1}]}
    case = Case("x", "?", ("n",), points, rivals, lambda bench, params: 3, rivals[0].name)
    monkeypatch.setattr(timing, "CASE", case)


def test_warm_runs_count_and_contestants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    a = answering(iter([9.0, 1.0, 3.0]), iter([3] * 3), log, "a")
    b = answering(iter([9.0, 4.0, 4.0]), iter([3] * 3), log, "b")
    contest(monkeypatch, a, b)
    with BenchContext("small") as bench:
        found = timing.timed(bench, timing.point("7.4", 1, 1), ("a", "b"))
    assert {name: each.mean for name, each in found.items()} == {"a": 2.0, "b": 4.0}
    assert found["a"].figures == {"worker_mb": 5.0}
    assert log == ["a", "b", "b", "a", "a", "b", "b closed", "a closed"]


def test_contestants_take_part_where_they_sit_out_in_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = replace(
        answering(iter([1.0] * 3), iter([3] * 3), [], "a"), sits_out=lambda params: "is not compared there"
    )
    contest(monkeypatch, resting)
    with BenchContext("small") as bench:
        assert timing.timed(bench, timing.point("7.8", 2, 1), ("a",))["a"].mean == 1.0


def test_a_wrong_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    contest(monkeypatch, answering(iter([1.0] * 4), iter([3, 4]), [], "a"))
    with BenchContext("small") as bench, pytest.raises(DataError, match=r"a wrong at .*: answered 4, expected 3"):
        timing.timed(bench, timing.point("7.4", 1, 1), ("a",))


def test_readings_are_made_once_and_measured() -> None:
    with BenchContext("small") as bench:
        params = timing.point("7.4", 1, 1)
        assert 0.3 < timing.size_mb(bench, params) < 0.6
        assert timing.reading_seconds(bench, params) > 0


def test_tables_have_a_cell_for_each_contestant() -> None:
    found = {"7.2": {"a": 1.0, "b": 2.0}, "7.8": {"a": 3.0}}
    grid = timing.seconds_grid("t", {"7.2": 1.0, "7.8": 0.4}, found)
    assert grid.heads == ["query", "kind", "MB", "a", "b"]
    assert grid.rows[1] == ("7.8", "join and aggregation", 0.4, 3.0, None)
    assert timing.bars("t", found).lines == {"a": [("7.2", 1.0), ("7.8", 3.0)], "b": [("7.2", 2.0)]}
