"""A permutation that answers in log n steps how many of its first q numbers are below p, or which is the k-th of a run.

The permutation is kept bit by bit, highest first; on each level the numbers that agree on all higher bits stand
together in their old order. Because every number from 0 to n - 1 occurs once, the group with higher bits v begins at v
shifted back up, and exactly half of what stands before it has this level's bit set: neither needs a look-up. A word of
a level holds the bits of 32 places below the count of set bits before them, so that one memory access serves a step.
Reference: Grossi, Gupta, Vitter 2003 (wavelet trees); Mäkinen, Navarro 2007 (range counting).
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def wavelet(permutation: I64) -> U64:
    """The levels of a permutation of 0 to n - 1, n < 2^31: one row a bit, highest first, of n / 32 + 1 words."""
    levels = _bits_of(permutation.size)
    words = np.zeros((levels, permutation.size // 32 + 1), np.uint64)
    source, target = permutation.copy(), np.empty_like(permutation)
    for level in range(levels):
        _fill_level(source, words[level], levels - 1 - level)
        _part_groups(source, target, levels - 1 - level)
        source, target = target, source
    return words


@kernel
def _bits_of(n: int) -> int:
    bits = 0
    while (n - 1) >> bits > 0:
        bits += 1
    return bits


@kernel
def _fill_level(source: I64, words: U64, bit: int) -> None:
    count = np.uint64(0)
    for word in range(words.size):
        held = np.uint64(0)
        for at in range(word * 32, min(word * 32 + 32, source.size)):
            held |= np.uint64((source[at] >> bit) & 1) << np.uint64(at & 31)
        words[word] = (count << np.uint64(32)) | held
        count += _ones(held)


@kernel
def _part_groups(source: I64, target: I64, bit: int) -> None:
    """Each group of 2^(bit + 1) places, stably: numbers without the bit first."""
    for first in range(0, source.size, 2 << bit):
        zero, one = first, first + (1 << bit)
        for at in range(first, min(first + (2 << bit), source.size)):
            value = source[at]
            if (value >> bit) & 1:
                target[one] = value
                one += 1
            else:
                target[zero] = value
                zero += 1


@kernel
def _ones(word: np.uint64) -> np.uint64:
    """The number of set bits among the lowest 32."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x55555555))
    word = (word & np.uint64(0x33333333)) + ((word >> np.uint64(2)) & np.uint64(0x33333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F)
    return ((word * np.uint64(0x01010101)) & np.uint64(0xFFFFFFFF)) >> np.uint64(24)


@kernel
def _ones_before(words: U64, at: int) -> int:
    word = words[at >> 5]
    kept = word & ((np.uint64(1) << np.uint64(at & 31)) - np.uint64(1))
    return int((word >> np.uint64(32)) + _ones(kept))


@kernel
def _below(words: U64, n: int, q: int, p: int) -> int:
    """How many of the first q numbers are smaller than p."""
    if p >= n:
        return q
    found, group, length = 0, 0, q
    for level in range(words.shape[0]):
        bit = words.shape[0] - 1 - level
        ones = _ones_before(words[level], group + length) - (group >> 1)
        if (p >> bit) & 1:
            found += length - ones
            length = ones
            group += 1 << bit
        else:
            length -= ones
    return found


@kernel
def _kth(words: U64, first: int, stop: int, k: int) -> int:
    """The k-th smallest (from 0) of the numbers at places first to stop; k < stop - first."""
    group = 0
    for level in range(words.shape[0]):
        bit = words.shape[0] - 1 - level
        ones_first = _ones_before(words[level], group + first) - (group >> 1)
        ones_stop = _ones_before(words[level], group + stop) - (group >> 1)
        zeros = (stop - ones_stop) - (first - ones_first)
        if k < zeros:
            first, stop = first - ones_first, stop - ones_stop
        else:
            k -= zeros
            first, stop = ones_first, ones_stop
            group += 1 << bit
    return group


@kernel
def corner_sums(words: U64, n: int, corners: I64, weights: I64, starts: I64, ends: I64, order: I64) -> I64:
    """For each row, the sum over corners (a, b) of weight times how many of the first ends[b] numbers are below
    starts[a]; rows visited in `order`.

    Corners of a row that coincide are counted once, or not at all where their weights cancel.
    """
    sums = np.zeros(order.size, np.int64)
    for step in range(order.size):
        row = order[step]
        for c in range(corners.shape[0]):
            p, q = starts[corners[c, 0], row], ends[corners[c, 1], row]
            weight, repeats = weights[c], False
            for other in range(corners.shape[0]):
                if other != c and starts[corners[other, 0], row] == p and ends[corners[other, 1], row] == q:
                    weight += weights[other]
                    repeats |= other < c
            if weight != 0 and not repeats:
                sums[row] += weight * _below(words, n, q, p)
    return sums


@kernel
def smallest_between(words: U64, n: int, first: int, stop: int, low: int, high: int) -> int:
    """The smallest number in [low, high) at places first to stop, or -1."""
    if low >= high or first >= stop:
        return -1
    skipped = _below(words, n, stop, low) - _below(words, n, first, low)
    if skipped >= stop - first:
        return -1
    number = _kth(words, first, stop, skipped)
    return number if number < high else -1


@kernel
def largest_between(words: U64, n: int, first: int, stop: int, low: int, high: int) -> int:
    """The largest number in [low, high) at places first to stop, or -1."""
    if low >= high or first >= stop:
        return -1
    kept = _below(words, n, stop, high) - _below(words, n, first, high)
    if kept == 0:
        return -1
    number = _kth(words, first, stop, kept - 1)
    return number if number >= low else -1


@register_warmup
def _warm() -> None:
    words = wavelet(int64s([2, 0, 1]))
    words.flags.writeable = False
    places = int64s([[1], [3]])
    corner_sums(words, 3, int64s([[0, 1]]), int64s([1]), places, places, int64s([0]))
    smallest_between(words, 3, 0, 3, 0, 3)
    largest_between(words, 3, 0, 3, 0, 3)
