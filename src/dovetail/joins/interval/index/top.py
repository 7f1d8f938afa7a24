"""Finds the pairs that overlap longest, through the overlap of the k-th pair. The number of pairs that overlap by at
least some length is counted without forming them, so that this length is found by bisection. Only intervals at least as
long take part, which are few for a small k. Then the pairs above it are listed, and as many at it as are missing. No
step lists more than k pairs and one right input's worth of ties.

A length has a code, a whole number that orders lengths and is 0 for 0: the length itself for whole numbers,
the bits for floats. The next longer length has the next code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernels.arrays import I64, U64, AnyArray, Bool, int64s, readonly
from dovetail.engine.kernels.sort import sorted_copy, stable_order
from dovetail.errors import PlanError
from dovetail.joins.interval.index.count import Side
from dovetail.joins.interval.index.sorted import Segments
from dovetail.joins.interval.kernels.overlap_length import ends_short_of, reaching_pairs, starts_within

_BITS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.uint64),
}


def lengths_of(start: AnyArray, end: AnyArray) -> AnyArray:
    """end - start as the type computes it, but 0 for equal bounds, also infinite ones."""
    with np.errstate(invalid="ignore", over="ignore"):
        return readonly(np.where(end > start, end - start, end.dtype.type(0)), end.dtype)


def length_codes(lengths: AnyArray) -> U64:
    """The codes of lengths."""
    bits = _BITS.get(lengths.dtype)
    return lengths if bits is None else lengths.view(bits).astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """One input's bounds as numbers whose differences cannot overflow, and the codes of its lengths."""

    start: AnyArray
    end: AnyArray
    codes: U64

    @classmethod
    def of(cls, start: AnyArray, end: AnyArray) -> Numbers:
        """Floats as they are; int64 moved up to uint64."""
        low, high = (_unsigned(bound) if bound.dtype not in _BITS else bound for bound in (start, end))
        return cls(low, high, length_codes(lengths_of(low, high)))

    @property
    def kind(self) -> np.dtype[Any]:
        """The type that overlaps are measured in."""
        return self.start.dtype


def _unsigned(bound: AnyArray) -> U64:
    return int64s(bound).view(np.uint64) ^ np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Spans:
    """Some rows of one input by start within each segment, and where their ends come in order.

    position: their row numbers in the input. first: where each segment begins, and the end of the last.
    """

    position: I64
    start: AnyArray
    end: AnyArray
    length: AnyArray
    first: I64
    by_end: I64
    sorted_end: AnyArray
    length_by_end: AnyArray

    @classmethod
    def of(cls, side: Side, numbers: Numbers, segments: Segments, rows: npt.NDArray[np.intp]) -> Spans:
        """These rows of an input; those whose key has no segment are left out."""
        number = segments.numbers(None if side.key is None else side.key[rows], len(rows))
        if side.key is not None:
            rows, number = rows[number >= 0], number[number >= 0]
        order = _by_segment(number, stable_order(side.start[rows]), segments)
        position, number = int64s(rows[order]), number[order]
        by_end = _by_segment(number, stable_order(side.end[position]), segments)
        start, end = (readonly(bound[position], bound.dtype) for bound in (numbers.start, numbers.end))
        first = np.zeros(segments.count + 1, np.int64)
        np.cumsum(np.bincount(number, minlength=segments.count), out=first[1:])
        length = lengths_of(start, end)
        sorted_end, length_by_end = (readonly(array[by_end], array.dtype) for array in (end, length))
        return cls(position, start, end, length, int64s(first), by_end, sorted_end, length_by_end)

    def chosen(self, keep: Bool) -> Spans:
        """The intervals under this mask."""
        place = np.concatenate(([0], np.cumsum(keep)))
        keep_end = keep[self.by_end]
        position, start, end, length = (
            readonly(array[keep], array.dtype) for array in (self.position, self.start, self.end, self.length)
        )
        sorted_end, length_by_end = (
            readonly(array[keep_end], array.dtype) for array in (self.sorted_end, self.length_by_end)
        )
        by_end = int64s(place[self.by_end[keep_end]])
        return Spans(position, start, end, length, int64s(place[self.first]), by_end, sorted_end, length_by_end)

    def by_start_order(self) -> tuple[AnyArray, AnyArray, I64]:
        """Starts in order, the lengths of their intervals, and the segments."""
        return self.start, self.length, self.first

    def by_end_order(self) -> tuple[AnyArray, AnyArray, I64]:
        """Ends in order, the lengths of their intervals, and the segments."""
        return self.sorted_end, self.length_by_end, self.first


def _by_segment(number: I64, order: I64, segments: Segments) -> I64:
    return order if segments.count == 1 else stable_order(number, order)


@dataclass(frozen=True, slots=True)
class Level:
    """The pairs of these intervals that overlap by at least the length with this code."""

    left: Spans
    right: Spans
    code: int

    def at(self, code: int) -> Level:
        """The same intervals, another length."""
        return replace(self, code=code)

    @property
    def length(self) -> Any:
        """The length, a number of the type of the bounds."""
        bits = _BITS.get(self.left.start.dtype, np.dtype(np.uint64))
        return np.array([self.code], bits).view(self.left.start.dtype)[0]

    def matches(self) -> I64:
        """How many pairs each left interval is in."""
        if self.code >= 2**64:
            return np.zeros(len(self.left.position), np.int64)
        matches = -self._ends_short()
        matches[self.left.by_end] += self._starts_within()
        return matches

    def _ends_short(self) -> I64:
        return ends_short_of(*self.left.by_start_order(), *self.right.by_end_order(), self.length)

    def _starts_within(self) -> I64:
        return starts_within(*self.left.by_end_order(), *self.right.by_start_order(), self.length)

    def total(self) -> int:
        """How many pairs there are."""
        return int(self._starts_within().sum() - self._ends_short().sum()) if self.code < 2**64 else 0

    def pairs(self, keep: Bool | None = None) -> tuple[I64, I64]:
        """Left and right row numbers of the pairs, or of those whose left interval is under the mask."""
        part = self if keep is None else replace(self, left=self.left.chosen(keep))
        count = part.total()
        if not count:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        left, right = part._long_enough()
        found = reaching_pairs(
            left.start, left.end, left.first, right.start, right.end, right.first, self.length, count
        )
        return left.position[found[0]], right.position[found[1]]

    def trimmed(self) -> Level:
        """The same pairs, without intervals too short for any, if those are many."""
        left, right = self._long_enough()
        before = len(self.left.position) + len(self.right.position)
        return Level(left, right, self.code) if 2 * (len(left.position) + len(right.position)) < before else self

    def _long_enough(self) -> tuple[Spans, Spans]:
        least = self.length
        return self.left.chosen(self.left.length >= least), self.right.chosen(self.right.length >= least)


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
    """Descending codes of lengths, each reached by more intervals, down to the least above zero."""
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
