"""How many of some sorted numbers lie below each of others: summed over all, or number by number."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup


def sum_below(probes: I64, values: I64, inclusive: bool) -> int:
    """The number of pairs (probe, value) with value < probe, or value <= probe if `inclusive`; both are sorted.

    Exact at any size: parts that could pass 2^63 together are added as Python integers.
    """
    probes, values = int64s(probes), int64s(values)
    block = max(1, 2**62 // max(1, len(values)))
    blocks = (probes[at : at + block] for at in range(0, len(probes), block))
    return sum(int(_sum_below(part, values, inclusive)) for part in blocks)


@kernel
def _sum_below(probes: I64, values: I64, inclusive: bool) -> int:
    total, below = 0, 0
    for i in range(probes.size):
        probe = probes[i]
        while below < values.size and (values[below] < probe or (inclusive and values[below] == probe)):
            below += 1
        total += below
    return total


@kernel
def positions_below(values: I64, offsets: I64, segment: I64, probe: I64, inclusive: bool, order: I64) -> I64:
    """Where each probe falls in its segment of `values`: the first row of that segment that is not below it.

    Segment g is the rows offsets[g] to offsets[g + 1], ascending. A probe of segment -1 gives 0. Visiting probes in an
    `order` that sorts them by (segment, value) turns each search into a short gallop from the one before.
    """
    found = np.zeros(probe.size, np.int64)
    last_segment, last_probe, cursor = -1, 0, 0
    for step in range(probe.size):
        row = order[step]
        here, sought = segment[row], probe[row]
        if here < 0:
            continue
        if here != last_segment or sought < last_probe:
            cursor = offsets[here]
        cursor = _gallop(values, cursor, offsets[here + 1], sought, inclusive)
        last_segment, last_probe = here, sought
        found[row] = cursor
    return found


@kernel
def _gallop(values: I64, low: int, stop: int, sought: int, inclusive: bool) -> int:
    """The first row in [low, stop) that is not below `sought`, in steps that double and then halve."""
    step = 1
    while low + step <= stop:
        value = values[low + step - 1]
        if not (value < sought or (inclusive and value == sought)):
            break
        low += step
        step *= 2
    high = min(stop, low + step - 1)
    while low < high:
        middle = (low + high) // 2
        value = values[middle]
        if value < sought or (inclusive and value == sought):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def members(keys: I64, distinct: I64) -> I64:
    """Where each key stands in `distinct` (ascending, no repeats), or -1 if it does not."""
    found = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        low, high = 0, distinct.size
        while low < high:
            middle = (low + high) // 2
            if distinct[middle] < keys[i]:
                low = middle + 1
            else:
                high = middle
        found[i] = low if low < distinct.size and distinct[low] == keys[i] else -1
    return found


@kernel
def members_by_table(keys: I64, least: int, table: I64) -> I64:
    """table[key - least] for each key, or -1 where the key is outside the table."""
    found = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        key = keys[i]
        # The distance of two int64 may pass 2^63, but never 2^64.
        distance = np.uint64(key) - np.uint64(least)
        found[i] = table[np.int64(distance)] if key >= least and distance < np.uint64(table.size) else -1
    return found


@register_warmup
def _warm() -> None:
    one, offsets, row = int64s([5]), int64s([0, 1]), int64s([0])
    sum_below(one, one, inclusive=True)
    positions_below(one, offsets, row, one, True, row)
    members(one, one)
    members_by_table(one, 5, row)
