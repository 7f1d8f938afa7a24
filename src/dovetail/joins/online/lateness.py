"""How late rows may be, and when they can match nothing any more: watermarks, and bands of times along all edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.graph import JoinGraph

_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Event-time columns of all inputs, how late their rows may be, and how much later than a row others may be that
    still match it; microseconds.

    A bucket's watermark is the smallest one of its inputs' newest event times less their delays, of earlier
    micro-batches: never ahead of Spark's, so that no row is dropped that Spark would keep.
    Reference: docs/algorithms/online.md, 7.5.
    """

    columns: tuple[str, ...]
    delays: tuple[int, ...]
    reach: tuple[int, ...]

    def watermark(self, newest: Sequence[int | None]) -> int | None:
        """No row older than this is taken; None before all inputs have sent rows."""
        known = [at - delay for at, delay in zip(newest, self.delays, strict=True) if at is not None]
        return min(known) if len(known) == len(newest) else None

    def expiry(self, side: int, newest: int) -> int:
        """Rows of an input up to this age match nothing once the watermark is later than this."""
        return newest + self.reach[side]

    def times(self, side: int, batch: pa.RecordBatch) -> I64:
        """Event times in microseconds; rows without one have been left out before."""
        times = batch.column(self.columns[side]).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return np.asarray(times, np.int64)

    def on_time(self, side: int, batch: pa.RecordBatch, watermark: int | None) -> pa.RecordBatch:
        """The rows that are not too late."""
        if watermark is None or batch.num_rows == 0:
            return batch
        times = self.times(side, batch)
        return batch if times.min() >= watermark else pc.filter(batch, pa.array(times >= watermark))


def lateness_of(graph: JoinGraph, delays_ms: Sequence[Mapping[str, int]]) -> Lateness | None:
    """What watermarks say, given by input and column; None unless every edge has a band of times on such columns.

    Each input has one column of times. Rows of inputs that are no neighbours are as far apart as the bands between.
    """
    columns: dict[int, str] = {}
    later: dict[int, dict[int, int]] = {r: {} for r in range(len(graph.names))}
    for edge in graph.edges:
        band, (r, q) = edge.any_band, (end.relation for end in edge.ends)
        if band is None or not isinstance(band.lo, timedelta) or not isinstance(band.hi, timedelta):
            return None
        for relation, column in ((r, band.left), (q, band.right)):
            if column not in delays_ms[relation] or columns.setdefault(relation, column) != column:
                return None
        later[r][q], later[q][r] = band.hi // _US, -(band.lo // _US)
    used = tuple(columns[r] for r in range(len(graph.names)))
    delays = tuple(1000 * delays_ms[r][column] for r, column in enumerate(used))
    return Lateness(used, delays, tuple(max(_reaches(later, r, None)) for r in range(len(graph.names))))


def _reaches(later: Mapping[int, Mapping[int, int]], r: int, before: int | None) -> list[int]:
    """How much later than a row of one input those of each other input may be."""
    found = []
    for near, by in later[r].items():
        if near != before:
            found += [by, *(by + more for more in _reaches(later, near, r))]
    return found
