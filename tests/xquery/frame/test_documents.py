"""`doc` opens documents of the collections and what was allowed, and a document unpacks inside the budget."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dovetail
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, PlanError, XQueryError
from dovetail.xml.execute import tasks
from dovetail.xml.execute.tasks import CollectionFiles, read_document
from dovetail.xml.request import XQueryOptions
from dovetail.xml.scan.files import address_of, collection_of, local_paths
from dovetail.xml.xdm.markup import parse_xml, serialise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOSED = r"FODC0002.* is in no collection, so it is not opened; allow it with documents="


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("in/a.xml", "in/deep/b.xml", "out/c.xml", "out/deep/d.xml", "outer/e.xml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"<r>{Path(name).stem}</r>")
    return tmp_path


def opened(place: Path, uri: str, *documents: str | Path) -> str:
    found = collection_of("/in", str(place / "in"), local_paths(str(place / "in")) or [])
    allowed = XQueryOptions(documents=documents).request().documents
    document = CollectionFiles({"/in": found}, False, Metrics(), documents=allowed).doc(uri)
    return serialise(document)


def test_documents_of_a_collection_are_open(place: Path) -> None:
    for uri in (str(place / "in" / "a.xml"), f"file://{place}/in/a.xml", f"{place}/out/../in/a.xml"):
        assert opened(place, uri) == "<r>a</r>"


def test_others_are_not(place: Path) -> None:
    (place / "in" / "link.txt").symlink_to(place / "out" / "c.xml")  # a name in the directory, and no document of it
    for uri in (f"{place}/out/c.xml", f"file://{place}/out/c.xml", f"{place}/in/../out/c.xml", f"{place}/in/link.txt"):
        with pytest.raises(XQueryError, match=CLOSED):
            opened(place, uri)
    with pytest.raises(XQueryError, match="there is no document"):
        opened(place, f"{place}/in/none.xml")


def test_what_is_allowed_is_open(place: Path) -> None:
    assert opened(place, f"{place}/out/c.xml", place / "out" / "c.xml") == "<r>c</r>"
    assert opened(place, f"{place}/out/deep/d.xml", place / "out") == "<r>d</r>"
    for uri in (f"{place}/outer/e.xml", f"{place}/out/../outer/e.xml"):
        with pytest.raises(XQueryError, match=CLOSED):
            opened(place, uri, place / "out")
    for uri in ("s3://bucket/other/x.xml", "s3://bucket/in/../x.xml", "s3://bucket/inner/x.xml"):
        with pytest.raises(XQueryError, match=CLOSED):
            opened(place, uri, "s3://bucket/in")
    with pytest.raises(PlanError, match="documents='x' must be a list"):
        XQueryOptions(documents="x").request()


OPTIONS = "endpoint_override=127.0.0.1:1&scheme=http&region=x"


@pytest.mark.parametrize("end", [f"?{OPTIONS}", f"/?{OPTIONS}", "#x", f"#?{OPTIONS}", f"?{OPTIONS}#/"])
@pytest.mark.parametrize("scheme", ["s3", "s3a", "hdfs", "gs"])
def test_an_address_of_a_query_cannot_name_its_server(
    place: Path, scheme: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(tasks, "read_document", lambda uri, memory, stores: read.append(uri) or parse_xml("<r/>"))
    inside = f"{scheme}://bucket/in/x.xml"
    with pytest.raises(XQueryError, match=r"FODC0002.* has a '\?' or '#', .* so it is not opened; leave it out"):
        opened(place, f"{inside}{end}", f"{scheme}://bucket/in")
    with pytest.raises(XQueryError, match=CLOSED):
        opened(place, f"{scheme}://bucket/in/%2e%2E/x.xml", f"{scheme}://bucket/in")
    assert read == []
    assert opened(place, inside, f"{scheme}://bucket/in") == "<r/>"
    assert opened(place, f"{inside}{end}", f"{inside}{end}") == "<r/>"  # the program itself says so
    assert read == [inside, f"{inside}{end}"]


def test_local_names_may_have_any_character(place: Path) -> None:
    for name in ("a?b.xml", "a#b.xml", "%2e%2e"):
        (place / "out" / name).write_text("<r>odd</r>")
        assert opened(place, str(place / "out" / name), place / "out") == "<r>odd</r>"


def test_a_query_opens_what_it_may(spark: SparkSession, place: Path) -> None:
    """Also in tasks that read no collection by name, and as the context item."""
    inside, outside = f"{place}/in/deep/b.xml", f"{place}/out/c.xml"
    given = {"/in": str(place / "in")}
    query = f'for $r in collection("/in")/r return concat($r, doc("{inside}")/r)'
    assert sorted(row.item for row in dovetail.xquery(spark, query, given).collect()) == ["ab", "bb"]
    query = f'for $r in collection("/in")/r return concat($r, doc-available("{outside}"))'
    assert sorted(row.item for row in dovetail.xquery(spark, query, given).collect()) == ["afalse", "bfalse"]
    allowed = dovetail.xquery(spark, query, given, documents=[place / "out"])
    assert sorted(row.item for row in allowed.collect()) == ["atrue", "btrue"]
    with pytest.raises(XQueryError, match=CLOSED):
        dovetail.xquery(spark, f'doc("{outside}")/r').collect()
    assert [row.item for row in dovetail.xquery(spark, "/r", context=outside).collect()] == ["<r>c</r>"]


def test_a_gzip_document_unpacks_inside_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "bomb.xml.gz"
    text = b"<r>" + b" " * (64 << 20) + b"</r>"
    file.write_bytes(gzip.compress(text))
    assert file.stat().st_size < 100_000
    with pytest.raises(
        BudgetExceeded, match=r"bomb\.xml\.gz is read as a whole, and with its tree has more than 1 MiB"
    ):
        read_document(str(file), 1 << 20)
    small = tmp_path / "small.xml.gz"
    small.write_bytes(gzip.compress(b"<r>" + b"x" * 1000 + b"</r>"))
    assert serialise(read_document(str(small), 3500)) == f"<r>{'x' * 1000}</r>"
    with pytest.raises(BudgetExceeded):
        read_document(str(small), 3000)
    assert address_of(f"file://{small}") == str(small.resolve())


DENSE = ("<a/>", "x<a/>", "<a>x</a>", '<a b="c"/>', "<a b = 'c' c\t=\n''/>", "<!---->", "<?a?>x")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "iso-8859-2", "cp037", "utf-7"])
@pytest.mark.parametrize("unit", DENSE)
def test_a_dense_tree_is_refused_before_it_is_built(
    tmp_path: Path, unit: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node takes 120 bytes, an attribute with its value 230, however few bytes they have in the file."""
    head = "" if encoding == "utf-16" else f'<?xml version="1.0" encoding="{encoding}"?>'
    file, built = tmp_path / "dense.xml.gz", list[str]()
    file.write_bytes(gzip.compress(f"{head}<r>{unit * 10_000}</r>".encode(encoding)))
    monkeypatch.setattr(tasks, "parse_xml", lambda data, uri: built.append(uri))
    values = unit.count("=")
    nodes = unit.count("<") - unit.count("</") + ("x" in unit)
    with pytest.raises(BudgetExceeded, match="give more memory=, or leave it out"):
        read_document(str(file), (120 * nodes + 230 * values) * 10_000)
    assert built == []
    read_document(str(file), 40_000_000)
    assert built == [str(file)]


def test_a_tree_fits_into_the_budget_that_it_is_given(tmp_path: Path) -> None:
    """The text of an ordinary document is small beside its tree, and content with many '=' is none."""
    file = tmp_path / "a.xml"
    file.write_text(
        "<r>" + '<item id="7"><name>some name</name><at>http://h/?a=1&amp;b=2</at></item>\n' * 1000 + "</r>"
    )
    read_document(str(file), 1_400_000)
    with pytest.raises(BudgetExceeded):
        read_document(str(file), 1_000_000)
