"""The five local interval joins, each inside a memory budget.

* `spec`: the specification of an operator, the weight of rows, and the division of the budget.
* `driver`: push and pull, for all of them, and pairs of row numbers that become batches.
* `feed`: a sorted input, read through a window. `sweeps`: sort-merge, time sweep and forward scan, with spilling.
* `partitioned`: inputs read to the end. `overlap_partition` (OIP, with `slot_store`) and `disjoint_partition` (DIP)
  partition both.
"""

from typing import Any

from dovetail.joins.interval.operators.disjoint_partition import DisjointPartitionJoin
from dovetail.joins.interval.operators.overlap_partition import OverlapPartitionJoin
from dovetail.joins.interval.operators.spec import Frames
from dovetail.joins.interval.operators.sweeps import ForwardScanJoin, SortMergeJoin, TimeSweepJoin

__all__ = [
    "OPERATORS",
    "DisjointPartitionJoin",
    "ForwardScanJoin",
    "Frames",
    "OverlapPartitionJoin",
    "SortMergeJoin",
    "TimeSweepJoin",
]

OPERATORS: dict[str, Any] = {
    "sort_merge": SortMergeJoin,
    "time_sweep": TimeSweepJoin,
    "forward_scan": ForwardScanJoin,
    "oip": OverlapPartitionJoin,
    "dip": DisjointPartitionJoin,
}
"""The specifications by the names that users give them."""
