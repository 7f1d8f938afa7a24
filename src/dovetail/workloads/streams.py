"""Both sides of a semi-stream join: streams of Zipf keys with arrival times, and master data of any size and order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa

from dovetail.workloads.arrivals import Arrivals, Constant, parse_arrivals
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    I64,
    TIMESTAMP,
    Workload,
    checksum,
    filler,
    mix64,
    require,
    require_count,
    require_seed,
    timestamps,
)
from dovetail.workloads.zipf import Law, ZipfKeys, permuted

_STREAM_BYTES = 24
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
    tuple_bytes: int = _STREAM_BYTES

    def __post_init__(self) -> None:
        require_count("rows", self.rows)
        require_seed(self.seed)
        require_count("tuple_bytes", self.tuple_bytes)
        require(
            self.tuple_bytes >= _STREAM_BYTES,
            f"tuple_bytes must be at least {_STREAM_BYTES} (id, at, key), not {self.tuple_bytes}.",
        )
        self.key_law()

    def key_law(self) -> ZipfKeys:
        """The law of keys, and the place of each rank in the domain."""
        return ZipfKeys(self.domain, self.exponent, self.law, self.scattered, self.drift_rows, self.absent)

    @property
    def schema(self) -> pa.Schema:
        """id, at, key, and payload if the tuple is wider than these."""
        fields = [("id", pa.int64()), ("at", TIMESTAMP), ("key", pa.int64())]
        return pa.schema(fields + ([("payload", pa.string())] if self.tuple_bytes > _STREAM_BYTES else []))

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        at = self.arrivals.times_us(self.seed, "arrival", block, n, self.rows)
        keys = self.key_law().keys(self.seed, "key", block, n)
        arrays = [pa.array(ids), timestamps(at), pa.array(keys)]
        if self.tuple_bytes > _STREAM_BYTES:
            arrays.append(filler(keys, self.tuple_bytes - _STREAM_BYTES))
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
    tuple_bytes: int = _STREAM_BYTES,
) -> ZipfStream:
    """A `ZipfStream` with the arrival process given as text: "constant(..)", "poisson(..)", "bursty(..)"."""
    process = parse_arrivals(arrivals)
    return ZipfStream(rows, domain, exponent, seed, law, scattered, drift_rows, absent, process, tuple_bytes)


Order = Literal["key", "frequency", "shuffled"]

_MASTER_BYTES = 16
_NULL = 0  # keys start at 1, so 0 is free to stand for null until the column is built


@dataclass(frozen=True, slots=True)
class Master(Workload):
    """Rows `key` (from 1..domain), `checksum` (of the key) and `payload`, `tuple_bytes` wide together.

    `order` "key" sorts by key, nulls first. "frequency" puts the most popular key first, as a scattered `ZipfStream` of
    the same seed and domain draws them; for a stream that is not scattered, the order of keys is that of frequency.
    "shuffled" is neither. `missing` and `duplicates` are the shares of keys that are absent, or occur twice; `nulls`
    is the share of rows with a null key. All three orders hold the same rows. Unless these shares are set, keys are
    unique and none is missing. Fewer rows are a prefix of more only in the order of keys.
    """

    domain: int
    tuple_bytes: int = 120
    order: Order = "key"
    seed: int = 0
    missing: float = 0.0
    duplicates: float = 0.0
    nulls: float = 0.0
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        require_count("domain", self.domain, 1)
        require_seed(self.seed)
        require_count("tuple_bytes", self.tuple_bytes, _MASTER_BYTES)
        require(
            self.order in ("key", "frequency", "shuffled"),
            f"order is 'key', 'frequency' or 'shuffled', not {self.order!r}.",
        )
        for name in ("missing", "duplicates", "nulls"):
            share = getattr(self, name)
            require(0.0 <= share < 1.0, f"{name} is a share from 0 to below 1, not {share}.")
        object.__setattr__(self, "rows", self.domain if self._regular else _ordered_keys(self._defects).size)

    @property
    def schema(self) -> pa.Schema:
        """key, checksum, payload; a null key has a null checksum."""
        return pa.schema([("key", pa.int64()), ("checksum", pa.int64()), ("payload", pa.string())])

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        keys = self._keys(block * BLOCK_ROWS, n)
        null = keys == _NULL
        mask = null if null.any() else None
        # Zero beneath every null, as the JVM writes it: else the same rows would differ in their bytes.
        sums = np.where(null, 0, checksum(keys))
        return [pa.array(keys, mask=mask), pa.array(sums, mask=mask), filler(keys, self.tuple_bytes - _MASTER_BYTES)]

    @property
    def _regular(self) -> bool:
        return not (self.missing or self.duplicates or self.nulls)

    @property
    def _defects(self) -> tuple[int, int, str, float, float, float]:
        return self.domain, self.seed, self.order, self.missing, self.duplicates, self.nulls

    def _keys(self, first: int, n: int) -> I64:
        if not self._regular:
            return _ordered_keys(self._defects)[first : first + n]
        positions = np.arange(first, first + n, dtype=np.int64)
        if self.order == "frequency":
            return permuted(positions, self.domain, self.seed) + 1
        if self.order == "shuffled":
            return permuted(positions, self.domain, self.seed, "master order") + 1
        return positions + 1


@lru_cache(maxsize=4)
def _ordered_keys(defects: tuple[int, int, str, float, float, float]) -> I64:
    """The keys of all rows in order, for data with gaps or repeats, whose positions have no closed form."""
    domain, seed, order, missing, duplicates, nulls = defects
    keys = np.arange(domain, dtype=np.int64)
    keys = (permuted(keys, domain, seed) if order == "frequency" else keys) + 1
    copies = np.ones(domain, dtype=np.int64)
    copies[_chosen(keys, duplicates, seed, 3)] = 2
    copies[_chosen(keys, missing, seed, 4)] = 0
    present = np.repeat(keys, copies)
    blanks = np.full(round(present.size * nulls / (1.0 - nulls)), _NULL, dtype=np.int64)
    ordered = np.concatenate((present, blanks) if order == "frequency" else (blanks, present))
    if order == "shuffled":
        ordered = ordered[permuted(np.arange(ordered.size), ordered.size, seed, "master order")]
    return ordered


def _chosen(keys: I64, share: float, seed: int, salt: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return mix64(keys, seed * 8 + salt) < np.uint64(int(share * 2**64))


def master(
    domain: int = 100_000,
    tuple_bytes: int = 120,
    order: Order = "key",
    seed: int = 0,
    missing: float = 0.0,
    duplicates: float = 0.0,
    nulls: float = 0.0,
) -> Master:
    """Master data with one row for each key of 1..domain, less the missing, plus the duplicates and the null keys."""
    return Master(domain, tuple_bytes, order, seed, missing, duplicates, nulls)
