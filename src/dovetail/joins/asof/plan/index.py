"""The index algorithm: rows of both sides are exchanged by cell, and joined in tasks by the operator. A cell is one
task: a range in the order of (key hash, time). Cells are cut between keys, and inside a key only if it has more rows
than half a cell: so a join without keys, or with a hot key, still uses all cores. Of earlier (later) cells of its key
a left row needs only the last (first) right row; these rows are copied to the cells that follow (precede).
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.exchanged import CELL, Places
from dovetail.joins.asof.operator import AsofJoin, AsofTask, Direction, join_task
from dovetail.joins.asof.plan.sides import Side
from dovetail.joins.asof.request import Request
from dovetail.spark.frames import RESERVED, quoted, unquoted
from dovetail.spark.hosts.batch import Placed, exchange, nullable, task_frame
from dovetail.spark.task import MetricsSink

MOST_CELLS = 1000
SAMPLE_ROWS = 4096  # of each side
_SEED = 20  # fixed: the same inputs give the same plan, and Spark finds the code it compiled for it
_HASH, _AT = f"{RESERVED}hash", f"{RESERVED}at"


@dataclass(frozen=True, slots=True)
class IndexWay:
    """An as-of join by tasks that look left rows up in an index of the right rows of their cell."""

    request: Request
    tolerance: int | float | None
    cells: Cells
    sink: MetricsSink

    def answer(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> DataFrame:
        """The joined rows, with these columns of both sides."""
        spec = self._spec(left, right, left_out, right_out)
        left, right = left.pruned(left_out), right.pruned(right_out)
        rows, places = self._exchanged(left, right)
        fields = nullable(s.frame.schema[name] for s, out in ((left, left_out), (right, right_out)) for name in out)
        return task_frame(rows, join_task, AsofTask(spec, places, self.request.memory), self.sink, fields)

    def _spec(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> AsofJoin:
        request = self.request
        return AsofJoin(
            on=(unquoted(left.on), unquoted(right.on)),
            by=tuple((unquoted(a), unquoted(b)) for a, b in zip(left.keys, right.keys, strict=True)),
            direction=request.direction,
            tolerance=self.tolerance,
            allow_exact=request.allow_exact,
            tie="any" if request.tie == "all" else request.tie,
            tie_order=tuple(unquoted(name) for name in right.order),
            how=request.how,
            left_columns=left_out,
            right_columns=right_out,
        )

    def _exchanged(self, left: Side, right: Side) -> tuple[DataFrame, Places]:
        """Both sides, each cell in a partition of its own, and where their columns are."""
        mine = left.frame if self.request.how == "left" else left.frame.where(left.usable)
        columns = list(right.frame.columns)
        rows = self.cells.place(left, mine, list(left.frame.columns))
        others = self.cells.place(right, right.frame.where(right.usable), columns)
        others = self.cells.carry(right, others, columns, self.request.direction)
        mine_at, theirs_at = Placed(rows, CELL, left.frame.columns), Placed(others, CELL, columns)
        return exchange(mine_at, theirs_at, self.cells.count)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain()]


@dataclass(frozen=True, slots=True)
class Sample:
    """Key hashes and positions of a uniform sample of the usable rows of one side, and how many rows there are."""

    hashes: npt.NDArray[np.int64]
    positions: npt.NDArray[np.float64]
    rows: int


def draw(left: Side, right: Side, share: float) -> tuple[Sample, Sample]:
    """Samples of both sides from one job: the rows with the smallest random numbers, which also give the row count.

    The k-th smallest of n uniform numbers is about k / n, so that n is known to some two percent. Only the given share
    of all rows is read.
    """
    parts = [
        side.frame.where(side.usable)
        .selectExpr(
            f"{number} as side", f"{side.key_hash} as h", f"{side.position} as p", f"rand({_SEED + number}) as u"
        )
        .where(f"u < {_double(share)}")
        .orderBy("u")
        .limit(SAMPLE_ROWS)
        for number, side in enumerate((left, right))
    ]
    drawn = parts[0].union(parts[1]).toArrow()
    columns = {name: np.asarray(drawn[name].to_numpy()) for name in drawn.column_names}
    found = []
    for number in (0, 1):
        chosen = columns["side"] == number
        n, largest = int(chosen.sum()), columns["u"][chosen].max(initial=0.0)
        rows = round(n / share) if n < SAMPLE_ROWS else int((n - 1) / largest)
        found.append(Sample(columns["h"][chosen].astype(np.int64), columns["p"][chosen].astype(np.float64), rows))
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Cells:
    """Ascending boundaries: a row belongs to the cell after the last boundary that its (key hash, position) reaches.

    A boundary at -inf is between keys. Others are inside a key: right rows of it are carried across.
    """

    hashes: tuple[int, ...] = ()
    positions: tuple[float, ...] = ()
    keyed: bool = True

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.hashes) + 1

    @property
    def hot(self) -> tuple[int, ...]:
        """The hashes of keys that are cut by time."""
        return tuple(dict.fromkeys(h for h, p in zip(self.hashes, self.positions, strict=True) if p > -inf))

    def explain(self) -> str:
        """The cells in one line."""
        if not self.keyed:
            return f"cells: {self.count}, cut by time; the last right row of each goes on to those after it"
        hot = f", {len(self.hot)} hot keys cut by time" if self.hot else ""
        return f"cells: {self.count}, by key{hot}"

    def place(self, side: Side, frame: DataFrame, columns: list[str]) -> DataFrame:
        """These columns of the frame with the cell of each row; rows that cannot match go to any cell."""
        chosen = [quoted(name) for name in columns]
        if self.count == 1:
            return frame.selectExpr(*chosen, f"0 as {CELL}")
        placed = frame.selectExpr(*chosen, f"{side.key_hash} as {_HASH}", f"{side.position} as {_AT}")
        cell = self._search(0, self.count - 1)
        if side.name == "left":  # right rows that are not usable are left out
            spread = f"pmod(xxhash64({', '.join(_hashable(frame, columns)) or '0'}), {self.count})"
            cell = f"if({side.usable}, {cell}, cast({spread} as int))"
        return placed.selectExpr(*chosen, f"{cell} as {CELL}", *([_HASH] if side.name == "right" and self.hot else []))

    def _search(self, low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        return f"if({self._reached(middle)}, {self._search(middle + 1, high)}, {self._search(low, middle)})"

    def _reached(self, number: int) -> str:
        at = f"{_AT} >= {_double(self.positions[number])}"
        if not self.keyed:
            return at
        key = _long(self.hashes[number])
        return (
            f"{_HASH} >= {key}" if self.positions[number] == -inf else f"{_HASH} > {key} or ({_HASH} = {key} and {at})"
        )

    def carry(self, side: Side, placed: DataFrame, columns: list[str], direction: Direction) -> DataFrame:
        """Right rows in their cells, with copies of the ends of a hot key's cells in the cells that need them."""
        if not self.hot:
            return placed
        groups = [*side.keys, _HASH, CELL]
        own = [f"{RESERVED}g{number}" for number in range(len(groups))]
        rows = placed.where(f"{_HASH} in ({', '.join(map(_long, self.hot))})")
        first, last, low, high = (f"{RESERVED}{what}" for what in ("first", "last", "low", "high"))
        ends = rows.groupBy(*groups).agg(F.expr(f"max({side.on})").alias(last), F.expr(f"min({side.on})").alias(first))
        ends = ends.selectExpr(
            *(f"{group} as {name}" for group, name in zip(groups, own, strict=True)),
            first,
            last,
            f"{self._edge('first')} as {low}",
            f"{self._edge('last')} as {high}",
        )
        same = " and ".join(f"{group} = {name}" for group, name in zip(groups, own, strict=True))
        met = placed.join(F.broadcast(ends), F.expr(same), "left")
        none = "cast(array() as array<int>)"
        cells = [f"array({CELL})"]
        if direction != "forward":
            cells.append(f"if({side.on} = {last} and {CELL} < {high}, sequence({CELL} + 1, {high}), {none})")
        if direction != "backward":
            cells.append(f"if({side.on} = {first} and {CELL} > {low}, sequence({low}, {CELL} - 1), {none})")
        return met.selectExpr(*map(quoted, columns), f"explode(concat({', '.join(cells)})) as {CELL}")

    def _edge(self, which: str) -> str:
        """SQL: the first or the last cell that rows of a hot key go to, by its hash."""
        cases = []
        for key in self.hot:
            before = sum(h < key or (h == key and p == -inf) for h, p in zip(self.hashes, self.positions, strict=True))
            through = sum(h <= key for h in self.hashes)
            cases.append(f"when {_long(key)} then {before if which == 'first' else through}")
        return f"case {_HASH} {' '.join(cases)} end"


