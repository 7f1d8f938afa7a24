"""The pairs that overlap longest, found through the length by which the last of them overlaps.

How many pairs overlap by at least some length is counted without forming them, so that length is found by halving; only
intervals at least as long take part, which for a short list of winners are few. Then the pairs above it are listed, and
as many at it as are missing. No step lists more than k pairs and one right input's worth of ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.engine.kernels.arrays import I64, U64, AnyArray
from dovetail.errors import PlanError
from dovetail.joins.interval.index.count import Side
from dovetail.joins.interval.index.keys import Segments
from dovetail.joins.interval.index.spans import Level, Numbers, Spans, length_codes, lengths_of
from dovetail.joins.interval.kernels.rank_sort import sorted_copy

Bounds = tuple[AnyArray, AnyArray]

_FIRST_CANDIDATES = 4096
_MORE_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class TopThreshold:
    """At least k pairs overlap by `length` or more, and `above` of them, fewer than k, by more."""

    length: Any
    above: int


@dataclass(frozen=True, slots=True)
class TopPairs:
    """Row numbers of both inputs and how long the two overlap: longest first, then by left and right row number."""

    left: I64
    right: I64
    overlap: AnyArray


def top_overlap_threshold(
    left: Side, right: Side, k: int, left_bounds: Bounds | None = None, right_bounds: Bounds | None = None
) -> TopThreshold | None:
    """The largest length by which at least k overlapping pairs of equal key overlap; None if there are not k pairs.

    Lengths are min(ends) - max(starts) of the bounds (int64, float32 or float64; by default the half-open codes), as
    their type computes them, but int64 as uint64, which cannot overflow. Intervals that only touch, where `closed` lets
    them overlap, do so by 0.
    """
    found = _threshold(_Inputs.of(left, right, left_bounds, right_bounds), _checked(k))
    return None if found is None else TopThreshold(found.length, found.beyond.total())


def top_overlap_pairs(
    left: Side, right: Side, k: int, left_bounds: Bounds | None = None, right_bounds: Bounds | None = None
) -> TopPairs:
    """The k overlapping pairs of equal key that overlap longest, or all if there are fewer.

    Lengths are those of `top_overlap_threshold`. Of pairs that overlap alike, those with smaller left, then right row
    numbers win. Time grows with n log n and k, not with the number of pairs.
    Reference: docs/algorithms/interval.md, 8.4.
    """
    inputs = _Inputs.of(left, right, left_bounds, right_bounds)
    found = _threshold(inputs, _checked(k))
    if found is None:
        return inputs.sorted_pairs(*inputs.every_match().pairs(), k)
    above = found.beyond.pairs()
    ties = found.tied_pairs(inputs, k - len(above[0]))
    return inputs.sorted_pairs(np.concatenate((above[0], ties[0])), np.concatenate((above[1], ties[1])), k)


def _checked(k: int) -> int:
    if k < 1:
        raise PlanError(f"k={k} pairs asked for; give a whole number from 1.")
    return k


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Both inputs with the numbers that overlaps are measured in, and the codes of their lengths."""

    left: Side
    right: Side
    segments: Segments
    left_numbers: Numbers
    right_numbers: Numbers

    @classmethod
    def of(cls, left: Side, right: Side, left_bounds: Bounds | None, right_bounds: Bounds | None) -> _Inputs:
        numbers = [
            Numbers.of(*(bounds or (side.start, side.end)))
            for side, bounds in ((left, left_bounds), (right, right_bounds))
        ]
        if numbers[0].kind != numbers[1].kind:
            raise PlanError(
                f"left bounds are {numbers[0].kind}, right bounds {numbers[1].kind}; cast them to one type."
            )
        return cls(left, right, Segments.of(right.key), *numbers)

    def every_match(self) -> Level:
        """All pairs that overlap, by their codes: those that only touch included."""
        left, right = (Numbers.of(side.start, side.end) for side in (self.left, self.right))
        return self._level(left, right, shortest=0).at(1)

    def at_least(self, code: int, shortest: int) -> Level:
        """The pairs that overlap by at least the length of this code, among intervals as long as the other says."""
        return self._level(self.left_numbers, self.right_numbers, shortest).at(code)

    def _level(self, left: Numbers, right: Numbers, shortest: int) -> Level:
        long_left, long_right = (
            Spans.of(side, numbers, self.segments, np.flatnonzero(numbers.codes >= np.uint64(shortest)))
            for side, numbers in ((self.left, left), (self.right, right))
        )
        return Level(long_left, long_right, shortest)

    def overlaps(self, left: I64, right: I64) -> AnyArray:
        """How long these pairs overlap."""
        one, other = self.left_numbers, self.right_numbers
        start = np.maximum(one.start[left], other.start[right])
        end = np.minimum(one.end[left], other.end[right])
        return lengths_of(start, end)

    def sorted_pairs(self, left: I64, right: I64, k: int) -> TopPairs:
        """The first k of these pairs, longest overlap first."""
        overlap = self.overlaps(left, right)
        order = np.lexsort((right, left, ~length_codes(overlap)))[:k]
        return TopPairs(left[order], right[order], overlap[order])


@dataclass(frozen=True, slots=True)
class _Threshold:
    """At least k pairs are in `at`, fewer in `beyond`, which has those that overlap by more than `length`."""

    length: Any
    at: Level
    beyond: Level

    def tied_pairs(self, inputs: _Inputs, missing: int) -> tuple[I64, I64]:
        """The first `missing` pairs, by left and right row number, that overlap by exactly `length`."""
        ties = self.at.matches() - self.beyond.matches()
        by_position = np.argsort(self.at.left.position)
        before = np.cumsum(ties[by_position]) - ties[by_position]
        keep = np.zeros(len(ties), np.bool_)
        keep[by_position] = (before < missing) & (ties[by_position] > 0)
        left, right = self.at.pairs(keep)
        tied = inputs.overlaps(left, right) == self.length
        left, right = left[tied], right[tied]
        order = np.lexsort((right, left))[:missing]
        return left[order], right[order]


def _threshold(inputs: _Inputs, k: int) -> _Threshold | None:
    if not inputs.left.rows or not inputs.right.rows:
        return None
    codes = inputs.left_numbers.codes, inputs.right_numbers.codes
    for code in _shrinking(*codes):
        level = inputs.at_least(code, shortest=code)
        if level.total() >= k:
            level = _halved(level, min(int(each.max()) for each in codes), k)
            return _Threshold(level.length, level, level.at(level.code + 1))
    every, beyond = inputs.every_match(), inputs.at_least(1, shortest=0)
    return _Threshold(beyond.at(0).length, every, beyond) if every.total() >= k else None


def _shrinking(left: U64, right: U64) -> Iterator[int]:
    """Codes of lengths that ever more intervals have, down to the least above zero."""
    flipped = np.concatenate((left, right)) ^ np.uint64(1 << 63)
    ascending = sorted_copy(flipped.view(np.int64))
    candidates, last = _FIRST_CANDIDATES, 0
    while last != 1:
        code = int(ascending[-candidates]) + 2**63 if candidates < len(ascending) else 1
        if max(code, 1) != last:
            yield max(code, 1)
        last, candidates = max(code, 1), candidates * _MORE_CANDIDATES


def _halved(level: Level, highest: int, k: int) -> Level:
    """The level of the largest code that still has k pairs; this level has them, and none above `highest` does."""
    while level.code < highest:
        middle = level.code + (highest - level.code + 1) // 2
        if level.at(middle).total() >= k:
            level = level.at(middle).trimmed()
        else:
            highest = middle - 1
    return level
