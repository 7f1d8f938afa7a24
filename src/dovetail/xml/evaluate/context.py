"""What a run of a query is given: documents, values of external variables, a context item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

from dovetail.errors import XQueryError
from dovetail.xml.syntax.names import QName
from dovetail.xml.xdm.nodes import Document
from dovetail.xml.xdm.temporal import DateTime

MAX_CALLS = 1200  # how deep declared functions may call each other


class Documents(Protocol):
    """Where `doc` and `collection` find their documents. Unknown addresses raise FODC0002."""

    def doc(self, uri: str) -> Document:
        """One document."""

    def collection(self, uri: str | None) -> Iterable[Document]:
        """The documents of a collection, or of the default one."""


class NoDocuments:
    """No document is available."""

    def doc(self, uri: str) -> Document:
        """Always FODC0002."""
        raise XQueryError("FODC0002", f"there is no document {uri!r}")

    def collection(self, uri: str | None) -> Iterable[Document]:
        """Always FODC0002."""
        raise XQueryError("FODC0002", f"there is no collection {uri!r}" if uri else "there is no default collection")


def _now() -> DateTime:
    now = datetime.now(UTC)
    second = Decimal(now.second) + Decimal(now.microsecond // 1000) / 1000
    return DateTime(now.year, now.month, now.day, now.hour, now.minute, second, 0)


@dataclass(frozen=True, slots=True)
class Context:
    """The dynamic context of a run; `variables` are external ones by name, `item` is the context item."""

    variables: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    documents: Documents = field(default_factory=NoDocuments)
    item: Any = None
    now: DateTime = field(default_factory=_now)


class Environment:
    """The state of one run: documents seen so far, global variables, depth of calls."""

    __slots__ = ("_collections", "_documents", "context", "depth", "globals")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.globals: dict[QName, list[Any]] = {}
        self.depth = 0
        self._documents: dict[str, Document] = {}
        self._collections: dict[str | None, list[Document]] = {}

    def frame(self, size: int) -> list[Any]:
        """A frame for one expression: places 1 to 3 hold the context item of the query, its position and the size."""
        frame: list[Any] = [None] * size
        frame[0] = self
        if self.context.item is not None:
            frame[1:4] = self.context.item, 1, 1
        return frame

    def doc(self, uri: str) -> Document:
        """A document; the same node each time it is asked for."""
        found = self._documents.get(uri)
        if found is None:
            found = self._documents[uri] = self.context.documents.doc(uri)
        return found

    def collection(self, uri: str | None) -> list[Document]:
        """The documents of a collection; the same nodes each time."""
        found = self._collections.get(uri)
        if found is None:
            found = self._collections[uri] = list(self.context.documents.collection(uri))
        return found

    def stream_collection(self, uri: str | None) -> Iterator[Document]:
        """The documents of a collection that the query reads once: none is kept."""
        return iter(self.context.documents.collection(uri))
