"""A scan that keeps rows by their texts gives what is left of all rows, however the document is cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.xquery.scan import fuzz, model
from tests.xquery.scan.documents import Documents

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError, PlanError
from dovetail.xml.scan import ROW, Column, Scanner, ScanRequest, count_name

COLUMNS = (
    Column("kind", ("k",)),
    Column("at", ("@i",)),
    Column("many", ("v",), "text", True),
    Column("own", ()),
    Column("xml", (), "xml"),
    Column("inner", ("v",), "xml", True),
)
REQUEST = ScanRequest(("r", "e"), COLUMNS)
DOCUMENT = b"""<r><e i='1'><k>a</k><v>1</v></e><e i='2'><k>b</k><v>2</v><v>3<w/></v></e><e i='3'/>
<e><k>a</k><k>b</k></e><x><e><k>a</k></e></x><e i='1'><v>&lt;</v><k>a</k></e><e i='6'><k><![CDATA[a]]></k></e>
<e><k/></e><e i='1'>a</e></r>"""


def left(rows: list[dict[str, object]], request: ScanRequest) -> Iterator[dict[str, object]]:
    """What `keep` says: a row with several texts stays, and is not asked further."""
    for row in rows:
        for name, text in request.keep:
            many = isinstance(row[name], list)
            count = len(row[name]) if many else row[count_name(name)]  # type: ignore[arg-type]  # a list
            if count > 1:  # type: ignore[operator]  # a number
                yield row
                break
            if count == 0 or (row[name][0] if many else row[name]) != text:  # type: ignore[index]  # a list
                break
        else:
            yield row


def kept(document: bytes, request: ScanRequest) -> list[dict[str, object]]:
    found = left(model.rows(document, replace(request, keep=())), request)
    return [row | {ROW: number} for number, row in enumerate(found)]


@pytest.mark.parametrize(
    ("keep", "ids"),
    [
        ((("kind", "a"),), ["1", None, "1", "6"]),
        ((("kind", "a"), ("at", "1")), ["1", None, "1"]),
        ((("kind", ""),), [None, None]),
        ((("at", "1"),), ["1", "1", "1"]),
        ((("many", "1"),), ["1", "2"]),
        ((("own", "a"),), ["6", "1"]),
        ((("kind", "none"),), [None]),
    ],
)
def test_rows_are_kept_by_their_texts(keep: tuple[tuple[str, str], ...], ids: list[str | None]) -> None:
    request = replace(REQUEST, keep=keep)
    assert [row["at"] for row in kept(DOCUMENT, request)] == ids
    for block in (1, 7, 64, 1 << 18):
        with fuzz.blocks_of(block):
            assert fuzz.scanned(DOCUMENT, request) == kept(DOCUMENT, request)


def test_random_documents() -> None:
    for seed in range(60):
        document = Documents(seed).document().encode()
        every = ScanRequest(("*", "*"), (Column("t", ()), Column("x", (), "xml"), Column("b", ("*",), "text", True)))
        texts = [row["t"] for row in model.rows(document, every)]
        for text in dict.fromkeys([*texts[:2], "x"]):
            request = replace(every, keep=(("t", str(text)),))
            with fuzz.blocks_of((1, 50, 1 << 18)[seed % 3]):
                assert fuzz.scanned(document, request) == kept(document, request)


def test_one_scanner_for_many_documents() -> None:
    budget = MemoryBudget("2MB")
    scanner = Scanner(replace(REQUEST, keep=(("kind", "a"),)), budget)
    for turn in range(4):
        found = [row for batch in scanner.batches([DOCUMENT], "d") for row in batch.to_pylist()]
        assert found == kept(DOCUMENT, scanner.request)
        assert scanner.dropped == 4 * (turn + 1)
        with pytest.raises(DataError, match=r"wrong, line 3"):
            list(scanner.batches([DOCUMENT[:-4]], "wrong"))
        strange = b"<r xmlns:p='u'>" + b"".join(b"<p:n%d/>" % n for n in range(1200)) + b"<e><k>a</k></e></r>"
        assert [b.num_rows for b in scanner.batches([strange], "s")] == [1]
        next(scanner.batches([DOCUMENT], "left alone"))
    assert budget.peak <= budget.limit


def test_requests_that_cannot_keep() -> None:
    for wrong in ({"keep": (("no", "x"),)}, {"keep": (("xml", "x"),)}):
        with pytest.raises(PlanError, match="own columns of texts"):
            ScanRequest(("r", "e"), COLUMNS, **wrong)  # type: ignore[arg-type]  # what is tested
