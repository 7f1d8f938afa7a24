"""The native route: an interval join as an ordinary Spark plan, so that Spark compiles, spills and balances it.

Bins with an equality join where intervals share or touch a point, Spark's own equality join where a relation holds an
equality or few rows share a key, REPLICATE and PROJECT for before and after, a nested loop for what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.memory import parse_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.bins import (
    CANDIDATE_COST,
    HASHED_CANDIDATE_COST,
    BinCells,
    OrderCells,
    choose_bins,
    key_pairs,
)
from dovetail.joins.interval.plan.grid import GridCells
from dovetail.joins.interval.plan.route import Route
from dovetail.joins.interval.plan.sides import Side, as_column
from dovetail.joins.interval.plan.statistics import Inputs
from dovetail.joins.interval.relation import strategy
from dovetail.joins.interval.request import Request
from dovetail.spark.frames import RESERVED, require_classic
from dovetail.spark.status import Node, add_costs, last_execution

ORDER_RANGES = (16, 64)  # ranges of a join by an inequality, fewest and most, unless the user says how many
ORDER_ROWS = 4096  # later rows of one key in a range: copies of earlier rows cost little beside the pairs they make
ROWS_OUT = "number of output rows"
_FURTHEST = 2.0**61  # lengths of whole numbers nearer to zero than this fit into a long


@dataclass(frozen=True, slots=True)
class NativeRoute(Route):
    """An interval join by Spark's own operators.

    `algorithm` says how pairs are found: bins, keys, equality (of bounds), order (an inequality of bounds), extremes (a
    semi or anti join by an inequality, which needs no pairs), grid (two inequalities) or nested_loop.
    """

    inputs: Inputs
    algorithm: str
    reason: str
    cells: BinCells | OrderCells | GridCells | None = None
    seconds: float | None = None

    name: str = field(default="native", init=False)

    def answer(self, left: Side, right: Side) -> DataFrame:
        """The joined rows of checked sides."""
        request = self.inputs.request
        if self.algorithm in ("order", "extremes") and by_extremes(request):
            return self._answer_by_extremes(left, right)
        return self._join(left, right).answer(request.how, request.keep)

    def _answer_by_extremes(self, left: Side, right: Side) -> DataFrame:
        """Rows with or without a match are compared with the one row that matches most; only pairs need a join."""
        request = self.inputs.request
        if request.left_only:
            return self._beside_extreme(left, right, request.how)
        usable = (
            replace(side, frame=side.frame.where(side.matches), kept=False) if side.kept else side
            for side in (left, right)
        )
        whole = self._join(*usable).answer("inner")
        for side, other in ((left, right), (right, left)):
            if side.kept:
                whole = whole.unionByName(self._beside_extreme(side, other, "left_anti"), allowMissingColumns=True)
        return whole

    def _beside_extreme(self, side: Side, other: Side, how: str) -> DataFrame:
        """The rows of a side that match some row of the other one (or none, if `how` is left_anti); no pair is formed.

        An inequality holds for some row of a key if it holds for its latest start, or its earliest end.
        """
        relation = self.inputs.request.relation
        relation = relation if side.name == "left" else relation.swapped()
        found = f"max({other.start})" if "before" in relation.names else f"min({other.end})"
        extreme = f"{RESERVED}extreme"
        rows = other.frame.where(other.matches) if other.kept else other.frame
        of_keys = rows.groupBy(*other.keys).agg(F.expr(found).alias(extreme))
        parts = [f"{a} = {b}" for a, b in zip(side.keys, other.keys, strict=True)]
        parts.append(f"({relation.sql(side.start, side.end, extreme, extreme)})")
        parts += [side.matches] if side.kept else []
        return side.frame.join(of_keys, F.expr(" and ".join(parts)), how)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        if isinstance(self.cells, GridCells):
            return [f"grid: {self.cells.explain()}"]
        return [f"bins: {self.cells.bins.explain()}"] if isinstance(self.cells, BinCells) else []

    def add_measured(self, metrics: Metrics) -> Metrics:
        """The metrics, with Spark's own of the last run: rows placed, rows joined, spills, task times."""
        return metrics.include(_measured(self.inputs.left.frame.sparkSession, self.inputs.left, self.inputs.right))

    def match(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> DataFrame:
        """Rows of the same cell joined by Spark; `once`, a pair comes out of the cell in which one of them starts."""
        # Where the cell has the keys in it, Spark must not see an equality, or it would sort and hash by them as well.
        equal = "({0} <= {1} and {0} >= {1})" if self.cells is not None and first.packs_keys else "{0} = {1}"
        parts = [equal.format(a, b) for a, b in zip(first.keys, second.keys, strict=True)]
        relation, condition = self.inputs.request.relation, self.inputs.request.condition
        relation = relation.swapped() if first.name == "right" else relation
        if self.cells is not None:
            parts.insert(0, f"{first.own('cell')} = {second.own('cell')}")
        parts.append(f"({relation.sql(first.start, first.end, second.start, second.end)})")
        if once and isinstance(self.cells, BinCells):  # after the relation, which rejects more pairs
            parts.append(f"({first.own('in')} or {second.own('in')})")
        if self.cells is None:
            parts += [side.matches for side in (first, second) if side.kept]
        if isinstance(self.cells, (OrderCells, GridCells)):  # thousands of rows a cell: a merge tests pairs faster
            others = others.hint("merge")
        matches = F.expr(" and ".join(parts))
        return rows.join(others, matches if condition is None else matches & as_column(condition), how)


def bin_cells(inputs: Inputs) -> BinCells:
    """The cheapest bins for the samples of both inputs."""
    left, right = inputs.statistics
    longest = max(left.max_length, right.max_length)
    bins = choose_bins(left.sample, right.sample, longest, candidate_cost(inputs))
    furthest = max(abs(bound) for side in inputs.statistics for bound in (side.low, side.high))
    integral = isinstance(inputs.left.bound_type, T.IntegralType)
    whole = integral and bins.spans(longest) and furthest < _FURTHEST
    return BinCells(bins.whole() if whole else bins, whole)


def candidate_cost(inputs: Inputs) -> float:
    """Seconds to test a pair: more if Spark is likely to send one side to all tasks and to hash instead of merging."""
    setting = inputs.left.frame.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold", "10MB")
    try:
        limit = parse_bytes(setting or "10MB")
    except PlanError:
        return CANDIDATE_COST  # switched off
    hashes = min(s.rows * s.row_bytes for s in inputs.statistics) <= limit
    return HASHED_CANDIDATE_COST if hashes else CANDIDATE_COST


def by_extremes(request: Request) -> bool:
    """Whether the latest or earliest row of a key says which rows match at all: an inequality without a condition."""
    return strategy(request.relation) == "order" and request.condition is None and request.keep == "all"


def order_cells(inputs: Inputs) -> OrderCells:
    """Ranges for an inequality, at quantiles of the bounds that it compares.

    Only bounds between the first end of earlier rows and the last start of later ones can match: rows beyond have
    ranges of their own, in which nothing is compared.
    """
    left, right = inputs.statistics
    earlier = "left" if "before" in inputs.request.relation.names else "right"
    ends, starts = (left, right) if earlier == "left" else (right, left)
    points = np.concatenate([ends.sample.end, starts.sample.start])
    first, last = ends.low, float(np.nextafter(starts.last_start, np.inf))
    points = points[(points >= first) & (points <= last)]
    of_a_key = key_pairs(left.sample, right.sample) / max(1, ends.usable)
    ranges = inputs.request.partitions or int(min(max(of_a_key // ORDER_ROWS, ORDER_RANGES[0]), ORDER_RANGES[1]))
    cuts = np.quantile(points, np.arange(1, ranges) / ranges) if len(points) else np.array([])
    return OrderCells(tuple(float(cut) for cut in np.unique([*cuts, first, last]) if isfinite(cut)), earlier)


def _measured(spark: SparkSession, left: Side, right: Side) -> Metrics:
    """Rows placed in bins, joined rows, spills and memory of the plan's last run, as Spark counted them.

    Spark does not count the candidate pairs that a join condition rejected, so there are no comparisons here.
    Empty if the plan has not run, or if Spark no longer retains the run (spark.sql.ui.retainedExecutions).
    """
    require_classic(spark, "metrics of a run", "run the query in a classic session to see them")
    metrics = Metrics()
    run = last_execution(spark, left.mark)
    if run is None:
        return metrics
    for side in (left, right):
        placed = [node.values.get(ROWS_OUT, 0) for node in run.nodes if _makes(node, side.own("bin"))]
        if placed:
            metrics.add("placed", max(placed), side=side.name)
    joins = [node for node in run.nodes if node.name.endswith("Join") and left.mark in node.description]
    metrics.add("pairs", sum(node.values.get(ROWS_OUT, 0) for node in joins))
    metrics.note("counted by Spark: pairs include rows that an outer join kept, bytes_written is the size of spills")
    add_costs(spark, run, metrics)
    return metrics


def _makes(node: Node, column: str) -> bool:
    """Whether the node is the explode that makes this column: the column is the last one in its description."""
    return node.name == "Generate" and f"[{column}#" in node.description
