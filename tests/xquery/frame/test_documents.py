"""`doc` opens documents of the collections and what was allowed, and a document unpacks inside the budget."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dovetail
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, PlanError, XQueryError
from dovetail.xml.execute.tasks import CollectionFiles, read_document
from dovetail.xml.request import XQueryOptions
from dovetail.xml.scan.files import address_of, collection_of, local_paths
from dovetail.xml.xdm.markup import serialise

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
    with pytest.raises(BudgetExceeded, match=r"bomb\.xml\.gz is read as a whole and has more than 1 MiB"):
        read_document(str(file), 1 << 20)
    small = tmp_path / "small.xml.gz"
    small.write_bytes(gzip.compress(b"<r>" + b"x" * 1000 + b"</r>"))
    assert serialise(read_document(str(small), 1007)) == f"<r>{'x' * 1000}</r>"
    with pytest.raises(BudgetExceeded):
        read_document(str(small), 1006)
    assert address_of(f"file://{small}") == str(small.resolve())
