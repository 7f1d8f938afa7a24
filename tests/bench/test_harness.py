"""The harness: turns, answers, ratios, claims; no rival is left out without a reason."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench.case import (
    NOT_MEASURED,
    Bound,
    Case,
    CaseResult,
    Outcome,
    Params,
    PointResult,
    Rival,
    RivalResult,
    Run,
    Sample,
)
from bench.context import BenchContext

from bench import harness
from dovetail.errors import PlanError


def rival(name: str, log: list[str], answer: int | None = None, seconds: float = 1.0, **options: object) -> Rival:
    """A rival that counts to n, says what it did, and reports a time of its own choice."""

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        log.append(f"open {name}")
        yield lambda: log.append(name) or Outcome(params["n"] if answer is None else answer, seconds, {"spilled": 7.0})
        log.append(f"close {name}")

    return Rival(name, prepare, **options)


def case(*rivals: Rival, bounds: tuple[Bound, ...] = (), n: int = 3, **options: object) -> Case:
    points = {"small": [{"n": n}], "full": [{"n": 10 * n}]}
    return Case(
        "count",
        "Which counts fastest?",
        ("n",),
        points,
        rivals,
        lambda bench, at: at["n"],
        rivals[0].name,
        bounds,
        **options,
    )


def broken() -> int:
    raise OSError("disk on fire\nsecond line")


@contextmanager
def breaks_when_run(bench: BenchContext, params: Params) -> Iterator[Run]:
    yield broken


@contextmanager
def breaks_at_once(bench: BenchContext, params: Params) -> Iterator[Run]:
    broken()
    yield lambda: 0


@contextmanager
def breaks_when_closed(bench: BenchContext, params: Params) -> Iterator[Run]:
    yield lambda: params["n"]
    broken()


def test_rivals_take_turns_and_the_first_one_rotates() -> None:
    log: list[str] = []
    report = harness.run([case(rival("a", log), rival("b", log))], "small", rounds=2)
    assert log == ["open a", "open b", "a", "b", "b", "a", "a", "b", "close b", "close a"]
    assert report.failures == []


def test_the_first_run_is_cold_and_kept_apart() -> None:
    report = harness.run([case(rival("a", []), rounds=4)], "full")
    result = report.results[0].points[0].rivals["a"]
    assert list(result.figures("cold")) == [0]
    assert list(result.figures("warm")) == [1, 2, 3, 4]


def test_a_case_that_does_not_warm_up_has_no_cold_run() -> None:
    log: list[str] = []
    report = harness.run([case(rival("a", log), rounds=3, small_rounds=1, warms_up=False)], "small")
    assert log == ["open a", "a", "close a"]
    result = report.results[0].points[0].rivals["a"]
    assert result.figures("cold") == {}
    assert list(result.figures("warm")) == [1]


def test_a_rival_that_has_nothing_to_warm_up_runs_no_cold_round() -> None:
    report = harness.run([case(rival("a", []), rival("b", [], warms_up=False))], "small", rounds=1)
    rivals = report.results[0].points[0].rivals
    assert [[sample.round for sample in rivals[name].samples] for name in ("a", "b")] == [[0, 1], [1]]


def test_small_scale_has_few_rounds_unless_more_are_asked_for() -> None:
    for asked, found in ((None, 2), (5, 5)):
        report = harness.run([case(rival("a", []), rounds=9)], "small", rounds=asked)
        assert len(report.results[0].points[0].rivals["a"].figures("warm")) == found


def test_scale_chooses_the_points() -> None:
    report = harness.run([case(rival("a", []))], "full", rounds=1)
    assert [point.params for point in report.results[0].points] == [{"n": 30}]


def test_a_wrong_answer_is_a_failure_and_ends_the_rivals_part() -> None:
    log: list[str] = []
    report = harness.run([case(rival("a", log), rival("liar", log, answer=4))], "small", rounds=3)
    assert log.count("liar") == 1
    assert report.failures == ["count (n=3): liar wrong: answered 4, expected 3"]


@pytest.mark.parametrize("prepare", [breaks_when_run, breaks_at_once, breaks_when_closed])
def test_an_error_is_a_failure_and_the_others_go_on(prepare: object) -> None:
    log: list[str] = []
    report = harness.run([case(rival("a", log), Rival("b", prepare))], "small", rounds=1)
    assert report.failures == ["count (n=3): b failed: OSError: disk on fire"]
    assert log == ["open a", "a", "a", "close a"]


def test_a_rival_known_to_break_is_a_finding_and_not_a_failure() -> None:
    report = harness.run([case(rival("a", []), Rival("b", breaks_when_run, may_fail="bug 7"))], "small", rounds=1)
    result = report.results[0].points[0].rivals["b"]
    assert (result.status, result.reason) == ("broke", "OSError: disk on fire (bug 7)")
    assert report.failures == []


def test_a_missing_package_and_a_spared_point_are_reported() -> None:
    missing = rival("b", [], requires=("no_such_module_of_ours",))
    spared = rival("c", [], sits_out=lambda params: f"n = {params['n']} is too many")
    rivals = harness.run([case(rival("a", []), missing, spared)], "small", rounds=1).results[0].points[0].rivals
    assert (rivals["b"].status, rivals["b"].reason) == ("unavailable", "not installed: no_such_module_of_ours")
    assert (rivals["c"].status, rivals["c"].reason) == ("sat out", "n = 3 is too many")


def test_an_impatient_case_stops_a_slow_rival_after_one_warm_run() -> None:
    report = harness.run([case(rival("a", []), rival("slow", [], seconds=99.0), patience_s=60.0)], "small", rounds=5)
    rivals = report.results[0].points[0].rivals
    assert [len(rivals[name].samples) for name in ("a", "slow")] == [6, 2]


def sampled(seconds: list[float], name: str = "a") -> RivalResult:
    samples = [Sample(number, time, 1, 200, 100, {"spilled": time * 2}) for number, time in enumerate(seconds)]
    return RivalResult(name, samples=samples)


def test_ratios_are_paired_round_by_round() -> None:
    point = PointResult({"n": 1}, 1, {"a": sampled([9.0, 2.0, 8.0, 3.0]), "b": sampled([3.0, 1.0, 2.0, 3.0], "b")})
    warm = point.ratio("a", "b", "warm")
    assert warm is not None
    assert (warm.median, warm.low, warm.high, warm.n) == (2.0, 1.0, 4.0, 3)
    cold = point.ratio("a", "b", "cold")
    assert cold is not None
    assert cold.median == 3.0


def test_rounds_that_only_one_rival_ran_are_left_out_of_the_ratio() -> None:
    point = PointResult({"n": 1}, 1, {"a": sampled([9.0, 2.0, 8.0]), "b": sampled([3.0, 1.0], "b")})
    warm = point.ratio("a", "b", "warm")
    assert warm is not None
    assert (warm.median, warm.n) == (2.0, 1)


TWICE = Bound("at most twice", "a", 2.0, against="b")


def judged(a: list[float], b: list[float], bound: Bound, status: str = "ok") -> str:
    rivals = {"a": sampled(a), "b": sampled(b, "b")}
    rivals["b"].status = status
    subject = case(rival("a", []), rival("b", []), bounds=(bound,))
    return CaseResult(subject, "small", [PointResult({"n": 3}, 1, rivals)]).judged[0].verdict


def test_claims_hold_or_do_not_or_were_not_measured() -> None:
    assert judged([9.0, 2.0], [1.0, 1.0], TWICE) == "holds"
    assert judged([9.0, 2.1], [1.0, 1.0], TWICE) == "does not hold"
    assert judged([9.0, 2.0], [1.0, 1.0], TWICE, "unavailable") == "not tested here"
    assert judged([9.0, 2.0], [1.0, 1.0], Bound("cold", "a", 2.0, against="b", phase="cold")) == "does not hold"
    assert judged([9.0, 2.0], [1.0, 1.0], Bound("full", "a", 2.0, against="b", scale="full")) == "not tested here"
    assert judged([9.0, 2.0], [1.0, 1.0], Bound("absolute", "a", 2.5)) == "holds"
    assert judged([9.0, 2.0], [1.0, 1.0], Bound("spill", "a", 3.9, figure="spilled")) == "does not hold"
    assert judged([9.0, 2.0], [1.0, 1.0], Bound("unknown", "a", 9.0, figure="comparisons")) == "not tested here"


def test_a_claim_is_judged_at_its_worst_point_and_needs_all_of_them() -> None:
    good = PointResult({"n": 3}, 1, {"a": sampled([1.0, 1.0]), "b": sampled([1.0, 1.0], "b")})
    bad = PointResult({"n": 3}, 1, {"a": sampled([1.0, 5.0]), "b": sampled([1.0, 1.0], "b")})
    subject = case(rival("a", []), rival("b", []), bounds=(TWICE,))
    verdict = CaseResult(subject, "small", [good, bad]).judged[0]
    assert verdict.verdict == "does not hold"
    assert verdict.worst is not None
    assert verdict.worst.median == 5.0
    assert CaseResult(subject, "small", []).judged[0].untested == NOT_MEASURED


def test_broken_claims_are_those_that_cannot_be_relied_on() -> None:
    report = harness.run([case(rival("a", [], seconds=3.0), rival("b", []), bounds=(TWICE,))], "small", rounds=1)
    assert report.broken_claims == ["at most twice: a / b <= 2 (warm seconds): does not hold"]
    other = Bound("full", "a", 2.0, against="b", scale="full")
    missing = rival("b", [], requires=("no_such_module_of_ours",))
    for rivals, bound, broken in (((rival("a", []), missing), TWICE, 1), ((rival("a", []), rival("b", [])), other, 0)):
        assert len(harness.run([case(*rivals, bounds=(bound,))], "small", rounds=1).broken_claims) == broken


def test_the_report_is_json_with_the_place_of_measurement() -> None:
    report = harness.run([case(rival("a", []), rival("b", []), bounds=(TWICE,))], "small", rounds=2)
    data = json.loads(json.dumps(report.to_json()))
    assert {"format", "scale", "started_at", "finished_at", "machine", "versions", "commit", "cases"} <= set(data)
    assert data["machine"]["cpu"]
    assert data["versions"]["pyspark"]
    only = data["cases"][0]
    assert only["seed"] == 0
    assert only["points"][0]["expected"] == 3
    assert only["points"][0]["rivals"][1]["warm_ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0, "n": 2}
    assert only["bounds"][0]["verdict"] == "holds"


def test_the_report_so_far_is_given_after_every_case() -> None:
    seen: list[list[str]] = []
    subject = case(rival("a", []))
    harness.run(
        [subject, subject], "small", rounds=1, after=lambda so_far: seen.append([r.case.name for r in so_far.results])
    )
    assert seen == [["count"], ["count", "count"]]


def test_spark_rivals_share_one_session_which_is_left_running(spark) -> None:
    sessions = []

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        sessions.append(bench.spark)
        yield lambda: bench.spark.range(params["n"]).count()

    report = harness.run([case(Rival("a", prepare), Rival("b", prepare))], "small", rounds=1)
    assert report.failures == []
    assert sessions == [spark, spark]
    assert report.to_json()["java"]
    assert spark.range(2).count() == 2


def test_data_is_made_once_a_point_and_forgotten_after_it() -> None:
    with BenchContext("small") as bench:
        assert [bench.once("key", lambda: object()) is bench.once("key", lambda: object()) for _ in range(2)] == [
            True
        ] * 2
        first = bench.once("key", list)
        bench.next_point()
        assert bench.once("key", list) is not first
        scratch = bench.scratch
        assert scratch.is_dir()
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"baseline": "z"}, "baseline 'z' is none of the rivals"),
        ({"rivals": (rival("a", []), rival("a", []))}, "distinct"),
        ({"rounds": 0}, "at least one warm run"),
        ({"points": {"small": [{"n": 1}]}}, "points are given for"),
        ({"points": {"small": [{"m": 1}], "full": [{"n": 1}]}}, "does not set exactly"),
        ({"bounds": (Bound("x", "a", 1.0, against="q"),)}, "names 'q'"),
        ({"bounds": (Bound("x", "a", 1.0, where={"n": 77}),)}, "covers no point"),
    ],
)
def test_a_case_cannot_be_built_wrong(change: dict[str, object], problem: str) -> None:
    arguments = {
        "name": "count",
        "question": "?",
        "varies": ("n",),
        "points": {"small": [{"n": 1}], "full": [{"n": 1}]},
        "rivals": (rival("a", []),),
        "expected": lambda bench, at: 1,
        "baseline": "a",
    }
    with pytest.raises(PlanError, match=problem):
        Case(**{**arguments, **change})
