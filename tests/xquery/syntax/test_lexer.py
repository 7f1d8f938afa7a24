from __future__ import annotations

import pytest

from dovetail.errors import XQueryError
from dovetail.xml.syntax.reader import Lexer


def kinds(text: str) -> list[str]:
    lexer, found = Lexer(text), []
    while (token := lexer.take()).kind != "end":
        found.append(token.kind if token.kind == token.text else f"{token.kind}:{token.text}")
    return found


def test_names_numbers_and_symbols() -> None:
    assert kinds("$a-1 a:b a:* *:b 1 1.5 .5 1e3 'x' Q{u}n") == [
        "$", "name:a-1", "name:a:b", "wildcard:a:*", "wildcard:*:b", "integer:1", "decimal:1.5", "decimal:.5",
        "double:1e3", "string:'x'", "braced:Q{u}n",
    ]  # fmt: skip
    assert kinds("child::a//b[1]<<c") == [
        "name:child",
        "::",
        "name:a",
        "//",
        "name:b",
        "[",
        "integer:1",
        "]",
        "<<",
        "name:c",
    ]


def test_comments_nest_and_places_are_counted() -> None:
    lexer = Lexer("(: one (: two :)\n :) a\r\n  b")
    first, second = lexer.take(), lexer.take()
    assert (lexer.place(first.start), lexer.place(second.start)) == ((2, 5), (3, 3))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a (: b", "XPST0003", (1, 3)),
        ("\n 'x", "XPST0003", (2, 2)),
        ("1a", "XPST0003", (1, 2)),
        ("§", "XPST0003", (1, 1)),
    ],
)
def test_mistakes_have_a_code_and_a_place(text: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(XQueryError) as caught:
        kinds(text)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, *place)


def test_references_in_text() -> None:
    assert Lexer("").unescape("&lt;&#65;&#x1F600;&amp;", 0) == "<A\U0001f600&"
