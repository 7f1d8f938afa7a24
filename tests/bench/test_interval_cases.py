"""The interval benchmarks: their sizes and claims, the answers they expect, and that every rival gives them."""

import numpy as np
import pyarrow as pa
import pytest
from bench.case import Bound, Case, Outcome, Params
from bench.cases import interval, interval_dense
from bench.context import BenchContext, settings
from bench.rivals.intervals import binned, overlap_counts, to_sink

import oracle
from bench import catalogue
from dovetail.errors import DataError
from dovetail.workloads import RandomIntervals

CASES = {
    name: catalogue.load_cases()[name]
    for name in (f"interval-{word}" for word in ("overlap", "skew", "dense", "keyed", "budget"))
}
TINY: dict[str, dict[str, object]] = {
    "interval-overlap": {"rows": 400},
    "interval-skew": {"rows": 400},
    "interval-dense": {"rows": 400, "mean_length": 2_000},
    "interval-keyed": {"rows": 1_000, "others": 2_200},
    "interval-budget": {"rows": 400, "memory": "2MB"},
}
"""What makes the small points of a case tiny."""


def tables(seed: int, rows: int = 60, keys: int = 3) -> tuple[pa.Table, pa.Table]:
    left, right = (RandomIntervals(rows, 200, keys=keys, seed=seed + n).table() for n in (0, 1))
    return left, right


def pairs(left: pa.Table, right: pa.Table, on: tuple[tuple[str, str], ...] = ()) -> list[oracle.Pair]:
    return oracle.interval_join(left.to_pylist(), right.to_pylist(), "inner", on=on)


def points() -> list[object]:
    """Every small point of every case, made tiny."""
    return [
        pytest.param(case, params | TINY[name], id=" ".join([name, *map(str, (params | TINY[name]).values())]))
        for name, case in CASES.items()
        for params in case.points["small"]
    ]


def outcomes(case: Case, params: Params, bench: BenchContext) -> dict[str, Outcome]:
    """What each rival that takes part answers."""
    found = {}
    for rival in case.rivals:
        if rival.sits_out(params) is None:
            with rival.prepare(bench, params) as run:
                answer = run()
            found[rival.name] = answer if isinstance(answer, Outcome) else Outcome(answer)
    return found


@pytest.mark.sampled(7)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("case", "params"), points())
def test_every_rival_gives_the_expected_answer(case: Case, params: Params) -> None:
    with BenchContext("small", case.seed) as bench:
        expected = case.expected(bench, params)
        found = outcomes(case, params, bench)
    assert expected > 0 or params.get("question") == "left_anti"  # so dense that each of a few rows has a match
    assert {name: outcome.answer for name, outcome in found.items()} == dict.fromkeys(found, expected)
    bounds = [bound for bound in case.bounds if bound.covers(params)]
    assert {bound.rival for bound in bounds} <= set(found)
    assert {bound.against for bound in bounds if bound.against} <= set(found), "a claim needs both rivals to take part"
    assert all(bound.figure in {"seconds", *found[bound.rival].figures} for bound in bounds)


def claims(case: Case) -> set[tuple[float, str, str]]:
    """What is claimed at full scale: at most so much, of what, and where."""
    return {(bound.at_most, bound.against or bound.figure, place(bound)) for bound in case.bounds}


def place(bound: Bound) -> str:
    return " ".join(str(value) for value in bound.where.values())


def test_claims_are_those_that_the_project_makes() -> None:
    assert claims(CASES["interval-overlap"]) == {
        (1.5, "duckdb", "count 1000"),
        (1.0, "duckdb", "count 10000"),
        (2.0, "duckdb", "Parquet 1000"),
        *((1.1, f"bins of {width}", "no-op sink 1000") for width in ("1,000", "3,000", "9,000")),
    }
    widths = ("3,000", "30,000", "300,000", "3,000,000", "30,000,000")
    assert claims(CASES["interval-skew"]) == {
        (2.0, "task_time_skew", ""),
        (2.0, "task_rows_skew", ""),
        *((1.1, f"bins of {width}", "") for width in widths),
    }
    questions = ("count", "count_overlaps", "left_semi", "left_anti", "keep first", "top 100")
    assert claims(CASES["interval-dense"]) == {
        *((0.1, "bins", question) for question in questions),
        *((1.0, "duckdb", question) for question in questions),
    }
    assert claims(CASES["interval-keyed"]) == {
        (0.05, "spark's own plan", ""),
        *((1.0, f"bins of {width}", "") for width in ("1,000", "10,000", "100,000")),
    }
    assert claims(CASES["interval-budget"]) == {(1.0, "budget_share", "")}


