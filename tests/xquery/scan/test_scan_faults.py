"""Refuses input that is not well-formed, not decodable or not safe, with file and line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.xquery.scan import fuzz, model
from tests.xquery.scan.documents import Documents

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import ConfigError, DataError
from dovetail.xml.scan import Column, Scanner, ScanRequest, check, open_chunks

REQUEST = ScanRequest(("a",), (Column("t", ()), Column("x", (), "xml")))

WRONG = [
    (b"<a>\n<b></c></a>", 2, "does not match"),
    (b"<a></a>\n</b>", 2, "without a start tag"),
    (b"<a>\n", 2, "ends too early"),
    (b"\n", 2, "ends too early"),
    (b"", 1, "ends too early"),
    (b"<a/>\n<b/>", 2, "second root"),
    (b"<a/>\nx", 2, "outside the root"),
    (b"<a/><![CDATA[]]>", 1, "outside the root"),
    (b"<a>\n&x;</a>", 2, "not declared"),
    (b"<a>&#0;</a>", 1, "reference"),
    (b"<a>&#xD800;</a>", 1, "reference"),
    (b"<a>& </a>", 1, "reference"),
    (b"<a>]]></a>", 1, "']]>'"),
    (b"<a>\x01</a>", 1, "character"),
    (b"<a>\xff</a>", 1, "UTF-8"),
    (b"<a>\xed\xa0\x80</a>", 1, "UTF-8"),
    (b"<a>\xef\xbf\xbf</a>", 1, "character"),
    (b"<a x='1' x='2'/>", 1, "twice"),
    (b"<a xmlns:p='u' xmlns:q='u' p:x='1' q:x='2'/>", 1, "twice"),
    (b"<a x='<'/>", 1, "'<'"),
    (b"<a x=1/>", 1, "attribute"),
    (b"<a x='1'y='2'/>", 1, "attribute"),
    (b"<a x/>", 1, "attribute"),
    (b"<a><!-- -- --></a>", 1, "'--'"),
    (b"<p:a/>", 1, "bound to no namespace"),
    (b"<a p:x=''/>", 1, "bound to no namespace"),
    (b"<a xmlns:p=''/>", 1, "declaration"),
    (b"<a xmlns:xml='u'/>", 1, "declaration"),
    (b"<a xmlns:xmlns='u'/>", 1, "declaration"),
    (b"<a xmlns='http://www.w3.org/2000/xmlns/'/>", 1, "declaration"),
    (b"<xmlns:a/>", 1, "name"),
    (b"<a:b:c xmlns:a='u'/>", 1, "name"),
    (b"<a:/>", 1, "name"),
    (b"<1a/>", 1, "markup"),
    ("<a×/>".encode(), 1, "name"),
    (b"<a><?xml version='1.0'?></a>", 1, "instruction"),
    (b" <?xml version='1.0'?><a/>", 1, "instruction"),
    (b"<?xml version='2.0'?><a/>", 1, "XML declaration"),
    (b"<?xml encoding='UTF-8'?><a/>", 1, "XML declaration"),
    (b"<?xml version='1.0' encoding='klingon'?><a/>", 1, "encoding"),
    (b"<?xml version='1.0' encoding='utf-16'?><a/>", 1, "encoding"),
    (b"<a><!ELEMENT a ANY></a>", 1, "markup"),
    (b"<a><!DOCTYPE a></a>", 1, "document type"),
    (b"<a", 1, "ends too early"),
    (b"<a/", 1, "ends too early"),
    (b"<a / >", 1, "not closed"),
    (b"< a/>", 1, "markup"),
]

STRICTER = [
    (b"<?xml version='1.0' encoding='utf-7'?><a/>", 1, "encoding"),  # libxml2 takes what iconv takes
    (b"\xef\xbb\xbf<?xml version='1.0' encoding='iso-8859-1'?><a/>", 1, "encoding"),  # it believes the mark
]
"""Documents that XML 1.0 calls wrong (section 4.3.3) and libxml2 accepts."""


@pytest.mark.parametrize(("document", "line", "words"), [*WRONG, *STRICTER])
def test_what_is_not_well_formed_is_refused_with_file_and_line(document: bytes, line: int, words: str) -> None:
    for block in (1, 1 << 18):
        with fuzz.blocks_of(block), pytest.raises(DataError) as caught:
            list(Scanner(REQUEST, MemoryBudget("4MB")).batches([document], "x.xml"))
        assert f"x.xml, line {line}: " in str(caught.value)
        assert words in str(caught.value)
    assert bool(fuzz.libxml2_refuses(document)) == ((document, line, words) in WRONG)


LAUGHS = b'<!DOCTYPE a [<!ENTITY l "ha"><!ENTITY m "&l;&l;&l;&l;">]><a>&m;</a>'
UNSAFE = [
    LAUGHS,
    b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    b'<!DOCTYPE a SYSTEM "http://localhost/a.dtd"><a/>',
    b'<!DOCTYPE a PUBLIC "-//x" "http://localhost/a.dtd"><a/>',
    b'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://localhost/p.dtd"> %p;]><a/>',
    b'<!DOCTYPE a [<!ATTLIST a x CDATA "default">]><a/>',
    b"<!DOCTYPE a []><a/>",
]


@pytest.mark.parametrize("document", UNSAFE)
def test_document_types_that_declare_or_fetch_are_refused(document: bytes) -> None:
    with pytest.raises(DataError, match=r"line 1: a document type declaration with .* refused"):
        check([document], MemoryBudget("4MB"))


def test_a_document_type_that_only_names_the_root_is_passed_over() -> None:
    assert fuzz.scanned(b"<!DOCTYPE a ><a>x</a>", REQUEST) == [{"#row": 0, "t": "x", "t#": 1, "x": "<a>x</a>", "x#": 1}]


def test_damaged_documents_are_judged_as_by_libxml2() -> None:
    refused = 0
    for seed in range(120):
        source = Documents(seed)
        damaged = source.damaged(source.document().encode())
        fuzz.judge(damaged, (1, 5, 1 << 18)[seed % 3])
        refused += fuzz.refusal(damaged) is not None
    assert 30 < refused < 115


def test_every_truncated_document_is_refused() -> None:
    document = b"<a x='1'>t<b/><![CDATA[c]]><!--d--><?e f?>&lt;</a>"
    for length in range(len(document)):
        assert fuzz.refusal(document[:length], 3) is not None, document[:length]
    assert fuzz.refusal(document, 3) is None


def test_rows_before_a_fault_are_given_out_and_check_gives_none() -> None:
    document = b"<a>" + b"<b>1</b>" * 20_000 + b"</x>"
    request = ScanRequest(("a", "b"), (Column("t", ()),))
    rows = Scanner(request, MemoryBudget("16MB")).batches([document], "late.xml")
    assert next(rows).num_rows > 0
    with pytest.raises(DataError, match=r"late.xml, line 1: an end tag that does not match"):
        list(rows)
    with pytest.raises(DataError, match="does not match"):
        check([document], MemoryBudget("16MB"))
    check([document.replace(b"</x>", b"</a>")], MemoryBudget("16MB"))


ENCODED: list[tuple[str, Callable[[str], bytes]]] = [
    ("utf-8", lambda text: text.encode()),
    ("utf-8 with mark", lambda text: text.encode("utf-8-sig")),
    ("utf-16", lambda text: f"<?xml version='1.0'\nencoding='UTF-16'?>{text}".encode("utf-16")),
    ("utf-16 big-endian", lambda text: f"\ufeff{text}".encode("utf-16-be")),
    ("utf-16 without mark", lambda text: f"<?xml version='1.0' encoding='UTF-16'?>{text}".encode("utf-16-le")),
    (
        "latin-1",
        lambda text: f"<?xml version='1.0' encoding='ISO-8859-1'?>{text}".encode("latin-1", "xmlcharrefreplace"),
    ),
    (
        "windows",
        lambda text: f'<?xml version="1.0" encoding="windows-1252"?>{text}'.encode("cp1252", "xmlcharrefreplace"),
    ),
    ("ascii", lambda text: f"<?xml version='1.0' encoding='us-ascii'?>{text}".encode("ascii", "xmlcharrefreplace")),
]


@pytest.mark.parametrize("encode", [encode for _, encode in ENCODED], ids=[name for name, _ in ENCODED])
def test_encodings(encode: Callable[[str], bytes], tmp_path: Path) -> None:
    text = "<a>äß € 𝄞 x</a>"
    document = encode(text)
    wanted = model.rows(text.encode(), REQUEST)
    for size in (1, 2, 3, 1000):
        chunks = [document[at : at + size] for at in range(0, len(document), size)]
        assert [r for b in Scanner(REQUEST, MemoryBudget("4MB")).batches(chunks) for r in b.to_pylist()] == wanted
    packed = tmp_path / "a.xml.gz"
    packed.write_bytes(gzip.compress(document[:9]) + gzip.compress(document[9:]) + b"\0\0")
    for uri in (packed, packed.as_uri()):
        assert [
            r for b in Scanner(REQUEST, MemoryBudget("4MB")).batches(open_chunks(uri)) for r in b.to_pylist()
        ] == wanted


def test_bytes_that_are_not_in_the_declared_encoding() -> None:
    document = b"<?xml version='1.0' encoding='us-ascii'?>\n<a>\xe4</a>"
    with pytest.raises(DataError, match="'ascii' codec can't decode"):
        check([document], MemoryBudget("4MB"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    torn = tmp_path / "torn.xml.gz"
    torn.write_bytes(gzip.compress(b"<a>" + bytes(range(48, 90)) * 20 + b"</a>")[:-20])
    with pytest.raises(DataError, match=r"torn.xml.gz cannot be unpacked: .*too early"):
        list(open_chunks(torn))
    torn.write_bytes(gzip.compress(b"<a>" * 99)[:12] + b"\xff" * 30)
    with pytest.raises(DataError, match="cannot be unpacked"):
        list(open_chunks(torn))
    with pytest.raises(ConfigError, match=r"none.xml cannot be read: .*check that it is still there"):
        list(open_chunks(tmp_path / "none.xml"))
    with pytest.raises(ConfigError, match="cannot be read"):
        list(open_chunks(tmp_path))
