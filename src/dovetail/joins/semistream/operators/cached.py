"""Joins with a stream-probing phase: rows whose key is in memory are answered at once, only the others wait."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.metrics import Metrics
from dovetail.joins.semistream.kernels.key_cache import age, hit_pairs, probe_admit
from dovetail.joins.semistream.kernels.segment_match import INNER, keep_checked
from dovetail.joins.semistream.operators.base import Rows
from dovetail.joins.semistream.operators.cache import PageOf, RowCache
from dovetail.joins.semistream.operators.index_driven import IndexDriven
from dovetail.joins.semistream.options import CachePolicy
from dovetail.joins.semistream.sizes import Sizes, row_bytes

MOST_HALVINGS = 62  # after so many nothing is left of any count


class Cached(IndexDriven):
    """Two phases in turn: rows probe the cache, at most `max_probe` of them; then one segment is loaded.

    Reference: Naeem 2012, algorithms 5 and 6; docs/algorithms/semistream.md, 2.9 and 2.10.
    """

    def __init__(
        self, *arguments: Any, policy: CachePolicy, capacity: int, learns: bool, max_probe: int | None
    ) -> None:
        self.notes_keys = learns
        super().__init__(*arguments)
        self.learns, self.max_probe = learns, max_probe or self.waiting.slots
        self._probes_left = self.max_probe
        limit = self.cache_limit(capacity)
        self.cache = self.own(
            RowCache(self.master, capacity, limit, policy, self.budget, self._intake_rows, self._floor)
        )
        self.remembers = learns and policy.replaces == "adaptive" and self.key_codes.exact
        self._every = policy.every or max(16, self.segments.wanted // 80)

    def cache_limit(self, capacity: int) -> int:
        """Bytes that the rows of so many keys may have."""
        return int(1.25 * capacity * (row_bytes(self.pages) + 1)) + 256

    def _needed_columns(self) -> list[str]:
        return super()._needed_columns() or [self.pages.key[0]]  # a cached row needs a column to be stored

    def lasting(self) -> set[int]:
        """Chunks of cached rows."""
        return self.cache.chunks if hasattr(self, "cache") else set()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Give all answers collected; then cached rows may move."""
        yield from super().flush()
        self.cache.tidy()

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Stream-probing phases with a load between two of them."""
        start, n = 0, len(rows.codes)
        while start < n:
            start = yield from self.probe(rows, start)
            full = len(self.waiting) == self.waiting.slots
            if start < n and (full or not self._probes_left):
                yield from self.make_slots() if full else self.work()
                self._probes_left = self.max_probe
        while self.waiting.overdue(self.spec.max_residence, self._clock.now_ns()):
            yield from self.work()

    def probe(self, rows: Rows, start: int) -> Generator[pa.RecordBatch, None, int]:
        """Rows from `start` on are answered from the cache or wait; returns the first that was not looked at."""
        pool, hits, before = self.waiting.pool, self.cache.hits, len(self.waiting)
        stop, now = min(len(rows.codes), start + self._probes_left), self._clock.now_ns()
        at, n = probe_admit(self.cache.keys, pool, rows.codes, rows.segments, rows.refs, start, stop, hits, now)
        self._probes_left -= at - start
        self.scratch.probes[0] += at - start
        self.counts["admits"] += len(self.waiting) - before
        yield from self._answer(rows, n)
        return at

    def _answer(self, rows: Rows, n: int) -> Iterator[pa.RecordBatch]:
        """Pairs for all hits; rows that only shared a cached key's hash wait after all."""
        answers, done, exact = self.answers, 0, self.key_codes.exact
        how, wrong = answers.how if exact else INNER, [np.empty(0, np.int64)]
        while done < n:
            start = answers.n
            upto, answers.n = hit_pairs(self.cache.keys, rows.refs, self.cache.hits, done, n, how, answers.out, start)
            if not exact:
                wrong.append(self._wrong(rows, self.cache.hits[0][done:upto], start))
            self.counts["answered_by_cache"] += upto - done - len(wrong[-1])
            done = upto
            if done < n:
                yield from self.flush()
        others = np.concatenate(wrong)
        if len(others):
            yield from self.wait(Rows(*(int64s(column[others]) for column in rows)))

    def _wrong(self, rows: Rows, hit: I64, start: int) -> I64:
        """Hits of other keys with the same hash; their pairs, from `start` on, are gone."""
        answers = self.answers
        refs, pairs = answers.refs[start : answers.n], answers.rows[start : answers.n]
        right = answers.right_pairs(refs, pairs)
        found = refs[right]
        good = np.isin(refs, found)
        n, kept = int(good.sum()), right[good]
        answers.refs[start : start + n], answers.rows[start : start + n] = refs[good], pairs[good]
        answers.n = keep_checked(answers.refs, answers.rows, start, start + n, kept, answers.how)
        return hit[~np.isin(rows.refs[hit], found)]

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Answer everything that waits, by loads after which a new phase begins."""
        if self.waiting_rows:
            self._probes_left = self.max_probe
        yield from super().drain()

    def wait(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """These rows take slots, with loads while there is none."""
        start = 0
        while start < len(rows.codes):
            start = self.admit(rows, start)
            if start < len(rows.codes):
                yield from self.make_slots()

    def serve(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load and answer; then keys with many waiting rows enter the cache, as none of their rows waits any more."""
        yield from super().serve(segment)
        if self.learns and self.whole:
            met = self.scratch, self.keys_met
            self.cache.promote(
                self.loaded.batch, met, self.remembers, lambda rows: self.segments.page_at(self.first_row + rows)
            )
        if self.learns and self.cache.policy.replaces == "adaptive" and self.waiting.loads % self._every == 0:
            age(self.cache.keys, 1)

    @property
    def notes_from(self) -> int:
        """As many waiting rows as a key needs to get into the cache."""
        return self.cache.threshold

    def met_together(self, batch: pa.RecordBatch, n: int, n_rows: int, page_of: PageOf) -> None:
        """Keys with many waiting rows enter the cache, all of a round at once."""
        self.cache.promote_met(batch, self.rounds.met, n, n_rows, page_of)

    def served_together(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Hits count half as often as they would after single loads."""
        if self.learns and self.cache.policy.replaces == "adaptive":
            times = self.waiting.loads // self._every - (self.waiting.loads - len(picked)) // self._every
            if times:
                age(self.cache.keys, min(times, MOST_HALVINGS))

    def reshape(self) -> None:
        """Also leave as much to loaded rows as they now need."""
        super().reshape()
        self.cache.floor = self._floor

    def adopted(self, changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Forget cached keys whose page changed."""
        self.cache.forget(changed)
        return iter(())

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Take up new sizes; a smaller cache loses the keys with the fewest hits."""
        shrink_first = sizes.cached is not None and self.learns and sizes.cached < len(self.cache.keys.code)
        if sizes.cached is not None and self.learns and shrink_first:
            yield from self._resize_cache(sizes.cached)
        yield from super().resize(sizes)
        if sizes.cached is not None and self.learns and not shrink_first:
            yield from self._resize_cache(sizes.cached)

    def _resize_cache(self, capacity: int) -> Iterator[pa.RecordBatch]:
        yield from self.flush()
        self.cache.resize(max(1, capacity), self.cache_limit(max(1, capacity)))
        self.cache.tidy()
        self.sizes = replace(self.sizes, cached=capacity)

    def snapshot(self) -> dict[str, pa.Table]:
        """Also the cache: keys, counts and rows."""
        keys, rows = self.cache.snapshot()
        return super().snapshot() | {"cache_keys": keys, "cache_rows": rows}

    def state(self) -> dict[str, Any]:
        """Also the threshold, the random numbers, and how far the phase is."""
        cache = {"cache": self.cache.numbers(), "probes_left": self._probes_left}
        return super().state() | cache

    def restore(self, snapshot: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
        """Take up a snapshot, cache included."""
        out = super().restore(snapshot)
        state = json.loads(snapshot["state"]["json"][0].as_py())
        if self.learns:
            self.cache.restore(snapshot["cache_keys"], snapshot["cache_rows"], state["cache"])
        self._probes_left = state["probes_left"]
        return out

    def relearn(self, snapshot: Mapping[str, pa.Table], changed: I64 | None) -> None:
        """Cached keys but those whose page changed."""
        if self.learns and changed is not None:
            state = json.loads(snapshot["state"]["json"][0].as_py())
            self.cache.restore(snapshot["cache_keys"], snapshot["cache_rows"], state["cache"])
            self.cache.forget(changed)

    def report(self) -> Metrics:
        """The metrics so far, with what went in and out of the cache."""
        self.metrics.add("cache_inserts", self.cache.inserts, unit="keys")
        self.metrics.add("evictions", self.cache.evictions, unit="keys")
        return super().report()
