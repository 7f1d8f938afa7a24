"""Indexes the right side of an interval join, sorted once, so that left rows are answered without forming pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernels.arrays import I64, U64, Bool, int64s, readonly
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import UnsupportedError
from dovetail.joins.interval.index.sorted import SortedRight
from dovetail.joins.interval.index.zones import BOUNDARIES, Touching, as_overlapping, cells, rectangles, weights
from dovetail.joins.interval.kernels.search import (
    first_in_rectangles,
    last_in_rectangles,
    last_reaching,
    positions_below,
    reached,
    tie_heads,
)
from dovetail.joins.interval.kernels.wavelet import corner_sums
from dovetail.joins.interval.relation import Relation

# Below these sizes the right bounds stay in cache, or the batch is too short for its own sort to pay.
_SORT_PROBES = 4096
_SORT_AGAINST = 1 << 15


@dataclass
class Probes:
    """Left rows with the segment of the right side that each may match (-1: none).

    With `as_codes` the bounds are compared as half-open codes; otherwise as they were written, start >> h and
    (end - shift) >> h.
    """

    segment: I64
    start: I64
    end: I64
    offsets: I64
    h: int
    shift: int
    as_codes: bool
    _orders: dict[bool, I64] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many left rows there are."""
        return len(self.start)

    def take(self, rows: Bool) -> Probes:
        """The left rows under this mask."""
        segment, start, end = (int64s(array[rows]) for array in (self.segment, self.start, self.end))
        return Probes(segment, start, end, self.offsets, self.h, self.shift, self.as_codes)

    def points(self) -> Bool:
        """Which left intervals are a single point as written; as codes none is."""
        if self.as_codes or (self.h, self.shift) == (0, 0):
            return np.zeros(self.rows, np.bool_)
        points: Bool = (self.start >> self.h) == ((self.end - self.shift) >> self.h)
        return points

    def first_of_segment(self) -> I64:
        """The first right row that each left row may match."""
        return np.where(self.segment < 0, 0, self.offsets[self.segment])

    def end_of_segment(self) -> I64:
        """One past the last right row that each left row may match."""
        return np.where(self.segment < 0, 0, self.offsets[self.segment + 1])

    def sought(self, boundary: int, among_ends: bool) -> I64:
        """The code that right starts (or ends) are compared with at this boundary; see BOUNDARIES."""
        of_end, inclusive = BOUNDARIES[boundary].of_end, BOUNDARIES[boundary].inclusive
        code = self.end if of_end else self.start
        if self.as_codes:
            return code
        written = (code - self.shift if of_end else code) >> self.h
        # A written bound b stands for the codes b << h up to the next; all of them are at or below an inclusive one.
        highest = (written << self.h) | ((1 << self.h) - 1 if inclusive else 0)
        return int64s(highest + (self.shift if among_ends else 0))

    def below(self, values: I64, boundary: int, among_ends: bool) -> I64:
        """Where this boundary of each left row falls in its segment of the sorted right starts (or ends)."""
        order = self.order(BOUNDARIES[boundary].of_end, len(values))
        sought = self.sought(boundary, among_ends)
        inclusive = BOUNDARIES[boundary].inclusive
        return positions_below(values, self.offsets, self.segment, sought, inclusive, order)

    def order(self, by_end: bool, against: int) -> I64:
        """An order in which to look up the rows: by key and bound where that saves more than it costs."""
        if by_end not in self._orders:
            self._orders[by_end] = self._sorted_order(self.end if by_end else self.start, against)
        return self._orders[by_end]

    def _sorted_order(self, bound: I64, against: int) -> I64:
        if self.rows < _SORT_PROBES or against < _SORT_AGAINST:
            return int64s(np.arange(self.rows, dtype=np.int64))
        order = stable_order(bound)
        return order if len(self.offsets) == 2 else stable_order(self.segment, order)


