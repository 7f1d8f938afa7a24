"""The native route: an interval join as an ordinary Spark plan, so that Spark compiles, spills and balances it.

Bins with an equality join where intervals share or touch a point, Spark's own equality join where a relation holds an
equality or few rows share a key, REPLICATE and PROJECT for before and after, a nested loop for what is left.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.interval.plan.cells import BinCells, OrderCells, name
from dovetail.joins.interval.plan.sides import Side
from dovetail.joins.interval.relation import EQUAL, GREATER, LESS, Relation

EQUALITIES = frozenset({"starts", "started_by", "ends", "ended_by", "equals", "meets", "met_by"})


def strategy(relation: Relation) -> str:
    """How the native route finds the pairs: bins, equality, order (before, after) or nested_loop."""
    if relation.only in EQUALITIES:
        return "equality"
    if relation.only in ("before", "after"):
        return "order"
    return "nested_loop" if _holds_apart(relation) else "bins"


def _holds_apart(relation: Relation) -> bool:
    """Whether the relation can hold for two intervals that neither share nor touch a point."""
    spans = list(itertools.combinations_with_replacement(range(4), 2))
    apart = [(a, b) for a, b in itertools.product(spans, repeat=2) if a[1] < b[0] or a[0] > b[1]]
    return any(relation.holds(*(_sign(x, y) for x in a for y in b)) for a, b in apart)


def _sign(a: int, b: int) -> int:
    return LESS if a < b else EQUAL if a == b else GREATER


@dataclass(frozen=True, slots=True)
class SparkMeeting:
    """Rows of the same cell joined by Spark itself, the relation and the user's condition as the join condition."""

    relation: Relation
    condition: Any
    cells: BinCells | OrderCells | None

    def __call__(
        self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool
    ) -> DataFrame:
        """The joined rows; `once`, a pair comes out of the one cell in which one of the two starts."""
        # Where the cell has the keys in it, Spark must not see an equality, or it would sort and hash by them as well.
        equal = "({0} <= {1} and {0} >= {1})" if self.cells is not None and first.packs_keys else "{0} = {1}"
        parts = [equal.format(a, b) for a, b in zip(first.keys, second.keys, strict=True)]
        relation = self.relation.swapped() if first.name == "right" else self.relation
        if self.cells is not None:
            parts.insert(0, f"{name(first, 'cell')} = {name(second, 'cell')}")
        parts.append(f"({relation.sql(first.start, first.end, second.start, second.end)})")
        if once and isinstance(self.cells, BinCells):  # after the relation, which turns down more
            parts.append(f"({name(first, 'in')} or {name(second, 'in')})")
        if self.cells is None:
            parts += [side.usable for side in (first, second) if side.kept]
        matches = F.expr(" and ".join(parts))
        return rows.join(others, matches if self.condition is None else matches & as_column(self.condition), how)


def as_column(condition: Any) -> Column:
    """A user's condition, a Column or SQL text, as a Column."""
    return F.expr(condition) if isinstance(condition, str) else condition
