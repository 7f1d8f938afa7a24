"""Assigns rows to bins and to ranges of an order, and chooses the widths of bins by price.

The native route copies a row to every bin that it touches. With one width, short intervals share bins with many rows
that they do not match, or long ones are copied to many bins; so lengths are cut into levels, each with its own width.
The home level of a row is the one that fits its length; it is also copied to every level above. Two rows are compared
on the home level of the longer one, once: home rows of a level join home rows and copies of the other side, copies
never join copies. Widths are chosen by price on a sample of both inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.joins.interval.plan.cells import CELL_COLUMNS, MISS_CELLS
from dovetail.joins.interval.plan.sides import Side
from dovetail.joins.interval.plan.statistics import Sample
from dovetail.spark.frames import RESERVED, quoted

ROW_COST = 0.5e-6  # seconds to explode, shuffle and sort one row
CANDIDATE_COST = 8e-9  # seconds to test one pair that shares a bin, in a merge join
HASHED_CANDIDATE_COST = 80e-9  # the same in a hash join, where rows of a bin are scattered in memory
MAX_LEVELS = 6
PRICED_ROWS = 1024
MAX_BINS_PER_ROW = 1024
UNROLLED_POINTS = 64


@dataclass(frozen=True, slots=True)
class Bins:
    """Bin widths, narrowest first, over positions clamped to [low, high]; with the price they were chosen for."""

    low: float
    high: float
    widths: tuple[float, ...]
    rows: float = field(default=0.0, compare=False)
    candidates: float = field(default=0.0, compare=False)
    candidate_cost: float = field(default=CANDIDATE_COST, compare=False)

    @property
    def levels(self) -> int:
        """How many levels of bins there are."""
        return len(self.widths)

    @property
    def seconds(self) -> float:
        """Predicted time of one core for exploding, shuffling and testing."""
        return self.rows * ROW_COST + self.candidates * self.candidate_cost

    def home(self, length: F64) -> I64:
        """The home level of an interval of this length: the narrowest whose bins are no shorter."""
        return np.minimum(np.searchsorted(np.asarray(self.widths), length, side="left"), self.levels - 1)

    def spans(self, length: float) -> bool:
        """Whether an interval of this length fills few enough bins without being cut to the range."""
        return length <= self.widths[-1] * MAX_BINS_PER_ROW / 4

    def whole(self) -> Bins:
        """These bins with widths that are whole numbers."""
        return replace(self, widths=tuple(sorted({max(1.0, float(round(width))) for width in self.widths})))

    def explain(self) -> str:
        """The bins in one line."""
        widths = ", ".join(f"{width:.6g}" for width in self.widths)
        return (
            f"{self.levels} level(s) of bins, width {widths}; {self.rows:,.0f} rows after replication, "
            f"{self.candidates:,.0f} candidate pairs predicted"
        )


_FARTHEST = 4e307  # positions beyond it share the edge bins: the range and its double must be finite


@lru_cache(maxsize=16)  # explain, then run: samples are the same objects as long as the statistics are
def choose_bins(left: Sample, right: Sample, max_length: float = 0.0, candidate_cost: float = CANDIDATE_COST) -> Bins:
    """The cheapest layout that a short search finds for these two samples; any layout is correct.

    The best single width comes first, then the level that helps most, and so on while one helps. `max_length` is the
    longest interval of the whole input: a sample may miss it, and it must not fill too many bins.
    """
    low, high = _range(left, right)
    longest = min(max_length, high - low)
    left, right = left.thinned(PRICED_ROWS), right.thinned(PRICED_ROWS)
    grid = _grid(left, right, high - low)
    empty = Bins(low, high, (high - low,), np.inf, candidate_cost=candidate_cost)

    def priced(layouts: set[tuple[float, ...]]) -> Bins:
        return min((_priced(left, right, replace(empty, widths=w)) for w in sorted(layouts)), key=lambda b: b.seconds)

    best = empty
    while best.levels <= MAX_LEVELS:
        chosen = best.widths if np.isfinite(best.rows) else ()
        layouts = {_topped(tuple(sorted({*chosen, width})), longest) for width in grid}
        found = priced(layouts)
        if found.seconds >= best.seconds * 0.9:
            break
        best = found
    if not np.isfinite(best.rows):
        return replace(empty, widths=_topped((high - low,), longest), rows=0.0)
    finer = {_topped(tuple(sorted({*best.widths[1:], best.widths[0] * by})), longest) for by in (0.6, 1.0, 1.7)}
    return priced(finer)


def key_pairs(left: Sample, right: Sample) -> float:
    """The number of pairs with equal keys, estimated from the samples, whatever their intervals are."""
    return max(1.0, _sharing_pairs(left.key, right.key)) * left.weight * right.weight


def _topped(widths: tuple[float, ...], longest: float) -> tuple[float, ...]:
    return widths if longest <= widths[-1] * MAX_BINS_PER_ROW / 4 else (*widths, longest)


def _range(left: Sample, right: Sample) -> tuple[float, float]:
    points = np.concatenate([left.start, left.end, right.start, right.end])
    points = points[np.isfinite(points)]
    if not len(points):
        return 0.0, 1.0
    # Open ends ("9999-12-31", the largest long) would stretch the axis; positions beyond the bulk share the edge bins.
    low, high = np.quantile(points, [0.001, 0.98])
    starts = np.concatenate([left.start, right.start])
    starts = starts[np.isfinite(starts)]
    if len(starts):
        low, high = min(low, float(starts.min())), max(high, float(starts.max()))
    low, high = max(low, -_FARTHEST), min(high, _FARTHEST)
    least = max(1.0, abs(float(low)) * 1e-9)  # all positions are equal: any width that doubles can represent will do
    return float(low), float(high) if high > low else float(low) + least


def _grid(left: Sample, right: Sample, span: float) -> list[float]:
    """Widths worth trying: factors of three from the short intervals to the whole range."""
    with np.errstate(over="ignore", invalid="ignore"):  # of infinite intervals, and of almost all doubles
        lengths = np.concatenate([left.end - left.start, right.end - right.start])
    lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
    shortest = float(np.quantile(lengths, 0.1)) if len(lengths) else span / 1000
    steps = int(np.ceil(np.log(max(span / max(shortest, 1e-300), 3.0)) / np.log(3.0)))
    return sorted({_clamped(span / 3.0**step, span) for step in range(min(steps, 24) + 1)})


def _clamped(width: float, span: float) -> float:
    return float(min(max(width, span / 1e12, 1e-12), span * 2))


def _priced(left: Sample, right: Sample, bins: Bins) -> Bins:
    rows = candidates = 0.0
    if max(_most_bins(left, bins), _most_bins(right, bins)) > MAX_BINS_PER_ROW:
        return replace(bins, rows=np.inf)
    left_home, right_home = _home(left, bins), _home(right, bins)
    for level, width in enumerate(bins.widths):
        l_home, l_visit = _occupancy(left, left_home, level, width, bins)
        r_home, r_visit = _occupancy(right, right_home, level, width, bins)
        twice = 2 if level else 1
        rows += left.weight * (l_home.size + l_visit.size) + right.weight * (twice * r_home.size + r_visit.size)
        everything = np.concatenate([r_home, r_visit])
        candidates += _sharing_pairs(l_home, everything) + _sharing_pairs(l_visit, r_home)
    candidates *= left.weight * right.weight
    return replace(bins, rows=rows, candidates=candidates)


def _most_bins(sample: Sample, bins: Bins) -> float:
    """Bins of the longest sampled row on the widest level."""
    lengths = np.clip(sample.end, bins.low, bins.high) - np.clip(sample.start, bins.low, bins.high)
    return float(lengths.max(initial=0.0)) / bins.widths[-1]


def _home(sample: Sample, bins: Bins) -> I64:
    return bins.home(np.clip(sample.end, bins.low, bins.high) - np.clip(sample.start, bins.low, bins.high))


def _occupancy(sample: Sample, home: I64, level: int, width: float, bins: Bins) -> tuple[I64, I64]:
    """A (key, bin) code for every bin of the home rows of a level, and of the rows copied to it from below."""
    first = ((np.clip(sample.start, bins.low, bins.high) - bins.low) / width).astype(np.int64)
    last = ((np.clip(sample.end, bins.low, bins.high) - bins.low) / width).astype(np.int64)
    return tuple(_codes(sample.key, first, last, rows) for rows in (home == level, home < level))  # type: ignore[return-value]


def _codes(key: I64, first: I64, last: I64, chosen: npt.NDArray[np.bool_]) -> I64:
    first, counts, key = first[chosen], (last - first + 1)[chosen], key[chosen]
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    bins = np.repeat(first, counts) + offsets
    codes: I64 = (
        np.repeat(key, counts) * np.int64(-7046029254386353131)
    ) ^ bins  # a price may mistake two bins for one
    return codes


def _sharing_pairs(left: I64, right: I64) -> float:
    """How many pairs share a code."""
    codes, left_counts = np.unique(left, return_counts=True)
    others, right_counts = np.unique(right, return_counts=True)
    _, at, of = np.intersect1d(codes, others, assume_unique=True, return_indices=True)
    return float(np.dot(left_counts[at].astype(np.float64), right_counts[of].astype(np.float64)))


def number(value: float) -> str:
    """A double as a SQL literal that loses nothing."""
    return f"{value!r}D"


@dataclass(frozen=True, slots=True)
class BinCells:
    """Cells of every bin that a row touches, on the level of its length and on those above.

    Where keys can be hashed the cell is one number made of keys and bin, which Spark sorts and looks up faster than
    several columns; it may stand for two bins by chance, so that the keys must be compared as well.

    Columns added: `cell`; `in`, whether the row starts in that bin; `n`, the number of its cells. A pair that shares a
    point may share several cells, but one of the two starts in just one of them.
    Reference: docs/algorithms/interval.md, 8.1.
    """

    bins: Bins
    whole: bool = False  # bounds are whole numbers and so are the widths: no doubles, and no clamping of outliers

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = CELL_COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of our columns those to keep."""
        ok = side.usable if side.kept else "true"
        start, end = self._place(side, ok, side.start), self._place(side, ok, side.end)
        columns = frame.columns
        if self.bins.levels == 1:
            width = self._number(self.bins.widths[0])
            first, last = self._bin(start, width), self._bin(end, width)
            return explode_bins(side, frame, columns, keep, Span(ok, first, last, f"{last} - {first} + 1"))
        places = f"{start} as {side.own('p0')}", f"{end} as {side.own('p1')}"
        frame = frame.selectExpr("*", f"{ok} as {side.own('ok')}", *places)
        frame = frame.selectExpr("*", f"{self._home(side)} as {side.own('home')}")
        span = Span(side.own("ok"), side.own("first"), side.own("last"), self._count(side))
        return explode_bins(side, self._explode_levels(side, frame), columns, keep, span, self.bins.levels)

    def _place(self, side: Side, ok: str, bound: str) -> str:
        if self.whole:
            place, somewhere = f"cast({bound} as bigint)", "0L"
        else:
            low, high = number(self.bins.low), number(self.bins.high)
            place, somewhere = f"least(greatest({side.position(bound)}, {low}), {high})", low
        return place if ok == "true" else f"if({ok}, {place}, {somewhere})"

    def _number(self, width: float) -> str:
        return f"{int(width)}L" if self.whole else number(width)

    def _explode_levels(self, side: Side, frame: DataFrame) -> DataFrame:
        home, level, ok = side.own("home"), side.own("level"), side.own("ok")
        frame = frame.selectExpr("*", f"explode(sequence({home}, {self.bins.levels - 1})) as {level}")
        if side.name == "left":
            kinds = f"if({level} = {home}, 0, 1)"
        else:
            kinds = f"explode(if({level} = {home} and {level} > 0 and {ok}, array(0, 1), array(0)))"
        widths = ", ".join(map(self._number, self.bins.widths))
        frame = frame.selectExpr(
            "*", f"{kinds} as {side.own('kind')}", f"array({widths})[{level}] as {side.own('width')}"
        )
        return frame.selectExpr(
            "*",
            f"{self._bin(side.own('p0'), side.own('width'))} as {side.own('first')}",
            f"{self._bin(side.own('p1'), side.own('width'))} as {side.own('last')}",
        )

    def _bin(self, place: str, width: str) -> str:
        # Towards zero: the bins on both sides of it are one, which is as right as any other cut.
        return f"({place} div {width})" if self.whole else f"floor(({place} - {number(self.bins.low)}) / {width})"

    def _home(self, side: Side) -> str:
        length = f"({side.own('p1')} - {side.own('p0')})"
        widths = map(self._number, self.bins.widths[:-1])
        cases = [f"when {length} <= {width} then {level}" for level, width in enumerate(widths)]
        top = self.bins.levels - 1
        return f"case {' '.join(cases)} else {top} end" if cases else str(top)

    def _count(self, side: Side) -> str:
        home, terms = side.own("home"), []
        for level, width in enumerate(self.bins.widths):
            first, last = (self._bin(side.own(place), self._number(width)) for place in ("p0", "p1"))
            twice = f" * if({home} = {level} and {side.own('ok')}, 2, 1)" if side.name == "right" and level else ""
            terms.append(f"if({home} <= {level}, {last} - {first} + 1, 0L){twice}")
        return " + ".join(terms)


