"""Serialised elements are those that SaxonC-HE writes."""

# ruff: noqa: E501  (documents are easier to read in one line)
from __future__ import annotations

from pathlib import Path

import saxonche
from tests.xquery.scan import fuzz
from tests.xquery.scan.documents import Documents

from dovetail.xml.scan import Column, ScanRequest

REQUEST = ScanRequest(("*", "*"), (Column("xml", (), "xml"),))
QUERY = 'for $x in doc("{}")/*/* return serialize($x, map {{"method": "xml", "omit-xml-declaration": true()}})'

AWKWARD = [
    '<a xmlns="u" xmlns:z="zz" xmlns:b="bb"><b:c xmlns:q="q" xmlns:b="bb" y="1" z:k=\'a"b\' ><d xmlns="">1</d></b:c></a>',
    "<a><b x='1' y=\"&lt;&gt;&amp;&quot;&apos;'&#9;&#10;&#13;\t\n\x7f\x80\x9f\xa0\u2028\u2029\" ></b></a>",
    "<a><b>&lt;&gt;&amp;\"'&#9;&#10;&#13;\t\r\n\x7f\x80\x85\x9f\xa0\u2028\u2029 \U0001f600<![CDATA[<&>]]]]><![CDATA[>]]></b></a>",
    "<a><b><!-- c & < \r\n \x85 --><?p?><?p   d  e \x85?><?p \t\n?><![CDATA[]]></b><b><![CDATA[]]></b><b><!----></b></a>",
    '<a xml:lang="de"><b xmlns:xml="http://www.w3.org/XML/1998/namespace" xml:space="preserve"/></a>',
    '<a xmlns:p="u1" xmlns:q="u2"><b xmlns:q="u1" xmlns:r="u4"><c xmlns:p="u9" xmlns:q="u2" xmlns:r="u4" xmlns="d"/></b></a>',
    '<a xmlns:é="1" xmlns:zz="q" xmlns:B="3" xmlns:a10="3" xmlns:a9="e" xmlns:A="w" xmlns:a-b="s" xmlns:a="u"><b/></a>',
    "<a><b ><c  /><c\n></c\n></b\t></a>",
]


def test_elements_are_serialised_as_saxon_does(tmp_path: Path) -> None:
    processor = saxonche.PySaxonProcessor(license=False).new_xquery_processor()
    for number, document in enumerate([*AWKWARD, *(Documents(seed).document() for seed in range(40))]):
        path = tmp_path / f"{number}.xml"
        path.write_bytes(document.encode())
        processor.set_query_content(QUERY.format(path.as_uri()))
        value = processor.run_query_to_value()
        wanted = [value.item_at(i).string_value for i in range(value.size)] if value is not None else []
        for block in (1, 1 << 18):
            with fuzz.blocks_of(block):
                assert [row["xml"] for row in fuzz.scanned(document.encode(), REQUEST)] == wanted, document
