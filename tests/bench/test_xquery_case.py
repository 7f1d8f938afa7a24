"""The XQuery benchmark: every rival gives the expected answer, and the claims are those that were promised."""

from collections.abc import Iterator

import pytest
from bench.case import Outcome
from bench.cases.xquery import SCANS
from bench.catalogue import load_cases
from bench.context import BenchContext
from bench.rivals.weather import expected
from pyspark.sql import SparkSession

CASE = load_cases()["xquery"]


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Iterator[BenchContext]:
    with BenchContext("small") as made:
        yield made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("query", [*SCANS, "7.8"])
def test_every_rival_gives_the_answer(bench: BenchContext, query: str) -> None:
    point = {"query": query, "stations": 4 if query == "7.8" else 1, "years": {"7.4": 4, "7.6": 6}.get(query, 1)}
    points = [params for params in CASE.points["full"] if params["query"] == query]
    large = max(points, key=lambda params: (params["stations"], params["years"]))
    answered = {}
    for rival in CASE.rivals:
        if rival.sits_out(large) is None:
            with rival.prepare(bench, point) as run:
                given = run()
            answered[rival.name] = given.answer if isinstance(given, Outcome) else given
    assert answered == dict.fromkeys(answered, expected(point))
    assert len(answered) >= 2


def test_saxon_answers_the_pairs_of_the_smallest_point_only() -> None:
    (saxon,) = (rival for rival in CASE.rivals if rival.name == "SaxonC-HE")
    pairs = [point for point in CASE.points["full"] if point["query"] == "7.8"]
    assert [saxon.sits_out(point) for point in pairs] == [None, *["compares all pairs"] * 3]


def test_the_claims_are_those_that_were_promised() -> None:
    found = {(bound.where["query"], bound.against, bound.figure): bound.at_most for bound in CASE.bounds}
    for query in SCANS:
        assert found[query, "SaxonC-HE", "seconds"] == 1 / 4
        assert found[query, "dovetail, 1 task", "seconds"] == 1 / 1.6
    assert found["7.8", "dovetail, a quarter", "seconds"] == 5.0
    assert found["7.4", "dovetail, a quarter", "worker_mb"] == 1.2
    assert found["7.4", None, "worker_mb"] == 400
