"""Searches in sorted numbers: how many lie below each of others, and the first or last row in given ranges."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U64, Bool, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.interval.kernels.wavelet import largest_between, smallest_between, wavelet


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


_FAN_BITS = 4
_FAN = 1 << _FAN_BITS
_NEAR = 8  # rows looked at one by one before the descent: often the match is next to the boundary


@kernel
def prefix_max(values: I64, offsets: I64) -> I64:
    """For each row, the largest value of its segment up to and with itself."""
    reach = np.empty(values.size, np.int64)
    for segment in range(offsets.size - 1):
        for row in range(offsets[segment], offsets[segment + 1]):
            fresh = row == offsets[segment] or values[row] > reach[row - 1]
            reach[row] = values[row] if fresh else reach[row - 1]
    return reach


@kernel
def reached(reach: I64, low: I64, stop: I64, sought: I64, inclusive: bool) -> Bool:
    """Whether some row in [low, stop) is not below what is sought; `reach` holds the segments' prefix maxima."""
    found = np.empty(stop.size, np.bool_)
    for i in range(stop.size):
        found[i] = stop[i] > low[i] and not _is_below(reach[stop[i] - 1], sought[i], inclusive)
    return found


@kernel
def _is_below(value: int, sought: int, inclusive: bool) -> bool:
    return value < sought or (inclusive and value == sought)


@kernel
def level_offsets(rows: int) -> I64:
    """Where each level of `maxima` begins, and where the last one ends."""
    offsets = [0]
    while rows > _FAN:
        rows = (rows + _FAN - 1) >> _FAN_BITS
        offsets.append(offsets[-1] + rows)
    return np.array(offsets)


@kernel
def maxima(values: I64, levels: I64) -> I64:
    """The largest of every 16 values, then of every 16 of those, and so on, level after level."""
    tree = np.empty(levels[-1], np.int64)
    for level in range(levels.size - 1):
        source = values if level == 0 else tree[levels[level - 1] : levels[level]]
        for node in range(levels[level + 1] - levels[level]):
            largest = source[node << _FAN_BITS]
            for at in range(node << _FAN_BITS, min((node + 1) << _FAN_BITS, source.size)):
                largest = max(largest, source[at])
            tree[levels[level] + node] = largest
    return tree


@kernel
def _last_in(values: I64, first: int, stop: int, sought: int, inclusive: bool) -> int:
    for at in range(stop - 1, first - 1, -1):
        if not _is_below(values[at], sought, inclusive):
            return at
    return -1


@kernel
def _last_before(values: I64, tree: I64, levels: I64, stop: int, sought: int, inclusive: bool) -> int:
    """The last row before `stop` that is not below what is sought, or -1: up the levels, then down again."""
    level, node = 0, -1
    while stop > 0:
        source = values if level == 0 else tree[levels[level - 1] : levels[level]]
        first = ((stop - 1) >> _FAN_BITS) << _FAN_BITS
        node = _last_in(source, first, stop, sought, inclusive)
        if node >= 0:
            break
        stop = first >> _FAN_BITS
        level += 1
    while node >= 0 and level > 0:
        level -= 1
        source = values if level == 0 else tree[levels[level - 1] : levels[level]]
        first = node << _FAN_BITS
        node = _last_in(source, first, min(first + _FAN, source.size), sought, inclusive)
    return node


@kernel
def last_reaching(values: I64, tree: I64, levels: I64, low: I64, stop: I64, sought: I64, inclusive: bool) -> I64:
    """For each probe, the last row in [low, stop) whose value is not below what is sought, or -1."""
    found = np.empty(stop.size, np.int64)
    for i in range(stop.size):
        row = -1
        if stop[i] > low[i]:
            row = _last_before(values, tree, levels, stop[i], sought[i], inclusive)
        found[i] = row if row >= low[i] else -1
    return found


@kernel
def _first_between(words: U64, ends: I64, sorted_ends: I64, low: int, high: int, first: int, stop: int) -> int:
    """The smallest start rank in [low, high) whose end rank is in [first, stop), or -1."""
    if low >= high or first >= stop:
        return -1
    near = min(high, low + _NEAR)
    for row in range(low, near):
        if sorted_ends[first] <= ends[row] <= sorted_ends[stop - 1]:
            return row
    return smallest_between(words, ends.size, first, stop, near, high)


