"""Stream rows that wait for their segment: a pool of slots, and the rows themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes
from dovetail.engine.kernels.arrays import I32, I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.semistream.kernels import waiting_pool as kernels
from dovetail.joins.semistream.operators.answers import SHIFT, RowStore, refs_of
from dovetail.joins.semistream.options import Residence

FOREVER = 1 << 40

MANY_CHUNKS = 48


class Limits(NamedTuple):
    """How large a round may be: rows of each segment (none: waiting rows count), the most in all, and room for it.

    `enough`: rows answered after which no more is picked.
    """

    rows: I64
    most_rows: int
    picked: I64
    counts: I64
    enough: int = 1 << 40

    def for_kernels(self) -> tuple[I64, int, int, I64, I64]:
        """What the kernels that pick are told."""
        return self.rows, self.most_rows, self.enough, self.picked, self.counts

    def ascending(self, n: int) -> tuple[I64, I64]:
        """The first `n` segments picked and their waiting rows, in the order of the master data."""
        order = np.argsort(self.picked[:n])
        return self.picked[order], self.counts[order]


class Waiting:
    """At most `slots` rows, in order of admission and by segment.

    Rows of the batch that is being pushed stay where they are; those that still wait at its end are copied to chunks of
    our own, and chunks are copied together when less than half of them is wanted. `floor` bytes of the budget are left
    to others.
    """

    def __init__(self, schema: pa.Schema, slots: int, segments: int, budget: MemoryBudget, floor: int = 0) -> None:
        self._slots = budget.reserve("waiting slots")
        self._chains = budget.reserve("segment chains")
        self.store = RowStore(schema, budget.reserve("waiting rows"), floor)
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
    def is_full(self) -> bool:
        """Whether no slot is free."""
        return len(self) == self.slots

    @property
    def loads(self) -> int:
        """Loads so far."""
        return int(self.pool.meta[kernels.LOADS])

    def borrow(self, batch: pa.RecordBatch) -> int:
        """The chunk of a batch that is being pushed: its rows may wait, and must be settled before it goes."""
        chunk = self.store.lend(batch)
        self._lent = chunk, int(self.pool.meta[kernels.TICKET])
        return chunk

    def choose(self, rule: int, position: float, bound: Residence | None, now_ns: int) -> int:
        """The segment to load next, or -1 if nothing waits."""
        patience = FOREVER if bound is None or bound.loads is None else bound.loads
        before = 0 if bound is None or bound.seconds is None else now_ns - int(bound.seconds * 1e9)
        return kernels.choose(self.pool, rule, position, patience, before)

    def pick(self, rule: int, position: float, bound: Residence | None, now_ns: int, limits: Limits) -> tuple[I64, I64]:
        """The segments of a round, which the policy picks one after the other, and how many rows wait for each.

        Their rows are out of the queue, and must be answered or put back.
        """
        patience = FOREVER if bound is None or bound.loads is None else bound.loads
        before = 0 if bound is None or bound.seconds is None else now_ns - int(bound.seconds * 1e9)
        return limits.ascending(kernels.pick_round(self.pool, rule, position, patience, before, *limits.for_kernels()))

    def take(self, order: I64, limits: Limits) -> tuple[I64, I64]:
        """As `pick`, for segments in a given order."""
        return limits.ascending(kernels.take_round(self.pool, order, *limits.for_kernels()))

    def put_back(self, picked: I64, counts: I64) -> None:
        """Rows of these segments of a round wait again, each in its old place."""
        if counts.any():
            kernels.reattach(self.pool, picked, counts)

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
        slots = self._since(ticket)
        if len(slots) and not self._copy(slots):
            return False
        self.store.drop([chunk])
        self._lent = None
        if len(self.store) > MANY_CHUNKS or self.store.rows > 2 * len(self) + 1024:
            self.compact()
        return True

    def _copy(self, slots: I64 | I32) -> bool:
        copies = self.store.copied(self.pool.ref[slots])
        if copies is None:
            self.compact()
            copies = self.store.copied(self.pool.ref[slots])
        if copies is not None:
            self.pool.ref[slots] = copies
        return copies is not None

    def _since(self, ticket: int) -> I64 | I32:
        """The slots of rows admitted from `ticket` on that still wait, in any order."""
        used, recent = int(self.pool.meta[kernels.USED]), int(self.pool.meta[kernels.TICKET]) - ticket
        if 8 * recent > used:  # reading all slots in a row is faster than following links through many of them
            return np.flatnonzero((self.pool.segment[:used] >= 0) & (self.pool.ticket[:used] >= ticket))
        slots = np.empty(len(self), np.int32)
        return slots[: kernels.slots_from(self.pool, ticket, slots)]

    def compact(self) -> None:
        """Drop chunks that nothing waits in; copy those that are half empty, and small ones together if many."""
        slots = np.flatnonzero(self.pool.segment[: int(self.pool.meta[kernels.USED])] >= 0)
        chunks = self.pool.ref[slots] >> SHIFT
        lent = -1 if self._lent is None else self._lent[0]
        low = int(chunks.min(initial=0))
        counted = np.bincount(chunks - low) if len(slots) else np.empty(0, np.int64)
        live = {low + at: int(n) for at, n in enumerate(counted.tolist()) if n}
        self.store.drop([c for c in self.store.chunks() if c not in live and c != lent])
        for chunk, n in live.items():
            if chunk != lent and 2 * n < self.store.chunk_rows(chunk):
                self._move(slots[chunks == chunk], [chunk])
        if len(self.store) > MANY_CHUNKS:
            small = [c for c, n in live.items() if c != lent and c in self.store and n < self.slots // MANY_CHUNKS]
            self._move(slots[np.isin(chunks, small)], small)

    def _move(self, slots: I64, worn: list[int]) -> None:
        """Copy these rows to one new chunk in the place of the worn ones, if there is room for both."""
        if not len(slots):
            return
        refs, store = self.pool.ref[slots], self.store
        copies = 1 if len(worn) == 1 else 3  # rows of several chunks pass through copies of their own
        need = int(copies * 1.25 * len(slots) * store.row_bytes()) + 128 * len(store.schema)
        if not store.reservation.try_grow(need):
            return
        joined = store.gather(refs)
        store.reservation.shrink(need)
        if held_bytes(joined) <= store.reservation.budget.available:
            new = store.add_charged(joined, held_bytes(joined))
            self.pool.ref[slots] = refs_of(new, np.arange(len(slots)))
            store.drop(worn)

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


def report_waits(metrics: Metrics, name: str, buckets: I64) -> None:
    """Count rows by waiting time: "name.lt_2^b_ns" rows took less than 2**b ns, but not less than half of it."""
    for b, n in enumerate(buckets.tolist()):
        if n:
            metrics.add(f"{name}.lt_2^{b:02d}_ns", n)
