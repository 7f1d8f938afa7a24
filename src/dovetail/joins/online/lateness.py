"""Lateness of rows: event times, watermarks, and the watermark after which a row matches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.graph import Band, JoinGraph
from dovetail.joins.online.intervals import Intervals

_US = timedelta(microseconds=1)
NO_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Lateness:
    """Event-time columns of all inputs, how late their rows may be, and how much later a matching row may be; in
    microseconds.

    Where rows match by a relation of intervals, a matching row may come up to the time in the column `until` of an
    input, the start or the end of its intervals; else up to its event time and `reach`.

    A bucket's watermark is the smallest one of its inputs' newest event times less their delays, of earlier
    micro-batches: never ahead of Spark's, so that no row is dropped that Spark would keep.
    Reference: docs/algorithms/online.md, 7.5.
    """

    columns: tuple[str, ...]
    delays: tuple[int, ...]
    reach: tuple[int, ...]
    until: tuple[str, ...] = ()

    @property
    def timed(self) -> list[list[str]]:
        """The columns with a watermark, and those up to which matching rows may come."""
        return [list(self.columns), list(self.until)]

    def watermark(self, newest: Sequence[int | None]) -> int | None:
        """No row older than this is taken; None before all inputs have sent rows."""
        known = [at - delay for at, delay in zip(newest, self.delays, strict=True) if at is not None]
        return min(known) if len(known) == len(newest) else None

    def expiries(self, side: int, batch: pa.RecordBatch) -> I64:
        """The watermark after which each row matches nothing; NO_TIME for rows without a time."""
        times = _micros(batch.column((self.until or self.columns)[side]))
        return np.where(times < NO_TIME, times + self.reach[side], NO_TIME)

    def times(self, side: int, batch: pa.RecordBatch) -> I64:
        """Event times in microseconds; NO_TIME for rows without one, which are never late."""
        return _micros(batch.column(self.columns[side]))

    def on_time(self, side: int, batch: pa.RecordBatch, watermark: int | None) -> pa.RecordBatch:
        """The rows that are not too late."""
        if watermark is None or batch.num_rows == 0:
            return batch
        times = self.times(side, batch)
        return batch if times.min() >= watermark else pc.filter(batch, pa.array(times >= watermark))


def _micros(column: pa.Array) -> I64:
    """Times in microseconds; NO_TIME for nulls."""
    times = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.asarray(times.fill_null(NO_TIME), np.int64)


def lateness_of(graph: JoinGraph, delays_ms: Sequence[Mapping[str, int]]) -> Lateness | None:
    """The lateness from watermark delays by input and column; None unless every edge has a time band on such columns.

    Each input has one time column. For inputs that are not adjacent, the bands between them add up. Intervals of two
    inputs have a watermark on a bound that a relation limits.
    """
    near = graph.edges[0].any_band
    if isinstance(near, Intervals):
        timed = near.last_times((delays_ms[0], delays_ms[1]))
        if timed is None:
            return None
        watermarked, until = zip(*timed, strict=True)
        late = tuple(1000 * delays_ms[r][column] for r, column in enumerate(watermarked))
        return Lateness(watermarked, late, (0, 0), until)
    columns: dict[int, str] = {}
    later: dict[int, dict[int, int]] = {r: {} for r in range(len(graph.names))}
    for edge in graph.edges:
        band, (r, q) = edge.any_band, (end.relation for end in edge.ends)
        if not isinstance(band, Band) or not isinstance(band.lo, timedelta) or not isinstance(band.hi, timedelta):
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
