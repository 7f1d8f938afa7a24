"""Streams of Zipf keys with arrival times: the fast side of a semi-stream join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.workloads.arrivals import Arrivals, Constant, parse_arrivals
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    TIMESTAMP,
    Workload,
    require,
    require_count,
    require_seed,
    timestamps,
)
from dovetail.workloads.filler import filler
from dovetail.workloads.zipf import Law, ZipfKeys

_FIXED_BYTES = 24
_EVERY_MS = Constant(1000.0)


@dataclass(frozen=True, slots=True)
class ZipfStream(Workload):
    """Rows `id` (the row number), `at` (arrival) and `key` (Zipf over 1..domain), with `payload` up to tuple_bytes.

    `id` and `at` never decrease. Keys are as in `ZipfKeys`; `arrivals` is a process or its text, see `parse_arrivals`.
    """

    rows: int
    domain: int
    exponent: float = 1.0
    seed: int = 0
    law: Law = "discrete"
    scattered: bool = False
    drift_rows: int = 0
    absent: float = 0.0
    arrivals: Arrivals = _EVERY_MS
    tuple_bytes: int = _FIXED_BYTES

    def __post_init__(self) -> None:
        require_count("rows", self.rows)
        require_seed(self.seed)
        require_count("tuple_bytes", self.tuple_bytes)
        require(
            self.tuple_bytes >= _FIXED_BYTES,
            f"tuple_bytes must be at least {_FIXED_BYTES} (id, at, key), not {self.tuple_bytes}.",
        )
        self.key_law()

    def key_law(self) -> ZipfKeys:
        """How keys are drawn and where in the domain each rank lies."""
        return ZipfKeys(self.domain, self.exponent, self.law, self.scattered, self.drift_rows, self.absent)

    @property
    def schema(self) -> pa.Schema:
        """id, at, key, and payload if the tuple is wider than these."""
        fields = [("id", pa.int64()), ("at", TIMESTAMP), ("key", pa.int64())]
        return pa.schema(fields + ([("payload", pa.string())] if self.tuple_bytes > _FIXED_BYTES else []))

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        at = self.arrivals.times_us(self.seed, "arrival", block, n, self.rows)
        keys = self.key_law().keys(self.seed, "key", block, n)
        arrays = [pa.array(ids), timestamps(at), pa.array(keys)]
        if self.tuple_bytes > _FIXED_BYTES:
            arrays.append(filler(keys, self.tuple_bytes - _FIXED_BYTES))
        return arrays


def zipf_stream(
    rows: int = 1_000_000,
    domain: int = 100_000,
    exponent: float = 1.0,
    seed: int = 0,
    law: Law = "discrete",
    scattered: bool = False,
    drift_rows: int = 0,
    absent: float = 0.0,
    arrivals: str = "constant(1000)",
    tuple_bytes: int = _FIXED_BYTES,
) -> ZipfStream:
    """A `ZipfStream` with the arrival process given as text: "constant(..)", "poisson(..)", "bursty(..)"."""
    process = parse_arrivals(arrivals)
    return ZipfStream(rows, domain, exponent, seed, law, scattered, drift_rows, absent, process, tuple_bytes)