Table = npt.NDArray[np.bool_]
Search = Callable[[U64, I64, I64, I64, I64, I64, I64], I64]
_MOST_ROWS = 2**31 - 1
_NO_WORDS: U64 = readonly(np.empty((0, 0)), np.uint64)
_NO_ENDS: I64 = int64s([])
_HALF_OPEN_OVERLAP = Relation.parse("overlapping").table()


class OverlapIndex:
    """Finds the matches of each left row on the right: their number, whether there are any, the first, the last.

    Built from codes as `dovetail.joins.interval.relation` makes them, for any relation's `table()`; no table means that
    half-open codes overlap. Answers come in the order of the left rows. Left rows whose key the right side lacks match
    nothing. Parts that only some questions need are built when first asked for; all of it is charged to the budget
    until `close`. Left batches are the caller's memory: an answer takes some 60 bytes per left row on the way.
    Reference: docs/algorithms/interval.md, 8.2.
    """

    def __init__(self, right: SortedRight) -> None:
        self._right = right

    @classmethod
    def build(
        cls,
        key: I64 | None,
        start: I64,
        end: I64,
        budget: MemoryBudget | None = None,
        h: int = 0,
        shift: int = 0,
    ) -> OverlapIndex:
        """The index of a right input; raises `BudgetExceeded` if the budget cannot hold it and its sort."""
        if len(start) > _MOST_ROWS:
            raise UnsupportedError(f"an index of {len(start)} rows; at most {_MOST_ROWS}: partition the right input.")
        keys = None if key is None else int64s(key)
        return cls(SortedRight(keys, int64s(start), int64s(end), h, shift, budget))

    @property
    def rows(self) -> int:
        """Rows of the right input."""
        return self._right.rows

    @property
    def nbytes(self) -> int:
        """Bytes that the index holds now."""
        return self._right.nbytes

    def count(self, key: I64 | None, start: I64, end: I64, table: Table | None = None) -> I64:
        """The number of matches of each left row."""
        probes = self._probes(key, start, end, table)
        counts = np.zeros(probes.rows, np.int64)
        for point, rows, part in _by_shape(probes):
            counts[rows] = self._count_in(part, cells(_wanted(table), point))
        return counts

    def exists(self, key: I64 | None, start: I64, end: I64, table: Table | None = None) -> Bool:
        """Whether each left row has a match."""
        if (touching := as_overlapping(_wanted(table))) is None:
            return self.count(key, start, end, table) > 0
        probes = self._probes(key, start, end, table)
        stop = probes.below(self._right.starts, touching.start_boundary, among_ends=False)
        sought, inclusive = _end_sought(probes, touching)
        return reached(self._right.reach, int64s(probes.first_of_segment()), int64s(stop), sought, inclusive)

    def first(self, key: I64 | None, start: I64, end: I64, table: Table | None = None) -> I64:
        """The right input's row number of each left row's smallest match by (start, end), or -1.

        Among equal intervals it is the one that came first.
        """
        probes = self._probes(key, start, end, table)
        if (touching := as_overlapping(_wanted(table))) is None:
            return self._right.positions(self._found(probes, _wanted(table), first_in_rectangles))
        stop = probes.below(self._right.starts, touching.start_boundary, among_ends=False)
        row = probes.below(self._right.reach, touching.end_boundary, among_ends=True)
        return self._right.positions(np.where(row < stop, row, -1))

    def last(self, key: I64 | None, start: I64, end: I64, table: Table | None = None) -> I64:
        """The right input's row number of each left row's largest match by (start, end), or -1.

        Among equal intervals it is the one that came first.
        """
        probes, right = self._probes(key, start, end, table), self._right
        low = int64s(probes.first_of_segment())
        if (touching := as_overlapping(_wanted(table))) is None:
            row = self._found(probes, _wanted(table), last_in_rectangles)
        else:
            stop = probes.below(right.starts, touching.start_boundary, among_ends=False)
            sought, inclusive = _end_sought(probes, touching)
            row = last_reaching(right.ends, right.tree, right.levels, low, int64s(stop), sought, inclusive)
        return right.positions(tie_heads(right.starts, right.ends, low, int64s(row)))

    def any(self, key: I64 | None, start: I64, end: I64, table: Table | None = None) -> I64:
        """The right input's row number of some match of each left row, or -1; the same one every time."""
        return self.first(key, start, end, table)

    def close(self) -> None:
        """Gives the memory back to the budget; the index must not be used again."""
        self._right.close()

    def __enter__(self) -> OverlapIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OverlapIndex({self.rows} rows, {self._right.segments.count} keys, {self.nbytes} bytes)"

    def _probes(self, key: I64 | None, start: I64, end: I64, table: Table | None) -> Probes:
        right = self._right
        segment = right.segments.numbers(key, len(start))
        return Probes(segment, int64s(start), int64s(end), right.offsets, right.h, right.shift, table is None)

    def _count_in(self, probes: Probes, accepted: Bool) -> I64:
        right, found = self._right, weights(accepted, self._right.has_points)
        corners = np.array([*found.both], np.int64).reshape(-1, 2)
        starts = self._places(probes, [*found.starts, *corners[:, 0]], len(accepted), among_ends=False)
        ends = self._places(probes, [*found.ends, *corners[:, 1]], len(accepted), among_ends=True)
        total = found.rows + sum((*found.starts.values(), *found.ends.values(), *found.both.values()))
        counts = found.rows * probes.end_of_segment() - total * probes.first_of_segment()
        for wanted, places in ((found.starts, starts), (found.ends, ends)):
            for boundary, weight in wanted.items():
                counts += weight * places[boundary]
        if found.both:
            each, order = int64s([*found.both.values()]), probes.order(True, right.rows)
            counts += corner_sums(right.words, right.rows, int64s(corners), each, starts, ends, order)
        return counts

    def _found(self, probes: Probes, table: Table, search: Search) -> I64:
        """Start ranks of the matches that `search` picks, or -1."""
        rows, right = np.full(probes.rows, -1, np.int64), self._right
        for point, chosen, part in _by_shape(probes):
            wanted = rectangles(accepted := cells(table, point))
            starts = self._places(part, wanted[:, :2].ravel(), len(accepted), among_ends=False)
            ends = self._places(part, wanted[:, 2:].ravel(), len(accepted), among_ends=True)
            any_end = bool(np.all((wanted[:, 2] == 0) & (wanted[:, 3] == len(accepted))))
            words, sorted_ends = (_NO_WORDS, _NO_ENDS) if any_end else (right.words, right.sorted_ends)
            order = part.order(True, right.rows)
            rows[chosen] = search(words, right.ends, sorted_ends, int64s(wanted), starts, ends, order)
        return rows

    def _places(self, probes: Probes, boundaries: Iterable[int], zones: int, among_ends: bool) -> I64:
        """The places of the boundaries among the sorted starts or ends, one line each; other lines are 0."""
        places = np.zeros((zones + 1, probes.rows), np.int64)
        for boundary in {int(number) for number in boundaries}:
            if boundary == 0:
                places[boundary] = probes.first_of_segment()
            elif boundary == zones:
                places[boundary] = probes.end_of_segment()
            else:
                values = self._right.sorted_ends if among_ends else self._right.starts
                places[boundary] = probes.below(values, boundary, among_ends)
        return int64s(places)


def _wanted(table: Table | None) -> Table:
    return _HALF_OPEN_OVERLAP if table is None else table


def _end_sought(probes: Probes, touching: Touching) -> tuple[I64, bool]:
    boundary = touching.end_boundary
    return probes.sought(boundary, among_ends=True), BOUNDARIES[boundary].inclusive


def _by_shape(probes: Probes) -> Iterator[tuple[bool, Bool | slice, Probes]]:
    """Left rows separated by whether they are points, which have three zones instead of five."""
    points = probes.points()
    if not points.any():
        yield False, slice(None), probes
        return
    for point, rows in ((True, points), (False, ~points)):
        if rows.any():
            yield point, rows, probes.take(rows)
