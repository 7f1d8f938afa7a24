"""Every way to execute a query gives what direct evaluation gives: parts in parallel, tuples, one task."""

from __future__ import annotations

import pickle
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import pytest
from tests.xquery.frame.local import Local, written_collections
from tests.xquery.rules.equivalence import answer
from tests.xquery.rules.random_queries import Maker
from tests.xquery.rules.sample import QUERIES, context
from tests.xquery.run import direct

from dovetail.errors import XQueryError
from dovetail.xml.scan.files import Collection
from dovetail.xml.syntax.parser import parse
from dovetail.xml.xdm.markup import serialise

LINES = [
    line
    for line in (Path(__file__).parents[1] / "rules" / "queries.txt").read_text().splitlines()
    if "collection(" in line and "doc(" not in line and "/empty" not in line
]
WEATHER = {path.stem: path.read_text() for path in sorted(QUERIES.glob("*.xq"))}


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Collection]:
    return written_collections(tmp_path_factory.mktemp("collections"))


WAYS = (("auto", 1), ("auto", 2), ("tuples", 2), ("one task", 1))
"""Ways of execution, with the number of partitions."""


def check(query: str, collections: dict[str, Collection], ways: tuple[tuple[str, int], ...] = WAYS) -> None:
    module = parse(query)
    if isinstance(answer(lambda: direct(module, context())), str):
        return  # a query that fails may have an answer when parts of it are not needed
    expected = canonical([serialise(item) for item in direct(module, context())])
    for way, partitions in ways:
        local = Local(collections, way, partitions)
        assert canonical(local.items(query)) == expected, f"{way}, {partitions} partitions"


def canonical(items: list[str]) -> list[str]:
    """A copy may declare its namespaces in another order, or leave out a declaration that says nothing."""
    return [canonicalize(item) if item.startswith("<") and item.endswith(">") else item for item in items]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("query", LINES)
def test_every_way_gives_the_same(query: str, collections: dict[str, Collection]):
    check(query, collections)


@pytest.mark.parametrize("name", WEATHER)
def test_every_way_gives_the_same_for_weather_queries(name: str, collections: dict[str, Collection]):
    check(WEATHER[name], collections)


@pytest.mark.parametrize("seed", range(20))
def test_every_way_gives_the_same_for_random_queries(seed: int, collections: dict[str, Collection]):
    query = Maker(seed).query()
    if "doc(" not in query and "/empty" not in query:
        check(query, collections, WAYS[1:2])


@pytest.mark.parametrize(
    "query",
    [
        'for $s in collection("/nested")//s group by $k := 1 return <o>{$s//t}</o>',
        'for $a in collection("/ann")/bookstore/book for $j in collection("/joe")/bookstore/book let $t := $a/title '
        "where $a/title eq $j/title return <o>{($a/title, $t)/text()}</o>",
        'for $s in collection("/nested") let $x := $s//s for $j in collection("/joe")/bookstore/book '
        "where $s/s/@n eq substring($j/@id, 2, 1) or exists($x) order by $j/@id return <o>{$x//t}</o>",
        'declare variable $w := ("WEB", "COOKING"); collection("/ann")/bookstore/book[@category = $w]/title',
        'declare variable $w := <c>WEB</c>; for $b in collection("/ann")/bookstore/book '
        "where $b/@category eq $w return $b/title/@lang",
        "declare variable $d := <a/>; declare variable $e := $d; declare function local:f() { $e }; "
        '$d is local:f(), for $b in collection("/ann")/bookstore/book return $e is local:f()',
        'for $b in collection("/ann")/bookstore/book count $c group by $k := $c mod 2 order by $k return sum($c)',
        'declare variable $none := (); for $b in collection("/ann")/bookstore/book where not($none) return $b/@id',
    ],
)
def test_nodes_that_belong_together_stay_together(query: str, collections: dict[str, Collection]):
    check(query, collections)


@pytest.mark.parametrize(
    ("condition", "joined"),
    [
        ("$a/title eq $b/title", True),
        ("xs:integer($a/year) eq xs:decimal($b/year)", True),
        ('contains($a/title, "Harry") eq exists($b/price)', True),
        ("xs:double($a/price) = $b/price", True),
        ('xs:date(concat($a/year, "-01-01")) eq xs:date(concat($b/year, "-01-01"))', True),
        ("xs:float($a/price) eq xs:decimal($b/price)", False),
    ],
)
def test_keys_of_every_kind_find_what_the_condition_says(
    condition: str, joined: bool, collections: dict[str, Collection]
):
    """A float makes decimals equal to it that have other keys: such pairs are found by the condition alone."""
    query = (
        'for $a in collection("/ann")/bookstore/book for $b in collection("/ann")/bookstore/book '
        f"where exists($a/price) and exists($b/price) and {condition} return concat($a/@id, $b/@id)"
    )
    check(query, collections)
    local = Local(collections)
    assert len(local.items(query)) >= 3
    assert ("join" in local.used) == joined


def test_a_group_needs_columns_only(collections: dict[str, Collection]):
    query = """for $r in collection("/sensors")/dataCollection/data
               group by $kind := string($r/dataType) order by $kind
               return ($kind, count($r), max($r/value))"""
    local = Local(collections)
    check(query, collections)
    assert local.items(query)[:3] == ["AWND", "3", "600"]
    assert local.used == {"columns", "rest"}


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        (WEATHER["q2_extreme_wind"], {"columns"}),
        (WEATHER["q4_highest_temperature"], {"columns", "aggregate", "rest"}),
        (WEATHER["q5_washington_readings"], {"columns", "tuples", "join"}),
        (WEATHER["q8_daily_difference"], {"columns", "join", "rest"}),
        ('collection("/ann")/bookstore/book/..', {"one task"}),
        ('collection("/ann")/bookstore/book union collection("/joe")/bookstore/book', {"one task"}),
    ],
)
def test_how_queries_are_executed(query: str, kinds: set[str], collections: dict[str, Collection]):
    local = Local(collections)
    local.items(query)
    assert local.used == kinds


def test_an_error_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(XQueryError("FORG0001", "'x' is not a number", 3, 7)))  # noqa: S301  (our own)
    assert (error.code, error.line, error.column) == ("FORG0001", 3, 7)
    assert str(error) == "[FORG0001] 'x' is not a number (line 3, column 7)"
