"""Values that a query formats, copies and compares are the same on Spark as the standard says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.xquery.conformance.suite import tidy

import dovetail

DOCUMENT = """<r xmlns:p="u" xmlns:q="u">
  <q:i q:k="1"><v>12345678901234567890123456789012345678.125</v><d>2003-09-07T09:05:06.456-05:00</d></q:i>
  <p:i p:k="2"><v>-0.5</v><d>2012-12-31T23:59:59.999Z</d></p:i>
</r>"""
ITEMS = 'for $i in collection("/c")/r/*:i '
ANSWERS = {
    "$i": [
        '<q:i xmlns:q="u" xmlns:p="u" q:k="1"><v>12345678901234567890123456789012345678.125</v>'
        "<d>2003-09-07T09:05:06.456-05:00</d></q:i>",
        '<p:i xmlns:p="u" xmlns:q="u" p:k="2"><v>-0.5</v><d>2012-12-31T23:59:59.999Z</d></p:i>',
    ],
    "name($i)": ["q:i", "p:i"],
    "$i/@*/name()": ["q:k", "p:k"],
    "<b>{element {node-name($i)} {string($i/@*:k)}}</b>": [
        '<b><q:i xmlns:q="u">1</q:i></b>',
        '<b><p:i xmlns:p="u">2</p:i></b>',
    ],
    "name(<b>{$i}</b>/*)": ["q:i", "p:i"],
    '<e xmlns:x="y">{namespace-uri-from-QName(xs:QName(concat("x:", $i/@*:k/local-name())))}</e>': [
        '<e xmlns:x="y">y</e>'
    ]
    * 2,
    "abs(xs:decimal($i/v))": ["12345678901234567890123456789012345678.125", "0.5"],
    "-xs:decimal($i/v)": ["-12345678901234567890123456789012345678.125", "0.5"],
    'format-number(xs:decimal($i/v), "#,##0.00")': ["12,345,678,901,234,567,890,123,456,789,012,345,678.12", "-0.50"],
    'format-dateTime(xs:dateTime($i/d), "[D1o] [MNn,3-3] [Y01] [H01]:[m].[f,2-2] [Z0]")': [
        "7th Sep 03 09:05.45 -5",
        "31st Dec 12 23:59.99 +0",
    ],
    'replace($i/d, "(x)?[\\d-[0]]", "#$1")': ["#00#-0#-0#T0#:0#:0#.###-0#:00", "#0##-##-##T##:##:##.###Z"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("values") / "one.xml"
    Path(file).write_text(DOCUMENT)
    return {"/c": str(file.parent)}


@pytest.mark.parametrize("order", ["", "order by $i/@*:k "])
def test_values(spark: SparkSession, place: dict[str, str], order: str) -> None:
    wrong = {}
    for result, expected in ANSWERS.items():
        found = [row.item for row in dovetail.xquery(spark, f"{ITEMS}{order}return {result}", place).collect()]
        if list(map(tidy, found)) != list(map(tidy, expected)):
            wrong[result] = found
    assert not wrong
