"""How late rows may be, and when they can match nothing any more: a watermark on both sides, and a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.kernels.arrays import I64
from dovetail.online.predicate import Band

_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Event-time columns and how late their rows may be, by side, and the band that both must keep; microseconds.

    A bucket's watermark is the smaller one of its sides' newest event times less their delays, of earlier
    micro-batches: never ahead of Spark's, so that no row is dropped that Spark would keep.
    """

    columns: tuple[str, str]
    delays: tuple[int, int]
    lo: int
    hi: int

    @classmethod
    def of(cls, band: Band, delays_ms: tuple[int, int]) -> Lateness:
        """The lateness of a band over two columns of times."""
        if not isinstance(band.lo, timedelta) or not isinstance(band.hi, timedelta):
            raise TypeError(f"{band} is no band of times")
        return cls((band.left, band.right), (delays_ms[0] * 1000, delays_ms[1] * 1000), band.lo // _US, band.hi // _US)

    def watermark(self, newest: Sequence[int | None]) -> int | None:
        """No row older than this is taken; None before both sides have sent rows."""
        left, right = newest
        if left is None or right is None:
            return None
        return min(left - self.delays[0], right - self.delays[1])

    def expiry(self, side: int, newest: int) -> int:
        """Rows of a side up to this age match nothing once the watermark is later than this."""
        return newest + (self.hi if side == 0 else -self.lo)

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
