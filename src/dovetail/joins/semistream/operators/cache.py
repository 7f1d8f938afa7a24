"""Master rows kept in memory by key: found by the stream before anything is loaded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes, nbytes, take_columns
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.kernels import key_cache as kernels
from dovetail.joins.semistream.kernels.segment_match import Met
from dovetail.joins.semistream.operators.answers import SHIFT, RowStore, refs_of
from dovetail.joins.semistream.operators.disk_buffer import PageOf
from dovetail.joins.semistream.options import CachePolicy
from dovetail.joins.semistream.sizes import CACHED_GARBAGE

_CODES = {"random": kernels.TAKES_ANY, "least_frequent": kernels.TAKES_LEAST, "adaptive": kernels.TAKES_SAMPLED}
MANY_CHUNKS = 24
_WHOLE = 0.9  # of a chunk's rows wanted, from which copying them saves little


class RowCache:
    """Keys with all their master rows, counted in bytes; rows lie in the store of master rows, in chunks that last."""

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
        self.keys = kernels.empty_cache(capacity, limit, self.policy.threshold, self.policy.seed)

    def __len__(self) -> int:
        return int(self.keys.meta[kernels.ENTRIES])

    @property
    def threshold(self) -> int:
        """Waiting rows that a key needs now to get in."""
        return int(self.keys.meta[kernels.THRESHOLD])

    @property
    def inserts(self) -> int:
        """Keys that came in so far."""
        return int(self.keys.meta[kernels.INSERTED])

    @property
    def evictions(self) -> int:
        """Keys that made room so far."""
        return int(self.keys.meta[kernels.EVICTED])

    def promote(self, batch: pa.RecordBatch, met: Met, n: int, n_rows: int, page_of: PageOf) -> None:
        """Let in what deserves it of `n` keys, with `n_rows` rows, that loads met.

        `page_of` tells the page of a row of the batch.
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
        """Copy these rows, so many for each entry in turn; entries that there is no room for leave."""
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
        """Put every key of a batch in, as far as there is room; for a cache that is filled once."""
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
        """Copy chunks together that are partly unwanted or small; no collected answer may name a cached row."""
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
        """Chunks to be copied, those with the smallest wanted share first, as many as there is room to copy."""
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
        """Room for another number of keys; where there are too many, those with the fewest hits go."""
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
        """Take up a snapshot, with the threshold and the state of the random numbers, in an empty cache."""
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
        """Give back all memory."""
        self.store.drop([chunk for chunk in self.chunks if chunk in self.store.chunks()])
        self.chunks.clear()
        self._rows.close()
        self._index.close()


def _schema(store: RowStore, columns: list[str] | None) -> pa.Schema:
    return store.schema if columns is None else pa.schema([store.schema.field(name) for name in columns])
