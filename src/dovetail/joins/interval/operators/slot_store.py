"""The slot partitions of one input of OIP: rows in memory, or one file in partition order with counts and places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import compact, held_bytes, nbytes, take_columns
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.joins.interval.operators.feed import KEY
from dovetail.joins.interval.operators.loaded import Loaded, empty_batch, pieces_of
from dovetail.joins.interval.operators.slot_merge import merged_blocks
from dovetail.joins.interval.operators.slots import Slots
from dovetail.joins.interval.operators.weights import OVERHEAD_BYTES, RowBytes, stretches

_FAN_IN = 8
_LARGEST = 2**62  # bytes of a block that is cut by its rows alone


@dataclass(frozen=True, slots=True)
class Block:
    """Where pieces of partitions lie in one block of a file: piece i is rows first[i] to first[i + 1]."""

    part: I64
    first: I64
    key: I64


class SortedFile:
    """Blocks of rows in partition order, and which partitions each block holds."""

    def __init__(self, file: SpillFile) -> None:
        self.file = file
        self.directory: list[Block] = []

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


class SlotStore:
    """Rows of one input; in memory until told to spill, then sorted runs that `finish` merges into one file.

    What the sort writes and reads before the one file exists is counted apart (`sorted_rows`): the source has its
    inputs sorted by an operator of their own.
    """

    def __init__(
        self,
        side: str,
        schema: pa.Schema,
        slots: Slots,
        keyed: bool,
        block_rows: int,
        block_bytes: int,
        by_tuples: bool,
        budget: MemoryBudget,
        spill_dir: Path | None,
    ) -> None:
        self.side, self.schema, self.slots, self.keyed = side, schema, slots, keyed
        self.row_bytes, self.block_rows, self._by_tuples = RowBytes(schema), max(1, block_rows), by_tuples
        self._block_bytes = _LARGEST if by_tuples else block_bytes
        self.weight = self.rows_written = self.rows_read = self.sorted_rows = 0
        self.bytes_written = self.bytes_read = 0
        self._pending: list[pa.RecordBatch] = []
        self._runs: list[SortedFile] = []
        self._spill_dir = spill_dir
        self._memory = budget.reserve(f"{side} partitions")
        self._reading = budget.reserve(f"{side} partitions read")

    @property
    def on_disk(self) -> bool:
        """Whether rows went to disk."""
        return bool(self._runs)

    def weigh(self, batch: pa.RecordBatch) -> int:
        """What these rows count against the memory of the join."""
        return int(batch.num_rows) if self._by_tuples else self.row_bytes.total(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep rows in memory, for now."""
        batch = compact(batch)
        self._memory.grow(held_bytes(batch) + OVERHEAD_BYTES * batch.num_rows)
        self._pending.append(batch)
        self.weight += self.weigh(batch)

    def spill(self) -> None:
        """Write the rows in memory as a sorted run."""
        if not self._pending:
            return
        self._reading.grow(2 * self._memory.used)
        batch, _, _ = self._ordered()
        run = self._new_file()
        for block in self._cut(batch):
            self._append(run, block)
        self._runs.append(run)
        self.weight = 0
        self._memory.close()
        self._reading.close()

    def finish(self) -> None:
        """No row follows: if any went to disk, all of them become one file in partition order."""
        if not self._runs:
            return
        self.spill()
        runs = self._runs
        while len(runs) > 1:
            runs = [*runs[_FAN_IN:], self._merged(runs[:_FAN_IN])]
            self._runs = runs
        self.rows_written = sum(int(block.first[-1]) for block in runs[0].directory)

    def partitions(self) -> int:
        """How many partitions hold rows."""
        if not self._runs:
            return self._all_in_memory().part.size
        last: tuple[int, int] | None = None
        found = 0
        for block in self._runs[0].directory:
            keys = block.key if self.keyed else np.zeros(block.part.size, np.int64)
            found += block.part.size - (last == (int(keys[0]), int(block.part[0])))
            last = int(keys[-1]), int(block.part[-1])
        return found

    def loads(self, capacity: int) -> Iterator[Loaded]:
        """All rows in file order, as much at a time as `capacity` allows; from memory everything at once."""
        if not self._runs:
            yield self._all_in_memory()
            return
        batches: list[pa.RecordBatch] = []
        room = capacity
        for number in range(len(self._runs[0].directory)):
            rest = self._read(number)
            while rest.num_rows:
                fits = rest.num_rows if self.weigh(rest) <= room else self._fitting(rest, room)
                if fits or not batches:  # a single row is taken whatever it weighs
                    rows, rest = rest.slice(0, max(1, fits)), rest.slice(max(1, fits))
                    self._reading.grow(2 * nbytes(rows) + OVERHEAD_BYTES * rows.num_rows)
                    batches.append(rows)
                    room -= self.weigh(rows)
                if rest.num_rows:
                    yield self._loaded(batches)
                    batches, room = [], capacity
                    self._reading.close()
        if batches:
            yield self._loaded(batches)
        self._reading.close()

    def blocks(self) -> Iterator[tuple[Block, Loaded | int]]:
        """Block by block: its directory, and its rows if they are in memory, else the number to `load` it by."""
        if not self._runs:
            loaded = self._all_in_memory()
            yield Block(loaded.part, loaded.first, loaded.key), loaded
            return
        yield from ((block, number) for number, block in enumerate(self._runs[0].directory))

    def load(self, number: int) -> Loaded:
        """The rows of one block; counted as read."""
        return self._loaded([self._read(number)])

    def close(self) -> None:
        """Free the memory and remove all files."""
        self._pending = []
        self._memory.close()
        self._reading.close()
        for run in self._runs:
            self._retire(run)
        self._runs = []

    def _all_in_memory(self) -> Loaded:
        self._reading.grow(2 * self._memory.used)
        batch, parts, keys = self._ordered()
        self._pending = [batch] if batch.num_rows else []
        self._reading.close()
        return self._with_pieces(batch, parts, keys)

    def _ordered(self) -> tuple[pa.RecordBatch, I64, I64]:
        whole = pa.concat_batches(self._pending) if self._pending else empty_batch(self.schema)
        self._pending = []
        parts, keys = self._order_of(whole)
        order = np.lexsort((parts, keys)) if self.keyed else np.argsort(parts, kind="stable")
        return take_columns(whole, int64s(order)), parts[order], keys[order] if self.keyed else keys

    def _order_of(self, batch: pa.RecordBatch) -> tuple[I64, I64]:
        keys = int64s(batch.column(KEY).to_numpy()) if self.keyed else int64s([])
        return self.slots.of(batch), keys

    def _fitting(self, batch: pa.RecordBatch, room: int) -> int:
        return max(0, room) if self._by_tuples else self.row_bytes.fitting(batch, room)

    def _loaded(self, batches: list[pa.RecordBatch]) -> Loaded:
        batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        return self._with_pieces(batch, *self._order_of(batch))

    def _with_pieces(self, batch: pa.RecordBatch, parts: I64, keys: I64) -> Loaded:
        part, first, key = pieces_of(parts, keys)
        return Loaded(batch, part, first, key, self.row_bytes)

    def _read(self, number: int) -> pa.RecordBatch:
        batch = self._runs[0].file.read(number)
        self.rows_read += batch.num_rows
        return batch

    def _new_file(self) -> SortedFile:
        return SortedFile(SpillFile(self.schema, self._spill_dir, f"{self.side}-partitions"))

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in blocks of bounded size."""
        for first, last in stretches(self.row_bytes.each(batch), self.block_rows, self._block_bytes):
            yield batch.slice(first, last - first)

    def _append(self, run: SortedFile, batch: pa.RecordBatch) -> None:
        run.file.append(batch)
        run.directory.append(Block(*pieces_of(*self._order_of(batch))))

    def _merged(self, runs: list[SortedFile]) -> SortedFile:
        merged = self._new_file()
        for batch in merged_blocks([run.file for run in runs], self._order_of, self.keyed, self._cut):
            self._append(merged, batch)
            self.sorted_rows += batch.num_rows
        for run in runs:
            self._retire(run)
        return merged

    def _retire(self, run: SortedFile) -> None:
        self.bytes_written += run.file.bytes_written
        self.bytes_read += run.file.bytes_read
        run.close()
