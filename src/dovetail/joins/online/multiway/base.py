"""The operator contract of multiway joins: rows in, combinations out, work in pauses, all that is owed at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64, AnyArray, int64s
from dovetail.engine.operator import OperatorError
from dovetail.joins.online.kernels.multi_rows import COMBOS, COMPARED, MAX_BYTES, MultiArrivals, multi_arrivals
from dovetail.joins.online.kernels.rows import DONE, STUCK
from dovetail.joins.online.multiway.settling import SettlingOperator
from dovetail.joins.online.multiway.sizes import arriving_bytes
from dovetail.joins.online.multiway.snapshot import dump, load
from dovetail.joins.online.phases import ARRIVING
from dovetail.joins.online.row_pages import mean_row_bytes, picked


class MultiOperator(SettlingOperator):
    """A multiway join in progress.

    `push` ends with all combinations of arriving rows with rows in memory given. `idle` works on what is on disk, and
    asks `until` after each unit of that work. `finish` gives every combination still owed. `snapshot` and `restore`
    carry all state, between any two of these calls.
    """

    @abstractmethod
    def arrive(self, new: MultiArrivals) -> int:
        """Let rows arrive until there is a reason to stop, and say which."""

    # ------------------------------------------------------------------ the operator contract

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one input and give their combinations with rows in memory."""
        r = self.input_number(side, batch)
        if batch.num_rows == 0:
            return
        self.metrics.add("rows", batch.num_rows, side)
        width = max(1, mean_row_bytes(batch))
        self.begin({r: width})
        beside = arriving_bytes(int(self.keys.widths[r]))
        step = max(1, min(self.fitted.chunk_rows, (self.fitted.chunk_bytes - 256) // (width + beside)))
        for start in range(0, batch.num_rows, step):
            yield from self._take(r, batch.slice(start, step), width, beside)
        self.metrics.peak("memory", self.pages[r].held, side)

    def _take(self, r: int, chunk: pa.RecordBatch, width: int, beside: int) -> Iterator[pa.RecordBatch]:
        key, valid = self.keys.encode(r, chunk)
        self.progress.arrived += chunk.num_rows
        if not valid.all():
            some = np.flatnonzero(valid)
            self.metrics.add("null_keys", chunk.num_rows - len(some), self.names[r])
            chunk, key = picked(chunk, some), key[:, some]
        if chunk.num_rows:
            self.rows.meta[MAX_BYTES] = max(1, self.fitted.row_bytes - self.directory_bytes())
            arrays = beside * chunk.num_rows
            needed = arrays + width * chunk.num_rows * 5 // 4 + 512 + self.answer_room(r, chunk)
            while self.budget.available < needed and self.squeeze_or_flush():
                pass
            self._arriving.grow(arrays)
            self.grow_answers()
            yield from self._receive(r, chunk, key, width)
            self._arriving.shrink(arrays)

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

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give every combination of the rows that have arrived, without ending: nothing is owed afterwards.

        While nothing is on disk nothing is owed. Else memory is empty afterwards, since its rows may have missed rows
        that left before they came.
        """
        self.begin({})
        if any(len(store) for store in self.blocks):
            self.flush_all()
            yield from self.settle_all()

    # ------------------------------------------------------------------ state as tables

    def snapshot(self) -> dict[str, pa.Table]:
        """All state, as tables by name, between two calls; the operator goes on unchanged."""
        self.begin({})
        return dump(self)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Take up the state that an operator of the same specification gave; this one must be new."""
        load(self, tables)

    @abstractmethod
    def arrays(self) -> dict[str, AnyArray]:
        """Arrays of the algorithm's own, which are copied as they are."""

    @abstractmethod
    def rebuild(self, r: int, slots: I32, key: I64) -> None:
        """Rows in order of arrival are in memory again with these keys, and must be found."""
