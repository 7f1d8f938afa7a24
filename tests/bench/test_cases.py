"""Every benchmark of the package: found by name, well formed, and right at its small points."""

from dataclasses import replace

import pytest

from bench import catalogue, harness
from dovetail.errors import PlanError

FAST = {"gather": {"rows": 4_000}, "multimap": {"rows": 4_000}, "zipf": {"n": 20_000, "domain": 50_000}}
"""Cases without Spark, and what makes their small points tiny."""


def test_cases_are_found_by_their_names() -> None:
    cases = catalogue.load_cases()
    assert {"cold_start", *FAST} <= set(cases)
    assert all(case.name == name for name, case in cases.items())


@pytest.mark.parametrize("name", FAST)
def test_all_rivals_agree(name: str) -> None:
    case = catalogue.load_cases()[name]
    tiny = {scale: [{**point, **FAST[name]} for point in points] for scale, points in case.points.items()}
    report = harness.run([replace(case, points=tiny)], "small", rounds=1)
    assert report.failures == []
    statuses = {rival.status for point in report.results[0].points for rival in point.rivals.values()}
    assert statuses <= {"ok", "sat out"}


def test_an_unknown_name_is_corrected() -> None:
    with pytest.raises(PlanError, match=r"no benchmark 'multimpa'.*Did you mean 'multimap'"):
        catalogue.choose(["multimpa"])


def test_naming_nothing_is_an_error() -> None:
    with pytest.raises(PlanError, match="no benchmark was named"):
        catalogue.choose([])


def test_names_are_run_once_and_in_order() -> None:
    assert [case.name for case in catalogue.choose(["zipf", "multimap", "zipf"])] == ["zipf", "multimap"]