@kernel
def _last_between(words: U64, ends: I64, sorted_ends: I64, low: int, high: int, first: int, stop: int) -> int:
    """The largest start rank in [low, high) whose end rank is in [first, stop), or -1."""
    if low >= high or first >= stop:
        return -1
    near = max(low, high - _NEAR)
    for row in range(high - 1, near - 1, -1):
        if sorted_ends[first] <= ends[row] <= sorted_ends[stop - 1]:
            return row
    return largest_between(words, ends.size, first, stop, low, near)


@kernel
def first_in_rectangles(words: U64, ends: I64, sorted_ends: I64, rectangles: I64, p: I64, q: I64, order: I64) -> I64:
    """For each probe, the smallest start rank in any of its rectangles, or -1.

    `ends` are in start order. A rectangle names two boundaries of starts and two of ends; p[a] and q[b] say where those
    fall among the sorted starts and ends for each probe; boundaries never part equal ends. Rectangles come by rising
    starts; those that share starts stand together.
    """
    found = np.empty(order.size, np.int64)
    for step in range(order.size):
        i = order[step]
        best, group = -1, -1
        for r in range(rectangles.shape[0]):
            if best >= 0 and rectangles[r, 0] != group:
                break
            group = rectangles[r, 0]
            low, high = p[rectangles[r, 0], i], p[rectangles[r, 1], i]
            row = low if low < high else -1
            if rectangles[r, 2] > 0 or rectangles[r, 3] < q.shape[0] - 1:
                first, stop = q[rectangles[r, 2], i], q[rectangles[r, 3], i]
                row = _first_between(words, ends, sorted_ends, low, high, first, stop)
            if row >= 0 and (best < 0 or row < best):
                best = row
        found[i] = best
    return found


@kernel
def last_in_rectangles(words: U64, ends: I64, sorted_ends: I64, rectangles: I64, p: I64, q: I64, order: I64) -> I64:
    """For each probe, the largest start rank in any of its rectangles, or -1; see `first_in_rectangles`."""
    found = np.empty(order.size, np.int64)
    for step in range(order.size):
        i = order[step]
        best, group = -1, -1
        for r in range(rectangles.shape[0] - 1, -1, -1):
            if best >= 0 and rectangles[r, 0] != group:
                break
            group = rectangles[r, 0]
            low, high = p[rectangles[r, 0], i], p[rectangles[r, 1], i]
            row = high - 1 if low < high else -1
            if rectangles[r, 2] > 0 or rectangles[r, 3] < q.shape[0] - 1:
                first, stop = q[rectangles[r, 2], i], q[rectangles[r, 3], i]
                row = _last_between(words, ends, sorted_ends, low, high, first, stop)
            best = max(best, row)
        found[i] = best
    return found


@kernel
def tie_heads(starts: I64, ends: I64, low: I64, found: I64) -> I64:
    """For each found row (or -1), the first row of its segment with the same start and end."""
    heads = np.empty(found.size, np.int64)
    for i in range(found.size):
        head, step = found[i], 1
        while head >= 0 and step > 0:
            far = head - step
            if far >= low[i] and starts[far] == starts[head] and ends[far] == ends[head]:
                head, step = far, step * 2
            else:
                step //= 2
        heads[i] = head
    return heads


@register_warmup
def _warm() -> None:
    rows = int64s(range(40))
    one, offsets = int64s([1]), int64s([0, 40])
    reached(int64s(prefix_max(rows, offsets)), one, one, one, True)
    levels = int64s(level_offsets(40))
    last_reaching(rows, int64s(maxima(rows, levels)), levels, one, one, one, True)
    words = wavelet(rows)
    words.flags.writeable = False
    rectangles, places = int64s([[0, 1, 0, 1]]), int64s([[0], [40]])
    first_in_rectangles(words, rows, rows, rectangles, places, places, int64s([0]))
    last_in_rectangles(words, rows, rows, rectangles, places, places, int64s([0]))
    tie_heads(rows, rows, one, one)
    row = int64s([0])
    sum_below(one, one, inclusive=True)
    positions_below(one, int64s([0, 1]), row, one, True, row)
    members(one, one)
    members_by_table(one, 5, row)
