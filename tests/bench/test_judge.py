"""The judge: derived figures, statements that hold or do not, notes, tables and charts; and what expressions may do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from bench.expression import text_of, value_of
from bench.judge import Figures, Judge

from dovetail.errors import PlanError

FOUND = Figures.of([(1, 10.0, "a"), (2, 30.0, "b")], "size rate name", rivals=("x", "y"))


def test_columns_of_numbers_are_arrays() -> None:
    assert isinstance(FOUND.named["rate"], np.ndarray)
    assert FOUND.named["name"] == ["a", "b"]


def test_statements_are_texts_with_conditions_for_each_value_or_given_whole() -> None:
    judge = Judge(
        let={"gain": "rate[1] / rate[0]", "twice": "2 * gain"},
        states=[
            ["it gains {gain:.1f} times", "gain > 2"],
            ['{rival} isn\'t "beaten"', "rival == 'x'", "for rival in rivals"],
            ["it gains 9 times", "gain > 9", "", "source: {gain:.0f} is what there is"],
            ["it is unknown", "None"],
            "close('twice', twice, 6.0, 0.01)",
            "[(f'{n} is there', True) for n in name]",
        ],
        fault="scale: {len(size)} sizes",
        note="Sizes {listed(size, 'd')}.",
    )
    found = judge.findings(FOUND)
    assert found.verdict == "does not hold"
    assert [one.verdict + one.explain() for one in found.statements] == [
        "holds: it gains 3.0 times.",
        'holds: x isn\'t "beaten".',
        'does not hold (the scale here): y isn\'t "beaten". 2 sizes.',
        "does not hold (the source's claim): it gains 9 times. 3 is what there is.",
        "not tested here: it is unknown.",
        "holds: twice is 6, printed 6 (+0.00 %, 1 % was allowed).",
        "holds: a is there.",
        "holds: b is there.",
    ]
    assert found.note == "Sizes 1, 2."


def test_a_reason_is_given_for_the_figures_that_it_explains() -> None:
    faults = [["rate[1] < 20", "source: {rate[1]:g} is its own"], ["size[0] == 1", "scale: {len(size)} sizes"]]
    own = [["n > 1", "ours: {n} is too many"]]
    states = [["it is so", "size[0] > 1"], ["{n} is so", "n < 0", "for n in size", own]]
    found = Judge(states=states, fault=faults).findings(FOUND).statements
    assert [one.explain() for one in found] == [
        " (the scale here): it is so. 2 sizes.",
        " (the scale here): 1 is so. 2 sizes.",
        " (our code): 2 is so. 2 is too many.",
    ]
    found = Judge(states=states[:1], fault=faults[:1]).findings(FOUND).statements
    assert [one.explain() for one in found] == [" (unexplained): it is so."]


def test_a_reason_is_not_given_for_what_holds() -> None:
    found = Judge(states=[["it is so", "size[0] == 1"]], fault="ours: {no_such_figure}").findings(FOUND)
    assert [one.reason for one in found.statements] == [""]


def test_an_experiment_may_say_why_it_tests_nothing() -> None:
    found = Judge(untested="there are only {len(size)} sizes").findings(FOUND)
    assert [one.explain() for one in found.statements] == [": there are only 2 sizes."]
    assert found.verdict == "not tested here"


def test_several_sets_of_figures_are_judged_alike_and_their_rows_are_added() -> None:
    more = Figures.of([(1, 1.0, "c"), (2, 1.0, "d")], "size rate name", rivals=())
    judge = Judge(states=[["{name[0]} rises", "rate[1] > rate[0]"]])
    found = judge.findings(Figures(FOUND.named, rows=3), Figures(more.named, rows=4))
    assert [(one.says, one.verdict) for one in found.statements] == [("a rises", "holds"), ("c rises", "does not hold")]
    assert found.rows == 7


def test_tables_and_charts_of_columns() -> None:
    columns = {"size": "size", "rate of {name[0]}": "rate", "*": "{'half': rate / 2}"}
    shows = [
        {"table": "All", "chart": "Some", "y": "rows", "log": "x", "lines": {"h": "half"}, "columns": columns},
        {"chart": "Only drawn", "x": "of {name[0]}", "y": "rows", "columns": {"size": "size", "rate": "rate"}},
    ]
    found = Judge(states=[["{size[0]}", "True"]], shows=shows).findings(FOUND)
    assert [grid.title for grid in found.tables] == ["All"]
    assert found.tables[0].heads == ("size", "rate of a", "half")
    assert found.tables[0].rows == ((1, 10.0, 5.0), (2, 30.0, 15.0))
    some, only = found.charts
    assert (some.title, some.log_x, some.lines) == ("Some", True, {"h": [(1, 5.0), (2, 15.0)]})
    assert (only.x, only.lines) == ("of a", {"rate": [(1, 10.0), (2, 30.0)]})


@dataclass(frozen=True)
class Own:
    """A figure of our own with something to hide."""

    shown: int = 3
    _hidden: int = 4


NAMES = {"n": 3, "xs": np.array([1.0, 2.0, 4.0]), "by": {"a": 1, "b": 2}, "own": Own(), "rows": 7}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * n + n // 2 - n % 2 + n ** 2 - -1", 16),
        ("rows > 5 and n < 3 or 'no'", "no"),
        ("1 < n <= 3 != 4", True),
        ("4 < n < [][0]", False),
        ("'a' in by and 'c' not in by", True),
        ("xs[1:].tolist() + [xs[-1]]", [2.0, 4.0, 4.0]),
        ("all(np.diff(xs) > 0)", True),
        ("{k: v * 2 for k, v in by.items() if v > 1}", {"b": 4}),
        ("[a + b for a in (1, 2) for b in range(a)]", [1, 2, 3]),
        ("[rest for first, *rest in [(1, 2, 3)]]", [[2, 3]]),
        ("{len(str(i)) for i in range(12)}", {1, 2}),
        ("max(by, key=by.get)", "b"),
        ("sum(x > 1 for x in xs)", 2),
        ("f'{n:>3}|{by[\"a\"]:.1f}|' + ', '.join(sorted(by, reverse=True))", "  3|1.0|b, a"),
        ("own.shown if n else None", 3),
        ("[*xs[:1], *(5,)]", [1.0, 5]),
    ],
)
def test_expressions_are_those_of_python(text: str, value: object) -> None:
    assert value_of(text, NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "open('x')",
        "eval('1')",
        "getattr(own, 'shown')",
        "own._hidden",
        "xs.tofile('x')",
        "().__class__",
        "'{0.shown}'.format(own)",
        "(lambda: 1)()",
        "[n := 3]",
        "np.load('x')",
        "undefined",
        "n +",
        "import os",
        "await n",
    ],
)
def test_expressions_compute_and_nothing_else(text: str) -> None:
    with pytest.raises((PlanError, AttributeError)):
        value_of(text, NAMES)


def test_texts_are_filled_in() -> None:
    assert text_of('{rows:,} of "{n}"', NAMES) == '7 of "3"'
    assert text_of("plain", {}) == "plain"
