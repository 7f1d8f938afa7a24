"""First plans: numbers, operators for clauses, and what is left to the evaluator."""

from __future__ import annotations

import pytest
from tests.xquery.run import planned

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import Evaluate, parts
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import (
    Operator,
    expressions,
    operators,
)
from dovetail.xml.algebra.printer import print_plan, source_text
from dovetail.xml.syntax.parser import parse


def first(query: str) -> str:
    return print_plan(normalise(parse(query)))


def pieces(query: str) -> list[str]:
    plan = normalise(parse(query))
    return [source_text(part.tree) for part in all_parts(plan) if isinstance(part, Evaluate)]


def all_parts(plan: Operator) -> list[object]:
    return [part for operator in operators(plan) for e in expressions(operator) for part in parts(e)]


def test_clauses_are_operators():
    assert (
        first("for $x at $i in (1, 2) let $y := $x + 1 where $y gt 2 order by $y descending return $i")
        == """\
DISTRIBUTE-RESULT( $$12 )
UNNEST( $$12:iterate($$11) )
SUBPLAN {
  AGGREGATE( $$11:create_sequence($$5) )
  ORDER( data($$7) descending )
  SELECT( boolean(value-gt(data($$7), data(2))) )
  ASSIGN( $$7:add(data($$4), data(1)) )
  UNNEST( $$4 at $$5:iterate($$3) )
  ASSIGN( $$3:sequence(1, 2) )
  NESTED-TUPLE-SOURCE
}
EMPTY-TUPLE-SOURCE
"""
    )


def test_groups_gather_the_other_variables():
    assert (
        first("for $x in (1, 2) let $y := 3 group by $k := $x mod 2 return ($k, $x)")
        == """\
DISTRIBUTE-RESULT( $$14 )
UNNEST( $$14:iterate($$13) )
SUBPLAN {
  AGGREGATE( $$13:create_sequence(sequence($$8, $$9)) )
  GROUP-BY( $$8:data(mod(data($$4), data(2))); $$9:create_sequence($$4), $$10:create_sequence($$5) )
  ASSIGN( $$5:3 )
  UNNEST( $$4:iterate($$3) )
  ASSIGN( $$3:sequence(1, 2) )
  NESTED-TUPLE-SOURCE
}
EMPTY-TUPLE-SOURCE
"""
    )


@pytest.mark.parametrize(
    ("query", "piece"),
    [
        ("for $x in (1, 2) return if ($x) then 1 else 2", "if ($x) then 1 else 2"),
        ("for $x in (1, 2) return <a>{$x}</a>", "<a>{$x}</a>"),
        ("for $x in (1, 2) return $x cast as xs:string", "$x cast as xs:string"),
        ("declare function local:f($x) { $x }; for $x in (1, 2) return local:f($x)", "local:f($x)"),
        ("for $x allowing empty in () return 1", "for $x allowing empty in () return 1"),
        ("for $x in (1, 2) count $i return $i", "for $x in (1, 2) count $i return $i"),
        ("for $x as xs:integer in (1, 2) return 1", "for $x as xs:integer in (1, 2) return $x"),
        ("for $x in doc('a')/a where $x/b[2]/c[1] return 1", "$x/b[2]/c[1]"),
        ("doc('a')/a/b[2]", "b[2]"),
        ("doc('a')/a/position()", "$before/position()"),
        ("try { 1 } catch * { 2 }", "try { 1 } catch * { 2 }"),
        ("declare variable $x external; $x", "$x"),
        (".", "."),
    ],
)  # fmt: skip
def test_what_has_no_form_is_left_to_the_evaluator(query: str, piece: str):
    assert piece in pieces(query)


def test_data_is_read_by_the_plan_even_inside_a_constructor():
    assert pieces('<r n="{count(collection("/a")/x)}"><i>{collection("/b")/y}</i>{1}</r>') == [
        '<r n="{$part1}"><i>{$part2}</i>{1}</r>'
    ]
    assert pieces('let $part1 := 2 return (collection("/a")/x)[$part1]') == ["($part2)[$part1]"]


def test_a_piece_knows_whether_it_looks_up_or_compares_nodes():
    module = """declare function local:up($n) { local:more($n) }; declare function local:more($n) { $n/.. };
        for $x in doc("a")/a return (local:up($x), <u>{$x/b}</u>, <v>{$x union $x}</v>)"""
    found = [part for part in all_parts(normalise(parse(module))) if isinstance(part, Evaluate)]
    assert [(piece.upward, piece.identity) for piece in found] == [(True, False), (False, False), (False, True)]


def test_predicates_that_are_conditions_become_selects():
    text = first('collection("/c")/a/b[c eq "x"][d]')
    assert text.count("SELECT(") == 2
    assert "evaluate" not in text


def test_double_slash_is_one_step():
    assert 'descendant(treat($$4, element_node), "b")' in first('collection("/c")//b')
    assert "descendant-or-self" in first('collection("/c")//b[1]')


def test_unprefixed_constructors_of_the_source():
    assert 'xs:decimal(data("1"))' in first('decimal(data("1"))')
    assert 'xs:dateTime("2000-01-01T00:00:00")' in first('dateTime("2000-01-01T00:00:00")')


@pytest.mark.parametrize("query", ["iterate(1)", "child(1, 2)", "value-eq(1, 2)", "sequence()", "treat(1)"])
def test_names_of_the_algebra_are_no_functions_of_queries(query: str):
    module = parse(query)
    with pytest.raises(XQueryError, match="XPST0017"):
        list(planned(normalise(module), module))
