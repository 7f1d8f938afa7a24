"""Rows as a function of seed and row number: blocks that can be made alone, in any order, on any machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.errors import PlanError

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

BLOCK_ROWS = 32_768
"""Rows of one block. Part of the definition of every workload: another value gives other rows."""

EPOCH_US = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z in microseconds: where the time of every workload starts."""

TIMESTAMP = pa.timestamp("us", tz="UTC")


@lru_cache(maxsize=4096)
def _philox_key(seed: int, purpose: str) -> tuple[int, int]:
    words = np.random.SeedSequence((seed, crc32(purpose.encode()))).generate_state(2, np.uint64)
    return int(words[0]), int(words[1])


def generator(seed: int, purpose: str, block: int = 0) -> np.random.Generator:
    """The random numbers of one purpose (a column, a decision) in one block, without drawing those of any other.

    Counter based: the key comes from seed and purpose, the high counter word is the block, so blocks never overlap.
    """
    key = np.array(_philox_key(seed, purpose), dtype=np.uint64)
    counter = np.array([0, 0, 0, block], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def uniforms(seed: int, purpose: str, block: int, n: int) -> F64:
    """The first n uniforms in [0, 1) of one purpose in one block; a larger n keeps them as its prefix."""
    return generator(seed, purpose, block).random(n)


def mix64(values: I64 | U64, salt: int) -> U64:
    """A bijective scrambling of 64-bit values, another one for each salt (the finaliser of a multiplicative hash)."""
    x = values.astype(np.uint64, copy=True)
    x += np.uint64((salt * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x ^= x >> np.uint64(33)
        x *= np.uint64(multiplier)
    x ^= x >> np.uint64(33)
    return x


def whole(values: F64) -> I64:
    """Each value rounded down to a whole number."""
    return np.floor(values).astype(np.int64, copy=False)


def timestamps(offsets_us: I64) -> pa.Array:
    """UTC timestamps at the given microseconds after the start of every workload."""
    return pa.array(offsets_us + EPOCH_US).view(TIMESTAMP)


def require(condition: bool, message: str) -> None:
    """A `PlanError` with the message, unless the condition holds."""
    if not condition:
        raise PlanError(message)


def require_seed(seed: int) -> None:
    """A `PlanError` unless the seed is a non-negative integer."""
    require(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0,
        f"seed must be an integer >= 0, not {seed!r}.",
    )


def require_count(name: str, value: int, smallest: int = 0) -> None:
    """A `PlanError` unless the value is an integer that is not below the smallest one allowed."""
    require(
        isinstance(value, int) and not isinstance(value, bool) and value >= smallest,
        f"{name} must be an integer >= {smallest}, not {value!r}.",
    )


class Workload(ABC):
    """Arrow rows that depend on the parameters and the row number alone.

    Any range of rows can be made without those before it, and the same rows come out whatever the batch size or the
    number of partitions, and whether a batch or a stream source reads them. Except where a subclass says otherwise,
    fewer rows are a prefix of more rows.
    """

    __slots__ = ()

    rows: int

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    @abstractmethod
    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block, one array for each field of the schema."""

    def batches(
        self, start: int = 0, stop: int | None = None, batch_rows: int = BLOCK_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Rows start to stop (default: to the end), in order, in batches of at most batch_rows.

        >>> from dovetail.workloads import ZipfStream
        >>> [b.num_rows for b in ZipfStream(rows=10, domain=5).batches(2, 9, batch_rows=4)]
        [4, 3]
        """
        require_count("batch_rows", batch_rows, 1)
        last = self.rows if stop is None else min(stop, self.rows)
        require(start >= 0, f"start must not be negative; it is {start}.")
        pending: list[pa.RecordBatch] = []
        held = 0
        for batch in self._pieces(start, last):
            pending.append(batch)
            held += batch.num_rows
            while held >= batch_rows:
                full, rest = _cut(pending, batch_rows)
                yield full
                pending, held = [rest], held - batch_rows
        if held:
            yield _cut(pending, held)[0]

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Rows start to stop (default: all) as one table."""
        return pa.Table.from_batches(self.batches(start, stop), schema=self.schema)

    def _pieces(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for block in range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            first = block * BLOCK_ROWS
            n = min(stop - first, BLOCK_ROWS)
            batch = pa.RecordBatch.from_arrays(self.columns(block, n), schema=self.schema)
            yield batch.slice(max(0, start - first))


def _cut(pending: list[pa.RecordBatch], n: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    whole = pending[0] if len(pending) == 1 else pa.concat_batches(pending)
    return whole.slice(0, n), whole.slice(n)


def checksum(keys: I64) -> I64:
    """A 64-bit scrambling of each key: equal only for equal keys."""
    return mix64(keys, 1).view(np.int64)


def filler(keys: I64, width: int) -> pa.Array:
    """One ASCII string of exactly `width` bytes for each key, the same for equal keys; 8 bytes hold 48 random bits."""
    if width == 0:
        return pa.repeat(pa.scalar(""), keys.size)
    words = -(-width // 8)
    start: U64 = mix64(keys, 2)
    steps = np.arange(words, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
    grid = start[:, None] + steps[None, :]
    grid ^= grid >> np.uint64(29)
    # 64 letters from '0' on: one byte each, valid UTF-8, no escaping anywhere.
    text = (grid.view(np.uint8)[:, :width] & np.uint8(0x3F)) + np.uint8(0x30)
    offsets = np.arange(keys.size + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(text)
    return pa.StringArray.from_buffers(keys.size, pa.py_buffer(offsets), pa.py_buffer(data))
