from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.xquery.conformance.suite import DATA, Saxon
from tests.xquery.run import answered, planned

from dovetail.errors import XQueryError
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.evaluate.calls import check_module
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.rules.order import rewrite
from dovetail.xml.syntax.parser import parse
from dovetail.xml.xdm.markup import parse_xml, serialise
from dovetail.xml.xdm.nodes import Document, Element

SENSORS = [
    "<dataCollection>"
    + "".join(
        f"<data><date>{year}-01-0{day}T00:00:00.000</date><dataType>{kind}</dataType><station>S{station}</station>"
        f"<value>{(year * 7 + day * 131 + station * 57 + at * 211) % 600}</value></data>"
        for day in (1, 2, 3)
        for station in (1, 2)
        for at, kind in enumerate(("TMAX", "TMIN", "AWND"))
    )
    + "</dataCollection>"
    for year in (1999, 2000, 2001)
]
STATIONS = [
    "<stationCollection><station><id>S1</id><displayName>One</displayName></station></stationCollection>",
    "<stationCollection><station><id>S2</id><displayName>Two</displayName></station></stationCollection>",
]
PRINTED = {
    "7.2": """for $r in collection("/sensors")/dataCollection/data
              where $r/dataType eq "AWND" and decimal(data($r/value)) gt 491.744
              return $r""",
    "7.4": """max(for $r in collection("/sensors")/dataCollection/data
                  where $r/dataType eq "TMAX" return $r/value) div 10""",
    "7.6": """for $s in collection("/stations")/stationCollection/station
              for $r in collection("/sensors")/dataCollection/data
              where $s/id eq $r/station and $r/dataType eq "TMAX"
                and year-from-dateTime(dateTime(data($r/date))) eq 2000
              return ($s/displayName, $r/date, $r/value)""",
    "7.8": """avg(for $r_min in collection("/sensors_min")/dataCollection/data
                  for $r_max in collection("/sensors_max")/dataCollection/data
                  where $r_min/station eq $r_max/station and $r_min/date eq $r_max/date
                    and $r_min/dataType eq "TMIN" and $r_max/dataType eq "TMAX"
                  return $r_max/value - $r_min/value) div 10""",
}


class Memory:
    """Documents in memory; counts how many were opened."""

    def __init__(self) -> None:
        self.opened = 0

    def doc(self, uri: str) -> Document:
        self.opened += 1
        return parse_xml("<a><b>1</b><b>2</b></a>", uri)

    def collection(self, uri: str | None) -> Iterator[Document]:
        for text in STATIONS if uri == "/stations" else SENSORS:
            self.opened += 1
            yield parse_xml(text)


def run(query: str, context: Context | None = None) -> list[str]:
    return [serialise(item) for item in answered(query, context)]


@pytest.mark.parametrize("number", sorted(PRINTED))
def test_printed_queries_run_literally_and_as_saxon_does(number: str, tmp_path: Path) -> None:
    text = PRINTED[number]
    for name, documents in {
        "sensors": SENSORS,
        "sensors_min": SENSORS,
        "sensors_max": SENSORS,
        "stations": STATIONS,
    }.items():
        (tmp_path / name).mkdir()
        for at, document in enumerate(documents):
            (tmp_path / name / f"{at}.xml").write_text(document)
        text = text.replace(f'"/{name}"', f'"{(tmp_path / name).as_uri()}?select=*.xml"')
    saxon = Saxon().answer(text.replace("decimal(", "xs:decimal(").replace("(dateTime(", "(xs:dateTime("))
    found = run(PRINTED[number], Context(documents=Memory()))
    assert not saxon.error
    assert sorted(found) == sorted(saxon.items)
    assert found


def test_collections_read_once_are_streamed() -> None:
    documents = Memory()
    items = answered('for $x in collection("/sensors")//data return $x/value', Context(documents=documents))
    next(items)
    assert documents.opened == 1
    assert len(list(items)) == 53
    assert documents.opened == 3


def test_a_step_that_asks_for_its_position_counts_over_all_documents() -> None:
    assert run('collection("/stations")//id/position()', Context(documents=Memory())) == ["1", "2"]
    assert run('collection("/stations")//id/concat(last(), ": ", .)', Context(documents=Memory())) == ["2: S1", "2: S2"]


@pytest.mark.parametrize("aggregate", ["count", "sum", "max", "avg", "distinct-values"])
def test_aggregates_keep_values_and_no_documents(aggregate: str) -> None:
    """A document that is done with is freed before the next one is opened."""
    alive: list[int] = []

    class Watched(Memory):
        def collection(self, uri: str | None) -> Iterator[Document]:
            for text in SENSORS:
                gc.collect()
                alive.append(sum(type(thing) is Element for thing in gc.get_objects()))
                yield parse_xml(text)

    run(f'{aggregate}(for $x in collection("/sensors")//data return $x/value)', Context(documents=Watched()))
    assert len(alive) == 3
    assert alive[2] <= alive[1]


def test_collections_read_often_are_parsed_once() -> None:
    documents = Memory()
    query = (
        'for $x in 1 to 5 return count(collection("/sensors")//data), collection("/sensors")/* is collection("/x")/*'
    )
    with pytest.raises(XQueryError, match="XPTY0004"):
        run(query, Context(documents=documents))
    assert documents.opened == 6


