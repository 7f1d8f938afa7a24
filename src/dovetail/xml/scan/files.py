"""Finds XML files and packs them into partitions on the driver; opens and decodes them in tasks.

The bytes of a file come piece by piece: from a path or URI, out of gzip, and in UTF-8 whatever the file's encoding.
"""

from __future__ import annotations

import codecs
import os
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeAlias
from urllib.parse import unquote, urlparse

from dovetail.engine.storage.files import system_at
from dovetail.engine.storage.remote import Access
from dovetail.errors import ConfigError, DataError, PlanError

CHUNK = 1 << 19
Stores: TypeAlias = Mapping[str, Access | None]
"""How buckets of S3 and hosts of HDFS are reached, by their names."""
NO_STORES: Stores = MappingProxyType({})
_GZIP = b"\x1f\x8b"
_LONGEST_DECLARATION = 4096
_BLANKS = r"[ \t\r\n]"
_DECLARATION = re.compile(
    rf"""<\?xml{_BLANKS}+version{_BLANKS}*={_BLANKS}*(?:"1\.[0-9]+"|'1\.[0-9]+')"""
    rf"""(?:{_BLANKS}+encoding{_BLANKS}*={_BLANKS}*(?P<quote>["'])(?P<encoding>[A-Za-z][A-Za-z0-9._-]*)(?P=quote))?"""
    rf"""(?:{_BLANKS}+standalone{_BLANKS}*={_BLANKS}*(?:"(?:yes|no)"|'(?:yes|no)'))?{_BLANKS}*\?>"""
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WITHOUT_MARK = ((b"<\0?\0", "utf-16-le"), (b"\0<\0?", "utf-16-be"))
_NOT_FOR_FILES = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7", "mbcs", "oem"}
_MARKUP = "<?xml version=\"1.0\" encoding='abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ_23456789'?>/&;#:!"


def open_chunks(uri: str | Path, stores: Stores = NO_STORES) -> Iterator[bytes]:
    """The bytes of a file in pieces of at most half a megabyte, unpacked if it is gzip (whatever its name).

    A path, a `file:` URI, an address at `s3a:` or `hdfs:`, or any URI that Arrow's file systems know. A truncated file
    is a `DataError`; one that is missing, or that this process may not read, is a `ConfigError`.
    """
    try:
        with _opened(str(uri), stores) as source:
            yield from _unpacked(iter(lambda: source.read(CHUNK), b""))
    except (EOFError, zlib.error) as error:
        raise DataError(f"{uri} cannot be unpacked: {error}.") from error
    except OSError as error:
        raise ConfigError(
            f"{uri} cannot be read: {error}. Every worker must be able to read every file of a collection: check that "
            "it is still there and readable, or leave it out of the collection."
        ) from error


def _opened(uri: str, stores: Stores) -> IO[bytes] | Any:
    place = urlparse(uri)
    if place.scheme == "file":
        return Path(unquote(place.path)).open("rb", buffering=0)
    if "://" not in uri:
        return Path(uri).open("rb", buffering=0)
    system, path = system_at(uri, stores.get(place.netloc))
    return system.open_input_stream(path, compression=None)


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(chunks, b"")
    if not first.startswith(_GZIP):
        yield first
        yield from chunks
        return
    member, waiting = zlib.decompressobj(31), first
    while True:
        while waiting:
            yield member.decompress(waiting, CHUNK)
            waiting = member.unconsumed_tail or member.unused_data
            if member.eof and waiting.strip(b"\0"):
                member = zlib.decompressobj(31)
            elif member.eof:
                waiting = b""
        waiting = next(chunks, b"")
        if not waiting:
            break
        if member.eof and waiting.strip(b"\0"):
            member = zlib.decompressobj(31)
    if not member.eof:
        raise EOFError("its compressed data end too early")


def as_utf8(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The same document in UTF-8, without byte order mark, its XML declaration replaced by the line ends in it.

    The encoding is that of the byte order mark or of the declaration; they must agree. `DataError` if the declaration
    is wrong or the encoding unknown, `UnicodeDecodeError` if bytes are not in it.
    """
    source = iter(chunks)
    head = _filled(source, b"", 4)
    mark, encoding = next(((m, e) for m, e in _MARKS if head.startswith(m)), (b"", ""))
    by_mark = encoding or next((e for start, e in _WITHOUT_MARK if head.startswith(start)), "")
    head = head[len(mark) :]
    if by_mark.startswith(("utf-16", "utf-32")):
        source, head = _transcoded([head], source, by_mark), b""
    head, declared = _declaration(source, head, name)
    found = _codec(declared, by_mark, name)
    if found in ("utf-8", by_mark):
        yield head
        yield from source
    else:
        yield from _transcoded([head], source, found)


def _filled(source: Iterator[bytes], head: bytes, n: int) -> bytes:
    while len(head) < n and (more := next(source, None)) is not None:
        head += more
    return head


def _transcoded(head: list[bytes], rest: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    for part in (head, rest):
        for chunk in part:
            for at in range(0, len(chunk), CHUNK):
                yield decoder.decode(chunk[at : at + CHUNK]).encode()
    yield decoder.decode(b"", final=True).encode()


def _declaration(source: Iterator[bytes], head: bytes, name: str) -> tuple[bytes, str | None]:
    """The text after the XML declaration, and the encoding that it names."""
    head = _filled(source, head, 6)
    if not head.startswith(b"<?xml") or head[5:6] not in (b" ", b"\t", b"\r", b"\n", b"?"):
        return head, None
    while (stop := head.find(b"?>") + 2) < 2 and len(head) < _LONGEST_DECLARATION:
        if (more := next(source, None)) is None:
            break
        head += more
    text = head[: max(stop, 0)].decode("latin-1")
    match = _DECLARATION.fullmatch(text)
    if match is None:
        raise DataError(f"{name}, line 1: the XML declaration is wrong: {head[:80]!r}.")
    return b"\n" * text.count("\n") + head[stop:], match["encoding"]


def _codec(declared: str | None, by_mark: str, name: str) -> str:
    """The encoding to decode from, by Python's name for it."""
    if declared is None:
        return by_mark or "utf-8"
    if by_mark.startswith("utf-16") and declared.lower() in ("utf-16", "iso-10646-ucs-2", by_mark):
        return by_mark
    if by_mark.startswith("utf-32") and declared.lower() in ("utf-32", "iso-10646-ucs-4", by_mark):
        return by_mark
    try:
        found = codecs.lookup(declared).name
        known = found not in _NOT_FOR_FILES and _MARKUP.encode().decode(found) == _MARKUP
    except (LookupError, UnicodeError, ValueError):
        known = False
    if not known or (by_mark and found != by_mark):
        other = f" and its first bytes say {by_mark}" if by_mark else ""
        raise DataError(f"{name}, line 1: it declares encoding {declared!r}{other}; save it as UTF-8.")
    return found


# --- the files of a collection


def address_of(uri: str) -> str:
    """The one spelling of a file's address: for a local file, its path without links."""
    place = urlparse(uri)
    if place.scheme == "file":
        return str(Path(unquote(place.path)).resolve())
    return uri if "://" in uri else str(Path(uri).resolve())


def is_at_or_below(address: str, place: str) -> bool:
    """Whether a file is the one at this place, or below it; never by way of `..`, or with options in its address."""
    below = address.startswith(f"{place.rstrip('/')}/") and not has_options(address)
    names = unquote(address) if "://" in address else address
    return (address == place or below) and ".." not in names.split("/")


def has_options(address: str) -> bool:
    """Whether an address that is not a local path has `?` or `#`, behind which a file system may be told its server."""
    return "://" in address and not {"?", "#"}.isdisjoint(address)


WILD = frozenset("*?[")
ENDINGS = (".xml", ".xml.gz")


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
    """The cut before or after the file with the wanted byte, whichever is nearer."""
    before = upto[edge - 1] if edge else 0
    return edge if wanted - before <= upto[edge] - wanted else edge + 1


def local_paths(pattern: str) -> list[tuple[str, int]] | None:
    """Path and size of the XML files of a local directory, glob or file, sorted by name; None for other systems."""
    place = urlparse(pattern)
    if "://" in pattern and place.scheme != "file":
        return None
    path = unquote(place.path) if place.scheme == "file" else pattern
    if WILD & set(path):
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
