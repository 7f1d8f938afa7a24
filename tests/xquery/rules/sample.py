"""A small world for queries: documents and collections with the shapes that rules could get wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.xdm.markup import parse_xml
from dovetail.xml.xdm.nodes import Document

QUERIES = Path(__file__).parent.parent / "queries"
"""The eight weather queries."""

ANN = """<bookstore open="yes"><name>Ann</name>
<book id="1" category="COOKING"><title lang="en">Everyday Italian</title><author>Giada De Laurentiis</author><year>2005</year><price>30.00</price></book>
<book id="2" category="CHILDREN"><title lang="en">Harry Potter</title><author>J K. Rowling</author><year>2005</year><price>29.99</price></book>
<book id="3" category="WEB"><title lang="de">XQuery</title><author>A</author><author>B</author><year>2003</year></book>
<!-- closed on Sunday --></bookstore>"""  # noqa: E501  (a document is data)
ANN_TWO = """<bookstore open="no"><book id="4"><title>Harry Potter</title><year>2006</year><price>9</price></book></bookstore>"""  # noqa: E501  (as above)
JOE = """<bookstore><book id="9"><title>Harry Potter</title><year>2005</year></book>
<book id="8"><title>Emma</title><year>1815</year><price>5</price></book>\
<book id="7"><title>XQuery</title></book></bookstore>"""
# Sections inside sections: steps from nodes that lie inside each other disturb document order.
NESTED = """<s n="1"><t>a</t><s n="2"><t>b</t><s n="3"><t>c</t><p>x</p></s><p>y</p></s>\
<t>d</t><p>z</p><s n="4"><t>e</t></s></s>"""
SPACES = """<x:r xmlns:x="urn:x" xmlns="urn:d"><a>1</a><x:a>2</x:a><a xmlns="">3</a><b p="q" x:p="w">t<c/>u</b></x:r>"""


def reading(station: str, date: str, kind: str, value: int) -> str:
    return (
        f"<data><date>{date}T00:00:00.000</date><dataType>{kind}</dataType>"
        f"<station>GHCND:{station}</station><value>{value}</value></data>"
    )


def readings(only: str = "") -> list[str]:
    """Two documents, so that each of the eight queries has an answer."""
    first = [
        ("USW00012836", "2003-12-25", "TMAX", 250), ("USW00012836", "2003-12-24", "TMAX", 251),
        ("USW00012836", "2002-12-25", "TMAX", 252), ("USW00012836", "2004-12-25", "AWND", 492),
        ("USW00014771", "1999-03-01", "PRCP", 14), ("USW00014771", "1999-03-02", "PRCP", 25),
        ("USW00014771", "2000-03-01", "PRCP", 3), ("USW00014771", "2000-03-01", "TMAX", 111),
    ]  # fmt: skip
    second = [
        ("USW00024233", "1976-07-04", "TMAX", 230), ("USW00024233", "1976-07-04", "TMIN", 130),
        ("USW00024233", "1976-07-05", "TMIN", 131), ("USW00024233", "2000-01-01", "TMAX", 45),
        ("USW00024233", "2001-01-01", "TMIN", -12), ("GMX00000003", "2001-01-01", "TMIN", -99),
        ("GMX00000003", "2000-02-01", "TMAX", 33), ("USW00014771", "2001-05-05", "TMIN", -34),
        ("USW00012836", "2001-05-05", "AWND", 491), ("USW00012836", "2001-05-06", "AWND", 600),
        ("USW00024233", "2001-01-01", "TMAX", 20), ("GMX00000003", "2001-01-01", "TMAX", -50),
    ]  # fmt: skip
    return [
        f"<dataCollection>{''.join(reading(*row) for row in rows if only in ('', row[2]))}</dataCollection>"
        for rows in (first, second)
    ]


def station(code: str, name: str, state: str, country: str) -> str:
    labels = f"<locationLabels><type>ST</type><id>FIPS:00</id><displayName>{state}</displayName></locationLabels>"
    labels += f"<locationLabels><type>CNTRY</type><id>FIPS:{country}</id><displayName>X</displayName></locationLabels>"
    return (
        f"<stationCollection><station><id>GHCND:{code}</id><displayName>{name}</displayName>{labels}</station>"
        "</stationCollection>"
    )


STATIONS = [
    station("USW00012836", "KEY WEST", "Florida", "US"),
    station("USW00014771", "SYRACUSE", "New York", "US"),
    station("USW00024233", "SEATTLE", "Washington", "US"),
    station("GMX00000003", "HAMBURG", "Hamburg", "GM"),
]

COLLECTIONS: dict[str | None, list[str]] = {
    None: [JOE],
    "/ann": [ANN, ANN_TWO],
    "/joe": [JOE],
    "/nested": [NESTED, NESTED.replace("n=", "m=")],
    "/spaces": [SPACES],
    "/empty": [],
    "/sensors": readings(),
    "/sensors_min": readings("TMIN"),
    "/sensors_max": readings("TMAX"),
    "/stations": STATIONS,
}
DOCUMENTS = {"ann.xml": ANN, "joe.xml": JOE, "nested.xml": NESTED, "spaces.xml": SPACES}


class Sample:
    """Documents and collections from the texts above; collections in the order of their texts."""

    def doc(self, uri: str) -> Document:
        if uri not in DOCUMENTS:
            raise XQueryError("FODC0002", f"there is no document {uri!r}")
        return parse_xml(DOCUMENTS[uri], uri)

    def collection(self, uri: str | None) -> Iterable[Document]:
        if uri not in COLLECTIONS:
            raise XQueryError("FODC0002", f"there is no collection {uri!r}")
        return [parse_xml(text, f"{uri}/{number}.xml") for number, text in enumerate(COLLECTIONS[uri])]


def context() -> Context:
    """A context of its own, so that nodes of one run are not those of another."""
    return Context(documents=Sample())
