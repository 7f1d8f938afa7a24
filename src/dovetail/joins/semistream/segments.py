"""Master data as the segments that joins load: runs of neighbouring pages, with a home segment for every key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.semistream.master.pages import Pages


class Segments:
    """Aligned runs of `per_segment` pages. With `pinned`, the first so many pages are one more segment, the last one.

    A segment that would begin among the pinned pages begins after them; one wholly among them is empty.
    """

    def __init__(self, pages: Pages, per_segment: int, pinned: int = 0) -> None:
        self.pages, self.per_segment = pages, per_segment
        self.n_pages = len(pages.starts) - 1
        self.pinned = min(pinned, self.n_pages)
        self.aligned = -(-self.n_pages // per_segment)
        first = np.maximum(np.arange(self.aligned) * per_segment, self.pinned)
        last = np.minimum((np.arange(self.aligned) + 1) * per_segment, self.n_pages)
        last = np.maximum(first, last)
        if self.pinned:
            first, last = np.append(first, 0), np.append(last, self.pinned)
        self.first, self.last = first.astype(np.int64), last.astype(np.int64)
        self.starts = np.asarray(pages.starts, np.int64)

    @property
    def n(self) -> int:
        """How many segments there are, the pinned one included."""
        return len(self.first)

    @property
    def wanted(self) -> int:
        """How many segments are read from storage again and again: those with pages, without the pinned one."""
        return int((self.last[: self.aligned] > self.first[: self.aligned]).sum())

    @property
    def rows(self) -> I64:
        """The rows of each segment."""
        return self.starts[self.last] - self.starts[self.first]

    @property
    def most_rows(self) -> int:
        """The rows of the largest segment."""
        return int(self.rows.max()) if self.n else 0

    @property
    def most_swapped_rows(self) -> int:
        """The rows of the largest segment that is not pinned."""
        return int(self.rows[: self.aligned].max()) if self.aligned else 0

    def homes(self, key: Sequence[pa.Array]) -> I64:
        """The home segment of each key, or -1 where there is certainly none."""
        return self.of_pages(np.asarray(self.pages.home(key), np.int64))

    def of_pages(self, page: I64) -> I64:
        """The segment of each page; -1 for -1."""
        segment = np.where(page < 0, -1, page // self.per_segment)
        if self.pinned:
            segment = np.where((page >= 0) & (page < self.pinned), self.aligned, segment)
        return segment

    def read(self, segment: int) -> pa.RecordBatch:
        """The rows of a segment, by one read."""
        first = int(self.first[segment])
        return self.pages.read(first, int(self.last[segment]) - first)

    def read_many(self, segments: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of ascending segments, and where those of each begin, with the number of all at the end."""
        first = self.first[segments]
        return self.pages.read_many(first, self.last[segments] - first)

    def stored_bytes(self, segments: I64) -> I64:
        """Bytes that reading each of these segments moves."""
        first = self.first[segments]
        return self.pages.stored_many(first, self.last[segments] - first)

    def page_of(self, segment: int, rows: I64) -> I64:
        """The pages in which these rows of a segment lie."""
        return self.page_at(self.starts[self.first[segment]] + rows)

    def page_at(self, rows: I64) -> I64:
        """The pages in which these rows of the master data lie."""
        pages: I64 = np.searchsorted(self.starts, rows, side="right") - 1
        return pages


def row_bytes(pages: Pages) -> float:
    """Bytes of an average master row in memory, by its stored size and its schema, whichever is more."""
    rows, n_pages = int(pages.starts[-1]), len(pages.starts) - 1
    stored = pages.stored_bytes(0, n_pages) / rows if rows else 0.0
    return max(stored, width_of(pages.schema))


def width_of(schema: pa.Schema) -> float:
    """Bytes of a row of these types, text guessed at sixteen bytes."""
    total = 0.0
    for field in schema:
        try:
            total += field.type.bit_width / 8
        except ValueError:
            total += 20.0
        total += 1 / 8 if field.nullable else 0
    return total
