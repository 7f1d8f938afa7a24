from __future__ import annotations

import pytest

from dovetail.errors import XQueryError
from dovetail.xml.syntax.parser import parse
from dovetail.xml.syntax.tree import (
    FN,
    AxisStep,
    ContextItem,
    DirectElement,
    Expr,
    Flwor,
    ForClause,
    FunctionCall,
    InstanceOf,
    KindTest,
    Literal,
    NameTest,
    Operation,
    Path,
    QName,
    Root,
    Sequence,
    SequenceType,
    VariableRef,
    WhereClause,
)

CHILD_A = AxisStep("child", NameTest("", "a"))


def body(text: str) -> Expr:
    return parse(text).body


def test_the_query_of_the_source() -> None:
    """Query 7.2 as printed: a FLWOR of one for and one where clause."""
    tree = body(
        """for $r in collection("/sensors")/dataCollection/data
           where $r/dataType eq "AWND" and decimal(data($r/value)) gt 491.744
           return $r"""
    )
    assert isinstance(tree, Flwor)
    first, second = tree.clauses
    assert isinstance(first, ForClause)
    assert isinstance(second, WhereClause)
    assert first.source == Path(
        FunctionCall(QName(FN, "collection"), (Literal("/sensors"),)),
        (AxisStep("child", NameTest("", "dataCollection")), AxisStep("child", NameTest("", "data"))),
    )
    assert isinstance(second.condition, Operation)
    assert second.condition.name == "and"
    assert (second.line, second.column) == (2, 12)
    assert tree.result == VariableRef(QName("", "r"))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3", Operation("add", (Literal(1), Operation("multiply", (Literal(2), Literal(3)))))),
        ("1 - 2 - 3", Operation("subtract", (Operation("subtract", (Literal(1), Literal(2))), Literal(3)))),
        ("-1 + 2", Operation("add", (Operation("minus", (Literal(1),)), Literal(2)))),
        ("a = 1", Operation("general-eq", (Path(ContextItem(), (CHILD_A,)), Literal(1)))),
        ("/", Root()),
        ("//a", Path(Root(), (AxisStep("descendant-or-self", KindTest("node")), CHILD_A))),
        ("@a", Path(ContextItem(), (AxisStep("attribute", NameTest("", "a")),))),
        ("..", Path(ContextItem(), (AxisStep("parent", KindTest("node")),))),
        ("()", Sequence(())),
        ("(1)", Literal(1)),
        ("1 => f(2)", FunctionCall(QName(FN, "f"), (Literal(1), Literal(2)))),
        ("<a>x</a>", DirectElement(QName("", "a"), content=("x",))),
        ("<a> <b/> </a>", DirectElement(QName("", "a"), content=(DirectElement(QName("", "b")),))),
    ],
)
def test_trees(text: str, tree: Expr) -> None:
    assert body(text) == tree


def test_equality_forgets_places_but_nodes_keep_them() -> None:
    tree = body("\n  1 + a")
    assert tree == body("1+a")
    assert (tree.line, tree.column) == (2, 3)


def test_keywords_are_names_where_no_keyword_can_stand() -> None:
    assert body("for/let/if/return") == body("child::for/child::let/child::if/child::return")
    assert body("div div mod") == Operation("divide", (body("child::div"), body("child::mod")))
    assert body("element") == Path(ContextItem(), (AxisStep("child", NameTest("", "element")),))


def test_namespaces_are_resolved() -> None:
    module = parse('declare namespace p = "urn:p"; declare default element namespace "urn:d"; p:a/b/@c')
    assert module.body == Path(
        ContextItem(),
        (
            AxisStep("child", NameTest("urn:p", "a")),
            AxisStep("child", NameTest("urn:d", "b")),
            AxisStep("attribute", NameTest("", "c")),
        ),
    )
    inner = body('<x xmlns="urn:x" a="{b}"/>')
    assert isinstance(inner, DirectElement)
    assert inner.attributes[0].parts == (Path(ContextItem(), (AxisStep("child", NameTest("urn:x", "b")),)),)


def test_prolog() -> None:
    module = parse(
        """declare variable $x as xs:integer external;
           declare function local:f($a as xs:string?, $b) as xs:boolean { $a = $b };
           local:f("x", $x)"""
    )
    assert module.variables[0].external
    assert module.functions[0].parameters[0].type == SequenceType(
        parse("1 instance of xs:string?").body.type.item,
        "?",  # type: ignore[attr-defined]  # an InstanceOf, as below
    )
    assert isinstance(parse("1 instance of xs:string?").body, InstanceOf)


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "XPST0003", 1, 1),
        ("1 +\n", "XPST0003", 2, 1),
        ("for $x in 1\nreturn $x $y", "XPST0003", 2, 11),
        ("p:a", "XPST0081", 1, 1),
        ("<a>\n  </b>", "XQST0118", 2, 3),
        ("<a x='1' x='2'/>", "XQST0040", 1, 10),
        ("for tumbling window $w in 1 return 2", "XPST0003", 1, 1),
        ("map { 1 : 2 }", "XPST0003", 1, 5),
        ("[1, 2]", "XPST0003", 1, 1),
        ("count#1", "XPST0003", 1, 1),
        ("let $f := function($x) { $x } return 1", "XPST0003", 1, 11),
        ("a/namespace::b", "XQST0134", 1, 3),
        ('import module namespace m = "m"; 1', "XQST0016", 1, 1),
        ("declare option local:x 'y'; 1", "XPST0003", 1, 9),
        ('declare default collation "urn:c"; 1', "XQST0038", 1, 27),
        ('for $x in 1 order by $x collation "urn:c" return 1', "XQST0076", 1, 35),
    ],
)
def test_mistakes_and_limits_have_a_code_and_a_place(text: str, code: str, line: int, column: int) -> None:
    with pytest.raises(XQueryError) as caught:
        parse(text)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)


def test_nesting_is_limited_before_the_stack_is() -> None:
    assert body("(" * 60 + "1" + ")" * 60) == Literal(1)
    with pytest.raises(XQueryError, match="nested deeper"):
        parse("(" * 5000 + "1" + ")" * 5000)
    with pytest.raises(XQueryError):
        parse("<a>" * 5000 + "</a>" * 5000)
    with pytest.raises(XQueryError):
        parse("-" * 50_000 + "1")
    with pytest.raises(XQueryError, match="200 operators in a row"):
        parse(" + ".join("1" * 5000))
