"""The conformance suite: small queries by feature, answered by Dovetail and by SaxonC-HE on the same documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.xquery.conformance.differences import DIFFERENCES
from tests.xquery.run import answered

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.xdm.markup import parse_xml, serialise
from dovetail.xml.xdm.nodes import Document

HERE = Path(__file__).parent
DATA = HERE / "data"
_DECLARATIONS = re.compile(r"( xmlns[^ =]*=\"[^\"]*\")+")
_CODE = re.compile(r"\n\s+([A-Za-z0-9:]+)  ")


@dataclass(frozen=True)
class Answer:
    """What a query gave: its items as text, or the code of its error."""

    items: tuple[str, ...] = ()
    error: str = ""

    @property
    def has_code(self) -> bool:
        """Whether it is an answer, or an error with a code rather than a failure of the processor."""
        return not self.error or re.fullmatch(r"[A-Z]{4}\d{4}|\w+", self.error) is not None

    def __str__(self) -> str:
        return self.error or " ".join(f"[{item}]" for item in self.items) or "()"


@cache
def features() -> dict[str, tuple[str, ...]]:
    """Queries of each feature."""
    files = sorted((HERE / "cases").glob("*.txt"))
    return {file.stem: tuple(part.strip("\n") for part in file.read_text().split("\n---\n")) for file in files}


class DataDirectory:
    """Documents and collections by their names in the directory of test data."""

    def doc(self, uri: str) -> Document:
        if "://" in uri:
            raise XQueryError("FODC0002", f"{uri} is not in the test data")
        if not (DATA / uri).is_file():
            raise XQueryError("FODC0002", f"there is no document {uri!r}")
        return parse_xml((DATA / uri).read_bytes(), uri)

    def collection(self, uri: str | None) -> Iterable[Document]:
        directory, _, pattern = (uri or "").partition("?select=")
        if not (DATA / directory).is_dir():
            raise XQueryError("FODC0002", f"there is no collection {uri!r}")
        return (parse_xml(file.read_bytes(), str(file)) for file in sorted((DATA / directory).glob(pattern)))


def ours(query: str) -> Answer:
    """Dovetail's answer."""
    try:
        found = answered(query, Context(documents=DataDirectory()), "books.xml")
        return Answer(tuple(tidy(serialise(item)) for item in found))
    except XQueryError as error:
        return Answer(error=error.code)


class Saxon:
    """One SaxonC-HE processor, kept for all queries."""

    def __init__(self) -> None:
        from saxonche import PySaxonProcessor

        self.processor = PySaxonProcessor(license=False)
        self.queries = self.processor.new_xquery_processor()
        self.queries.set_query_base_uri(DATA.as_uri() + "/")
        self.serialiser = self.processor.new_xquery_processor()
        self.serialiser.set_query_content('serialize(., map{"indent": false(), "omit-xml-declaration": true()})')
        self.context = self.processor.new_document_builder().parse_xml(xml_file_name=str(DATA / "books.xml"))

    def answer(self, query: str) -> Answer:
        self.queries.set_context(xdm_item=self.context)
        try:
            value = self.queries.run_query_to_value(query_text=query, encoding="utf-8")
        except Exception as error:  # the package has no public class for its errors
            found = _CODE.search(str(error))
            return Answer(error=found[1].rpartition(":")[2] if found else str(error))
        return Answer(tuple(tidy(self._text(item)) for item in value or ()))

    def _text(self, item: Any) -> str:
        if not item.is_node:
            return str(item.string_value)
        if item.get_node_value().node_kind_str == "attribute":
            return str(item)
        self.serialiser.set_context(xdm_item=item)
        return str(self.serialiser.run_query_to_value().head.string_value)


def tidy(text: str) -> str:
    """Markup in one of the notations that mean the same: decimal references, namespaces by name."""
    text = _DECLARATIONS.sub(lambda match: "".join(sorted(re.findall(r" xmlns[^ =]*=\"[^\"]*\"", match[0]))), text)
    return re.sub(r"&#x([0-9A-F]+);", lambda match: f"&#{int(match[1], 16)};", text).replace("&#34;", "&quot;")


def expected(query: str, saxon: Answer) -> Answer:
    """What Dovetail should answer: the same as Saxon, but for the differences that have a reason."""
    different = DIFFERENCES.get(query)
    return saxon if different is None else Answer(different.items, different.code)
