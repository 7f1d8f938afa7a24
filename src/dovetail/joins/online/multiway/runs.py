"""Small blocks of one input written together as long runs, for work that reads them again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.spill import SpillFile
from dovetail.joins.online.block_file import ATS
from dovetail.joins.online.multiway.blocks import KEY, MultiBlocks, Part
from dovetail.joins.online.row_pages import SHIFT, Picks

DTS, BLOCK = "__dovetail_dts", "__dovetail_block"


class Stored(Protocol):
    """Rows on disk in numbered pieces."""

    beside: int

    def bytes_of(self, number: int) -> int:
        """Memory that loading one piece takes."""
        ...

    def load(self, number: int, by_group: bool = False) -> Part:
        """One piece; the caller has reserved its `bytes_of`."""
        ...


class Source(NamedTuple):
    """Some pieces of one input."""

    store: Stored
    numbers: Sequence[int]


class Runs:
    """Rows of many blocks in few pieces; each row keeps its ticks and the number of its block."""

    def __init__(self, blocks: MultiBlocks) -> None:
        self.schema, self.keys, self.beside = blocks.schema, blocks.keys, blocks.beside
        names = [*(f"{KEY}{a}" for a in range(self.keys)), ATS, DTS, BLOCK]
        extra = [pa.field(name, pa.int64()) for name in names]
        self.file = SpillFile(pa.schema([*self.schema, *extra]), blocks.file.directory, f"{blocks.file.name}-runs")
        self._rows: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, part: Part) -> None:
        """One more run."""
        numbers = [*part.key, part.ats, part.dts, part.block]
        columns = [
            *part.rows.take(Picks.of(part.refs)).columns,
            *(pa.array(np.ascontiguousarray(each)) for each in numbers),
        ]
        self.file.append(pa.RecordBatch.from_arrays(columns, schema=self.file.schema))
        self._rows.append(part.n_rows)

    def bytes_of(self, number: int) -> int:
        """Memory that loading one run takes."""
        return self.file.size_of(number) + self.beside * self._rows[number]

    def load(self, number: int, by_group: bool = False) -> Part:
        """One run, with the ticks that its rows were given when it was written."""
        batch = self.file.read(number)
        plain = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
        key = np.stack([batch.column(f"{KEY}{a}").to_numpy() for a in range(self.keys)])
        ats, dts, block = (batch.column(name).to_numpy() for name in (ATS, DTS, BLOCK))
        refs = (number << SHIFT) + np.arange(batch.num_rows)
        return Part(key, ats, dts, block, refs, {number: plain}, self.schema)

    def close(self) -> None:
        """Remove the file."""
        self.file.close()
