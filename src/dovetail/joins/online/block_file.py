"""Numbered blocks of one input on disk, with a directory of them that is charged to the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.joins.online.directory import Directory
from dovetail.joins.online.row_pages import picked

ATS = "__dovetail_ats"
"""The column of arrival ticks."""


class BlockFile:
    """Blocks numbered from 0 in the order written; a block never changes. `beside` is what each loaded row needs more
    than its columns, `extra` the columns that the join adds to an input's own, `ATS` among them."""

    def __init__(
        self,
        schema: pa.Schema,
        extra: list[pa.Field],
        beside: int,
        budget: MemoryBudget,
        directory: Path | None,
        name: str,
    ) -> None:
        self.schema, self.beside = schema, beside
        self.file = SpillFile(pa.schema([*schema, *extra]), directory, name)
        self.directory = Directory(budget.reserve("block directory"), directory)
        self.largest = 0
        self.retired = 0
        """Rows that arrived up to this tick have left; blocks with younger rows still have them on disk."""
        self.before = (0, 0, 0)
        """Blocks written, blocks read and bytes written of files that this one replaced."""

    def __len__(self) -> int:
        return self.file.blocks

    def column(self, field: str) -> I64:
        """One field of the directory for all blocks; do not write to it."""
        return self.directory.column(field)

    def bytes_of(self, number: int) -> int:
        """Memory that loading one block takes."""
        return self.file.size_of(number) + self.beside * self.directory[number].rows

    def read_block(self, number: int) -> pa.RecordBatch:
        """The rows of a block that have not left, with the columns that the join adds."""
        return self._present(self.file.read(number))

    def _present(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        stays = int64s(batch.column(ATS)) > self.retired
        return batch if stays.all() else picked(batch, np.flatnonzero(stays))

    def living(self) -> I64:
        """The numbers of blocks that are not dead."""
        return np.flatnonzero(self.column("dead") == 0)

    def retire(self, until: int) -> None:
        """Rows that arrived up to this tick leave; blocks without younger ones are dead."""
        self.retired = until
        self.directory.bury(np.flatnonzero(self.column("newest") <= until))

    @property
    def waste(self) -> float:
        """The share of rows in the file that have left or were replaced; estimated for blocks with both kinds."""
        rows, oldest, newest = (self.column(field) for field in ("rows", "oldest", "newest"))
        left = np.clip((self.retired - oldest + 1) / (newest - oldest + 1), 0, 1)
        return float((rows * np.where(self.column("dead") == 1, 1.0, left)).sum()) / max(1, int(rows.sum()))

    def compact(self) -> None:
        """Write what is left to a new file, in blocks with new numbers; the caller has reserved two of `largest`."""
        old, numbers = self.file, self.living().tolist()
        lines = [self.directory[number] for number in numbers]
        self.before = self.blocks_written - len(lines), self.blocks_read, self.bytes_written
        self.file, self.largest = SpillFile(old.schema, old.directory, old.name), 0
        self.directory.clear()
        for number, line in zip(numbers, lines, strict=True):
            rows = self._present(old.read(number))
            self.directory.append(line._replace(rows=rows.num_rows, oldest=max(line.oldest, self.retired + 1)))
            self.largest = max(self.largest, self.bytes_of(self.file.append(rows)))
        old.close()

    @property
    def blocks_written(self) -> int:
        """Blocks ever written."""
        return self.before[0] + self.file.blocks

    @property
    def blocks_read(self) -> int:
        """Blocks ever read."""
        return self.before[1] + self.file.blocks_read

    @property
    def bytes_written(self) -> int:
        """Bytes ever written."""
        return self.before[2] + self.file.bytes_written

    def close(self) -> None:
        """Remove the file."""
        self.file.close()
        self.directory.close()
