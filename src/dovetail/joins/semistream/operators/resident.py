"""Joins that keep the segments asked for most in memory: rows at home there are answered as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import compact_bytes
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.kernels.segment_match import match_rows
from dovetail.joins.semistream.kernels.waiting_pool import admit_until
from dovetail.joins.semistream.operators.answers import SHIFT
from dovetail.joins.semistream.operators.base import Loaded, Rows
from dovetail.joins.semistream.operators.index_driven import IndexDriven
from dovetail.joins.semistream.sizes import Sizes

NEVER = 1 << 40


class WithResidents(IndexDriven):
    """A few segments stay, those with the most requests lately; a loaded one replaces the least asked for of them.

    Reference: Naeem 2012, 2.4.3; Naeem 2014, 2; docs/algorithms/semistream.md, 2.4 and 2.5.
    """

    threshold = NEVER
    keeps_segments = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._residents: dict[int, Loaded] = {}
        self._kept = self.budget.reserve("resident segments")  # given back with the segments
        self._counters = self.own(self.budget.reserve("segment counters"))
        self._count_anew()

    def _count_anew(self) -> None:
        n = self.segments.n + 1
        self._counters.resize(9 * n)
        self.requests, self._there = np.zeros(n, np.float64), np.zeros(n, np.bool_)

    def _split(self, rows: Rows, start: int) -> tuple[int, I64]:
        """How far rows were taken, and those of them whose segment is there."""
        found, before = np.empty(len(rows.codes) - start, np.int64), len(self.waiting)
        now, pool = self._clock.now_ns(), self.waiting.pool
        limit = self.threshold
        stop, n = admit_until(pool, rows.codes, rows.segments, rows.refs, start, now, limit, self._there, found)
        self.counts["admits"] += len(self.waiting) - before
        return stop, found[:n]

    def online(self, rows: Rows, found: I64) -> Iterator[pa.RecordBatch]:
        """Answer rows whose segment is there."""
        at_home = rows.segments[found]
        for segment in np.unique(at_home).tolist():
            some = found[at_home == segment]
            self.requests[segment] += len(some)
            yield from self._meet(rows, some, self._residents[segment])

    def _meet(self, rows: Rows, some: I64, loaded: Loaded) -> Iterator[pa.RecordBatch]:
        codes, refs, done = int64s(rows.codes[some]), int64s(rows.refs[some]), 0
        answers = self.answers
        while done < len(codes):
            at, before = answers.n, done
            how, source = answers.written_how, loaded.chunk << SHIFT
            answers.n, done, missed = match_rows(
                codes, refs, done, loaded.codes, source, self.scratch, how, answers.out, at
            )
            missed += answers.wrong(at)
            self.counts["misses"] += missed
            self.counts["answered_by_cache"] += done - before - missed
            if done < len(codes):
                yield from self.flush()

    def serve(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Load and answer; then the segment may stay."""
        self.requests[segment] += self.waiting.pool.held[segment]
        yield from super().serve(segment)
        self._maybe_keep(segment)

    def served_together(self, picked: I64, asked: I64, offsets: I64 | None) -> None:
        """Segments of the round that are asked for more than residents stay, as copies of their own."""
        self.requests[picked] += asked
        if not self.sizes.resident or offsets is None:
            return
        there = np.array(list(self._residents), np.int64)
        new = ~np.isin(picked, there)
        both = np.append(there, picked[new])
        most = both[np.argsort(-self.requests[both], kind="stable")][: self.sizes.resident]
        for segment in np.setdiff1d(there, most).tolist():
            self._let_go(segment)
        for at in np.flatnonzero(new & np.isin(picked, most)).tolist():
            self._keep_copy(int(picked[at]), slice(int(offsets[at]), int(offsets[at + 1])))

    def _keep_copy(self, segment: int, rows: slice) -> None:
        """Keep rows of the loaded round as a resident segment, if there is room for a copy of them."""
        loaded = self.loaded
        part = loaded.batch.slice(rows.start, rows.stop - rows.start)
        size = compact_bytes(part) + 8 * part.num_rows
        if not self.fits(size):
            return
        chunk = self.master.add_charged(pa.concat_batches([part]), size, self._kept)
        self._stay(segment, Loaded(self.master.chunk(chunk), int64s(loaded.codes[rows].copy()), chunk))

    def _maybe_keep(self, segment: int) -> None:
        if self._deserves(segment):
            self.master.charge_to(self.loaded.chunk, self._kept)
            self._stay(segment, self.loaded)

    def _deserves(self, segment: int) -> bool:
        """Whether there is a place for the segment, that of one that is asked for less if need be, which then goes."""
        most = self.sizes.resident or 0
        if not most or segment in self._residents:
            return False
        if len(self._residents) >= most:
            least = min(self._residents, key=lambda number: (self.requests[number], number))
            if self.requests[segment] <= self.requests[least]:
                return False
            self._let_go(least)
        return True

    def _stay(self, segment: int, loaded: Loaded) -> None:
        self._residents[segment] = loaded
        self._there[segment] = True

    def _let_go(self, segment: int) -> None:
        self.master.charge_to(self._residents.pop(segment).chunk, self.master.reservation)
        self._there[segment] = False

    def lasting(self) -> set[int]:
        """The resident segments."""
        return {loaded.chunk for loaded in getattr(self, "_residents", {}).values()}

    def adopted(self, changed: I64 | None) -> Iterator[pa.RecordBatch]:
        """Let go of residents that changed."""
        for segment in list(self._residents):
            pages = (
                range(int(self.segments.first[segment]), int(self.segments.last[segment]))
                if (changed is not None and segment < self.segments.n)
                else ()
            )
            if changed is None or segment >= self.segments.n or any(page in changed for page in pages):
                self._let_go(segment)
        requests, there = self.requests, self._there
        self._count_anew()
        n = min(len(requests), len(self.requests))
        self.requests[:n], self._there[:n] = requests[:n], there[:n]
        self.release_pages()
        return iter(())

    def resize(self, sizes: Sizes) -> Iterator[pa.RecordBatch]:
        """Take up new sizes; of fewer resident segments those asked for least go."""
        if sizes.resident is not None:
            self.sizes = replace(self.sizes, resident=sizes.resident)
            least_first = sorted(self._residents, key=lambda number: (self.requests[number], number))
            for segment in least_first[: max(0, len(least_first) - sizes.resident)]:
                self._let_go(segment)
            self.release_pages()
        yield from super().resize(sizes)

    def regrouped(self) -> None:
        """Segments of another length are other segments: let all go."""
        for segment in list(self._residents):
            self._let_go(segment)
        self._count_anew()
        self.release_pages()

    def state(self) -> dict[str, Any]:
        """Also the requests and who is resident, in order."""
        some = np.flatnonzero(self.requests)
        requests = [some.tolist(), self.requests[some].tolist()]
        return super().state() | {"requests": requests, "residents": list(self._residents)}

    def restate(self, state: Any) -> None:
        """Also read the resident segments again."""
        super().restate(state)
        some, counts = state["requests"]
        self.requests[some] = counts
        for segment in state["residents"]:
            for _ in self.hold(self.segments.read(segment)):
                pass
            self.master.charge_to(self.loaded.chunk, self._kept)
            self._stay(segment, self.loaded)
