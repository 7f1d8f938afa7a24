"""Jobs: what every task of a query is given, and the files of its collections.

Files are found on the driver, packed into partitions of about equal bytes, and opened in tasks.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, DataError, PlanError, XQueryError
from dovetail.xml.algebra.matching import needs_context, reads_data
from dovetail.xml.evaluate.compiler import Context, Environment
from dovetail.xml.evaluate.plans import Runner
from dovetail.xml.evaluate.static import Static
from dovetail.xml.scan import open_chunks
from dovetail.xml.syntax.tree import Module
from dovetail.xml.xdm.markup import parse_xml
from dovetail.xml.xdm.nodes import Document
from dovetail.xml.xdm.temporal import DateTime

_WILD = frozenset("*?[")
ENDINGS = (".xml", ".xml.gz")
MALFORMED = (DataError, XQueryError)
"""What reading a document raises if the document is wrong; all other errors end the query, whatever is skipped."""


@dataclass(frozen=True, slots=True)
class File:
    """One document of a collection; its number is its place among the files, sorted by name."""

    number: int
    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class Collection:
    """The documents behind one name."""

    name: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def packed(self, partitions: int) -> tuple[tuple[File, ...], ...]:
        """Contiguous runs of files with about equal bytes, at most `partitions` of them, none empty."""
        upto = list(accumulate(max(1, file.size) for file in self.files))
        edges = [bisect_left(upto, upto[-1] * part / partitions) for part in range(partitions)] + [len(upto)]
        # A file belongs to the part in which its middle lies, as nearly as whole files allow.
        edges = [0, *(_nearer(upto, edge, upto[-1] * part / partitions) for part, edge in enumerate(edges[1:-1], 1))]
        runs = [self.files[a:b] for a, b in zip(edges, [*edges[1:], len(upto)], strict=True)]
        return tuple(run for run in runs if run)


def _nearer(upto: list[int], edge: int, wanted: float) -> int:
    """The cut before or after the file in which the wanted byte lies, whichever is nearer."""
    before = upto[edge - 1] if edge else 0
    return edge if wanted - before <= upto[edge] - wanted else edge + 1


def local_paths(pattern: str) -> list[tuple[str, int]] | None:
    """Path and size of the XML files of a local directory, glob or file, sorted by name; None for other systems."""
    place = urlparse(pattern)
    if "://" in pattern and place.scheme != "file":
        return None
    path = unquote(place.path) if place.scheme == "file" else pattern
    if _WILD & set(path):
        anchor = Path(path).anchor
        found = list(Path(anchor or ".").glob(str(Path(path).relative_to(anchor) if anchor else path)))
    elif Path(path).is_dir():
        return sorted(_below(str(Path(path).resolve())))
    else:
        found = [Path(path)]
    return sorted((str(one.resolve()), one.stat().st_size) for one in found if one.is_file())


def _below(directory: str) -> Iterator[tuple[str, int]]:
    """Path and size of the XML files in a directory and in those below it; links to directories are not followed."""
    try:
        entries = os.scandir(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be listed: {error}. Give the driver the right to read it.") from error
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            elif entry.name.endswith(ENDINGS) and entry.is_file():
                yield entry.path, entry.stat().st_size


def collection_of(name: str, pattern: str, found: Iterable[tuple[str, int]]) -> Collection:
    """The collection of these files. None at all is a PlanError."""
    files = tuple(File(number, uri, size) for number, (uri, size) in enumerate(found))
    if not files:
        raise PlanError(
            f"collection {name!r} has no files: {pattern!r} matches nothing that can be read; give a directory with "
            f"files that end in {' or '.join(ENDINGS)}, a file, or a glob.",
            argument="collections",
        )
    return Collection(name, files)


def read_document(uri: str) -> Document:
    """One file as a document, unpacked if it is gzip."""
    return parse_xml(b"".join(open_chunks(uri)), uri)


class CollectionFiles:
    """Documents that `doc` and `collection` read in a task, one by one; with `skip` malformed ones are left out."""

    def __init__(self, collections: Mapping[str, Collection], skip: bool, metrics: Metrics) -> None:
        self._collections, self._skip, self._metrics = collections, skip, metrics

    def doc(self, uri: str) -> Document:
        """The document at an address."""
        if not Path(uri).is_file() and "://" not in uri:
            raise XQueryError("FODC0002", f"there is no document {uri!r}")
        return read_document(uri)

    def collection(self, uri: str | None) -> Iterator[Document]:
        """The documents of a collection, in the order of their names."""
        found = self._collections.get(uri or "")
        if found is None:
            known = ", ".join(map(repr, self._collections)) or "none"
            raise XQueryError("FODC0002", f"there is no collection {uri!r}; collections: {known}")
        return self._documents(found.files)

    def _documents(self, files: Iterable[File]) -> Iterator[Document]:
        for file in files:
            try:
                document = read_document(file.uri)
            except MALFORMED:
                if not self._skip:
                    raise
                self._metrics.add("skipped files", unit="files")
                continue
            self._metrics.add("files", unit="files")
            self._metrics.add("bytes", file.size, unit="bytes")
            yield document


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one query; all its tasks have the same time of day. `item`: the address of its context document."""

    module: Module
    collections: Mapping[str, Collection]
    variables: Mapping[str, list[Any]] = field(default_factory=dict)
    skip: bool = False
    memory: int = 64 << 20
    item: str | None = None
    now: DateTime = field(default_factory=lambda: Context().now)

    def without_files(self) -> Job:
        """The same for tasks that read no collection by name: lists of files may be long.

        A function may use a declared variable whose value is read from a collection; then the lists stay.
        """
        values = (one.value for one in self.module.variables if one.value is not None)
        return self if any(reads_data(value, self.module) for value in values) else replace(self, collections={})

    def context(self, metrics: Metrics) -> Context:
        """The dynamic context of a task."""
        documents = CollectionFiles(self.collections, self.skip, metrics)
        return Context(self.variables, documents, now=self.now)

    def runner(self, metrics: Metrics) -> Runner:
        """Compiles and runs plans and expressions in a task."""
        return runner_of(self.module, self.context(metrics), self.item)


def runner_of(module: Module, context: Context, item: str | None = None) -> Runner:
    """The runner of a query in a task; `item` is the address of the context document."""
    environment = Environment(context)
    if item is not None and any(needs_context(one.value) for one in module.variables):
        # The plan reads the context item by its address; only functions that use such variables ask for it here.
        environment.context = replace(context, item=environment.doc(item))
    return Runner(Static(module), environment)
