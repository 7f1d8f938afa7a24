"""Sorts rows before an exchange, so that the tasks behind it only merge them.

A task that sends rows sorts a chunk of them by partition and order, and cuts it into packets: neighbouring rows of one
partition as one binary value. Spark exchanges packets, and orders those of a partition by the code of their first row.
A task that receives them may use all rows up to the code of the last packet that it has.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from dovetail.engine.exchange.delivery import CELL, ROWS, SIDE, Delivery, opened, serialized
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import empty_batch, nbytes, take_columns
from dovetail.engine.rows.keys import bound_codes
from dovetail.engine.rows.packing import as_schema, in_chunks
from dovetail.engine.storage.runs import merged_blocks, merged_files
from dovetail.engine.storage.spill import SpillFile

FIRST = "__dt_first"
_CHUNK_SHARE, _CHUNK_LIMIT = 8, 32 << 20  # of the budget: a chunk is held, combined and sorted at one time
_PACKET_SHARE, _PACKET_LIMIT = 1024, 64 << 10  # of the budget: a packet
_PART_SHARE, _PART_LIMIT = 32, 4 << 20  # of the budget: packets that are opened together
_PART_COPIES = 6  # opened, sorted, and the arrays of the sort, which are larger than narrow rows
_RUN_SHARE = 8  # of the budget: more rows that wait are spilled


@dataclass(frozen=True, slots=True)
class Packing:
    """The packets of one side: rows have the columns of `schema`, and their partition in the column `cell`.

    They are ordered by the code of the column `order`.
    """

    side: int
    cell: str
    order: str
    schema: pa.Schema
    memory: int

    def packets(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in packets, ordered by partition and by code."""
        codes, cells = bound_codes(rows[self.order]), int64s(np.asarray(rows[self.cell], np.int64))
        order = stable_order(cells, stable_order(codes))
        cells, codes = cells[order], codes[order]
        size = min(self.memory // _PACKET_SHARE, _PACKET_LIMIT)
        step = max(1, size * rows.num_rows // max(1, nbytes(rows)))
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), rows.num_rows]
        firsts = int64s(np.concatenate([np.arange(first, last, step) for first, last in pairwise(edges)]))
        ordered = as_schema(take_columns(rows.select(self.schema.names), order), self.schema)
        return pa.RecordBatch.from_pydict(
            {
                SIDE: pa.array(np.full(len(firsts), self.side, np.int8)),
                CELL: pa.array(cells[firsts].astype(np.int32)),
                FIRST: pa.array(codes[firsts]),
                ROWS: serialized(ordered, firsts),
            }
        )


def pack_rows(packing: Packing, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The packets of a side's batches, chunk by chunk."""
    size = min(packing.memory // _CHUNK_SHARE, _CHUNK_LIMIT)
    return map(packing.packets, in_chunks(batches, most_rows=size, most_bytes=size))


class MergedDelivery(Delivery):
    """Delivers packets to an operator: the rows of each side in order, both sides at about the same pace.

    Rows that later packets may precede wait. They are few where chunks have several packets for this partition; where
    they are many, they are spilled as sorted runs, and merged when the input has ended.
    """

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        order: Mapping[str, str],
        first: pa.RecordBatch,
        budget: MemoryBudget,
        share: float,
    ) -> None:
        self._part = min(budget.limit // _PART_SHARE, _PART_LIMIT)
        self._run = budget.limit // _RUN_SHARE
        room = min(2 * nbytes(first) + _PART_COPIES * self._part, int(budget.limit * share))
        super().__init__(schemas, room, budget)
        self._order = order
        self._waiting = {side: empty_batch(schema) for side, schema in self.schemas.items()}
        self._runs: dict[str, list[SpillFile]] = {side: [] for side in self.schemas}

    def take_sorted(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each side that come before all rows of later packets, in order."""
        size = nbytes(batch)
        self._peak = max(self._peak, size)
        self._held.resize(min(size + _PART_COPIES * self._part, self.room))
        packets = max(1, batch.num_rows * self._part // max(1, size))
        for first in range(0, batch.num_rows, packets):
            part = batch.slice(first, packets)
            bound = int(part[FIRST][-1].as_py())
            for side, rows in opened(part, self.schemas):
                self.rows[side] += rows.num_rows
                self._waiting[side] = pa.concat_batches([self._waiting[side], rows])
            if self._spilled():
                continue
            for side in self.schemas:
                yield side, self._released(side, bound)
        self._held.resize(min(self._waiting_bytes(), self.room))

    def finish_sorted(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows that waited, in order."""
        if not any(self._runs.values()):
            yield from ((side, self._released(side)) for side in self.schemas)
            return
        blocks = [self._merged(side) for side in self.schemas]
        yield from ((side, rows) for _, side, rows in heapq.merge(*blocks, key=itemgetter(0)))

    def record(self, metrics: Metrics, budget: MemoryBudget) -> None:
        """Record what every delivery does, and what was spilled."""
        super().record(metrics, budget)
        for side, files in self._runs.items():
            metrics.add("bytes_written", sum(file.bytes_written for file in files), side, unit="bytes")

    def close(self) -> None:
        """Release the memory and remove the files."""
        super().close()
        for files in self._runs.values():
            for file in files:
                file.close()

    def _codes(self, side: str, rows: pa.RecordBatch) -> I64:
        return bound_codes(rows[self._order[side]])

    def _released(self, side: str, bound: int | None = None) -> pa.RecordBatch:
        """The waiting rows up to `bound`, in order; the others go on waiting."""
        rows = self._waiting[side]
        codes = self._codes(side, rows)
        order = stable_order(codes)
        n = len(order) if bound is None else int(np.searchsorted(codes[order], bound, side="right"))
        self._waiting[side] = take_columns(rows, order[n:])
        return take_columns(rows, order[:n])

    def _waiting_bytes(self) -> int:
        return sum(nbytes(rows) for rows in self._waiting.values())

    def _spilled(self) -> bool:
        """Whether rows are on disk; puts them there if many wait."""
        if self._waiting_bytes() > self._run:
            for side in self.schemas:
                self._spill(side)
        return any(self._runs.values())

    def _spill(self, side: str) -> None:
        rows = self._released(side)
        if rows.num_rows:
            run = SpillFile(self.schemas[side], name=f"{side}-run")
            self._runs[side].append(run)
            for block in _cut(rows, self._part // 4):
                run.append(block)

    def _merged(self, side: str) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of all runs in blocks, each with the code of its first row."""
        self._spill(side)

        def order(rows: pa.RecordBatch) -> tuple[I64, I64]:
            return self._codes(side, rows), int64s([])

        cut = partial(_cut, size=self._part // 4)
        self._runs[side] = merged_files(self._runs[side], order, cut)
        for rows in merged_blocks(self._runs[side], order, keyed=False, cut=cut):
            yield int(self._codes(side, rows[:1])[0]), side, rows


def _cut(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The rows in blocks of about `size` bytes."""
    step = max(1, size * rows.num_rows // max(1, nbytes(rows)))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)
