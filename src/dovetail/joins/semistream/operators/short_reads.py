"""Short reads at low rates: of a segment for which few rows wait, only the pages that these need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.kernels.waiting_round import chain_rows
from dovetail.joins.semistream.keys import key_columns

if TYPE_CHECKING:
    from dovetail.joins.semistream.operators.index_driven import IndexDriven

FEW = 4  # rows waiting for a segment, up to which it is asked what pages they need
MANY = 64  # segments of a round, from which the rate is not low, and asking would cost more than it saves


def pages_needed(join: IndexDriven, segments: I64, waiting: I64) -> tuple[I64, I64]:
    """The first page of each of these segments that is read, and how many, if so many rows wait for each.

    For one row this is INLJ's read of one page; for rows that wait for pages far apart, all pages between them, as one
    more seek costs more. The same rows are answered as by the whole segment.
    Reference: docs/algorithms/semistream.md, 6.10.
    """
    first, last = join.segments.first[segments], join.segments.last[segments]
    few = np.flatnonzero(waiting <= FEW)
    if not join.reads_short or join.segments.per_segment == 1 or len(segments) > MANY or not len(few):
        return first, last - first
    first, last = first.copy(), last.copy()
    n = int(waiting[few].sum())
    codes, refs = np.empty(n, np.int64), np.empty(n, np.int64)
    chain_rows(join.waiting.pool, int64s(segments[few]), codes, refs)
    on = join.spec.on
    pages = join.pages.home(key_columns(join.stream.gather(refs, on), on, join.key_codes.types))
    starts = np.cumsum(waiting[few]) - waiting[few]
    first[few] = np.minimum.reduceat(pages, starts)
    last[few] = np.maximum.reduceat(pages, starts) + 1
    return first, last - first
