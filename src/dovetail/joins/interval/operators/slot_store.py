"""The slot partitions of one input of OIP: rows in memory, or one file in partition order with counts and places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.rows.columns import empty_batch, take_columns
from dovetail.engine.storage.runs import FAN_IN, merged_blocks
from dovetail.engine.storage.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.operators.partitioned import Loaded, RowStore, Storage, pieces_of
from dovetail.joins.interval.operators.spec import END, KEY, START

_WORD = 2**64
MOST_SLOTS = 2**30


@dataclass(frozen=True, slots=True)
class Slots:
    """`count` slots over [begin, end), numbered from 1; slot 0 is before the range and slot `count` + 1 after it.

    With half steps (`halves` = 1) two neighbouring codes are one instant, so that equal bounds share a slot.
    Reference: Carman 2020, 3.3.4, with the order of 4.4.4; docs/algorithms/interval.md, 2.4.

    >>> slots = Slots(3, 0, 30)
    >>> ends, starts = zip(*(divmod(code, slots.base) for code in sorted(slots.parts(
    ...     np.array([0, 0, 0, 10, 10, 20]), np.array([10, 20, 30, 20, 30, 30])).tolist())))
    >>> [(slots.base - 1 - start, end) for start, end in zip(starts, ends)]
    [(1, 1), (2, 2), (1, 2), (3, 3), (2, 3), (1, 3)]
    """

    count: int
    begin: int
    end: int
    halves: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_SLOTS:
            raise PlanError(f"slots={self.count} must be between 1 and {MOST_SLOTS}")
        if self.begin >= self.end:
            raise PlanError(f"the time range [{self.begin}, {self.end}) is empty")

    @property
    def base(self) -> int:
        """The number of slots, those before and after the range included."""
        return self.count + 2

    @property
    def width(self) -> int:
        """K: how many instants a slot has."""
        return -(-(self._last - self._first + 1) // self.count)

    @property
    def _first(self) -> int:
        return self.begin >> self.halves

    @property
    def _last(self) -> int:
        return (self.end - 1) >> self.halves

    def parts(self, start: I64, end: I64) -> I64:
        """The partition of each interval, as one number that ascends by end slot, then by descending start slot."""
        first, last = self._slots(start >> self.halves), self._slots((end - 1) >> self.halves)
        return int64s(last * self.base + (self.base - 1 - first))

    def of(self, batch: pa.RecordBatch) -> I64:
        """The partition of each row."""
        return self.parts(batch.column(START).to_numpy(), batch.column(END).to_numpy())

    def _slots(self, instants: I64) -> npt.NDArray[np.int64]:
        # Distances may pass 2^63, so they are taken in unsigned words, where they wrap to the right value.
        distance = instants.view(np.uint64) - np.uint64(self._first % _WORD)
        inside = (distance // np.uint64(self.width)).astype(np.int64) + 1
        after = np.where(instants > self._last, self.count + 1, np.minimum(inside, self.count))
        return np.where(instants < self._first, 0, after)


@dataclass(frozen=True, slots=True)
class Block:
    """The pieces of partitions in one block of a file: piece i is rows first[i] to first[i + 1]."""

    part: I64
    first: I64
    key: I64


@dataclass(frozen=True, slots=True)
class SortedFile:
    """Blocks of rows in partition order, and which partitions each block holds."""

    file: SpillFile
    directory: list[Block] = field(default_factory=list)


class SlotStore(RowStore):
    """Rows of one input; in memory until `spill`, then sorted runs that `finish` merges into one file.

    Rows written and read by the sort are counted separately (`sorted_rows`): in the source another operator sorts the
    inputs.
    """

    def __init__(self, storage: Storage, slots: Slots) -> None:
        super().__init__(storage)
        self.slots, self.keyed = slots, storage.keyed
        self.sorted_rows = self._bytes_written = self._bytes_read = 0  # of files that are gone
        self._pending: list[pa.RecordBatch] = []
        self._runs: list[SortedFile] = []

    @property
    def on_disk(self) -> bool:
        """Whether rows went to disk."""
        return bool(self._runs)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep rows in memory, for now."""
        self._pending.append(self._charged(batch))

    def spill(self) -> None:
        """Write the rows in memory as a sorted run."""
        if not self._pending:
            return
        self._reading.grow(2 * self._memory.used)
        batch, _, _ = self._ordered()
        run = SortedFile(self.storage.file("partitions"))
        for block in self._cut(batch):
            self._append(run, block)
        self._runs.append(run)
        self.weight = 0
        self._memory.close()
        self._reading.close()

    def finish(self) -> None:
        """End the input: if any row is on disk, merge all rows into one file in partition order."""
        if not self._runs:
            return
        self.spill()
        runs = self._runs
        while len(runs) > 1:
            runs = [*runs[FAN_IN:], self._merged(runs[:FAN_IN])]
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

    def moved_bytes(self) -> tuple[int, int]:
        """Bytes written to disk and read again so far."""
        files = [run.file for run in self._runs]
        written = self._bytes_written + sum(file.bytes_written for file in files)
        return written, self._bytes_read + sum(file.bytes_read for file in files)

    def loads(self, capacity: int) -> Iterator[Loaded]:
        """All rows in file order, as much at a time as `capacity` allows; from memory everything at once."""
        if not self._runs:
            yield self._all_in_memory()
            return
        blocks = ((number, self._read(number)) for number in range(len(self._runs[0].directory)))
        for taken in self._loads(blocks, capacity):
            yield self._loaded([rows for _, rows in taken])

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

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in blocks of bounded size."""
        for first, last in self.storage.stretches(self.row_bytes.each(batch)):
            yield batch.slice(first, last - first)

    def _append(self, run: SortedFile, batch: pa.RecordBatch) -> None:
        run.file.append(batch)
        run.directory.append(Block(*pieces_of(*self._order_of(batch))))

    def _merged(self, runs: list[SortedFile]) -> SortedFile:
        merged = SortedFile(self.storage.file("partitions"))
        for batch in merged_blocks([run.file for run in runs], self._order_of, self.keyed, self._cut):
            self._append(merged, batch)
            self.sorted_rows += batch.num_rows
        for run in runs:
            self._retire(run)
        return merged

    def _retire(self, run: SortedFile) -> None:
        self._bytes_written += run.file.bytes_written
        self._bytes_read += run.file.bytes_read
        run.file.close()
