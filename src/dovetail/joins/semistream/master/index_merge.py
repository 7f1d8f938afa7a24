"""The dense index of many parts: each part's own, sorted, then merged in stretches that different tasks can write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.joins.semistream.master.index import dense_index
from dovetail.joins.semistream.master.index_file import CODES, PAGES, store_stretch
from dovetail.joins.semistream.master.page_writer import Part


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
