from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.engine.metrics import Metrics
from dovetail.errors import XQueryError
from dovetail.xml.execute.tasks import CollectionFiles
from dovetail.xml.xdm.markup import parse_xml, serialise

BOMB = (
    '<!DOCTYPE a [<!ENTITY x0 "xxxxxxxxxx">'
    + "".join(f'<!ENTITY x{at} "{f"&x{at - 1};" * 10}">' for at in range(1, 12))
    + "]>"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "declares the entity 'x'"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "{secret}">]><a>&x;</a>', "declares the entity 'x'"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "{secret}">]><a/>', "declares the entity 'x'"),
        ('<!DOCTYPE a SYSTEM "{secret}"><a/>', "external DTD"),
        ('<!DOCTYPE a PUBLIC "p" "http://127.0.0.1:1/a.dtd"><a/>', "external DTD"),
        ('<!DOCTYPE a [<!ENTITY % p SYSTEM "{secret}"> %p;]><a/>', "declares the entity 'p'"),
        (BOMB + "<a>&x11;</a>", "f.xml"),
        (BOMB + '<a b="&x11;"/>', "f.xml"),
        ("<a>&undeclared;</a>", "f.xml, line 1"),
        ("<a>\n<b></a>", "f.xml, line 2"),
        ("", "f.xml"),
        ("<a/><b/>", "f.xml, line 1"),
    ],
)
def test_dangerous_and_malformed_documents_are_refused(text: str, message: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    with pytest.raises(XQueryError, match="FODC0006") as caught:
        parse_xml(text.replace("{secret}", secret.as_uri()), "f.xml")
    assert message in str(caught.value)
    assert "the secret" not in str(caught.value)


def test_a_doctype_without_declarations_is_allowed() -> None:
    assert serialise(parse_xml("<!DOCTYPE a><a>x</a>")) == "<a>x</a>"


def test_everything_of_a_document_is_kept() -> None:
    text = '<!-- before --><?pi x?><a xmlns:p="u" p:b="1">t<!-- in -->u<c/>v</a><!-- after -->'
    assert serialise(parse_xml(text)) == text


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    bad = tmp_path / "bad.xml"
    bad.write_text("<a>\n\n<b></a>")
    files = CollectionFiles({}, False, Metrics(), documents=[str(tmp_path)])
    with pytest.raises(XQueryError, match=r"bad\.xml, line 3"):
        files.doc(str(bad))
    with pytest.raises(XQueryError, match="FODC0002"):
        files.doc(str(tmp_path / "none.xml"))
