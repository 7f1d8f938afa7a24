"""Rows on disk: sorted blocks with their arrival ticks, a directory of them, and blocks loaded for a join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.block_file import ATS, BlockFile
from dovetail.joins.online.directory import Entry
from dovetail.joins.online.kernels.match import Stretch
from dovetail.joins.online.keys import RowKeys
from dovetail.joins.online.row_pages import SHIFT, NamedRows, picked

KEY, CODE = "__dovetail_key", "__dovetail_code"
LOADED_BYTES = 8 * 7
_FIRST, _LAST = -(2**63), 2**63 - 1
Rule = Literal["ticks", "group", "none"]


class Leaving(NamedTuple):
    """Rows on their way to disk, with key, code and arrival tick of each."""

    batch: pa.RecordBatch
    key: I64
    code: I64
    ats: I64

    def take(self, order: I64) -> Leaving:
        """The same rows in another order."""
        return Leaving(picked(self.batch, order), self.key[order], self.code[order], self.ats[order])

    def slice(self, start: int, rows: int) -> Leaving:
        """Some rows that stand together."""
        stop = start + rows
        return Leaving(self.batch.slice(start, rows), self.key[start:stop], self.code[start:stop], self.ats[start:stop])


class Loaded(NamedTuple):
    """Rows ready to be matched; `refs` name each of `rows`. `reach` is the first and last key that any of them can
    match."""

    stretch: Stretch
    refs: I64
    reach: tuple[int, int]
    rows: NamedRows


class Unsorted(NamedTuple):
    """Key, code, ticks and name of rows in any order."""

    key: I64
    code: I64
    ats: I64
    dts: I64
    refs: I64

    def loaded(self, keys: RowKeys, side: int, pages: dict[int, pa.RecordBatch], schema: pa.Schema) -> Loaded:
        """The rows in the order of stretches and ready to be matched."""
        order = np.lexsort((self.key, self.code)) if keys.coded else np.argsort(self.key, kind="stable")
        key, code, ats, dts = (int64s(column[order]) for column in self[:4])
        low, high = keys.ranges(side, key)
        stretch = Stretch(key, code, int64s(low), int64s(high), ats, dts)
        return Loaded(stretch, self.refs[order], _reach(low, high), NamedRows(pages, schema))


def _reach(low: I64, high: I64) -> tuple[int, int]:
    """The smallest and the largest key of these ranges, those apart that are empty."""
    some = low <= high
    return (int(low[some].min()), int(high[some].max())) if some.any() else (_LAST, _FIRST)


class BlockStore(BlockFile):
    """The flushed blocks of one side of a join of two."""

    def __init__(
        self,
        side: int,
        schema: pa.Schema,
        keys: RowKeys,
        budget: MemoryBudget,
        directory: Path | None,
        name: str,
    ) -> None:
        self.side, self.keys = side, keys
        extra = [pa.field(KEY, pa.int64()), pa.field(ATS, pa.int64())]
        extra += [pa.field(CODE, pa.int64())] if keys.coded else []
        super().__init__(schema, extra, LOADED_BYTES, budget, directory, name)
        self.drained = self.drained_blocks = 0

    def append(self, rows: Leaving, dts: int, bucket: int = 0, group: int = 0) -> int:
        """The number of a new block of rows that are sorted by key."""
        columns = [*rows.batch.columns, pa.array(rows.key), pa.array(rows.ats)]
        columns += [pa.array(rows.code)] if self.keys.coded else []
        number = self.file.append(pa.RecordBatch.from_arrays(columns, schema=self.file.schema))
        keys, ticks = (int(rows.key[0]), int(rows.key[-1])), (int(rows.ats.min()), int(rows.ats.max()))
        self.directory.append(Entry(len(rows.key), dts, bucket, group, *keys, *ticks))
        self.largest = max(self.largest, self.bytes_of(number))
        return number

    def append_cut(self, rows: Leaving, block_rows: int, dts: int, bucket: int = 0, group: int = 0) -> list[int]:
        """The numbers of new blocks for rows that are sorted by key."""
        starts = range(0, len(rows.key), block_rows)
        return [self.append(rows.slice(at, block_rows), dts, bucket, group) for at in starts]

    def read(self, number: int) -> Leaving:
        """A block's rows that have not left."""
        batch = self.read_block(number)
        plain = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
        key, ats = int64s(batch.column(KEY)), int64s(batch.column(ATS))
        return Leaving(plain, key, int64s(batch.column(CODE)) if self.keys.coded else key, ats)

    def meets(self, number: int, others: Loaded) -> bool:
        """Whether keys of this block can match keys of the loaded rows of the other side."""
        own, (first, last) = self.directory[number], others.reach
        return not own.dead and own.low <= last and first <= own.high

    def load(self, numbers: Sequence[int], rule: Rule = "ticks") -> Loaded:
        """Blocks as one stretch; the caller has reserved their `bytes_of`.

        The rule says which pairs were produced before: those in memory together (ticks), those of one group, or none.
        """
        parts = [self.read(number) for number in numbers]
        ticks = [self._ticks(number, part, rule) for number, part in zip(numbers, parts, strict=True)]
        refs = [(at << SHIFT) + np.arange(len(part.key)) for at, part in enumerate(parts)]
        pages = {at: part.batch for at, part in enumerate(parts)}
        key = np.concatenate([part.key for part in parts])
        code = np.concatenate([part.code for part in parts]) if self.keys.coded else key
        ats, dts = (np.concatenate([pair[i] for pair in ticks]) for i in (0, 1))
        unsorted = Unsorted(key, code, ats, dts, np.concatenate(refs))
        return unsorted.loaded(self.keys, self.side, pages, self.schema)

    def _ticks(self, number: int, part: Leaving, rule: Rule) -> tuple[I64, I64]:
        """Arrivals and departures; a group is as good as an interval in which its rows were in memory together."""
        n = len(part.key)
        if rule == "group":
            group = self.directory[number].group
            return np.full(n, 2 * group + self.side, np.int64), np.full(n, 2 * group + 2, np.int64)
        # Rows that arrived before the last drain have met each other: as if they had all come at the very start.
        early = part.ats <= self.drained
        dts = np.full(n, self.directory[number].dts if rule == "ticks" else 0, np.int64)
        return np.where(early, self.side, part.ats), np.where(early, np.maximum(dts, 2), dts)

    def of_bucket(self, bucket: int) -> I64:
        """The numbers of a bucket's blocks that are not dead."""
        return np.flatnonzero((self.column("bucket") == bucket) & (self.column("dead") == 0))