def points_reached(place: str, points: Sequence[float], before: int = 0) -> str:
    """SQL: how many of these ascending points a position is not below, by a binary search of comparisons."""
    if not points:
        return f"{before}L"
    if len(points) > UNROLLED_POINTS:  # as code it would be too long for Java to compile
        steps = ", ".join(str(1 << bit) for bit in reversed(range(len(points).bit_length())))
        listed = f"array({', '.join(map(number, points))})"
        at, step = f"{RESERVED}at", f"{RESERVED}step"  # columns may have any other name
        reached = f"{at} + {step} <= {len(points)} and {place} >= get({listed}, {at} + {step} - 1)"
        search = f"aggregate(array({steps}), 0, ({at}, {step}) -> if({reached}, {at} + {step}, {at}))"
        return f"cast({search} as bigint)"
    middle = len(points) // 2
    below, above = (
        points_reached(place, part, start)
        for part, start in ((points[:middle], before), (points[middle + 1 :], before + middle + 1))
    )
    return f"if({place} >= {number(points[middle])}, {above}, {below})"


@dataclass(frozen=True, slots=True)
class OrderCells:
    """Cells for `before` and `after`: the earlier row goes to the range of its end and on, the later row to one range.

    Reference: REPLICATE and PROJECT of Carman 2020, table 6.3; docs/algorithms/interval.md, 1.4 and 8.8.
    """

    points: tuple[float, ...]
    earlier: str  # "left" for before, "right" for after

    def rows(self, left: Sample, right: Sample) -> float:
        """Rows after replication, estimated from the samples."""
        earlier, later = (left, right) if self.earlier == "left" else (right, left)
        first = np.searchsorted(self.points, earlier.end, side="right")
        return later.rows + float((len(self.points) + 1 - first).sum()) * earlier.weight

    def part(self, left: Sample, right: Sample) -> float:
        """The part of all pairs that share a cell, estimated from the samples: those that match, and a few more."""
        earlier, later = (left, right) if self.earlier == "left" else (right, left)
        cells = np.sort(np.searchsorted(self.points, later.start, side="right"))
        met = len(cells) - np.searchsorted(cells, np.searchsorted(self.points, earlier.end, side="right"))
        return float(met.sum()) / max(1, len(cells) * len(met))

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = CELL_COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of our columns those to keep."""
        ok = side.usable if side.kept else "true"
        earlier = side.name == self.earlier
        place = side.position(side.end if earlier else side.start)
        first = side.own("first")
        last = f"if({ok}, {len(self.points)}L, {first})" if earlier else first
        placed = frame.selectExpr("*", f"if({ok}, {points_reached(place, self.points)}, 0L) as {first}")
        return explode_bins(side, placed, frame.columns, keep, Span(ok, first, last, f"{last} - {first} + 1"))


@dataclass(frozen=True, slots=True)
class Span:
    """The bins of a row in SQL: whether it can match, its first and last bin, and the number of its cells."""

    ok: str
    first: str
    last: str
    count: str
    bins: str | None = None  # an array of them, where they are not those from first to last


def explode_bins(
    side: Side, frame: DataFrame, columns: Sequence[str], keep: Sequence[str], span: Span, levels: int = 1
) -> DataFrame:
    """A row for every bin; few and plain steps, because Spark analyses the whole plan again at each."""
    bin_ = side.own("bin")
    frame = frame.selectExpr("*", f"explode({span.bins or f'sequence({span.first}, {span.last})'}) as {bin_}")
    cell = bin_ if levels == 1 else f"({bin_} * {levels} + {side.own('level')}) * 2 + {side.own('kind')}"
    if side.packs_keys:
        cell = f"xxhash64({', '.join(side.keys)}, {cell})"
    cell = f"shiftleft({cell}, 2)"
    if span.ok != "true":
        # Rows that match nothing get cells that no other row uses: separate numbers modulo 4, for each side.
        miss = f"pmod(xxhash64({side.start}, {side.end}), {MISS_CELLS}L) * 4 + {1 if side.name == 'left' else 3}"
        cell = f"if({span.ok}, {cell}, {miss})"
    ours = {"cell": cell, "in": f"{bin_} = {span.first}", "n": span.count}
    return frame.selectExpr(*map(quoted, columns), *(f"{ours[what]} as {side.own(what)}" for what in keep))
