"""Holds master rows in memory: the disk buffer for rows as they are read, and the cache for some rows by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.operator import OperatorError
from dovetail.engine.rows.columns import held_bytes, nbytes, take_columns
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.rows.named_rows import SHIFT, refs_of
from dovetail.joins.semistream.kernels import key_cache as kernels
from dovetail.joins.semistream.kernels.segment_match import Met, Scratch, empty_scratch, match_rows, scratch_bytes
from dovetail.joins.semistream.master.pages import KeyedPages, Pages
from dovetail.joins.semistream.operators.answers import Answers, RowStore
from dovetail.joins.semistream.request import CachePolicy
from dovetail.joins.semistream.sizes import CACHED_GARBAGE, Footprint, Segments

OUTPUT_FLOOR = 4096  # bytes that are left for answers, at least
_READ_AND_DECODED = 2.2  # bytes held while a round is read, per stored byte
Counts = dict[str, int]
PageOf = Callable[[I64], I64]
"""The page of each of these rows of a batch."""


class Loaded(NamedTuple):
    """Master rows in memory: the columns that are needed, the code of each key, and the chunk in the store."""

    batch: pa.RecordBatch
    codes: I64
    chunk: int


class Read(NamedTuple):
    """Rows of a round: segment by segment, from `offsets` on; `whole` if all rows of the segments are there."""

    batch: pa.RecordBatch
    offsets: I64
    page_of: PageOf
    whole: bool


class DiskBuffer:
    """Reads master rows and holds them while answers refer to them.

    `columns` are those that answers, checks of keys and caches need. `cost` has the segments, and what they may take.
    """

    def __init__(
        self, store: RowStore, answers: Answers, codes: KeyCodes, columns: list[str], cost: Footprint, counts: Counts
    ) -> None:
        self.store, self.columns = store, columns
        self._answers, self._codes, self._counts = answers, codes, counts
        self._budget: MemoryBudget = store.reservation.budget
        self._working = self._budget.reserve("disk buffer keys")
        self.scratch = empty_scratch(0)
        self.cost = cost
        self._grow_scratch(cost.segments.most_rows)
        self._loaded: Loaded | None = None
        self._passing: set[int] = set()  # chunks to drop as soon as no answer refers to them
        self._kept: set[int] = set()
        self._first_row = 0
        answers.after_flush(self.release)

    @property
    def segments(self) -> Segments:
        """The segments of the version that is read."""
        return self.cost.segments

    @property
    def pages(self) -> Pages:
        """The version that is read."""
        return self.cost.segments.pages

    @property
    def loaded(self) -> Loaded:
        """The rows that were read last."""
        if self._loaded is None:
            raise OperatorError("no segment is loaded.")
        return self._loaded

    @property
    def is_empty(self) -> bool:
        """Whether no rows are loaded."""
        return self._loaded is None

    def fits(self, n: int) -> bool:
        """Whether `n` bytes could be reserved now, with some left for answers."""
        return self._budget.available > n + OUTPUT_FLOOR

    def load(self, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """Read a run of pages by one read, as `loaded`; yields answers if room is needed."""
        self._loaded = None
        if self.store.charged > self.cost.hold or self._answers.n * 2 > self._answers.capacity:
            yield from self._answers.flush()
        elif not self._answers.shape.master:
            self.release()
        self._first_row = int(self.segments.starts[first])
        batch = self.pages.read(first, count)
        self._counts["loads"] += 1
        yield from self.hold(batch)

    def page_of(self, rows: I64) -> I64:
        """The pages of these rows of the run that was loaded last."""
        return self.segments.page_at(self._first_row + rows)

    def hold(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hold a batch of master rows as the loaded ones; yields answers if room is needed."""
        yield from self.make_room(batch.num_rows)
        if not self.fits(held_bytes(batch)):
            yield from self._answers.flush()
        self.hold_round(batch)

    def hold_round(self, batch: pa.RecordBatch) -> Loaded:
        """Hold the rows of a round, for which there is room, as the loaded ones."""
        chunk = self.store.add_charged(batch.select(self.columns), held_bytes(batch))
        self._passing.add(chunk)
        self._loaded = Loaded(self.store.chunk(chunk), self.codes_of(batch), chunk)
        return self._loaded

    def use(self, loaded: Loaded | None) -> None:
        """Make these rows, held already, the loaded ones; None for no rows."""
        self._loaded = loaded

    def keep(self, chunk: int, payer: Reservation) -> None:
        """Keep a chunk after no answer refers to it; `payer` is charged for it from now on."""
        self.store.charge_to(chunk, payer)
        self._kept.add(chunk)

    def let_go(self, chunk: int) -> None:
        """Drop a chunk as soon as no answer refers to it."""
        self.store.charge_to(chunk, self.store.reservation)
        self._kept.discard(chunk)
        self._passing.add(chunk)

    def codes_of(self, batch: pa.RecordBatch) -> I64:
        """The codes of the keys of master rows."""
        names = batch.schema
        return self._codes.encode([batch.column(names.get_field_index(name)) for name in self.pages.key])[0]

    def release(self) -> None:
        """Drop chunks that no answer refers to; no answer may be collected."""
        if not self._passing:
            return
        lasting = self._kept | ({self._loaded.chunk} if self._loaded is not None else set())
        self.store.drop(self._passing - lasting)
        self._passing &= lasting

    def make_room(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Make room to match a segment of `rows` rows, which may be more than were planned."""
        if rows > len(self.scratch.following):
            yield from self._answers.flush()
            self._grow_scratch(rows)
            self._answers.reserve(rows + 64)

    def _grow_scratch(self, rows: int) -> None:
        self._working.resize(scratch_bytes(rows) + 16 * rows)
        before = self.scratch
        self.scratch = empty_scratch(rows)
        self.scratch.probes[:] = before.probes

    def regroup(self, cost: Footprint) -> None:
        """Read the segments of another version or length from now on; nothing waits, and nothing is loaded."""
        self._loaded = None
        self.release()
        self.cost = cost
        self._grow_scratch(self.segments.most_rows)
        self._answers.reserve(self.segments.most_rows + 64)

    def match(
        self, codes: I64, refs: I64, loaded: Loaded, answered_by: str, scratch: Scratch | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Answer stream rows, which do not wait, from these master rows; `scratch` replaces the default one."""
        answers, done, n = self._answers, 0, len(codes)
        how, source = answers.written_how, loaded.chunk << SHIFT
        while done < n:
            at, before = answers.n, done
            state = codes, refs, done, loaded.codes, source, scratch or self.scratch
            answers.n, done, missed = match_rows(*state, how, answers.out, at)
            missed += answers.wrong(at)
            self._counts["misses"] += missed
            self._counts[answered_by] += done - before - missed
            if done < n:
                yield from answers.flush()

    @property
    def keyed(self) -> bool:
        """Whether the store finds single keys."""
        return isinstance(self.pages, KeyedPages) and self.pages.finds_keys

    @property
    def reads_homes(self) -> bool:
        """Whether keys are looked up in their home pages."""
        return self.cost.keyed and isinstance(self.pages, KeyedPages) and self.pages.reads_homes

    def affordable(self, picked: I64) -> int:
        """How many of the segments fit by their stored bytes, at least one."""
        stored = np.cumsum(self.segments.stored_bytes(picked)) * _READ_AND_DECODED
        room = max(0, self._budget.available - OUTPUT_FLOOR)
        return max(1, int(np.searchsorted(stored, room, side="right")))

    def read_segments(self, picked: I64, runs: tuple[I64, I64] | None = None) -> Read:
        """All rows of these segments, which must ascend; or of these runs of their pages, a first page and a number."""
        segments, disk = self.segments, self.store.reservation
        first = segments.first[picked] if runs is None else runs[0]
        count = segments.last[picked] - first if runs is None else runs[1]
        held = min(int(self.pages.stored_many(first, count).sum() * _READ_AND_DECODED), self._budget.available)
        disk.grow(held)
        try:
            batch, offsets = self.pages.read_many(first, count)
        finally:
            disk.shrink(held)
        before = segments.starts[first] - offsets[:-1]

        def page_of(rows: I64) -> I64:
            return segments.page_at(rows + before[np.searchsorted(offsets, rows, side="right") - 1])

        self._counts["loads"] += len(picked)
        return Read(batch, offsets, page_of, True)

    def read_keys(self, picked: I64, codes: I64, refs: I64) -> Read | None:
        """The rows of the keys of these stream rows, by one request, in the order of their segments, the picked ones.

        None if the store cannot be asked for one of them, or if their rows are too many. A request to a server counts
        as one load.
        """
        pages = self.pages
        if not isinstance(pages, KeyedPages) or not pages.finds_keys:
            return None
        planned = max(self.cost.hold, int(len(codes) * self.cost.round_row))
        room = max(0, min(planned, (self._budget.available - OUTPUT_FLOOR) // 2))
        self.store.reservation.grow(2 * room)
        try:
            batch = pages.read_keys(self._answers.different_keys(codes, refs), room)
        finally:
            self.store.reservation.shrink(2 * room)
        if batch is None:
            return None
        self._counts["loads"] += len(picked) if self.reads_homes else 1
        page = np.asarray(pages.home([batch.column(name) for name in pages.key]), np.int64)
        segment = self.segments.of_pages(page)
        at = np.searchsorted(picked, segment)
        inside = np.flatnonzero(picked[np.minimum(at, len(picked) - 1)] == segment)
        order = inside[np.argsort(at[inside], kind="stable")]
        offsets = np.searchsorted(at[order], np.arange(len(picked) + 1))
        pages_in_order = page[order]
        return Read(take_columns(batch, order), offsets, lambda rows: pages_in_order[rows], False)

    def close(self) -> None:
        """Release all memory."""
        self._working.close()
        self.store.close()


_CODES = {"random": kernels.TAKES_ANY, "least_frequent": kernels.TAKES_LEAST, "adaptive": kernels.TAKES_SAMPLED}
MANY_CHUNKS = 24
_WHOLE = 0.9  # live share of a chunk's rows from which copying them saves little


class RowCache:
    """Keys with all their master rows, counted in bytes; rows are in long-lived chunks of the store of master rows."""

    def __init__(
        self,
        store: RowStore,
        capacity: int,
        limit: int,
        policy: CachePolicy,
        budget: MemoryBudget,
        hits: int,
        floor: int,
    ) -> None:
        self._index = budget.reserve("cache keys")
        self._rows = budget.reserve("cache rows")
        self.store, self.policy, self.floor = store, policy, floor
        self._allocate(capacity, limit)
        self.chunks: set[int] = set()
        self.hits: tuple[I64, I64] = np.empty(hits, np.int64), np.empty(hits, np.int64)
        self.crowded = False

    def _allocate(self, capacity: int, limit: int) -> None:
        self._index.resize(kernels.cache_bytes(capacity))
        self.keys = kernels.empty_cache(capacity, limit, self.policy.threshold)

    def __len__(self) -> int:
        return int(self.keys.meta[kernels.ENTRIES])

    @property
    def threshold(self) -> int:
        """Waiting rows that a key needs now to be inserted."""
        return int(self.keys.meta[kernels.THRESHOLD])

    @property
    def inserts(self) -> int:
        """Keys inserted so far."""
        return int(self.keys.meta[kernels.INSERTED])

    @property
    def evictions(self) -> int:
        """Keys evicted so far."""
        return int(self.keys.meta[kernels.EVICTED])

    def promote(self, batch: pa.RecordBatch, met: Met, n: int, n_rows: int, page_of: PageOf) -> None:
        """Insert those of the `n` matched keys, with `n_rows` rows, that qualify.

        `page_of` gives the page of a row of the batch.
        """
        if not n:
            return
        sizes, first = met.rows[:n], met.first[:n]
        weights = sizes * max(1, nbytes(batch) // max(1, batch.num_rows)) if batch.num_columns else sizes * 0
        pages = np.full(n, -1, np.int64)
        there = np.flatnonzero(first >= 0)
        pages[there] = page_of(first[there])
        given = met.code[:n], first, sizes, met.waiting[:n], weights, pages
        took = np.empty(n, np.int64)
        plain = kernels.Candidates(*(int64s(a) for a in given))
        took = took[: kernels.promote(self.keys, _CODES[self.policy.replaces], plain, took)]
        entries = np.empty(len(took), np.int64)
        kernels.entries_of(self.keys, int64s(met.code[took]), entries)
        stayed = (entries >= 0) & (sizes[took] > 0)
        entries, took = entries[stayed], took[stayed]
        rows = expand_runs((np.cumsum(sizes) - sizes)[took], sizes[took])
        self._store(batch, met.member[:n_rows][rows], entries, sizes[took])

    def _store(self, batch: pa.RecordBatch, rows: I64, entries: I64, sizes: I64) -> None:
        """Copy these rows, `sizes` of them for each entry; entries without room are removed."""
        if not len(rows):
            return
        chunk = self._add(take_columns(batch, rows) if batch.num_columns else batch.slice(0, 0))
        if chunk is None:
            kernels.remove_all(self.keys, int64s(np.sort(entries)[::-1]))
            return
        self.keys.ref[entries] = refs_of(chunk, np.cumsum(sizes) - sizes)

    def _add(self, batch: pa.RecordBatch, floor: int | None = None) -> int | None:
        size = held_bytes(batch)
        if self._rows.budget.available < size + (self.floor if floor is None else floor):
            self.crowded = True
            return None
        chunk = self.store.add_charged(batch, size, self._rows)
        self.chunks.add(chunk)
        return chunk

    def fill(self, batch: pa.RecordBatch, codes: I64, page_of: PageOf) -> None:
        """Insert every key of a batch while there is room; for a cache that is filled once."""
        order = np.argsort(codes, kind="stable")
        ranked = codes[order]
        starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(codes) else np.empty(0, np.int64)
        sizes = np.diff(np.append(starts, len(codes)))
        chunk = self._add(take_columns(batch, order) if batch.num_columns else batch)
        if chunk is None:
            return
        pages = page_of(order[starts])
        weights = sizes * (held_bytes(batch) // max(1, len(codes)))
        plain = ranked[starts], refs_of(chunk, starts), sizes, np.zeros(len(starts)), weights, pages
        kernels.add_all(self.keys, *(int64s(a.astype(np.int64)) for a in plain))

    def tidy(self) -> None:
        """Compact chunks that are partly dead or small; no collected answer may refer to a cached row."""
        wasteful = self._wanted() * CACHED_GARBAGE < self._stored()
        if not self.crowded and not wasteful and len(self.chunks) <= MANY_CHUNKS:
            return
        self.crowded = False
        n = len(self)
        refs, sizes = self.keys.ref[:n], self.keys.rows[:n].astype(np.int64)
        chunk = np.where(sizes > 0, refs >> SHIFT, -1)
        low = int(chunk.min(initial=0))
        counted = np.bincount(chunk - low, sizes) if n else np.empty(0)
        live = {c: int(counted[c - low]) if c - low < len(counted) else 0 for c in self.chunks}
        worn = self._worn(live)
        self._join(np.flatnonzero(np.isin(chunk, worn)), worn)

    def _worn(self, live: dict[int, int]) -> list[int]:
        """Chunks to compact, those with the smallest live share first, as many as there is room to copy."""
        small = sum(live.values()) // MANY_CHUNKS
        share = {c: wanted / max(1, self.store.chunk_rows(c)) for c, wanted in live.items()}
        worn = [c for c, wanted in live.items() if share[c] < _WHOLE or wanted <= small]
        worn.sort(key=share.__getitem__)
        room = self._rows.budget.available / (2 * max(1.0, self.store.row_bytes()))
        copied = np.cumsum([live[c] for c in worn])
        return worn[: int(np.searchsorted(copied, room, side="right"))]

    def _join(self, entries: I64, worn: list[int]) -> None:
        sizes = self.keys.rows[entries].astype(np.int64)
        if len(entries):
            need = int(sizes.sum() * self.store.row_bytes() * 2)
            if not self._rows.try_grow(need):
                return
            joined = self.store.gather(expand_runs(self.keys.ref[entries], sizes), self._columns(worn))
            self._rows.shrink(need)
            chunk = self._add(joined, floor=0)  # in the place of more than that
            if chunk is None:
                return
            self.keys.ref[entries] = refs_of(chunk, np.cumsum(sizes) - sizes)
        self.store.drop(worn)
        self.chunks -= set(worn)

    def _columns(self, worn: list[int]) -> list[str]:
        return list(self.store.chunk(worn[0]).schema.names)

    def _wanted(self) -> int:
        return int(self.keys.rows[: len(self)].sum())

    def _stored(self) -> int:
        return sum(self.store.chunk_rows(chunk) for chunk in self.chunks)

    def forget(self, changed: I64 | None) -> None:
        """Drop keys whose page changed, all if None, and every key that was known to be missing."""
        n = len(self)
        page = self.keys.page[:n]
        gone = np.ones(n, np.bool_) if changed is None else np.isin(page, changed) | (self.keys.rows[:n] == 0)
        kernels.remove_all(self.keys, int64s(np.flatnonzero(gone)[::-1]))
        if not len(self):
            self.store.drop(list(self.chunks))
            self.chunks.clear()

    def resize(self, capacity: int, limit: int) -> None:
        """Change the number of keys; if there are too many, those with the fewest hits are evicted."""
        n = len(self)
        order = np.sort(np.argsort(-self.keys.hits[:n], kind="stable")[:capacity])
        keys = self.keys
        kept = [a[order] for a in (keys.code, keys.ref, keys.rows, keys.hits, keys.weight, keys.page)]
        meta = keys.meta.copy()
        meta[kernels.EVICTED] += n - len(order)
        self._allocate(capacity, limit)
        kernels.add_all(self.keys, *(int64s(a) for a in kept))
        for place in (kernels.THRESHOLD, kernels.RANDOM_STATE, kernels.EVICTED, kernels.INSERTED):
            self.keys.meta[place] = meta[place]
        self.crowded = True

    def snapshot(self) -> tuple[pa.Table, pa.Table]:
        """The keys in their order, and the rows of all of them."""
        n, k = len(self), self.keys
        table = {"code": k.code[:n], "rows": k.rows[:n], "hits": k.hits[:n], "weight": k.weight[:n], "page": k.page[:n]}
        refs = expand_runs(k.ref[:n], k.rows[:n].astype(np.int64))
        columns = self._columns(list(self.chunks)) if self.chunks else None
        rows = [self.store.gather(refs, columns)] if len(refs) else []
        return pa.table(table), pa.Table.from_batches(rows, _schema(self.store, columns))

    def restore(self, keys: pa.Table, rows: pa.Table, numbers: list[int]) -> None:
        """Restore a snapshot, with the threshold and the state of the random numbers, in an empty cache."""
        sizes = keys["rows"].to_numpy().astype(np.int64)
        start = np.cumsum(sizes) - sizes
        chunk = self._add(rows.combine_chunks().to_batches()[0]) if rows.num_rows else 0
        if chunk is not None:
            names = ("hits", "weight", "page")
            rest = [int64s(keys[name].to_numpy()) for name in names]
            codes, refs = int64s(keys["code"].to_numpy()), int64s(refs_of(chunk, start))
            kernels.add_all(self.keys, codes, refs, int64s(sizes), *rest)
        self.keys.meta[kernels.THRESHOLD], self.keys.meta[kernels.RANDOM_STATE] = numbers

    def numbers(self) -> list[int]:
        """The threshold and the state of the random numbers."""
        return [self.threshold, int(self.keys.meta[kernels.RANDOM_STATE])]

    def close(self) -> None:
        """Release all memory."""
        self.store.drop([chunk for chunk in self.chunks if chunk in self.store.chunks()])
        self.chunks.clear()
        self._rows.close()
        self._index.close()


def _schema(store: RowStore, columns: list[str] | None) -> pa.Schema:
    return store.schema if columns is None else pa.schema([store.schema.field(name) for name in columns])
