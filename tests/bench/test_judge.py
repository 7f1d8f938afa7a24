"""The judge: derived figures, statements that hold or do not, notes, tables and charts, as experiments say."""

from __future__ import annotations

import numpy as np
from bench.judge import Figures, Judge

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
            "close('twice', twice, 6.0, 0.01)",
            "[(f'{n} is there', True) for n in name]",
        ],
        note="Sizes {listed(size, 'd')}.",
    )
    found = judge.findings(FOUND)
    assert found.verdict == "holds in part"
    assert found.why == (
        'Holds: it gains 3.0 times; x isn\'t "beaten"; twice is 6, printed 6 (+0.00 %, 1 % was allowed); a is there; '
        'b is there. Does not hold: y isn\'t "beaten". Sizes 1, 2.'
    )


def test_several_sets_of_figures_are_judged_alike_and_their_rows_are_added() -> None:
    more = Figures.of([(1, 1.0, "c"), (2, 1.0, "d")], "size rate name", rivals=())
    judge = Judge(states=[["{name[0]} rises", "rate[1] > rate[0]"]])
    found = judge.findings(Figures(FOUND.named, rows=3), Figures(more.named, rows=4))
    assert (found.why, found.rows) == ("Holds: a rises. Does not hold: c rises.", 7)


def test_tables_and_charts_of_columns() -> None:
    columns = {"size": "size", "rate of {name[0]}": "rate", "*": "{'half': rate / 2}"}
    shows = [
        {"table": "All", "chart": "Some", "y": "rows", "log": "x", "lines": {"h": "half"}, "columns": columns},
        {"chart": "Only drawn", "y": "rows", "columns": {"size": "size", "rate": "rate"}},
    ]
    found = Judge(states=[["{size[0]}", "True"]], shows=shows).findings(FOUND)
    assert [grid.title for grid in found.tables] == ["All"]
    assert found.tables[0].heads == ("size", "rate of a", "half")
    assert found.tables[0].rows == ((1, 10.0, 5.0), (2, 30.0, 15.0))
    some, only = found.charts
    assert (some.title, some.log_x, some.lines) == ("Some", True, {"h": [(1, 5.0), (2, 15.0)]})
    assert only.lines == {"rate": [(1, 10.0), (2, 30.0)]}
