"""Characters that may stand in text, begin a name and continue one: every border of the productions of XML 1.0."""

from __future__ import annotations

from tests.xquery.scan import fuzz

TEXT = [(0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF)]
START = [(0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2FF), (0x370, 0x37D)]
START += [(0x37F, 0x1FFF), (0x200C, 0x200D), (0x2070, 0x218F), (0x2C00, 0x2FEF), (0x3001, 0xD7FF), (0xF900, 0xFDCF)]
START += [(0xFDF0, 0xFFFD), (0x10000, 0xEFFFF)]
NAME = [*START, (0x2D, 0x2E), (0x30, 0x39), (0xB7, 0xB7), (0x300, 0x36F), (0x203F, 0x2040)]
"""The fifth edition's productions Char, NameStartChar and NameChar, without the colon of namespaces."""

BORDERS = sorted(
    {c + d for low, high in [*TEXT, *NAME] for c in (low, high) for d in (-1, 0, 1)} - {0x3A, 0x2F, 0x110000}
)


def _allowed(c: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= c <= high for low, high in ranges)


def _encoded(c: int) -> bytes:
    return chr(c).encode("utf-8", "surrogatepass")


def test_characters_of_text_values_and_references() -> None:
    for c in (c for c in BORDERS if chr(c) not in "<&'"):
        for document in (b"<a>" + _encoded(c) + b"</a>", b"<a x='" + _encoded(c) + b"'/>", b"<a>&#x%x;</a>" % c):
            assert (fuzz.refusal(document) is None) == _allowed(c, TEXT), (hex(c), document)


def test_characters_of_names() -> None:
    for c in (c for c in BORDERS if chr(c) not in "\t\n\r />!?="):
        assert (fuzz.refusal(b"<" + _encoded(c) + b"/>") is None) == _allowed(c, START), hex(c)
        assert (fuzz.refusal(b"<a" + _encoded(c) + b"/>") is None) == _allowed(c, NAME), hex(c)
        assert (fuzz.refusal(b"<?a" + _encoded(c) + b"?><a/>") is None) == _allowed(c, NAME), hex(c)


def test_bytes_that_are_not_utf8() -> None:
    wrong = [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xc3",
        b"\xc3x",
        b"\xe0\x80\x80",
        b"\xe0\x9f\xbf",
        b"\xe2\x82",
        b"\xed\xa0\x80",
    ]
    wrong += [
        b"\xf0\x80\x80\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xfe",
        b"\xff",
        b"\xf0\x9d\x84",
    ]
    for each in wrong:
        for document in (
            b"<a>" + each + b"</a>",
            b"<a x='" + each + b"'/>",
            b"<!--" + each + b"--><a/>",
            b"<a" + each + b"/>",
        ):
            for block in (1, 1 << 18):
                assert fuzz.refusal(document, block) is not None, document
