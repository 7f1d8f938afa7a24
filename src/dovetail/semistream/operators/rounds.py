"""Rounds: several segments read in one call and met in one pass, inside the disk buffer's share of the budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes, take_columns
from dovetail.kernels.arrays import I64, int64s
from dovetail.kernels.waiting_round import chain_rows, empty_met, resolve_round
from dovetail.semistream.cache import PageOf
from dovetail.semistream.keys import key_columns
from dovetail.semistream.master.pages import KeyedPages
from dovetail.semistream.operators.base import Loaded
from dovetail.semistream.rows import SHIFT
from dovetail.semistream.waiting import Limits

if TYPE_CHECKING:
    from dovetail.semistream.operators.index_driven import IndexDriven

_READ_AND_DECODED = 2.2  # bytes held while a round is read, against those stored


class Read(NamedTuple):
    """Rows of a round: segment by segment, from `offsets` on; `whole` if all rows of the segments are there."""

    batch: pa.RecordBatch
    offsets: I64
    page_of: PageOf
    whole: bool


class Rounds:
    """What an index-driven join needs to serve several segments in one round; `most` is 1 if it serves them singly."""

    def __init__(self, join: IndexDriven) -> None:
        self._join = join
        self._room = join.budget.reserve("round")
        self.threshold = 1
        self.reshape()

    def reshape(self) -> None:
        """Fit the round to the join's segments and budget."""
        join, cost = self._join, self._join.footprint()
        self.most = min(cost.round_segments, max(1, cost.round_rows))
        self._room.resize(cost.round)
        pages = join.pages
        self.keyed = isinstance(pages, KeyedPages) and pages.finds_keys and not join.keeps_segments
        rows = np.empty(0, np.int64) if self.keyed else join.segments.rows
        n = self.most if self.most > 1 else 0
        self.limits = Limits(int64s(rows), cost.round_rows, np.empty(n, np.int64), np.empty(n, np.int64))
        noted = (cost.noted_keys, cost.noted_rows) if n and join.notes_keys else (0, 0)
        self.met = empty_met(*noted)

    def serve(self, picked: I64, counts: I64) -> Iterator[pa.RecordBatch]:
        """Read the segments and answer every row that waits for them; after a failure all that is not, waits again."""
        join, asked = self._join, counts.copy()
        try:
            found = self._read_keys(picked) if self.keyed else None
            if found is None:
                picked, counts, asked = self._affordable(picked, counts)
                found = self._read_segments(picked)
            join.counts["loads"] += len(picked) if found.whole else 1
            yield from join.make_room(int(np.diff(found.offsets).max(initial=0)))
            yield from self._resolve(picked, counts, self._hold(found.batch), found)
            join.served_together(picked, asked, found.offsets if found.whole else None)
        except BaseException:
            join.waiting.put_back(picked, counts)
            raise

    def _affordable(self, picked: I64, counts: I64) -> tuple[I64, I64, I64]:
        """As many of the segments as there is room for by the bytes they are stored in; the others wait again."""
        join = self._join
        stored = join.segments.stored_bytes(picked)
        room = max(0, join.budget.available - join.output_floor)
        n = max(1, int(np.searchsorted(np.cumsum(stored) * _READ_AND_DECODED, room, side="right")))
        if n < len(picked):
            join.waiting.put_back(picked[n:], counts[n:])
        return picked[:n], counts[:n], counts[:n].copy()

    def _read_segments(self, picked: I64) -> Read:
        join = self._join
        segments, disk = join.segments, join.master.reservation
        held = min(int(segments.stored_bytes(picked).sum() * _READ_AND_DECODED), join.budget.available)
        disk.grow(held)
        try:
            batch, offsets = segments.read_many(picked)
        finally:
            disk.shrink(held)
        before = segments.starts[segments.first[picked]] - offsets[:-1]

        def page_of(rows: I64) -> I64:
            return segments.page_at(rows + before[np.searchsorted(offsets, rows, side="right") - 1])

        return Read(batch, offsets, page_of, True)

    def _read_keys(self, picked: I64) -> Read | None:
        """The rows of the keys that are waited for, by one request, put in the order of their segments.

        None if the store cannot be asked for one of them.
        """
        join = self._join
        pages = join.pages
        assert isinstance(pages, KeyedPages)  # noqa: S101  (tells the type checker what `keyed` says)
        batch = pages.read_keys(self._keys(picked))
        if batch is None:
            return None
        page = np.asarray(pages.home([batch.column(name) for name in pages.key]), np.int64)
        segment = join.segments.of_pages(page)
        at = np.searchsorted(picked, segment)
        inside = np.flatnonzero(picked[np.minimum(at, len(picked) - 1)] == segment)
        order = inside[np.argsort(at[inside], kind="stable")]
        offsets = np.searchsorted(at[order], np.arange(len(picked) + 1))
        pages_in_order = page[order]
        return Read(take_columns(batch, order), offsets, lambda rows: pages_in_order[rows], False)

    def _keys(self, picked: I64) -> list[pa.Array]:
        """The different keys of the rows that wait for these segments."""
        join = self._join
        codes, refs = (np.empty(self.limits.most_rows + join.waiting.slots, np.int64) for _ in range(2))
        n = chain_rows(join.waiting.pool, picked, codes, refs)
        refs = refs[:n]
        if join.key_codes.exact:
            refs = refs[np.unique(codes[:n], return_index=True)[1]]
        rows = join.stream.gather(refs, join.spec.on)
        keys = key_columns(rows, join.spec.on, join.key_codes.types)
        if join.key_codes.exact:
            return keys
        names = [f"k{at}" for at in range(len(keys))]
        different = pa.table(keys, names).group_by(names).aggregate([]).combine_chunks()
        return [different[name].chunk(0) if different.num_rows else keys[at] for at, name in enumerate(names)]

    def _hold(self, batch: pa.RecordBatch) -> Loaded:
        join = self._join
        kept = batch.select(join.kept_columns())
        chunk = join.master.add_charged(kept, held_bytes(batch))
        codes, _ = join.key_codes.encode([batch.column(batch.schema.get_field_index(k)) for k in join.pages.key])
        return join.keep_loaded(Loaded(kept, codes, chunk))

    def _resolve(self, picked: I64, counts: I64, loaded: Loaded, found: Read) -> Iterator[pa.RecordBatch]:
        join, at, offsets = self._join, 0, int64s(found.offsets)
        answers, pool = join.answers, join.waiting.pool
        while at < len(picked):
            start, now = answers.n, join.now_ns()
            state = pool, picked, counts, offsets, at, loaded.codes, loaded.chunk << SHIFT, join.scratch
            output = answers.written_how, answers.out, start, now, join.remembers
            at, answers.n, done, missed, keys, rows = resolve_round(*state, *output, self.met, join.notes_from)
            missed += answers.wrong(start)
            join.counts["misses"] += missed
            join.counts["answered_by_page"] += done - missed
            if keys:
                join.met_together(loaded.batch, keys, rows, found.page_of)
            if at < len(picked):
                yield from join.flush()

    def close(self) -> None:
        """Give back the memory."""
        self._room.close()
