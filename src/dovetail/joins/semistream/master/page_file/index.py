"""The dense index of a page file on disk: two files of numbers, written by one process or merged by many tasks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.errors import DataError
from dovetail.joins.semistream.master.keys import KeyForm, dense_index
from dovetail.joins.semistream.master.page_file.generation import IndexFile

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.page_file.writer import Part

CODES, PAGES = "index.codes", "index.pages"


def store_index(work: Path, part: Part, schema: pa.Schema, form: KeyForm) -> IndexFile:
    """The index of a page file of one part, written."""
    codes, pages, clashes = dense_index(part.codes, part.code_pages)
    for name in (CODES, PAGES):
        (work / name).touch()
    stretch = store_stretch(work, 0, codes, pages)
    sizes = part.table.column("size").to_numpy()
    suspects = np.unique(part.code_pages[np.isin(part.codes, clashes)]).tolist()
    found = ((page, read_page(work / part.rows_file, sizes, page, schema)) for page in suspects)
    return with_clashes(IndexFile(len(codes), (stretch,)), form, clashes, found)


def store_stretch(work: Path, first: int, codes: I64, pages: I32) -> tuple[int, int, int]:
    """Write entries from number `first` on into the files, which are there; how many, and both checksums."""
    crcs = []
    for name, values in ((CODES, codes.astype("<i8")), (PAGES, pages.astype("<i4"))):
        with (work / name).open("r+b") as file:
            file.seek(first * values.itemsize)
            file.write(values.data)
        crcs.append(zlib.crc32(values.data))
    return len(codes), crcs[0], crcs[1]


def read_page(path: Path, sizes: I64, page: int, schema: pa.Schema) -> pa.RecordBatch:
    """One page of a part that is being built."""
    with path.open("rb") as file:
        file.seek(int(sizes[:page].sum()))
        return pa.ipc.read_record_batch(pa.py_buffer(file.read(int(sizes[page]))), schema)


def with_clashes(
    index: IndexFile, form: KeyForm, clashes: I64, pages: Iterable[tuple[int, pa.RecordBatch]]
) -> IndexFile:
    """The index with the keys of these pages whose hash stands for several keys, each with its page."""
    found: dict[bytes, int] = {}
    for number, rows in pages:
        keys, _ = form.normal([rows.column(name) for name in form.names])
        suspects = keys.take(np.flatnonzero(np.isin(keys.codes(), clashes))).column()
        for key in suspects.unique().to_pylist():
            if found.setdefault(key, number) != number:
                raise DataError(f"rows of one key {list(form.names)} do not lie together; sort the rows by key first.")
    known = sorted(found)
    texts = tuple(base64.b64encode(key).decode() for key in known)
    return IndexFile(index.entries, index.stretches, texts, tuple(found[key] for key in known))


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The codes of one part, in order, in files beside its rows; pages are counted from `first_page` on."""

    name: str
    entries: int
    first_page: int

    def codes(self, work: Path) -> I64:
        """The codes, mapped."""
        return np.memmap(work / f"{self.name}.codes", "<i8", "r") if self.entries else np.empty(0, np.int64)

    def pages(self, work: Path) -> I32:
        """The page of each code in this part, mapped."""
        return np.memmap(work / f"{self.name}.pages", "<i4", "r") if self.entries else np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of the whole index that one task merges: a range of every part's entries, and where they go."""

    first: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """What merging a stretch gave: entries and checksums, and the codes, with their pages, that several pages share."""

    stretch: tuple[int, int, int]
    clashes: tuple[int, ...]
    clash_pages: tuple[int, ...]


def store_index_part(work: Path, part: Part) -> str:
    """Write the part's own index, sorted; the name of its files."""
    name = part.rows_file.removesuffix(".rows")
    codes, pages, _ = dense_index(part.codes, part.code_pages)
    (work / f"{name}.codes").write_bytes(codes.astype("<i8").data)
    (work / f"{name}.pages").write_bytes(pages.astype("<i4").data)
    return name


def plan_stretches(work: Path, parts: Sequence[IndexPart], entries_each: int) -> list[Stretch]:
    """Stretches of about so many entries that cover all parts; equal codes share a stretch. Makes the files."""
    for name in (CODES, PAGES):
        (work / name).touch()
    total = sum(part.entries for part in parts)
    wanted = -(-total // entries_each)
    codes = [part.codes(work) for part in parts]
    sample = np.sort(np.concatenate([found[:: max(entries_each // 256, 1)] for found in codes]))
    bounds = np.unique(sample[np.arange(1, wanted) * len(sample) // wanted]) if wanted > 1 else sample[:0]
    cuts = [[0, *np.searchsorted(found, bounds).tolist(), len(found)] for found in codes]
    first, stretches = 0, []
    for at in range(len(bounds) + 1):
        ranges = tuple((cut[at], cut[at + 1]) for cut in cuts)
        stretches.append(Stretch(first, ranges))
        first += sum(stop - start for start, stop in ranges)
    return stretches


def merge_stretch(work: Path, parts: Sequence[IndexPart], stretch: Stretch) -> Merged:
    """Merge one stretch of all parts into the files of the whole index."""
    found_codes, found_pages = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part, (start, stop) in zip(parts, stretch.ranges, strict=True):
        found_codes.append(np.asarray(part.codes(work)[start:stop], np.int64))
        found_pages.append(np.asarray(part.pages(work)[start:stop], np.int64) + part.first_page)
    codes, pages, clashes = dense_index(np.concatenate(found_codes), np.concatenate(found_pages))
    clash_pages = np.unique(pages[np.isin(codes, clashes)])
    stored = store_stretch(work, stretch.first, codes, pages)
    return Merged(stored, tuple(clashes.tolist()), tuple(clash_pages.tolist()))
