"""The rules are right: every plan on the way from the first to the last gives what direct evaluation gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.xquery.rules.conformance_queries import check_conformance
from tests.xquery.rules.equivalence import check
from tests.xquery.rules.random_queries import Maker
from tests.xquery.rules.sample import QUERIES

from dovetail.xml.algebra.matching import first
from dovetail.xml.algebra.operators import Operator, Select
from dovetail.xml.rules import order

LINES = (Path(__file__).parent / "queries.txt").read_text().splitlines()
WEATHER = {path.stem: path.read_text() for path in sorted(QUERIES.glob("*.xq"))}


@pytest.mark.parametrize("query", LINES)
def test_every_plan_of_a_query_gives_its_items(query: str):
    check(query)


@pytest.mark.parametrize("name", WEATHER)
def test_every_plan_of_a_weather_query_gives_its_items(name: str):
    assert {"introduce_scan", "push_steps", "partition_scan"} <= set(check(WEATHER[name]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(8))
def test_every_plan_of_conformance_queries_gives_their_items(part: int):
    assert check_conformance(part, 80) >= 10


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_every_plan_of_a_random_query_gives_its_items(seed: int):
    check(Maker(seed).query())


def test_a_wrong_rule_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """A rule that drops conditions: the comparison must notice it."""

    def forget(plan: Operator) -> Operator | None:
        return first(lambda operator, facts: operator.input if isinstance(operator, Select) else None)(plan)

    monkeypatch.setattr(order, "GROUPS", (*order.GROUPS, ("wrong", (forget,))))
    with pytest.raises(AssertionError, match="is answered differently after forget"):
        check('for $b in collection("/ann")/bookstore/book where $b/price > 20 return $b/title')