@pytest.mark.parametrize(
    ("name", "at", "claimed"),
    [
        ("interval-overlap", 0, 20e6),
        ("interval-overlap", 3, 200e6),
        ("interval-skew", 0, 20e6),
        ("interval-dense", 0, 500e6),
        ("interval-keyed", 0, 54e3),
        ("interval-budget", 0, 25e6),
    ],
)
def test_full_scale_has_the_pairs_that_are_claimed(name: str, at: int, claimed: float) -> None:
    """Time grows with the rows, so that a part of the rows has as large a part of the pairs."""
    part = 10 if name == "interval-keyed" else 50
    case = CASES[name]
    params = {
        key: value // part if key in ("rows", "others") else value for key, value in case.points["full"][at].items()
    }
    with BenchContext("full", case.seed) as bench:
        assert case.expected(bench, params) == pytest.approx(claimed / part, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_expected_counts_follow_the_definition(seed: int) -> None:
    left, right = tables(seed)
    for keyed, on in ((False, ()), (True, (("key", "key"),))):
        counts = overlap_counts(left, right, keyed)
        met = [a["id"] for a, _ in pairs(left, right, on) if a is not None]
        assert counts.tolist() == np.bincount(met, minlength=left.num_rows).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_expected_first_matches_follow_the_definition(seed: int) -> None:
    left, right = tables(seed, rows=25)
    first: dict[int, int] = {}
    for a, b in pairs(left, right):
        first[a["id"]] = min(b["start"], first.get(a["id"], b["start"]))
    assert interval_dense.first_starts(left, right) == sum(first.values())


def test_expected_longest_overlaps_follow_the_definition() -> None:
    left, right = tables(3)
    lengths = [min(a["end"], b["end"]) - max(a["start"], b["start"]) for a, b in pairs(left, right)]
    assert interval_dense.longest_overlaps(left, right, 7) == sum(sorted(lengths)[-7:])


def test_longest_overlaps_that_may_be_elsewhere_are_not_guessed() -> None:
    left = pa.table({"start": [0, 100, 200], "end": [50, 140, 230]})
    with pytest.raises(DataError, match="take more"):
        interval_dense.longest_overlaps(left, pa.table({"start": [200, 300], "end": [230, 390]}), 1, candidates=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 7, 1_000])
def test_bins_by_hand_give_each_pair_once(spark, width: int) -> None:
    left, right = tables(11)
    frames = [spark.createDataFrame(table.to_pandas()) for table in (left, right)]
    for on in ((), ("key",)):
        answer = binned(*frames, width, on).select("l_id", "r_id").collect()
        wanted = [(a["id"], b["id"]) for a, b in pairs(left, right, tuple((key, key) for key in on))]
        assert oracle.bag(map(tuple, answer)) == oracle.bag(wanted)


def test_the_sink_counts_the_rows_of_the_run_itself(spark) -> None:
    outcome = to_sink(lambda: spark.range(12_345))
    assert outcome.answer == 12_345
    assert outcome.seconds is not None
    assert to_sink(lambda: spark.range(0)).answer == 0


def test_tasks_are_told_apart_and_the_session_is_as_before(spark) -> None:
    before = {key: spark.conf.get(key, None) for key in interval.SKEW_SETTINGS}
    with settings(spark, interval.SKEW_SETTINGS):
        frame = spark.range(1_000).repartition("id").where("id >= 0")
        assert to_sink(lambda: frame).answer == 1_000
        assert len(interval.join_milliseconds(spark)) == 16
        rows = interval.task_rows(frame)
    assert (len(rows), sum(rows)) == (16, 1_000)
    assert {key: spark.conf.get(key, None) for key in interval.SKEW_SETTINGS} == before


def test_a_task_that_stands_out_shows() -> None:
    assert interval.largest_over_median([10, 10, 30, 10]) == 3.0
    assert interval.largest_over_median([0, 0, 0]) == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_budget_case_reports_its_peak_and_its_spills() -> None:
    case = CASES["interval-budget"]
    params = {"rows": 40_000, "memory": "1.5MB", "algorithm": "dip"}
    with BenchContext("small") as bench, case.rivals[0].prepare(bench, params) as run:
        figures = run().figures
    assert 0 < figures["budget_share"] <= 1
    assert figures["peak_bytes"] == figures["budget_share"] * 1.5 * 2**20
    assert figures["tasks"] >= 2
    assert figures["spilled_bytes"] > 0
    assert "spills" in figures
