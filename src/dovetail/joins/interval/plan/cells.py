"""The bins that rows live in, as Spark columns: a cell number for every bin of a row, ready for an equality join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from dovetail.joins.interval.bins import Bins
from dovetail.joins.interval.plan.sides import RESERVED, Side, quoted

COLUMNS = ("cell", "in", "n")  # what cells add to a row: see BinCells
MISS_CELLS = 1024  # rows that cannot match spread over so many cells that nobody else uses


def name(side: Side, what: str) -> str:
    """A column of ours on one side."""
    return f"{RESERVED}{side.name[0]}{side.mark}_{what}"


def number(value: float) -> str:
    """A double as a SQL literal that loses nothing."""
    return f"{value!r}D"


@dataclass(frozen=True, slots=True)
class BinCells:
    """Cells of every bin that a row touches, on the level of its length and on those above.

    Where keys can be hashed the cell is one number made of keys and bin, which Spark sorts and looks up faster than
    several columns; it may stand for two bins by chance, so that the keys must be compared as well.

    Columns added: `cell`; `in`, whether the row starts in that bin; `n`, in how many cells it lives.
    A pair that shares a point meets in several cells, but in just one of them one of the two starts.
    Reference: docs/algorithms/interval.md, 8.1.
    """

    bins: Bins
    whole: bool = False  # bounds are whole numbers and so are the widths: no doubles, and no clamping of outliers

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of our columns those to keep."""
        ok = side.usable if side.kept else "true"
        start, end = self._place(side, ok, side.start), self._place(side, ok, side.end)
        columns = frame.columns
        if self.bins.levels == 1:
            width = self._number(self.bins.widths[0])
            first, last = self._bin(start, width), self._bin(end, width)
            return _explode_bins(side, frame, columns, keep, Span(ok, first, last, f"{last} - {first} + 1"))
        places = f"{start} as {name(side, 'p0')}", f"{end} as {name(side, 'p1')}"
        frame = frame.selectExpr("*", f"{ok} as {name(side, 'ok')}", *places)
        frame = frame.selectExpr("*", f"{self._home(side)} as {name(side, 'home')}")
        span = Span(name(side, "ok"), name(side, "first"), name(side, "last"), self._count(side))
        return _explode_bins(side, self._explode_levels(side, frame), columns, keep, span, self.bins.levels)

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
        home, level, ok = name(side, "home"), name(side, "level"), name(side, "ok")
        frame = frame.selectExpr("*", f"explode(sequence({home}, {self.bins.levels - 1})) as {level}")
        if side.name == "left":
            kinds = f"if({level} = {home}, 0, 1)"
        else:
            kinds = f"explode(if({level} = {home} and {level} > 0 and {ok}, array(0, 1), array(0)))"
        widths = ", ".join(map(self._number, self.bins.widths))
        frame = frame.selectExpr(
            "*", f"{kinds} as {name(side, 'kind')}", f"array({widths})[{level}] as {name(side, 'width')}"
        )
        return frame.selectExpr(
            "*",
            f"{self._bin(name(side, 'p0'), name(side, 'width'))} as {name(side, 'first')}",
            f"{self._bin(name(side, 'p1'), name(side, 'width'))} as {name(side, 'last')}",
        )

    def _bin(self, place: str, width: str) -> str:
        # Towards zero: the bins on both sides of it are one, which is as right as any other cut.
        return f"({place} div {width})" if self.whole else f"floor(({place} - {number(self.bins.low)}) / {width})"

    def _home(self, side: Side) -> str:
        length = f"({name(side, 'p1')} - {name(side, 'p0')})"
        widths = map(self._number, self.bins.widths[:-1])
        cases = [f"when {length} <= {width} then {level}" for level, width in enumerate(widths)]
        top = self.bins.levels - 1
        return f"case {' '.join(cases)} else {top} end" if cases else str(top)

    def _count(self, side: Side) -> str:
        home, terms = name(side, "home"), []
        for level, width in enumerate(self.bins.widths):
            first, last = (self._bin(name(side, place), self._number(width)) for place in ("p0", "p1"))
            twice = f" * if({home} = {level} and {name(side, 'ok')}, 2, 1)" if side.name == "right" and level else ""
            terms.append(f"if({home} <= {level}, {last} - {first} + 1, 0L){twice}")
        return " + ".join(terms)


@dataclass(frozen=True, slots=True)
class OrderCells:
    """Cells for `before` and `after`: the earlier row goes to the range of its end and on, the later row to one range.

    Reference: REPLICATE and PROJECT of Carman 2020, table 6.3; docs/algorithms/interval.md, 1.4.
    """

    points: tuple[float, ...]
    earlier: str  # "left" for before, "right" for after

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of our columns those to keep."""
        ok = side.usable if side.kept else "true"
        earlier = side.name == self.earlier
        place = side.position(side.end if earlier else side.start)
        reached = " + ".join(["0L", *(f"if({place} >= {number(point)}, 1L, 0L)" for point in self.points)])
        first = name(side, "first")
        last = f"if({ok}, {len(self.points)}L, {first})" if earlier else first
        placed = frame.selectExpr("*", f"if({ok}, {reached}, 0L) as {first}")
        return _explode_bins(side, placed, frame.columns, keep, Span(ok, first, last, f"{last} - {first} + 1"))


@dataclass(frozen=True, slots=True)
class Span:
    """The bins of a row in SQL: whether it can match, its first and last bin, and in how many cells it lives."""

    ok: str
    first: str
    last: str
    count: str


def _explode_bins(
    side: Side, frame: DataFrame, columns: Sequence[str], keep: Sequence[str], span: Span, levels: int = 1
) -> DataFrame:
    """A row for every bin; few and plain steps, because Spark looks through the whole plan again at each."""
    bin_ = name(side, "bin")
    frame = frame.selectExpr("*", f"explode(sequence({span.first}, {span.last})) as {bin_}")
    cell = bin_ if levels == 1 else f"({bin_} * {levels} + {name(side, 'level')}) * 2 + {name(side, 'kind')}"
    if side.packs_keys:
        cell = f"xxhash64({', '.join(side.keys)}, {cell})"
    cell = f"shiftleft({cell}, 2)"
    if span.ok != "true":
        # Nobody else uses the cells of rows that match nothing: numbers of their own modulo 4, for each side.
        miss = f"pmod(xxhash64({side.start}, {side.end}), {MISS_CELLS}L) * 4 + {1 if side.name == 'left' else 3}"
        cell = f"if({span.ok}, {cell}, {miss})"
    ours = {"cell": cell, "in": f"{bin_} = {span.first}", "n": span.count}
    return frame.selectExpr(*map(quoted, columns), *(f"{ours[what]} as {name(side, what)}" for what in keep))
