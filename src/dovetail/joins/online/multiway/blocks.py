"""Rows of one input on disk: blocks with all keys and arrival ticks, and parts loaded for a join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.block_file import ATS, BlockFile
from dovetail.joins.online.directory import Entry
from dovetail.joins.online.multiway.graph import JoinGraph
from dovetail.joins.online.row_pages import SHIFT, NamedRows, picked

KEY = "__dovetail_key"


def loaded_bytes(graph: JoinGraph, relation: int) -> int:
    """Bytes of each loaded row beside its columns: keys, ticks, block and name, again for each input by which rows are
    ruled out, and all of it sorted, with the keys of a band."""
    banded = bool(graph.nears(relation))
    return 8 * ((len(graph.names) + 1) * (graph.n_keys(relation) + 4) + 1 + banded)


class LeavingRows(NamedTuple):
    """Rows on their way to disk, with keys and the arrival tick of each."""

    batch: pa.RecordBatch
    key: I64
    ats: I64

    def slice(self, start: int, rows: int) -> LeavingRows:
        """Some rows that stand together."""
        stop = start + rows
        return LeavingRows(self.batch.slice(start, rows), self.key[:, start:stop], self.ats[start:stop])


class Part(NamedTuple):
    """Some rows of one input: keys, ticks, block of each; `refs` name each in `pages`."""

    key: I64
    ats: I64
    dts: I64
    block: I64
    refs: I64
    pages: dict[int, pa.RecordBatch]
    schema: pa.Schema

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.ats)

    def only(self, wanted: Bool) -> Part:
        """Some of the rows; pages stay as they are."""
        if wanted.all():
            return self
        numbers = (self.ats[wanted], self.dts[wanted], self.block[wanted], self.refs[wanted])
        return Part(self.key[:, wanted], *numbers, self.pages, self.schema)

    def compact(self, number: int) -> Part:
        """The same rows of one page, which keeps no others."""
        page = self.pages[number]
        if len(self.ats) == page.num_rows:
            return self
        place = self.refs - (number << SHIFT)
        refs = (number << SHIFT) + np.arange(len(place))
        return self._replace(refs=refs, pages={number: picked(page, place)})

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(map(nbytes, self.pages.values()))

    @property
    def rows(self) -> NamedRows:
        """The columns by name."""
        return NamedRows(self.pages, self.schema)


def united(parts: Sequence[Part]) -> Part:
    """All rows of these parts, which have pages of different numbers."""
    if len(parts) == 1:
        return parts[0]
    key = np.concatenate([part.key for part in parts], axis=1)
    ats, dts, block, refs = (np.concatenate([part[i] for part in parts]) for i in range(1, 5))
    pages = {number: page for part in parts for number, page in part.pages.items()}
    return Part(key, ats, dts, block, refs, pages, parts[0].schema)


class MultiBlocks(BlockFile):
    """The flushed blocks of one input of a join of many.

    The directory keeps of each block the mark of its flush (the attribute it is sorted by, or a bucket), its departure
    and its generation.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: int,
        beside: int,
        budget: MemoryBudget,
        directory: Path | None,
        name: str,
    ) -> None:
        self.keys = keys
        extra = [*(pa.field(f"{KEY}{a}", pa.int64()) for a in range(keys)), pa.field(ATS, pa.int64())]
        super().__init__(schema, extra, beside, budget, directory, name)

    def append(self, rows: LeavingRows, dts: int, mark: int, group: int) -> int:
        """The number of a new block."""
        columns = [*rows.batch.columns, *map(pa.array, rows.key), pa.array(rows.ats)]
        number = self.file.append(pa.RecordBatch.from_arrays(columns, schema=self.file.schema))
        sorted_by = rows.key[mark if mark < self.keys else 0]
        keys, ticks = ((int(some.min()), int(some.max())) for some in (sorted_by, rows.ats))
        self.directory.append(Entry(len(rows.ats), dts, mark, group, *keys, *ticks))
        self.largest = max(self.largest, self.bytes_of(number))
        return number

    def append_cut(self, rows: LeavingRows, block_rows: int, dts: int, mark: int, group: int) -> None:
        """New blocks for these rows."""
        for start in range(0, len(rows.ats), block_rows):
            self.append(rows.slice(start, block_rows), dts, mark, group)

    def load(self, number: int, by_group: bool = False) -> Part:
        """The rows of one block that have not left; the caller has reserved its `bytes_of`.

        With `by_group`, rows of one generation are as if they had been in memory together, and no others.
        """
        batch = self.read_block(number)
        plain = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
        entry, n = self.directory[number], batch.num_rows
        keys = [batch.column(f"{KEY}{a}").to_numpy() for a in range(self.keys)]
        ats = batch.column(ATS).to_numpy()
        dts = np.full(n, entry.dts, np.int64)
        if by_group:
            ats, dts = np.full(n, 2 * entry.group, np.int64), np.full(n, 2 * entry.group + 1, np.int64)
        refs = (number << SHIFT) + np.arange(n)
        key = np.stack(keys) if keys else np.empty((0, n), np.int64)
        return Part(key, ats, dts, np.full(n, number, np.int64), refs, {number: plain}, self.schema)

    def of_mark(self, mark: int) -> list[int]:
        """The numbers of blocks of one bucket that are not dead."""
        return np.flatnonzero((self.column("bucket") == mark) & (self.column("dead") == 0)).tolist()
