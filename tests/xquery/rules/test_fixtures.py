"""Every rule against its fixtures: a plan, and after `=>` the plan it gives; without `=>` it must not fire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.xquery.algebra.reader import parse_plan

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import Assign, Operator
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.rules import order
from dovetail.xml.rules.order import GROUPS, rewrite

HERE = Path(__file__).parent / "fixtures"
RULES = {rule.__name__: rule for _, rules in GROUPS for rule in rules}


def cases(rule: str) -> Iterator[tuple[str, str, str | None]]:
    for case in re.split(r"(?m)^# ", (HERE / f"{rule.lower()}.txt").read_text())[1:]:
        title, plans = case.split("\n", 1)
        before, arrow, after = plans.partition("=>\n")
        yield title, before.rstrip() + "\n", after.rstrip() + "\n" if arrow else None


ALL = [pytest.param(rule, *case, id=f"{rule} {case[0]}") for rule in RULES for case in cases(rule)]


@pytest.mark.parametrize(("rule", "title", "before", "after"), ALL)
def test_rule(rule: str, title: str, before: str, after: str | None):
    new = RULES[rule](parse_plan(before))
    assert (None if new is None else print_plan(new, annotations=True)) == after


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_two_places_where_it_fires_and_one_where_it_does_not(rule: str):
    found = list(cases(rule))
    assert sum(after is not None for _, _, after in found) >= 2
    assert sum(after is None for _, _, after in found) >= 1
    assert [title.startswith("not: ") for title, _, _ in found] == [after is None for _, _, after in found]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_says_what_it_does_when_and_why(rule: str):
    text = " ".join((RULES[rule].__doc__ or "").split())
    assert "Condition" in text
    assert "Right because" in text


def test_every_fixture_belongs_to_a_rule():
    assert {path.stem for path in HERE.glob("*.txt")} == set(RULES)


def test_rules_that_undo_each_other_are_found_out(monkeypatch: pytest.MonkeyPatch):
    def swing(plan: Operator) -> Operator | None:
        return (
            Assign(Variable(1 - plan.variable.number), plan.expression, plan.input)
            if isinstance(plan, Assign)
            else None
        )

    monkeypatch.setattr(order, "GROUPS", (("paths", (swing,)),))
    with pytest.raises(PlanError, match=r"do not come to an end.*swing"):
        rewrite(parse_plan("ASSIGN( $$1:2 ) EMPTY-TUPLE-SOURCE"))


def test_a_rewriting_explains_itself():
    before = """\
DISTRIBUTE-RESULT( $$2 )
ASSIGN( $$2:$$1 )
DATASCAN( collection("/c"), $$1 )
EMPTY-TUPLE-SOURCE
"""
    assert (
        rewrite(parse_plan(before)).explain()
        == f"""\
plan before the rules

{before}
rules: clean_up x 1, partition_scan x 1

plan after the rules

DISTRIBUTE-RESULT( $$1 )
DATASCAN( collection("/c"), $$1 ) [partitioned by document]
EMPTY-TUPLE-SOURCE
"""
    )