def choose_cells(samples: tuple[Sample, Sample], wanted: int, keyed: bool) -> Cells:
    """Boundaries of about `wanted` cells of equal size."""
    hashes = np.concatenate([sample.hashes for sample in samples])
    positions = np.concatenate([sample.positions for sample in samples])
    weights = np.concatenate([np.full(len(s.hashes), s.rows / max(1, len(s.hashes))) for s in samples])
    wanted = min(wanted, MOST_CELLS)
    if wanted < 2 or not len(hashes):
        return Cells(keyed=keyed)
    order = np.lexsort((positions, hashes))
    reached = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(reached, reached[-1] * np.arange(1, wanted) / wanted), len(order) - 1)
    unique, of = np.unique(hashes, return_inverse=True)
    large = set(unique[np.bincount(of, weights) > reached[-1] / (2 * wanted)].tolist())
    points: set[tuple[int, float]] = set()
    for number in order[at]:
        key, place = int(hashes[number]), float(positions[number])
        points.add((key, place if not keyed or key in large else -inf))
    least = (int(hashes[order[0]]), -inf)
    chosen = sorted(point for point in points if point > least)
    return Cells(tuple(key for key, _ in chosen), tuple(place for _, place in chosen), keyed)


def even_cells(wanted: int) -> Cells:
    """Cells of equal ranges of hashes, for small inputs without a sample."""
    wanted = min(wanted, MOST_CELLS)
    step = 2**64 // wanted
    hashes = tuple(-(2**63) + number * step for number in range(1, wanted))
    return Cells(hashes, (-inf,) * len(hashes))


def _hashable(frame: DataFrame, columns: list[str]) -> list[str]:
    kinds: dict[str, Any] = {field.name: field.dataType for field in frame.schema}
    return [quoted(name) for name in columns if not any(w in kinds[name].simpleString() for w in ("map<", "variant"))]


def _long(number: int) -> str:
    return "cast('-9223372036854775808' as bigint)" if number == -(2**63) else f"{number}L"


def _double(value: float) -> str:
    return f"double('{value!r}')" if value in (inf, -inf) else f"{value!r}D"
