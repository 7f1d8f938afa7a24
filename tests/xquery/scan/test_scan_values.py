"""A scan by path: rows, values and their order, against the plain model; blocks cut anywhere; small budgets."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest
from tests.compiled import compiled_signatures
from tests.xquery.scan import fuzz, model
from tests.xquery.scan.documents import Documents

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.workloads.weather import Weather
from dovetail.xml.scan import Column, Scanner, ScanRequest, open_chunks

BOOKS = b"""<?xml version="1.0"?>
<bookstore><book id="1"><title lang="en">Everyday &amp; Italian</title><author>Giada</author></book>
<book id="2"><title lang="de">Harry <b>P</b>otter</title><!-- none --></book><dvd><title>x</title></dvd></bookstore>"""


def test_the_sample_document_of_the_source() -> None:
    request = ScanRequest(
        ("bookstore", "book"),
        (
            Column("title", ("title",)),
            Column("lang", ("title", "@lang"), many=True),
            Column("author", ("author",), "xml"),
        ),
    )
    assert fuzz.scanned(BOOKS, request) == [
        {
            "#row": 0,
            "title": "Everyday & Italian",
            "title#": 1,
            "lang": ["en"],
            "author": "<author>Giada</author>",
            "author#": 1,
        },
        {"#row": 1, "title": "Harry Potter", "title#": 1, "lang": ["de"], "author": None, "author#": 0},
    ]
    assert (
        request.explain()
        == "XmlScan: /bookstore/book -> title=text(title), lang=text(title/@lang)*, author=xml(author)"
    )


def test_a_value_column_gives_the_first_of_several_and_how_many_there_are() -> None:
    request = ScanRequest(("a",), (Column("b", ("b",)), Column("all", ("b",), many=True)))
    assert fuzz.scanned(b"<a><b>1</b><c><b>no</b></c><b>2</b><b/></a>", request) == [
        {"#row": 0, "b": "1", "b#": 3, "all": ["1", "2", ""]}
    ]


def test_names_are_compared_by_namespace_and_local_name() -> None:
    document = b"<a xmlns='u' xmlns:p='v'><b>1</b><p:b p:x='2' x='3'>4</p:b><b xmlns=''>5</b></a>"
    columns: tuple[Column, ...] = (
        Column("u", ("{u}b",)),
        Column("v", ("{v}b",)),
        Column("none", ("b",)),
        Column("any", ("*",), many=True),
    )
    columns += (Column("vx", ("{v}b", "@{v}x")), Column("x", ("{v}b", "@x")))
    (row,) = fuzz.scanned(document, ScanRequest(("{u}a",), columns))
    assert [row[name] for name in ("u", "v", "none", "vx", "x")] == ["1", "4", "5", "2", "3"]
    assert row["any"] == ["1", "4", "5"]
    assert fuzz.scanned(document, ScanRequest(("a",), columns)) == []


def test_random_documents_as_the_model_says() -> None:
    for seed in range(60):
        source = Documents(seed)
        document = source.document().encode()
        for request in fuzz.REQUESTS:
            fuzz.compare(document, request, (1, 3, 1 << 18)[seed % 3])


def test_a_block_may_end_at_every_byte() -> None:
    for document in (
        BOOKS,
        Documents(17).document().encode(),
        "<a>é<b x='𝄞&#xe9;' y=\"'\"/><![CDATA[]]]]>\r\n]]<?p  q?></a>\n".encode(),
    ):
        for block in range(1, len(document) + 1):
            fuzz.compare(document, fuzz.REQUESTS[0], block)


def test_deep_documents_and_many_names_attributes_and_namespaces() -> None:
    deep = b"".join(b"<a%d>" % i for i in range(150)) + b"x" + b"".join(b"</a%d>" % i for i in reversed(range(150)))
    wide = b"<r " + b" ".join(b"a%d='%d'" % (i, i) for i in range(500)) + b"/>"
    spaces = b"<r>" + b"".join(b"<p%d:n xmlns:p%d='u%d'>" % (i, i, i) for i in range(200))
    spaces += b"".join(b"</p%d:n>" % i for i in reversed(range(200))) + b"</r>"
    for document in (deep, wide, spaces):
        fuzz.compare(document, fuzz.REQUESTS[0], 1 << 18)
        fuzz.compare(document, fuzz.REQUESTS[1], 10)


def test_batches_are_small_and_count_rows_on() -> None:
    document = b"<a>" + b"".join(b"<b><c>%d</c></b>" % i for i in range(30_000)) + b"</a>"
    request = ScanRequest(("a", "b"), (Column("c", ("c",)), Column("x", (), "xml")))
    budget = MemoryBudget("2MB")
    with closing(Scanner(request, budget)) as scanner:
        batches = list(scanner.batches([document]))
    table = pa.Table.from_batches(batches)
    assert table["c"].to_pylist() == [str(i) for i in range(30_000)]
    assert len(batches) > 3
    assert table["#row"].to_pylist() == list(range(30_000))
    assert max(batch.nbytes for batch in batches) <= 2**20
    assert budget.used == 0 < budget.peak <= budget.limit


@pytest.mark.parametrize("memory", ["600KB", "1MB", "64MB"])
def test_the_budget_decides_how_it_is_done_not_what_is_found(memory: str) -> None:
    long = b"<b>" + b"x&lt;" * 2_000 + b"<c/></b>"
    document = b"<a>" + b"".join(long if i % 50 == 0 else b"<b><c>%d</c></b>" % i for i in range(500)) + b"</a>"
    request = ScanRequest(("a", "b"), (Column("c", ("c",)), Column("x", (), "xml"), Column("t", ())))
    assert fuzz.scanned(document, request, memory) == model.rows(document, request)


def test_a_row_larger_than_the_budget_is_named_with_its_line() -> None:
    document = b"<a>\n<b>small</b>\n<b>" + b"long " * 300_000 + b"</b></a>"
    request = ScanRequest(("a", "b"), (Column("t", ()),))
    budget = MemoryBudget("1MB")
    with closing(Scanner(request, budget)) as scanner:
        batches = scanner.batches([document], "large.xml")
        assert next(batches).num_rows == 1
        with pytest.raises(BudgetExceeded, match=r"large.xml, line 3: .* give more memory"):
            next(batches)
    assert budget.used == 0
    only = ScanRequest(("a", "x"), (Column("t", ()),))
    assert fuzz.scanned(document, only, "1MB") == [], "text that is not asked for needs no memory"


def test_weather_collection(tmp_path: object) -> None:
    weather = Weather(stations=1, years=1)
    (path,) = weather.write_sensors(str(tmp_path)).glob("*.xml")
    request = ScanRequest(("dataCollection", "data"), (Column("kind", ("dataType",)), Column("value", ("value",))))
    found = pa.Table.from_batches(Scanner(request, MemoryBudget("16MB")).batches(open_chunks(path), str(path)))
    assert found["kind"].to_pylist() == weather.readings()["data_type"].to_pylist()
    assert found["value"].to_pylist() == [str(v) for v in weather.readings()["value"].to_pylist()]


def test_one_version_of_each_kernel_serves_every_scan() -> None:
    for block in (1, 1 << 18):
        fuzz.compare(BOOKS, fuzz.REQUESTS[1], block)
    found = {name: n for name, n in compiled_signatures().items() if name.startswith("dovetail.xml.kernels.")}
    assert found
    assert set(found.values()) <= {0, 1}


def test_requests_that_cannot_be_built() -> None:
    for wrong in ("", "a b", "a/b", "p:a", "{u", "@"):
        with pytest.raises(PlanError, match="is not a name"):
            ScanRequest((wrong,), ())
    with pytest.raises(PlanError, match="at least one step"):
        ScanRequest((), ())
    with pytest.raises(PlanError, match="kind 'text'"):
        Column("x", ("@a",), "xml")
    with pytest.raises(PlanError, match="unknown"):
        Column("x", ("a",), "html")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="occur twice"):
        ScanRequest(("a",), (Column("x", ("a",)), Column("x#", ("b",))))
