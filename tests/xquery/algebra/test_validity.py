"""Plans that do not hold together are refused."""

from __future__ import annotations

import pytest
from tests.xquery.algebra.reader import parse_plan
from tests.xquery.algebra.validity import validate

from dovetail.errors import PlanError


def test_a_plan_that_holds_together():
    validate(
        parse_plan("""
        DISTRIBUTE-RESULT( $$5 )
        SELECT( value-eq($$1, $$4) )
        SUBPLAN { AGGREGATE( $$5:count($$3) ) UNNEST( $$3:iterate($$1) ) NESTED-TUPLE-SOURCE }
        JOIN( value-eq($$1, $$4) ) { ASSIGN( $$4:2 ) EMPTY-TUPLE-SOURCE } { ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE }""")
    )


def test_a_group_in_a_nested_plan_keeps_the_fields_around_it():
    validate(
        parse_plan("""
        SUBPLAN { AGGREGATE( $$5:count($$1) ) GROUP-BY( $$3:$$2 ) UNNEST( $$2:iterate($$1) ) NESTED-TUPLE-SOURCE }
        ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE""")
    )


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("DISTRIBUTE-RESULT( $$1 ) EMPTY-TUPLE-SOURCE", r"DistributeResult uses \$\$1,"),
        ("ASSIGN( $$2:$$3 ) ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE", r"Assign uses \$\$3,"),
        ("ASSIGN( $$1:1 ) ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE", r"defines \$\$1 more than once"),
        ("SELECT( $$1 ) AGGREGATE( $$2:count($$1) ) ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE", r"Select uses \$\$1,"),
        ("SELECT( $$1 ) GROUP-BY( $$2:$$1 ) ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE", r"Select uses \$\$1,"),
        ("JOIN( $$3 ) { EMPTY-TUPLE-SOURCE } { ASSIGN( $$1:1 ) EMPTY-TUPLE-SOURCE }", r"Join uses \$\$3,"),
        ("SELECT( $$3 ) SUBPLAN { AGGREGATE( $$5:count($$3) ) UNNEST( $$3:iterate(1) ) NESTED-TUPLE-SOURCE } "
         "EMPTY-TUPLE-SOURCE", r"Select uses \$\$3,"),
    ],
)  # fmt: skip
def test_plans_that_do_not(plan: str, message: str):
    with pytest.raises(PlanError, match=message):
        validate(parse_plan(plan))
