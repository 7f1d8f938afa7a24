"""Numbered blocks of one input on disk, with a directory of them that is charged to the budget."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.joins.online.directory import Directory


class BlockFile:
    """Blocks numbered from 0 in the order written; a block never changes. `beside` is what each loaded row needs more
    than its columns, `extra` the columns that the join adds to an input's own."""

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
