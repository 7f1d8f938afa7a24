"""The plans of the eight weather queries after all rules: paths in scans, keys of joins, aggregates in two steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.xquery.algebra.reader import parse_plan

from dovetail.xquery.algebra.normalise import normalise
from dovetail.xquery.algebra.printer import print_plan
from dovetail.xquery.rules.order import rewrite
from dovetail.xquery.syntax.parser import parse

HERE = Path(__file__).parent / "plans"
QUERIES = sorted((Path(__file__).parent.parent / "queries").glob("*.xq"))


@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_the_plan_of_a_weather_query(query: Path):
    plan = rewrite(normalise(parse(query.read_text()))).plan
    assert print_plan(plan, annotations=True) == (HERE / f"{query.stem}.txt").read_text()
    assert print_plan(parse_plan(print_plan(plan))) == print_plan(plan)


def test_there_are_eight_queries():
    assert len(QUERIES) == len(list(HERE.glob("*.txt"))) == 8
