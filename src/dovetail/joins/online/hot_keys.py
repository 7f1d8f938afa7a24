"""Finds hot keys: those whose rows make a partition much larger than the others.

Tasks count the keys of a sample of the rows that arrive. The plan names the hot ones, and the option that spreads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.frequent import above_the_rest
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.packing import unpack_rows
from dovetail.joins.online.bucket_rule import key_text

KEYS = "keys"
"""The name of the counted keys in the metrics, by side."""
_EVERY, _PACKETS = 16_384, 16  # rows, or small packets, of which one is counted: less than a hundredth of joining them
_FEW, _PART = 64, 64  # rows of a packet that are sampled, and one of this many in addition
_GOLDEN = 0.6180339887498949  # multiples of it, less their whole part, are spread evenly and have no period
_LONGEST = 1000  # characters of a key that is counted
_LARGER = 0.5  # how much larger than an even share a hot key alone makes its partition
_LEAST = 500  # rows of all inputs, before any key is hot
_SMALLEST = 0.02  # of all rows: counters of frequent items are too low by a 65th of them


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key as Python text, its share of all rows, and its share of each input's rows by name."""

    key: str
    share: float
    by_side: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        shares = " and ".join(f"{share:.1%} of {side}'s" for side, share in self.by_side if share)
        return f"{self.key} has {shares} rows"


class KeyCounter:
    """Counts keys of some packets of a task: of each input the first, then one of every 16,384 rows or 16 packets.

    `inputs` are the schemas by name, `columns` the equal columns of each; with `null_safe` nulls are keys.
    """

    def __init__(
        self, inputs: Sequence[tuple[str, pa.Schema]], columns: Sequence[tuple[str, ...]], null_safe: bool = False
    ) -> None:
        self._inputs, self._columns, self._null_safe = inputs, columns, null_safe
        self._since, self._due = [0] * len(inputs), [0] * len(inputs)
        self.metrics = Metrics()

    def take(self, side: int, n: int, rows: pa.Buffer) -> None:
        """Count a packet of `n` rows, if it is its turn, for all rows since the one before."""
        self._since[side] += n
        if self._since[side] >= self._due[side] and self._columns[side]:
            name, schema = self._inputs[side]
            batch = unpack_rows(rows, schema)
            count_keys(self.metrics, name, batch, self._columns[side], self._since[side], self._null_safe)
            self._since[side], self._due[side] = 0, min(_EVERY, _PACKETS * n)


def count_keys(
    metrics: Metrics, side: str, batch: pa.RecordBatch, columns: Sequence[str], rows: int, null_safe: bool = False
) -> None:
    """Count the keys of a sample of a batch that stands for `rows` rows; those without a key count as rows only."""
    sample = sampled(batch.num_rows)
    if not len(sample):
        return
    picked, weight = pa.array(sample), rows / len(sample)
    keys = [batch.column(name).take(picked) for name in columns]
    codes, valid = np.zeros(len(sample), np.int64), np.ones(len(sample), np.bool_)
    for key in keys:
        encoded = key.dictionary_encode()
        code = np.asarray(encoded.indices.fill_null(-1), np.int64)
        valid &= null_safe or code >= 0
        codes = codes * (len(encoded.dictionary) + 1) + code + 1
    have = np.flatnonzero(valid)
    _, first, n = np.unique(codes[have], return_index=True, return_counts=True)
    left = above_the_rest(n)
    some = left > 0
    at = pa.array(have[first[some]])
    counts = dict[str, int]()
    for values, found in zip(zip(*(key.take(at).to_pylist() for key in keys), strict=True), left[some], strict=True):
        if len(text := key_text(values)) <= _LONGEST:  # the part of a longer one would name no key
            counts[text] = counts.get(text, 0) + round(found * weight)
    metrics.count_items(KEYS, counts, rows, side)


def sampled(rows: int) -> I64:
    """The numbers of the rows of a sample: all of a few rows, spread evenly over many."""
    if rows <= _FEW:
        return np.arange(rows)
    return (np.arange(_FEW + rows // _PART) * _GOLDEN % 1.0 * rows).astype(np.int64)


def hot_keys(metrics: Metrics, sides: Sequence[str], partitions: int) -> list[HotKey]:
    """Keys that make their partition half as large again as an even share, or larger; the largest first."""
    by_side = [metrics.frequent(KEYS, side) for side in sides]
    total, found = sum(items.total for items in by_side), list[HotKey]()
    for key in dict.fromkeys(key for items in by_side for key in items.counts if total >= _LEAST):
        share = sum(items.counts.get(key, 0) for items in by_side) / total
        if share >= _SMALLEST and share * (partitions - 1) >= _LARGER:
            shares = ((side, items.share(key)) for side, items in zip(sides, by_side, strict=True))
            found.append(HotKey(key, share, tuple(shares)))
    return sorted(found, key=lambda hot: -hot.share)
