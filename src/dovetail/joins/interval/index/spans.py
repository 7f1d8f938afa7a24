"""Intervals sorted for counting and listing the pairs that overlap by at least some length.

A length is told by its code, a whole number that orders lengths and is 0 for 0: the length itself for whole numbers,
the bits for floats. The next longer length has the next code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernels.arrays import I64, U64, AnyArray, Bool, int64s, readonly
from dovetail.joins.interval.index.count import Side
from dovetail.joins.interval.index.keys import Segments
from dovetail.joins.interval.kernels.rank_reach import ends_short_of, reaching_pairs, starts_within
from dovetail.joins.interval.kernels.rank_sort import stable_order

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
