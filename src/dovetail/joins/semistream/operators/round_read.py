"""What a round reads: whole segments in one call, or, of stores that find them, the keys that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes, take_columns
from dovetail.engine.kernels.arrays import I64
from dovetail.joins.semistream.keys import key_columns
from dovetail.joins.semistream.master.pages import KeyedPages
from dovetail.joins.semistream.operators.base import Loaded, SemiStreamOperator
from dovetail.joins.semistream.operators.cache import PageOf

_READ_AND_DECODED = 2.2  # bytes held while a round is read, against those stored
Asked = Callable[[], tuple[I64, I64]]
"""Gives the codes and the names of the stream rows whose keys are asked for."""


class Read(NamedTuple):
    """Rows of a round: segment by segment, from `offsets` on; `whole` if all rows of the segments are there."""

    batch: pa.RecordBatch
    offsets: I64
    page_of: PageOf
    whole: bool


class RoundReader:
    """Reads the segments of a round for a join, inside the join's disk buffer."""

    def __init__(self, join: SemiStreamOperator) -> None:
        self._join = join

    @property
    def keyed(self) -> bool:
        """Whether the store can be asked for keys."""
        pages = self._join.pages
        return isinstance(pages, KeyedPages) and pages.finds_keys

    def affordable(self, picked: I64) -> int:
        """How many of the segments, at least one, there is room for by the bytes that they are stored in."""
        stored = np.cumsum(self._join.segments.stored_bytes(picked)) * _READ_AND_DECODED
        room = max(0, self._join.budget.available - self._join.output_floor)
        return max(1, int(np.searchsorted(stored, room, side="right")))

    def segments(self, picked: I64, runs: tuple[I64, I64] | None = None) -> Read:
        """All rows of these segments, which must ascend; or of these runs of their pages, a first page and a number."""
        join = self._join
        segments, disk = join.segments, join.master.reservation
        first = segments.first[picked] if runs is None else runs[0]
        count = segments.last[picked] - first if runs is None else runs[1]
        held = min(int(join.pages.stored_many(first, count).sum() * _READ_AND_DECODED), join.budget.available)
        disk.grow(held)
        try:
            batch, offsets = join.pages.read_many(first, count)
        finally:
            disk.shrink(held)
        before = segments.starts[first] - offsets[:-1]

        def page_of(rows: I64) -> I64:
            return segments.page_at(rows + before[np.searchsorted(offsets, rows, side="right") - 1])

        join.counts["loads"] += len(picked)
        return Read(batch, offsets, page_of, True)

    def keys(self, picked: I64, asked: Asked) -> Read | None:
        """The rows of the keys asked for, by one request, put in the order of their segments, which are the picked.

        None if the store cannot be asked for one of them. The request counts as one load.
        """
        join, pages = self._join, self._join.pages
        if not isinstance(pages, KeyedPages) or not pages.finds_keys:
            return None
        batch = pages.read_keys(self._different(*asked()))
        if batch is None:
            return None
        join.counts["loads"] += 1
        page = np.asarray(pages.home([batch.column(name) for name in pages.key]), np.int64)
        segment = join.segments.of_pages(page)
        at = np.searchsorted(picked, segment)
        inside = np.flatnonzero(picked[np.minimum(at, len(picked) - 1)] == segment)
        order = inside[np.argsort(at[inside], kind="stable")]
        offsets = np.searchsorted(at[order], np.arange(len(picked) + 1))
        pages_in_order = page[order]
        return Read(take_columns(batch, order), offsets, lambda rows: pages_in_order[rows], False)

    def _different(self, codes: I64, refs: I64) -> list[pa.Array]:
        """The different keys of these stream rows."""
        join = self._join
        if join.key_codes.exact:
            refs = refs[np.unique(codes, return_index=True)[1]]
        rows = join.stream.gather(refs, join.spec.on)
        keys = key_columns(rows, join.spec.on, join.key_codes.types)
        if join.key_codes.exact or not rows.num_rows:
            return keys
        names = [f"k{at}" for at in range(len(keys))]
        different = pa.table(keys, names).group_by(names).aggregate([]).combine_chunks()
        return [different[name].chunk(0) for name in names]

    def hold(self, batch: pa.RecordBatch) -> Loaded:
        """The rows, charged to the disk buffer, until answers that name them are out."""
        join = self._join
        kept = batch.select(join.kept_columns())
        chunk = join.master.add_charged(kept, held_bytes(batch))
        codes, _ = join.key_codes.encode([batch.column(batch.schema.get_field_index(k)) for k in join.pages.key])
        return join.keep_loaded(Loaded(kept, codes, chunk))
