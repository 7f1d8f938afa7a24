"""Sorts int64 numbers by radix; stable, and faster than a comparison sort on long arrays."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup

_DIGIT_BITS = 8  # 256 counters and write heads stay in the first-level cache; wider digits measured slower
_BUCKETS = 1 << _DIGIT_BITS


def sorted_copy(values: I64) -> I64:
    """The numbers in ascending order, as a new read-only array; a sorted input comes back as it is."""
    values = int64s(values)
    return values if is_sorted(values) else int64s(_radix_sorted(values))


def stable_order(values: I64, within: I64 | None = None) -> I64:
    """Row numbers that sort `values`; rows of equal value keep the order of `within` (default: of the input).

    Sorting by several columns is one call per column, least significant first, each `within` the order before.
    """
    values = int64s(values)
    start = int64s(np.arange(len(values), dtype=np.int64)) if within is None else int64s(within)
    return int64s(_radix_order(values, start))


def is_sorted(values: I64) -> bool:
    """Whether no number is smaller than the one before it."""
    return bool(_ascending(int64s(values)))


@kernel
def _ascending(values: I64) -> bool:
    i = 1
    while i < values.size and values[i - 1] <= values[i]:
        i += 1
    return i >= values.size


@kernel
def _offsets_from_least(values: I64) -> U64:
    """Distances from the smallest value, which cannot overflow as unsigned numbers; small ones need few digits."""
    least = values[0] if values.size else np.int64(0)
    for i in range(values.size):
        least = min(least, values[i])
    offsets = np.empty(values.size, np.uint64)
    for i in range(values.size):
        offsets[i] = np.uint64(values[i]) - np.uint64(least)
    return offsets


@kernel
def _digit_heads(offsets: U64) -> I64:
    """Per digit (least first), where each digit value's run begins; digits above the largest number are left out."""
    largest = np.uint64(0)
    for i in range(offsets.size):
        largest = max(largest, offsets[i])
    digits = 0
    while digits < 8 and largest >> np.uint64(digits * _DIGIT_BITS) != np.uint64(0):
        digits += 1
    heads = np.zeros((digits, _BUCKETS), np.int64)
    mask = np.uint64(_BUCKETS - 1)
    for i in range(offsets.size):
        rest = offsets[i]
        for digit in range(digits):
            heads[digit, np.int64(rest & mask)] += 1
            rest >>= np.uint64(_DIGIT_BITS)
    for digit in range(digits):
        total = 0
        for bucket in range(_BUCKETS):
            count = heads[digit, bucket]
            heads[digit, bucket] = total
            total += count
    return heads


@kernel
def _radix_sorted(values: I64) -> I64:
    least = values[0]
    for i in range(values.size):
        least = min(least, values[i])
    source = _offsets_from_least(values)
    target = np.empty(values.size, np.uint64)
    heads = _digit_heads(source)
    mask = np.uint64(_BUCKETS - 1)
    for digit in range(heads.shape[0]):
        head, shift = heads[digit], np.uint64(digit * _DIGIT_BITS)
        for i in range(source.size):
            bucket = np.int64((source[i] >> shift) & mask)
            target[head[bucket]] = source[i]
            head[bucket] += 1
        source, target = target, source
    ascending = np.empty(values.size, np.int64)
    for i in range(values.size):
        ascending[i] = np.int64(source[i] + np.uint64(least))
    return ascending


@kernel
def _radix_order(values: I64, within: I64) -> I64:
    offsets = _offsets_from_least(values)
    heads = _digit_heads(offsets)
    source, source_row = np.empty(values.size, np.uint64), np.empty(values.size, np.int64)
    for i in range(values.size):
        source[i], source_row[i] = offsets[within[i]], within[i]
    target, target_row = offsets, np.empty(values.size, np.int64)
    mask = np.uint64(_BUCKETS - 1)
    for digit in range(heads.shape[0]):
        head, shift = heads[digit], np.uint64(digit * _DIGIT_BITS)
        for i in range(source.size):
            bucket = np.int64((source[i] >> shift) & mask)
            place = head[bucket]
            target[place], target_row[place] = source[i], source_row[i]
            head[bucket] = place + 1
        source, target = target, source
        source_row, target_row = target_row, source_row
    return source_row


@register_warmup
def _warm() -> None:
    sample = np.array([3, 1, 2], np.int64)
    sorted_copy(sample)
    stable_order(sample)
