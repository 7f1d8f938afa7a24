"""How late rows may be, and when they can match nothing any more: a watermark on both sides, and a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.predicate import Band

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

    @classmethod
    def of(cls, band: Band, delays_ms: tuple[int, int]) -> Lateness:
        """The lateness of a band over two columns of times."""
        lo, hi = band_us(band)
        return cls((band.left, band.right), (delays_ms[0] * 1000, delays_ms[1] * 1000), (hi, -lo))

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


def band_us(band: Band) -> tuple[int, int]:
    """The bounds of a band of times in microseconds."""
    if not isinstance(band.lo, timedelta) or not isinstance(band.hi, timedelta):
        raise TypeError(f"{band} is no band of times")
    return band.lo // _US, band.hi // _US
