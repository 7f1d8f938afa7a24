"""Static properties: what is known of a value without running anything."""

from __future__ import annotations

import pytest
from tests.xquery.algebra.reader import parse_expression, parse_plan

from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.properties import Facts, Properties, single

DOC = 'ASSIGN( $$1:doc("x.xml") ) EMPTY-TUPLE-SOURCE'
SCAN = 'DATASCAN( collection("/c"), $$1, "/a" ) EMPTY-TUPLE-SOURCE'


def known(expression: str, plan: str = DOC) -> Properties:
    return Facts(parse_plan(plan)).of(parse_expression(expression))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('"x"', single("string")),
        ("3", single("integer")),
        ("$$1", single("document_node")),
        ('collection("/c")', Properties("many", True, True, True, "document_node")),
        ('child($$1, "a")', Properties("many", True, True, True, "element_node")),
        ('child(child($$1, "a"), "b")', Properties("many", True, True, True, "element_node")),
        ("child($$1, text())", Properties("many", True, True, True, "text_node")),
        ("child($$1, node())", Properties("many", True, True, True, "node")),
        ('descendant($$1, "a")', Properties("many", True, True, False, "element_node")),
        ('child(descendant($$1, "a"), "b")', Properties("many", False, True, False, "element_node")),
        ('attribute(descendant($$1, "a"), "b")', Properties("many", True, True, True, "attribute_node")),
        ('attribute($$1, "b")', Properties("optional", True, True, True, "attribute_node")),
        ('attribute($$1, "*")', Properties("many", True, True, True, "attribute_node")),
        ("parent($$1, node())", Properties("optional", True, True, True, "node")),
        ('parent(child($$1, "a"), node())', Properties("many", False, False, False, "node")),
        ('ancestor($$1, "a")', Properties("many", False, False, False, "element_node")),
        ('data(child($$1, "a"))', Properties("many", type="untypedAtomic")),
        ('data(attribute($$1, "a"))', Properties("optional", type="untypedAtomic")),
        ("data(child($$1, comment()))", Properties("many", type="atomic")),
        ("count($$1)", single("integer")),
        ("sum($$1)", Properties("one", type="atomic")),
        ("max(sequence(1, 2))", Properties("optional", type="numeric")),
        ("value-eq(1, 2)", single("boolean")),
        ('value-eq(data(attribute($$1, "a")), 2)', Properties("optional", type="boolean")),
        ('value-eq(data(child($$1, "a")), 2)', Properties("many", type="boolean")),
        ('general-eq(data(child($$1, "a")), 2)', single("boolean")),
        ("to(1, 3)", Properties("many", type="integer")),
        ("sequence(1, $$1)", Properties()),
        ("an-unknown-function($$1)", Properties()),
        ('evaluate("a[1]", .=$$1)', Properties("many", True, True, True, "element_node")),
        ('evaluate("if ($x) then 1 else 2", x=$$1)', Properties()),
        ('sort-distinct-nodes-asc-or-atomics(parent(child($$1, "a"), node()))',
         Properties("many", True, True, False, "node")),
        ("sort-distinct-nodes-asc-or-atomics(sequence(1, $$1))", Properties()),
        ('distinct-nodes-or-atomics(child(descendant($$1, "a"), "b"))',
         Properties("many", False, True, False, "element_node")),
    ],
)  # fmt: skip
def test_expressions(expression: str, expected: Properties):
    assert known(expression) == expected


def gathered(item: str, body: str, below: str = "EMPTY-TUPLE-SOURCE") -> Properties:
    plan = f"SUBPLAN {{ AGGREGATE( $$9:create_sequence({item}) ) {body} NESTED-TUPLE-SOURCE }} {below}"
    return Facts(parse_plan(plan)).of(Variable(9))


ORDERED = Properties("many", True, True, True, "element_node")
UNORDERED = Properties("many", False, False, False, "element_node")


@pytest.mark.parametrize(
    ("item", "body", "expected"),
    [
        ("$$1", 'DATASCAN( collection("/c"), $$1, "/a" )', ORDERED),
        ('child($$1, "b")', 'DATASCAN( collection("/c"), $$1, "/a" )', ORDERED),
        ("$$1", 'SELECT( boolean($$1) ) DATASCAN( collection("/c"), $$1, "/a" )', ORDERED),
        ("$$2", 'ASSIGN( $$2:child($$1, "b") ) DATASCAN( collection("/c"), $$1, "/a" )', ORDERED),
        ("$$2", 'UNNEST( $$2:child($$1, "b") ) DATASCAN( collection("/c"), $$1, "/a" )', ORDERED),
        ("$$1", 'UNNEST( $$2:child($$1, "b") ) DATASCAN( collection("/c"), $$1, "/a" )', UNORDERED),
        ("$$2", 'DATASCAN( collection("/d"), $$2, "/b" ) DATASCAN( collection("/c"), $$1, "/a" )', UNORDERED),
        ("$$1", 'ORDER( data($$1) ) DATASCAN( collection("/c"), $$1, "/a" )', UNORDERED),
        ('child(child($$1, "b"), "c")', 'UNNEST( $$1:descendant($$0, "a") ) ASSIGN( $$0:doc("x.xml") )',
         Properties("many", False, True, False, "element_node")),
        ("1", 'SELECT( false )', Properties("optional", True, True, True, "integer")),
        ("1", '', single("integer")),
    ],
)  # fmt: skip
def test_sequences_that_are_gathered(item: str, body: str, expected: Properties):
    assert gathered(item, body) == expected


def test_variables_of_operators():
    plan = parse_plan("""
        GROUP-BY( $$4:data(child($$1, "k")), $$5:count($$1); $$6:create_sequence($$1), $$7:count($$1) )
        UNNEST( $$2 at $$3:child($$1, "b") ) DATASCAN( collection("/c"), $$1 ) EMPTY-TUPLE-SOURCE""")
    facts = Facts(plan)
    found = {number: facts.of(Variable(number)) for number in range(1, 9)}
    assert found[1] == single("document_node")
    assert found[2] == single("element_node")
    assert found[3] == single("integer")
    assert found[4] == Properties("optional", type="string")
    assert found[5] == Properties("one", type="integer")
    assert found[6] == Properties("many", type="document_node")
    assert found[7] == single("integer")
    assert found[8] == Properties()
    assert facts.uses[Variable(1)] == 5
