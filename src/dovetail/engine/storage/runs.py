"""Merges sorted runs of rows that were spilled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.rows.columns import take_columns
from dovetail.engine.storage.spill import SpillFile

FAN_IN = 8
"""How many runs are merged at once: each has a block in memory."""
Order = Callable[[pa.RecordBatch], tuple[I64, I64]]
"""The partition and the key of each row; no keys if there are none."""
Cut = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Rows in blocks of a size that can be held; all but the last are full."""


class _Run:
    """The rows of one run that were read and not output yet."""

    def __init__(self, file: SpillFile, order: Order) -> None:
        self._blocks, self._order = file.replay(), order
        self.more = True
        self.advance()

    def advance(self) -> None:
        """Read the next block."""
        batch = next(self._blocks, None)
        self.more = batch is not None
        if batch is not None:
            self.batch, (self.parts, self.keys) = batch, self._order(batch)

    def last(self) -> tuple[int, int]:
        return int(self.keys[-1]) if self.keys.size else 0, int(self.parts[-1])

    def take(self, bound: tuple[int, int]) -> pa.RecordBatch:
        """Remove and return the rows up to and including `bound`."""
        low, high = 0, self.parts.size
        if self.keys.size:
            low, high = (int(np.searchsorted(self.keys, bound[0], side)) for side in ("left", "right"))
        cut = low + int(np.searchsorted(self.parts[low:high], bound[1], "right"))
        taken = self.batch.slice(0, cut)
        self.batch, self.parts = self.batch.slice(cut), self.parts[cut:]
        self.keys = self.keys[cut:]
        if self.batch.num_rows == 0:
            self.advance()
        return taken


def merged_blocks(files: list[SpillFile], order: Order, keyed: bool, cut: Cut) -> Iterator[pa.RecordBatch]:
    """All rows of the sorted files, sorted by key and partition, in blocks as `cut` makes them."""
    runs = [run for run in (_Run(file, order) for file in files) if run.more]
    rest: list[pa.RecordBatch] = []
    while runs:
        bound = min(run.last() for run in runs)
        taken = pa.concat_batches([run.take(bound) for run in runs])
        parts, keys = order(taken)
        rank = np.lexsort((parts, keys)) if keyed else np.argsort(parts, kind="stable")
        blocks = list(cut(pa.concat_batches([*rest, take_columns(taken, int64s(rank))])))
        runs = [run for run in runs if run.more]
        rest = [blocks.pop()] if runs else []  # it may not be full yet
        yield from blocks


def merged_files(files: list[SpillFile], order: Order, cut: Cut) -> list[SpillFile]:
    """The same rows in at most `FAN_IN` sorted files; files that were merged are removed."""
    while len(files) > FAN_IN:
        some, rest = files[:FAN_IN], files[FAN_IN:]
        merged = SpillFile(some[0].schema, some[0].directory, some[0].name)
        for block in merged_blocks(some, order, keyed=False, cut=cut):
            merged.append(block)
        for file in some:
            file.close()
        files = [*rest, merged]
    return files
