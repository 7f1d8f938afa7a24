"""Benchmark results as text."""

import pytest
from bench.case import Bound, Case, CaseResult, PointResult, Rival, RivalResult, Sample
from bench.report import case_tables, entry_list, seconds
from rich.console import Console


def rendered(renderable: object) -> str:
    console = Console(width=80, record=True, force_terminal=False, quiet=False, file=None)
    with console.capture() as capture:
        console.print(renderable)
    return " ".join(capture.get().split())


def done(name: str, *times: float) -> RivalResult:
    return RivalResult(name, samples=[Sample(n, time, 7, 2**21, 2**20) for n, time in enumerate(times)])


def never(bench: object, params: object) -> object:
    raise AssertionError("not run in this test")


CASE = Case(
    name="count",
    question="Which counts fastest?",
    varies=("n",),
    points={"small": [{"n": 1000}], "full": [{"n": 1000}]},
    rivals=(Rival("ours", never), Rival("theirs", never, requires=("no_such_module_of_ours",)), Rival("third", never)),
    expected=lambda bench, params: 7,
    baseline="ours",
    bounds=(Bound("half", "third", 0.5, against="ours"), Bound("quick", "ours", 1.0)),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.0, "1,234 s"),
        (2.0, "2.00 s"),
        (0.0123, "12.3 ms"),
        (45.6e-6, "45.6 us"),
        (7e-9, "7.00 ns"),
        (0.0, "0.00 ns"),
    ],
)
def test_seconds_in_a_unit_that_suits(value: float, text: str) -> None:
    assert seconds(value) == text


def test_seconds_in_the_unit_of_a_neighbour() -> None:
    assert seconds(1.5, like=0.5) == "1,500 ms"


def test_figures_verdicts_and_absences_are_shown() -> None:
    rivals = {
        "ours": done("ours", 9.0, 0.5, 0.25, 0.125),
        "theirs": RivalResult("theirs", "unavailable", "not installed: no_such_module_of_ours"),
        "third": done("third", 9.0, 1.0, 1.0, 1.0),
    }
    text = rendered(case_tables(CaseResult(CASE, "small", [PointResult({"n": 1000}, 7, rivals)])))
    assert "n=1,000: 7 rows; ratio to ours" in text
    assert "ours 9.00 s 250 ms 125 - 500 1.00 x 1.00 - 1.00 +1 MiB" in text
    assert "third 9.00 s 1.00 s 1.00 - 1.00 4.00 x 2.00 - 8.00 +1 MiB" in text
    assert "theirs unavailable: not installed: no_such_module_of_ours" in text
    assert "does not hold half: third / ours <= 0.5 (warm seconds); measured 4.00 x (2.00 - 8.00)" in text
    assert "holds quick: ours <= 1 (warm seconds); measured 250 ms (125 - 500)" in text


def test_the_list_tells_who_is_missing() -> None:
    text = rendered(entry_list({"count": CASE}))
    assert "theirs (not installed: no_such_module_of_ours)" in text
    assert "claim half: third / ours <= 0.5 (warm seconds)" in text
