"""Plans and pieces of queries as text, and back."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from tests.xquery.algebra.reader import parse_expression, parse_plan, split_path

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Constant, Variable, call
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import (
    Aggregate,
    DataScan,
    EmptyTupleSource,
    Order,
    Subplan,
    operators,
)
from dovetail.xml.algebra.printer import print_expression, print_plan, source_text
from dovetail.xml.rules.order import rewrite
from dovetail.xml.syntax.parser import parse

QUERIES = (Path(__file__).parent.parent / "rules" / "queries.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'), ('say "a"', '"say ""a"""'), (True, "true"), (False, "false"), (7, "7"), (-7, "-7"),
        (Decimal("491.744"), "491.744"), (Decimal(3), "3.0"), (1.5, "1.5e0"), (1e300, "1e+300"), ("", '""'),
    ],
)  # fmt: skip
def test_constants(value: str | bool | int | Decimal | float, text: str):
    assert print_expression(Constant(value)) == text
    assert parse_expression(text) == Constant(value)


def test_constants_of_different_types_differ():
    assert len({Constant(1), Constant(1.0), Constant(Decimal(1)), Constant(True), Constant("1")}) == 5


@pytest.mark.parametrize("query", QUERIES)
def test_the_plans_of_a_query_can_be_read_back(query: str):
    rewriting = rewrite(normalise(parse(query)))
    for plan in (rewriting.before, rewriting.plan):
        assert print_plan(parse_plan(print_plan(plan))) == print_plan(plan)


@pytest.mark.parametrize("query", [query for query in QUERIES if not query.startswith("declare")])
def test_a_query_written_from_its_tree_has_the_same_tree(query: str):
    body = parse(query).body
    assert parse(source_text(body)).body == body


WRITTEN = [
    "if (1) then 2 else (3, 4)",
    "some $a in (1, 2), $b as xs:integer in 3 satisfies $a = $b",
    "for $a as xs:integer at $i in (1, 2) let $b as item()* := $a count $c return $c",
    "for $a in (1, 2) order by $a descending empty greatest, -$a group by $d := $a, $a return $d",
    "for $a allowing empty in () return $a",
    "switch (1) case 1 case 2 return 3 default return 4",
    "typeswitch (1) case $a as xs:integer | xs:string? return $a default $b return $b",
    "try { 1 div 0 } catch * { 2 }",
    "1 instance of xs:integer+",
    "(1, 2) treat as item()*",
    '"1" cast as xs:integer?',
    '"1" castable as xs:date',
    '<a b="x{1}y" c="&quot;{{">t{2}<d/>&amp;&lt;{{ }}</a>',
    "element {concat('a', 'b')} {1}",
    "element a {}",
    "attribute b {1}",
    "text {1}",
    "comment {'c'}",
    "processing-instruction t {'c'}",
    "document {<a/>}",
    "a/b[1][@c = 2]/..//d/text()",
    "/a",
    "(/)/a[. = 1]",
    "-1 + +2 * 3 idiv 4 mod 5",
    "1 to 3 ! (. + 1)",
    "'a' || 'b'",
    "$a union $b intersect $c except $d",
    "$a is $b, $a << $b, $a >> $b",
    "1.5, 1e3, 2, 'it''s \"x\" &amp; y'",
    "document-node(element(a))",
    "child::element(a), attribute::attribute(b), self::processing-instruction(t), *:c, @*",
]


@pytest.mark.parametrize("query", [*WRITTEN[:-2], f"a/({WRITTEN[-1]})"])
def test_every_kind_of_expression_can_be_written(query: str):
    body = parse(query).body
    assert parse(source_text(body)).body == body


def test_operators_that_no_query_makes():
    text = """\
AGGREGATE( $$5:create_sequence($$3) )
ORDER( $$2 descending empty greatest, $$3 )
GROUP-BY( $$2:data($$1), $$4:$$1; $$3:create_sequence($$1) )
DATASCAN( collection("/c"), $$1, "/Q{urn:x/y}a/*" )
EMPTY-TUPLE-SOURCE
"""
    plan = parse_plan(text)
    assert print_plan(plan) == text
    kinds = [type(operator) for operator in operators(plan)]
    assert Order in kinds


def test_a_slash_inside_a_namespace_separates_no_steps():
    assert split_path("/Q{http://x/y}a/b") == ("Q{http://x/y}a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROBNICATE( $$1 )", "FROBNICATE is no operator; operators are"),
        ("ASSIGN( $$1 ) EMPTY-TUPLE-SOURCE", "expected :"),
        ("SELECT( ; ) EMPTY-TUPLE-SOURCE", "expected an expression"),
        ("EMPTY-TUPLE-SOURCE EMPTY-TUPLE-SOURCE", "expected end"),
        ("SELECT( %1 )", "cannot be read at"),
        ("DATASCAN( doc(\"a\"), $$1 ) EMPTY-TUPLE-SOURCE", "DATASCAN reads a collection"),
        ("SUBPLAN { EMPTY-TUPLE-SOURCE } EMPTY-TUPLE-SOURCE", "must end in AGGREGATE"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused(text: str, message: str):
    with pytest.raises(PlanError, match=message):
        parse_plan(text)


def test_operators_that_cannot_be_built():
    with pytest.raises(PlanError, match="negative"):
        Variable(-1)
    with pytest.raises(PlanError, match="at least one key"):
        Order((), EmptyTupleSource())
    with pytest.raises(PlanError, match="reads a collection"):
        DataScan(call("doc", Constant("x")), Variable(1), (), EmptyTupleSource())
    with pytest.raises(PlanError, match="must end in AGGREGATE"):
        Subplan(EmptyTupleSource(), EmptyTupleSource())
    assert Subplan(Aggregate(Variable(1), call("count", Variable(0)), EmptyTupleSource()), EmptyTupleSource())
