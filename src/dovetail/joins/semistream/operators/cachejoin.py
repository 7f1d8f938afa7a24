"""CACHEJOIN, SSCJ and Optimised X-HYBRIDJOIN: rows whose key is cached are answered at once, the others wait.

CACHEJOIN and SSCJ learn which master rows to keep from how many rows wait for them. Optimised X-HYBRIDJOIN keeps those
of the first pages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.key_cache import age, hit_pairs, probe_admit
from dovetail.joins.semistream.kernels.segment_match import INNER, Met, keep_checked, noted
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.hybridjoin import IndexDriven, Kept, LookUps
from dovetail.joins.semistream.operators.master_rows import PageOf, RowCache
from dovetail.joins.semistream.operators.operator import SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import Loads, Parts, Rows
from dovetail.joins.semistream.request import ADAPTIVE, LEAST_FREQUENT, OLDEST, CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Part, Sizes, row_bytes

MOST_HALVINGS = 62  # halvings after which every count is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheJoin(SemiStreamJoin):
    """Rows whose key is in a cache of frequent master rows are answered at once; the others wait as in HYBRIDJOIN.

    The master data may be in any order. `cache` says how keys enter and leave; `max_probe` bounds how many rows are
    looked at between two loads (default: as many as can wait). With `sizes.together` above 1 the disk-probing phase
    loads several segments, picked one after the other, and keys enter the cache after all of them.
    Reference: Naeem 2012, 8.2 and algorithm 6; docs/algorithms/semistream.md, 2.10, and 6.7 for the adaptive cache.
    """

    lookup: Lookup = OLDEST
    cache: CachePolicy = ADAPTIVE
    max_probe: int | None = None
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "cached")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        _check_probes(self.max_probe)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep = partial(LearnedKeys, capacity=max(1, sizes.cached or 0), policy=self._policy(), max_probe=self.max_probe)
        schedule = partial(LookUps, lookup=self.lookup)
        return IndexDriven(self, budget, stream, shape, sizes, keep, schedule, stores_rows=True)

    def options(self) -> list[str]:
        """The look-up policy and the cache."""
        return [f"lookup={self.lookup}", f"cache={self._policy()}"]

    def _policy(self) -> CachePolicy:
        """The cache policy, with the threshold of the sizes if they have one."""
        tuned = self.sizes.threshold
        return self.cache if tuned is None else replace(self.cache, threshold=tuned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sscj(CacheJoin):
    """CACHEJOIN that makes room in its cache by dropping the key with the fewest hits.

    Reference: Naeem 2014, 2; docs/algorithms/semistream.md, 2.11.
    """

    cache: CachePolicy = LEAST_FREQUENT


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisedXHybridJoin(SemiStreamJoin):
    """Rows whose key is in the first `sizes.pinned` pages are answered at once; the others wait as in HYBRIDJOIN.

    Meant for master data with the most requested rows first. At most `max_probe` rows (default: as many as can wait)
    are looked at between two loads, so that waiting rows do not starve while every arrival hits. `sizes.together` is as
    in HYBRIDJOIN.
    Reference: Naeem 2012, 7.2 and algorithm 5; docs/algorithms/semistream.md, 2.9.
    """

    lookup: Lookup = OLDEST
    max_probe: int | None = None
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "pinned")

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        _check_probes(self.max_probe)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> IndexDriven:
        """The running join with these sizes."""
        keep = partial(FirstKeys, pages=sizes.pinned or 0, max_probe=self.max_probe)
        schedule = partial(LookUps, lookup=self.lookup)
        return IndexDriven(self, budget, stream, shape, sizes, keep, schedule, stores_rows=True)

    def options(self) -> list[str]:
        """The look-up policy."""
        return [f"lookup={self.lookup}"]


def _check_probes(max_probe: int | None) -> None:
    if max_probe is not None and max_probe < 1:
        raise PlanError(f"max_probe={max_probe}: at least one row must be looked at; leave it out for all.")


class CachedKeys(Kept):
    """Master rows by key: rows probe them, at most `max_probe` in a phase; then one segment is loaded.

    Reference: Naeem 2012, algorithms 5 and 6; docs/algorithms/semistream.md, 2.9 and 2.10.
    """

    def __init__(self, parts: Parts, capacity: int, policy: CachePolicy, max_probe: int | None) -> None:
        super().__init__(parts)
        self.max_probe = max_probe or parts.waiting.slots
        self._probes_left = self.max_probe
        store, cost = parts.disk.store, parts.disk.cost
        self.cache = RowCache(store, capacity, self._limit(capacity), policy, parts.budget, cost.intake, cost.floor)
        parts.answers.after_flush(self.cache.tidy)

    def _limit(self, capacity: int) -> int:
        """Bytes that the rows of `capacity` keys may have."""
        return int(1.25 * capacity * (row_bytes(self.parts.disk.pages) + 1)) + 256

    @property
    def is_paused(self) -> bool:  # type: ignore[override]  # a plain attribute where nothing is kept
        """Whether a load must follow, as `max_probe` rows were probed."""
        return not self._probes_left

    def resume(self) -> None:
        """Begin another phase."""
        self._probes_left = self.max_probe

    def take(self, rows: Rows, start: int, loads: Loads) -> Generator[pa.RecordBatch, None, int]:
        """Answer rows from the cache or let them wait; returns the first row that was not processed."""
        parts, hits, before = self.parts, self.cache.hits, len(self.parts.waiting)
        stop, now = min(len(rows.codes), start + self._probes_left), parts.clock.now_ns()
        given = rows.codes, rows.segments, rows.refs, start, stop, hits, now
        at, n = probe_admit(self.cache.keys, parts.waiting.pool, *given)
        self._probes_left -= at - start
        parts.disk.scratch.probes[0] += at - start
        parts.counts["admits"] += len(parts.waiting) - before
        yield from self._answer(rows, n, loads)
        return at

    def _answer(self, rows: Rows, n: int, loads: Loads) -> Iterator[pa.RecordBatch]:
        """Pairs for all hits; rows whose hash alone equals that of a cached key wait."""
        answers, done = self.parts.answers, 0
        exact = answers.codes.exact
        how, wrong = answers.written_how if exact else INNER, [np.empty(0, np.int64)]
        while done < n:
            start = answers.n
            upto, answers.n = hit_pairs(self.cache.keys, rows.refs, self.cache.hits, done, n, how, answers.out, start)
            if exact:
                missed = answers.wrong(start)
                self.parts.counts["misses"] += missed
            else:
                missed = 0
                wrong.append(self._wrong(rows, self.cache.hits[0][done:upto], start))
            self.parts.counts["answered_by_cache"] += upto - done - len(wrong[-1]) - missed
            done = upto
            if done < n:
                yield from answers.flush()
        others = np.concatenate(wrong)
        if len(others):
            yield from self._wait(rows.some(others), loads)

    def _wrong(self, rows: Rows, hit: I64, start: int) -> I64:
        """Hits of other keys with the same hash; their pairs, from `start` on, are removed."""
        answers = self.parts.answers
        refs, pairs = answers.refs[start : answers.n], answers.rows[start : answers.n]
        same = answers.same_keys(refs, pairs)
        found = refs[same]
        right = answers.passing(refs, pairs, same)
        good = np.isin(refs, found)
        n, kept = int(good.sum()), right[good]
        answers.refs[start : start + n], answers.rows[start : start + n] = refs[good], pairs[good]
        answers.n = keep_checked(answers.refs, answers.rows, start, start + n, kept, answers.how)
        return hit[~np.isin(rows.refs[hit], found)]

    def _wait(self, rows: Rows, loads: Loads) -> Iterator[pa.RecordBatch]:
        """These rows take slots, with loads while none is free."""
        start = 0
        while start < len(rows.codes):
            start = self.parts.admit(rows, start)
            if start < len(rows.codes):
                yield from loads.make_slots()

    def state(self) -> dict[str, Any]:
        """The threshold, the state of the random numbers, and the progress of the phase."""
        return {"cache": self.cache.numbers(), "probes_left": self._probes_left}

    def restore(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any]) -> None:
        """Continue the phase that was begun."""
        self._probes_left = state["probes_left"]

    def regrouped(self) -> None:
        """Adapt the room that is left for loaded rows."""
        self.cache.floor = self.parts.disk.cost.floor

    def report(self, metrics: Metrics) -> None:
        """Add the insertions and evictions of the cache."""
        metrics.add("cache_inserts", self.cache.inserts, unit="keys")
        metrics.add("evictions", self.cache.evictions, unit="keys")

    def close(self) -> None:
        """Release all memory."""
        self.cache.close()


class LearnedKeys(CachedKeys):
    """Keys that enter the cache when a load finds many waiting rows of them."""

    notes_keys = True

    def __init__(self, parts: Parts, capacity: int, policy: CachePolicy, max_probe: int | None) -> None:
        super().__init__(parts, capacity, policy, max_probe)
        self._ages = policy.replaces == "adaptive"
        self.remembers = self._ages and parts.answers.codes.exact
        self._every = policy.every or max(16, parts.disk.segments.wanted // 80)
        self._resized: dict[str, int] = {}

    @property
    def threshold(self) -> int:  # type: ignore[override]  # a plain attribute where nothing is kept
        """Waiting rows that a key needs to enter the cache."""
        return self.cache.threshold

    def after_load(self, segment: int, keys: int, whole: bool) -> None:
        """Insert keys that had many waiting rows, all of which are now answered."""
        disk = self.parts.disk
        if whole:
            met = noted(disk.scratch, keys, self.threshold, self.remembers)
            self.cache.promote(disk.loaded.batch, met, len(met.code), len(met.member), disk.page_of)
        self._age(1)

    def after_keys(self, batch: pa.RecordBatch, met: Met, n: int, n_rows: int, page_of: PageOf) -> None:
        """Insert keys that had many waiting rows, all of a round at once."""
        self.cache.promote(batch, met, n, n_rows, page_of)

    def after_round(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Hits count half as often as they would after single loads."""
        self._age(len(picked))

    def _age(self, loads: int) -> None:
        """Halve all hits once per interval of loads; `loads` loads are new."""
        total = self.parts.waiting.loads
        times = total // self._every - (total - loads) // self._every
        if self._ages and times:
            age(self.cache.keys, min(times, MOST_HALVINGS))

    def adopted(self, changed: I64 | None) -> None:
        """Drop cached keys whose page changed, and adapt the room that is left for loaded rows."""
        self.cache.floor = self.parts.disk.cost.floor
        self.cache.forget(changed)

    def shrink(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Shrink the cache; keys with the fewest hits are evicted."""
        if sizes.cached is not None and sizes.cached < len(self.cache.keys.code):
            yield from self._resize(sizes.cached)

    def grow(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Enlarge the cache."""
        if sizes.cached is not None and sizes.cached >= len(self.cache.keys.code):
            yield from self._resize(sizes.cached)

    def _resize(self, capacity: int) -> Iterator[pa.RecordBatch]:
        yield from self.parts.answers.flush()
        self.cache.resize(max(1, capacity), self._limit(max(1, capacity)))
        self.cache.tidy()
        self._resized = {"cached": capacity}

    def sizes(self) -> dict[str, int]:
        """The number of keys that the cache has room for, if it changed."""
        return self._resized

    def snapshot(self) -> dict[str, pa.Table]:
        """The cache: keys, counts and rows."""
        keys, rows = self.cache.snapshot()
        return {"cache_keys": keys, "cache_rows": rows}

    def restore(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any]) -> None:
        """Restore the cache, and continue the phase that was begun."""
        super().restore(snapshot, state)
        self.cache.restore(snapshot["cache_keys"], snapshot["cache_rows"], state["cache"])

    def relearn(self, snapshot: Mapping[str, pa.Table], state: Mapping[str, Any], changed: I64 | None) -> None:
        """Restore cached keys, except those whose page changed."""
        if changed is not None:
            self.cache.restore(snapshot["cache_keys"], snapshot["cache_rows"], state["cache"])
            self.cache.forget(changed)


class FirstKeys(CachedKeys):
    """The keys of the first pages, read once and never changed."""

    def __init__(self, parts: Parts, pages: int, max_probe: int | None) -> None:
        self._pages = pages
        starts = parts.disk.segments.starts
        super().__init__(parts, max(1, self._rows(starts)), CachePolicy("random"), max_probe)

    def _rows(self, starts: I64) -> int:
        return int(starts[min(self._pages, len(starts) - 1)])

    def open(self) -> None:
        """Read the first pages into the cache."""
        disk = self.parts.disk
        count = min(self._pages, disk.segments.n_pages)
        if count:
            batch = disk.pages.read(0, count)
            self.cache.fill(batch.select(disk.columns), disk.codes_of(batch), disk.segments.page_at)

    def adopted(self, changed: I64 | None) -> None:
        """Read the first pages again."""
        self.cache.floor = self.parts.disk.cost.floor
        self.cache.forget(None)
        rows = max(1, self._rows(self.parts.disk.segments.starts))
        self.cache.resize(rows, self._limit(rows))
        self.open()
