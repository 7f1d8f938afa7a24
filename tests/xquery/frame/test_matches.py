"""Queries over no, one and many matches on Spark, in every way of execution, against SaxonC-HE.

Adaptive execution is on: it drops exchanges that no row passes, and what runs after them must run all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import pytest
from bench.rivals.saxon import Saxon, located
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import XQueryError
from dovetail.xml.api import plan_xquery

A, B = 'collection("a")/r/e', 'collection("b")/r/e'
SHAPES = {
    "path": f'{A}[k eq "KIND"]/v',
    "whole documents": 'collection("a")//e[k = "KIND"]/v',
    "constructed": f'(for $e in {A} where $e/k eq "KIND" return <w>{{$e/v/text()}}</w>)',
    "join": f'(for $e in {A} for $f in {B} where $e/k eq $f/k and $e/k eq "KIND" return $e/v)',
    "join of doubles": f'(for $e in {A} for $f in {B} where $e/k eq $f/k and $e/k eq "KIND" return $e/v - $f/v)',
    "no equality": f'(for $e in {A} for $f in {B} where $e/k eq "KIND" and $f/k eq "KIND" and $e/v < $f/v return $e/v)',
    "ordered": f'(for $e in {A} where $e/k eq "KIND" order by xs:integer($e/v) descending return $e/v)',
    "groups": f'(for $e in {A} where $e/k eq "KIND" group by $i := string($e/i) order by $i return count($e))',
}
"""Sequences X: the element k says how many there are."""
KINDS, WAYS = ("none", "one", "many"), ("auto", "tuples", "one_task")
EXPRESSIONS = """
    X; count(X); sum(X); avg(X); max(X); min(X); exists(X); empty(X); not(exists(X)); boolean((X)[1]); sum(X, "zero")
    every $x in X satisfies $x > 3; some $x in X satisfies $x > 3; if (exists(X)) then 1 else 2; string-join(X, "+")
    X = 3; not(X = 3); count(X) eq 0; (X, "end"); (count(X), sum(X)); max((0, X)); (X)[last()]; string((X)[1])
    distinct-values(X ! string(.)); deep-equal(X, ()); count((X, 1)); <r>{X}</r>; <r n="{count(X)}">{exists(X)}</r>
    for $i in 1 to 2 return count(X); let $x := X return ($x, count($x)); for $x in X count $c return $c
    for $x in X group by $g := string($x) order by $g return ($g, count($x)); for $x in X order by $x return <i>{$x}</i>
    typeswitch (X) case empty-sequence() return "none" default return "some"
    switch (count(X)) case 0 return "none" case 1 return "one" default return "many"
    try { exactly-one((X)[1]) } catch * { "error" }
"""


def queries(shape: str, kind: str) -> list[str]:
    each = [one.strip() for line in EXPRESSIONS.splitlines() for one in line.split(";") if one.strip()]
    return [one.replace("X", SHAPES[shape].replace("KIND", kind)) for one in each]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two collections of three files each; all matches are in one file, as Saxon reads files in any order."""
    home = tmp_path_factory.mktemp("matches")
    kinds = {"a": ["one", "many", "other", "many", "many"], "b": ["many", "one", "different"]}
    for name, found in kinds.items():
        (home / name).mkdir()
        body = "".join(f"<e><i>{n % 2}</i><k>{kind}</k><v>{n + 3}</v></e>" for n, kind in enumerate(found))
        for file, inside in {"0": "", "1": body, "2": "<e><i>9</i><k>last</k><v>9</v></e>"}.items():
            (home / name / f"{file}.xml").write_text(f"<r>{inside}</r>")
    return {name: str(home / name) for name in kinds}


@pytest.fixture(scope="module")
def saxon() -> Iterator[Saxon]:
    with Saxon() as process:
        yield process


def canonical(items: list[str]) -> list[str]:
    return [canonicalize(item, strip_text=True) if item.startswith("<") else item for item in items]


def answers(frames: list[DataFrame]) -> list[list[str]]:
    """What each frame gives, from one job."""
    numbered = [frame.select(F.lit(number).alias("query"), "item") for number, frame in enumerate(frames)]
    found: list[list[str]] = [[] for _ in frames]
    for number, item in reduce(DataFrame.union, numbered).collect():
        found[number].append(item)
    return found


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("shape", "kind", "way"), [*product(SHAPES, KINDS, WAYS)])
def test_any_number_of_matches(
    spark: SparkSession, places: dict[str, str], saxon: Saxon, shape: str, kind: str, way: str
):
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    asked = queries(shape, kind)
    found = answers([plan_xquery(spark, one, places, route=way).frame() for one in asked])
    addresses = {name: Path(place) for name, place in places.items()}
    for query, items in zip(asked, found, strict=True):
        assert canonical(items) == canonical(saxon.items(located(query, addresses))), query


@pytest.mark.parametrize(("adaptive", "partitions"), [("true", 1), ("false", 2)])
def test_no_matches_without_adaptive_execution_and_in_one_task(
    spark: SparkSession, places: dict[str, str], adaptive: str, partitions: int
):
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        x = SHAPES["join"].replace("KIND", "none")
        asked = [f"count({x})", f"<r>{{{x}}}</r>", f"({x}, 1)", f"sum({SHAPES['join of doubles']})"]
        found = answers([dovetail.xquery(spark, one, places, partitions=partitions) for one in asked])
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    assert found == [["0"], ["<r/>"], ["1"], ["0"]]


def test_columns_over_no_matches(spark: SparkSession, places: dict[str, str]):
    for body, rows in (("return (1, data($e/v))", []), ("order by $e/v return (1, data($e/v))", [])):
        frame = dovetail.xquery(spark, f'for $e in {A} where $e/k eq "none" {body}', places, output="columns")
        assert frame.collect() == rows
    counted = dovetail.xquery(spark, f'for $n in count({A}[k eq "none"]) return ($n, 1)', places, output="columns")
    assert [tuple(row) for row in counted.collect()] == [(0, 1)]


def test_all_files_skipped(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r>")
    for query, answer in {'count(collection("c")/r)': ["0"], '<r>{collection("c")//v}</r>': ["<r/>"]}.items():
        frame = dovetail.xquery(spark, query, {"c": tmp_path}, on_error="skip")
        assert [row.item for row in frame.collect()] == answer


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (f'exactly-one({A}[k eq "none"])', "FORG0005"),
        (f'exactly-one({A}[k eq "many"]/v)', "FORG0005"),
        (f"one-or-more({SHAPES['join'].replace('KIND', 'none')})", "FORG0004"),
        (f'<r>{{zero-or-one({A}[k eq "many"]/v)}}</r>', "FORG0003"),
        (f'{A}[k eq "none"]/v cast as xs:string', "XPTY0004"),
    ],
)
def test_a_wrong_number_of_matches_is_an_error(spark: SparkSession, places: dict[str, str], query: str, code: str):
    with pytest.raises(XQueryError) as caught:
        dovetail.xquery(spark, query, places).collect()
    assert caught.value.code == code
