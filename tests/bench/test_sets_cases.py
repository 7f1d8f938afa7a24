"""The benchmarks of nearest rows, coverage and merging: every rival that is installed gives the expected answer."""

from importlib.util import find_spec

import pytest
from bench.context import BenchContext

from bench import catalogue

NAMES = ("interval-nearest", "interval-coverage", "interval-merge")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings(
    "ignore:Coordinate system metadata is missing"
)  # polars-bio asks for it, and takes the default
def test_installed_rivals_give_the_expected_answer(name: str) -> None:
    case = catalogue.load_cases()[name]
    for params in case.points["small"]:
        tiny = params | {"rows": 600}
        with BenchContext("small", case.seed) as bench:
            expected, answers = case.expected(bench, tiny), {}
            for rival in case.rivals:
                if all(map(find_spec, rival.requires)):
                    with rival.prepare(bench, tiny) as run:
                        answers[rival.name] = run()
        assert expected > 0
        assert answers == dict.fromkeys(answers, expected)
        assert "dovetail" in answers


def test_claims_are_goals_beside_polars_bio() -> None:
    cases = catalogue.load_cases()
    for name in NAMES[:2]:
        assert {bound.at_most for bound in cases[name].bounds} == {3.0}
        assert {bound.against for bound in cases[name].bounds} == {"polars-bio", "polars-bio, Parquet"}
