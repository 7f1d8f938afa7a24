"""Stream rows that wait for their segment: who waits for what in a pool of slots, and the rows themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import take_columns, taken_bytes
from dovetail.engine.memory import MemoryBudget
from dovetail.kernels import waiting_pool as kernels
from dovetail.kernels.arrays import I32, I64, int64s
from dovetail.semistream.lookup import Lookup, Residence
from dovetail.semistream.rows import ROW, SHIFT, RowStore, refs_of

FOREVER = 1 << 40
MANY_CHUNKS = 48


class Waiting:
    """At most `slots` rows, in order of admission and by segment.

    Rows of the batch that is being pushed stay where they are; those that still wait at its end are copied to chunks of
    our own, and chunks are copied together when less than half of them is wanted.
    """

    def __init__(self, schema: pa.Schema, slots: int, segments: int, budget: MemoryBudget) -> None:
        self._slots = budget.reserve("waiting slots")
        self._chains = budget.reserve("segment chains")
        self.store = RowStore(schema, budget.reserve("waiting rows"))
        self._segments = segments
        self._charge(slots)
        self.pool = kernels.empty_pool(slots, segments)
        self._lent: tuple[int, int] | None = None

    def _charge(self, slots: int) -> None:
        chains = kernels.pool_bytes(0, self._segments)
        self._chains.resize(chains)
        self._slots.resize(kernels.pool_bytes(slots, self._segments) - chains)

    def __len__(self) -> int:
        return int(self.pool.meta[kernels.LIVE])

    @property
    def slots(self) -> int:
        """The most rows that can wait."""
        return len(self.pool.code)

    @property
    def loads(self) -> int:
        """Loads so far."""
        return int(self.pool.meta[kernels.LOADS])

    def borrow(self, batch: pa.RecordBatch) -> int:
        """The chunk of a batch that is being pushed: its rows may wait, and must be settled before it goes."""
        chunk = self.store.lend(batch)
        self._lent = chunk, int(self.pool.meta[kernels.TICKET])
        return chunk

    def choose(self, lookup: Lookup, bound: Residence | None, now_ns: int) -> int:
        """The segment to load next, or -1 if nothing waits."""
        patience = FOREVER if bound is None or bound.loads is None else bound.loads
        before = 0 if bound is None or bound.seconds is None else now_ns - int(bound.seconds * 1e9)
        return kernels.choose(self.pool, lookup.code, lookup.position, patience, before)

    def overdue(self, bound: Residence | None, now_ns: int) -> bool:
        """Whether the oldest row waits for longer than it may."""
        oldest = int(self.pool.meta[kernels.OLDEST])
        if bound is None or bound.seconds is None or oldest < 0:
            return False
        return bool(self.pool.since[oldest] < now_ns - int(bound.seconds * 1e9))

    def settle(self) -> bool:
        """Whether every row that still waits is in memory of our own; if not, some must be answered first."""
        if self._lent is None:
            return True
        chunk, ticket = self._lent
        slots = np.empty(len(self), np.int32)
        slots = slots[: kernels.slots_from(self.pool, ticket, slots)][::-1]
        if len(slots) and not self._copy(slots, chunk):
            return False
        self.store.drop([chunk])
        self._lent = None
        if len(self.store) > MANY_CHUNKS or self.store.rows > 2 * len(self) + 1024:
            self.compact()
        return True

    def _copy(self, slots: I32, chunk: int) -> bool:
        rows = self.pool.ref[slots] & ROW
        batch = self.store.chunk(chunk)
        room = self.store.reservation
        need = taken_bytes(batch, rows) + 128 * batch.num_columns
        if not room.try_grow(need):
            self.compact()
            if not room.try_grow(need):
                return False
        copied = take_columns(batch, rows)
        room.shrink(need)
        new = self.store.add(copied)
        if new is None:
            return False
        self.pool.ref[slots] = refs_of(new, np.arange(len(slots)))
        return True

    def compact(self) -> None:
        """Drop chunks that nothing waits in; copy those together that are half empty, or small when there are many."""
        slots = np.empty(len(self), np.int32)
        kernels.waiting_slots(self.pool, slots)
        chunks = self.pool.ref[slots] >> SHIFT
        lent = -1 if self._lent is None else self._lent[0]
        counted = dict(zip(*(a.tolist() for a in np.unique(chunks, return_counts=True)), strict=True))
        self.store.drop([c for c in self.store.chunks() if c not in counted and c != lent])
        small = self.slots // MANY_CHUNKS if len(self.store) > MANY_CHUNKS else 0
        worn = [c for c, n in counted.items() if c != lent and (2 * n < self.store.chunk_rows(c) or n < small)]
        self._join(slots[np.isin(chunks, worn)], worn)

    def _join(self, slots: I32, worn: list[int]) -> None:
        if not len(slots):
            return
        refs = self.pool.ref[slots]
        need = int(2 * len(slots) * self.store.row_bytes()) + 128 * len(self.store.schema)
        if not self.store.reservation.try_grow(need):
            return
        joined = self.store.gather(refs)
        self.store.reservation.shrink(need)
        new = self.store.add(joined)
        if new is not None:
            self.pool.ref[slots] = refs_of(new, np.arange(len(slots)))
            self.store.drop(worn)

    def in_order(self) -> I32:
        """The slots of all waiting rows, oldest first."""
        slots = np.empty(len(self), np.int32)
        kernels.waiting_slots(self.pool, slots)
        return slots

    def rows(self) -> pa.RecordBatch:
        """All waiting rows, oldest first."""
        refs: I64 = self.pool.ref[self.in_order()]
        return self.store.gather(refs)

    def resize(self, slots: int) -> bool:
        """Whether there are now so many slots, no fewer than rows wait; if not, there was no room to move them."""
        order, old = self.in_order(), self.pool
        moving = 40 * len(order)
        if not self._slots.try_grow(moving):
            return False
        codes, segments, refs = (int64s(a[order]) for a in (old.code, old.segment, old.ref))
        since, born = old.since[order], old.born[order]
        del old
        self.reshape(slots, self._segments)
        n = kernels.admit(self.pool, codes, segments, refs, 0, 0)
        self.pool.since[:n], self.pool.born[:n] = since, born
        return True

    def reshape(self, slots: int, segments: int) -> None:
        """Room for another number of rows or segments; nothing may wait. What was counted so far is kept."""
        meta, residence = self.pool.meta, self.pool.residence
        self._segments = segments
        self._charge(slots)
        self.pool = kernels.empty_pool(slots, segments)
        for place in (kernels.LOADS, kernels.PEAK, kernels.WORST, kernels.TICKET, kernels.TURN):
            self.pool.meta[place] = meta[place]
        self.pool.residence[:] = residence

    def close(self) -> None:
        """Give back all memory."""
        self.store.close()
        self._slots.close()
        self._chains.close()
