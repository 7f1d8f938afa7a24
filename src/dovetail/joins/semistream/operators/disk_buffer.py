"""The disk buffer: master rows as they are read, a segment or a round of them, until no answer names them any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes, take_columns
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.operator import OperatorError
from dovetail.joins.semistream.kernels.segment_match import Scratch, empty_scratch, match_rows, scratch_bytes
from dovetail.joins.semistream.keys import KeyCodes
from dovetail.joins.semistream.master.pages import KeyedPages, Pages
from dovetail.joins.semistream.operators.answers import SHIFT, Answers, RowStore
from dovetail.joins.semistream.sizes import Footprint, Segments

OUTPUT_FLOOR = 4096  # bytes that are left for answers, at least
_READ_AND_DECODED = 2.2  # bytes held while a round is read, against those stored
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
    """Reads master rows and holds them while answers name them.

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
        self._passing: set[int] = set()  # chunks that go as soon as no answer names them
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
        """Whether so many bytes could be reserved now, with some left for answers."""
        return self._budget.available > n + OUTPUT_FLOOR

    def load(self, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """Read a run of pages by one read, which `loaded` then gives; answers come out if room is needed."""
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
        """Hold a batch of master rows as the loaded ones; answers come out if room is needed."""
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
        """Keep a chunk after no answer names it; another part pays for it from now on."""
        self.store.charge_to(chunk, payer)
        self._kept.add(chunk)

    def let_go(self, chunk: int) -> None:
        """Keep a chunk no longer than answers name it."""
        self.store.charge_to(chunk, self.store.reservation)
        self._kept.discard(chunk)
        self._passing.add(chunk)

    def codes_of(self, batch: pa.RecordBatch) -> I64:
        """The codes of the keys of master rows."""
        names = batch.schema
        return self._codes.encode([batch.column(names.get_field_index(name)) for name in self.pages.key])[0]

    def release(self) -> None:
        """Drop chunks that no answer names; no answer may be collected."""
        if not self._passing:
            return
        lasting = self._kept | ({self._loaded.chunk} if self._loaded is not None else set())
        self.store.drop(self._passing - lasting)
        self._passing &= lasting

    def make_room(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Make room to match a segment of so many rows, which may be more than were counted when it was planned."""
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
        """Answer stream rows, which do not wait, by these master rows; `scratch` if the own one is too small."""
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

    def affordable(self, picked: I64) -> int:
        """How many of the segments, at least one, there is room for by the bytes that they are stored in."""
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

        None if the store cannot be asked for one of them. The request counts as one load.
        """
        pages = self.pages
        if not isinstance(pages, KeyedPages) or not pages.finds_keys:
            return None
        batch = pages.read_keys(self._answers.different_keys(codes, refs))
        if batch is None:
            return None
        self._counts["loads"] += 1
        page = np.asarray(pages.home([batch.column(name) for name in pages.key]), np.int64)
        segment = self.segments.of_pages(page)
        at = np.searchsorted(picked, segment)
        inside = np.flatnonzero(picked[np.minimum(at, len(picked) - 1)] == segment)
        order = inside[np.argsort(at[inside], kind="stable")]
        offsets = np.searchsorted(at[order], np.arange(len(picked) + 1))
        pages_in_order = page[order]
        return Read(take_columns(batch, order), offsets, lambda rows: pages_in_order[rows], False)

    def close(self) -> None:
        """Give back all memory."""
        self._working.close()
        self.store.close()