def test_a_document_is_the_same_node_each_time() -> None:
    documents = Memory()
    assert run('doc("a") is doc("a"), doc("a") is doc("b")', Context(documents=documents)) == ["true", "false"]
    assert documents.opened == 2


def test_external_variables() -> None:
    query = "declare variable $n external; declare variable $m as xs:integer external := 7; $n, $m"
    assert run(query, Context(variables={"n": [1, 2]})) == ["1", "2", "7"]
    assert run(query, Context(variables={"n": [], "m": [3]})) == ["3"]
    with pytest.raises(XQueryError, match="XPDY0002"):
        run(query)
    with pytest.raises(XQueryError, match="XPTY0004"):
        run(query, Context(variables={"n": [], "m": ["x"]}))


@pytest.mark.parametrize(
    ("query", "code", "line", "column"),
    [
        ("if (true()) then 1 else\n $x", "XPST0008", 2, 2),
        ("if (true()) then 1 else f(2)", "XPST0017", 1, 25),
        ("if (true()) then 1 else count(1, 2)", "XPST0017", 1, 25),
        ("if (true()) then 1 else 2 cast as xs:none", "XQST0052", 1, 25),
        ("if (true()) then 1 else 2 instance of xs:none", "XPST0051", 1, 25),
        ("declare function local:f($x as xs:none) { 1 }; 1", "XPST0051", 1, 9),
        ("declare function local:f() { $x }; 1", "XPST0008", 1, 30),
        ("for $x in 1 group by $y return 1", "XQST0094", 1, 13),
    ],
)
def test_static_errors_come_before_anything_runs(query: str, code: str, line: int, column: int) -> None:
    module = parse(query)
    with pytest.raises(XQueryError) as caught:
        check_module(module)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)


@pytest.mark.parametrize(
    ("query", "code", "line", "column"),
    [
        ("1,\n 2 div 0", "FOAR0001", 2, 2),
        ("1,\n xs:integer('x')", "FORG0001", 2, 2),
        ("(1, 2) eq 1", "XPTY0004", 1, 1),
        (".", "XPDY0002", 1, 1),
        ("for $x in 1\norder by (1, 2) return 1", "XPTY0004", 2, 1),
        ("doc('none')", "FODC0002", 1, 1),
        ("collection()", "FODC0002", 1, 1),
        ("<a>{1, attribute b {1}}</a>", "XQTY0024", 1, 1),
    ],
)
def test_dynamic_errors_have_a_place(query: str, code: str, line: int, column: int) -> None:
    with pytest.raises(XQueryError) as caught:
        run(query)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)


def test_a_plan_can_be_run_again_and_keeps_nothing() -> None:
    module = parse("declare variable $n external; for $x in 1 to 3 order by -$x return $x * $n")
    plan = rewrite(normalise(module)).plan
    assert [list(planned(plan, module, Context(variables={"n": [n]}))) for n in (1, 2)] == [[3, 2, 1], [6, 4, 2]]


def test_two_runs_do_not_disturb_each_other() -> None:
    query = "for $x in 1 to 3 for $y in 1 to 2 return $x * 10 + $y"
    first, second = answered(query), answered(query)
    assert [next(first), next(second), next(first), next(second)] == [11, 11, 12, 12]


def test_functions_may_recurse_and_read_documents() -> None:
    query = """declare function local:f($n) { if ($n = 0) then 0 else 1 + local:f($n - 1) };
        local:f(900), doc('d')//b[1]"""
    assert run(query, Context(documents=Memory())) == ["900", "<b>1</b>"]


def test_recursion_through_many_loops_is_an_error_and_no_crash() -> None:
    loops = " ".join(f"for $x{number} in 1" for number in range(40))
    query = f"declare function local:f($n) {{ for $x in local:f($n + 1) {loops} return $x }}; local:f(1)"
    with pytest.raises(XQueryError, match="XPDY0130"):
        run(query)


@pytest.mark.parametrize(
    "query",
    [
        "exists(1 to 100000000000)",
        "not(empty(for $x in 1 to 100000000000 where $x > 2 return $x))",
        "some $x in 1 to 100000000000 satisfies $x = 3",
        "not(every $x in 1 to 100000000000 satisfies $x < 3)",
        "exists((<a n='1'/>, <a n='2'/>)[some $x in 1 to 100000000000 satisfies $x = @n])",
        "exists((1, 2) ! (some $x in (. to 100000000000) satisfies $x = 3)[.])",
    ],
)
def test_a_search_stops_at_the_first_item(query: str) -> None:
    assert run(query) == ["true"]


def test_endless_recursion_is_an_error() -> None:
    with pytest.raises(XQueryError, match="XPDY0130"):
        run("declare function local:f($x) { 1 + local:f($x) }; local:f(1)")
    deep = "declare function local:f($n) { if ($n = 0) then 0 else 1 + local:f($n - 1) }; local:f(1000)"
    assert run(deep) == ["1000"]


def test_values_given_by_the_caller_are_documents_and_atoms() -> None:
    context = Context(item=parse_xml((DATA / "books.xml").read_bytes()), variables={"year": [2003]})
    assert run("declare variable $year external; count(//book[year = $year])", context) == ["2"]
