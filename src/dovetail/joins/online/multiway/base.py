"""The operator contract of multiway joins: rows in, combinations out, work in pauses, all that is owed at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64, int64s
from dovetail.engine.operator import OperatorError
from dovetail.joins.online.kernels.multi_rows import (
    BYTES,
    CLOCK,
    COMBOS,
    COMPARED,
    MAX_BYTES,
    MAX_ROWS,
    N_FREE,
    ROWS,
    MultiArrivals,
    claim_slots,
    multi_arrivals,
)
from dovetail.joins.online.kernels.rows import DONE, STUCK
from dovetail.joins.online.multiway.settling import SettlingOperator
from dovetail.joins.online.multiway.sizes import arriving_bytes
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.row_pages import picked


class MultiOperator(SettlingOperator):
    """A multiway join in progress."""

    @abstractmethod
    def arrive(self, new: MultiArrivals) -> int:
        """Let rows arrive until there is a reason to stop, and say which."""

    @abstractmethod
    def store(self, r: int, slots: I32) -> None:
        """Rows of one input that have slots, in order of arrival, count as in memory and are found from now on."""

    def beside(self, number: int) -> int:
        """Keys, sizes and slots."""
        return arriving_bytes(int(self.keys.widths[number]))

    def take(self, number: int, chunk: pa.RecordBatch, width: int) -> Iterator[pa.RecordBatch]:
        """Rows of one input arrive: their combinations with rows in memory."""
        self.progress.arrived += chunk.num_rows
        chunk, key = self._keyed(number, chunk, counts=True)
        if chunk.num_rows:
            needed = self.needed(number, chunk, width)
            while self.budget.available < needed and self.squeeze_or_flush():
                pass
            with self.arrays_of(number, chunk):
                yield from self._receive(number, chunk, key, width)

    def hold(self, number: int, chunk: pa.RecordBatch, width: int) -> None:
        """Rows of one input are in memory and can be found; all others make room if need be."""
        chunk, key = self._keyed(number, chunk, counts=False)
        n = chunk.num_rows
        if n == 0:
            return
        if self.budget.available < self.needed(number, chunk, width) or self.lacks_room(n, width):
            self.spill()
        with self.arrays_of(number, chunk):
            r, slots = self.rows, claim_slots(self.rows, n)
            first = self.pages[number].add(chunk, slots)
            r.key[: len(key), slots] = key
            r.ref[slots], r.size[slots], r.bit[slots] = first + np.arange(n), width, 0
            r.ats[slots] = self.clock + 1 + np.arange(n)
            r.meta[CLOCK] += n
            self.store(number, slots)
            self.pages[number].settle(first)

    def _keyed(self, r: int, chunk: pa.RecordBatch, counts: bool) -> tuple[pa.RecordBatch, I64]:
        """Rows that can match something, with their keys."""
        key, valid = self.keys.encode(r, chunk)
        if not valid.all():
            some = np.flatnonzero(valid)
            if counts:
                self.metrics.add("null_keys", chunk.num_rows - len(some), self.names[r])
            chunk, key = picked(chunk, some), key[:, some]
        return chunk, key

    def limit_rows(self, size: int) -> None:
        """Columns of rows in memory may have so many bytes."""
        self.rows.meta[MAX_BYTES] = size

    def lacks_room(self, n: int, width: int) -> bool:
        """Whether so many rows of this width do not fit beside those in memory."""
        m = self.rows.meta
        full = m[ROWS] + n > m[MAX_ROWS] or m[BYTES] + n * width > m[MAX_BYTES] or n > m[N_FREE]
        return bool(m[ROWS] and full)

    def _receive(self, r: int, chunk: pa.RecordBatch, key: I64, width: int) -> Iterator[pa.RecordBatch]:
        """Rows with keys arrive: their combinations come out, and what must leave memory is written."""
        slots = np.full(chunk.num_rows, -1, np.int32)
        first = self.pages[r].add(chunk, slots)
        new = multi_arrivals(r, first, int64s(key), int64s(np.full(len(slots), width, np.int64)), slots)
        status = -1
        while status != DONE:
            status = self.arrive(new)
            if n := int(self.out.n[COMBOS]):
                self.out.n[COMBOS] = 0
                refs = [self.rows.ref[slots] for slots in self.out.slots[:n].T]
                yield from self.answers.batches([pages.rows() for pages in self.pages], refs, ARRIVING)
            self.write_gone()
            if status == STUCK:
                raise OperatorError(f"{type(self).__name__} found nothing to flush with {self.rows.meta} in memory.")
        self.compared(int(self.rows.meta[COMPARED]))
        self.rows.meta[COMPARED] = 0
        self.pages[r].settle(first)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give every combination still owed: all rows go to disk, so that each has a block and a departure."""
        self.begin({})
        self._finished = True
        self.empty_memory()
        yield from self.settle_all()
