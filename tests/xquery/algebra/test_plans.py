"""The plans of the eight weather queries after all rules: paths in scans, keys of joins, aggregates in two steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.xquery.algebra.reader import parse_plan

from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.rules.order import rewrite
from dovetail.xml.syntax.parser import parse

HERE = Path(__file__).parent / "plans"
QUERIES = sorted((Path(__file__).parent.parent / "queries").glob("*.xq"))


@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_the_plan_of_a_weather_query(query: Path):
    plan = rewrite(normalise(parse(query.read_text()))).plan
    assert print_plan(plan, annotations=True) == (HERE / f"{query.stem}.txt").read_text()
    assert print_plan(parse_plan(print_plan(plan))) == print_plan(plan)


def test_there_are_eight_queries():
    assert len(QUERIES) == len(list(HERE.glob("*.txt"))) == 8


@pytest.mark.parametrize("step", ["/a", "/a[b]", "/a[1]"])
@pytest.mark.parametrize("end", ["", "/string()"])
def test_a_long_path_takes_no_more_rewritings_than_a_short_one(step: str, end: str):
    """One rewriting goes over the whole plan, so a rewriting for each step would take quadratic time."""
    short, long = (len(rewrite(normalise(parse(f'collection("c"){step * n}{end}'))).trace) for n in (4, 24))
    assert long <= 2 * short
