"""Scans that begin at any depth: matches may lie inside matches, and still come in document order."""

from __future__ import annotations

import pytest
from lxml import etree
from tests.xquery.scan import fuzz
from tests.xquery.scan.documents import Documents

from dovetail.errors import PlanError
from dovetail.xml.scan import Column, ScanRequest

COLUMNS = (Column("text", ()), Column("x", ("@x",)), Column("child", ("v",), "xml", many=True))


@pytest.mark.parametrize("path", [("a",), ("*",), ("r", "v"), ("*", "b"), ("{u1}a",), ("*", "*")])
def test_rows_are_those_of_xpath(path: tuple[str, ...]) -> None:
    steps = "/".join(
        "*" if s == "*" else f"*[local-name()='{s.split('}')[-1]}' and namespace-uri()='{s[1:3] if '{' in s else ''}']"
        for s in path
    )
    for seed in range(25):
        document = Documents(seed).document().encode()
        found = fuzz.scanned(document, ScanRequest(path, COLUMNS, anywhere=True))
        wanted = etree.fromstring(document).xpath(f"//{steps}")
        assert [row["#row"] for row in found] == list(range(len(wanted)))
        assert [row["text"] for row in found] == [node.xpath("string()") for node in wanted]
        assert [row["x"] for row in found] == [node.get("x") for node in wanted]
        assert [len(row["child"]) for row in found] == [len(node.findall("v")) for node in wanted]  # type: ignore[arg-type]  # a list


def test_at_most_two_steps() -> None:
    with pytest.raises(PlanError, match="one or two steps, not 3"):
        ScanRequest(("a", "b", "c"), (), anywhere=True)
