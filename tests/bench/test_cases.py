"""Every benchmark of the package: found by name, well formed, and right at its small points."""

import pytest

from bench import catalogue, harness
from dovetail.errors import PlanError

FAST = ["gather", "multimap", "zipf"]


def test_every_module_holds_a_case_of_its_own_name() -> None:
    cases = catalogue.load_cases()
    assert {"cold_start", *FAST} <= set(cases)
    assert all(case.name == name for name, case in cases.items())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FAST)
def test_all_rivals_agree_at_small_scale(name: str) -> None:
    report = harness.run(catalogue.choose([name]), "small", rounds=1)
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
