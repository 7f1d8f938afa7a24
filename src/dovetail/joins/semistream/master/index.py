"""Where a key lives: fences for pages in key order, a dense sorted index for pages in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool
from dovetail.joins.semistream.kernels.sorted_search import count_below
from dovetail.joins.semistream.master.normal import Normal, above, last_not_above


@dataclass(frozen=True, slots=True)
class Fences:
    """The first and the last key of every page, of pages in key order: some bytes a page."""

    first: Normal
    last: Normal

    def home(self, keys: Normal, valid: Bool) -> I64:
        """The page in whose range a key lies; -1 for keys between pages, beyond them, or null."""
        pages = last_not_above(keys, self.first)
        if len(self.first) == 0:
            return np.full(len(keys), -1, np.int64)
        beyond = above(keys, self.last, np.maximum(pages, 0))
        pages[beyond | ~valid] = -1
        return pages


@dataclass(frozen=True, slots=True)
class Dense:
    """The page of every single key, by a sorted array of codes: 12 bytes a key, usually mapped from a file.

    For numbers the code is the key. For other keys it is a hash, good for finding a page but not for equality; the
    few keys of different pages that share a hash are kept whole, in order, in `clashes`.
    """

    codes: I64
    pages: I32
    clashes: tuple[Normal, I64] | None = None

    def home(self, keys: Normal, valid: Bool) -> I64:
        """The page of each key; -1 where there is certainly none."""
        codes = keys.codes()
        if len(self.codes) == 0:
            return np.full(len(codes), -1, np.int64)
        at = np.minimum(count_below(self.codes, codes), len(self.codes) - 1)
        pages = np.where((self.codes[at] == codes) & valid, self.pages[at], -1).astype(np.int64)
        if self.clashes is not None:
            suspect = np.flatnonzero(np.isin(codes, self.clashes[0].codes()) & valid)
            pages[suspect] = _exactly(keys.take(suspect), *self.clashes)
        return pages


def _exactly(keys: Normal, known: Normal, known_pages: I64) -> I64:
    """The pages of keys whose hash stands for several, by the keys themselves."""
    at = last_not_above(keys, known)
    picked = np.maximum(at, 0)
    found = (at >= 0) & ~above(keys, known, picked)
    return np.where(found, known_pages[picked], -1)


def dense_index(codes: I64, pages: I64) -> tuple[I64, I32, I64]:
    """Codes in order, the page of each, and the codes that occur with several pages."""
    order = np.argsort(codes, kind="stable")
    codes, pages = codes[order], pages[order]
    clashes = codes[1:][(codes[1:] == codes[:-1]) & (pages[1:] != pages[:-1])]
    return codes, pages.astype(np.int32), np.unique(clashes)


Index = Fences | Dense
