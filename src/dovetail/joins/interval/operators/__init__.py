"""The five local interval joins, each inside a memory budget.

* `spec`: the specification of an operator. `memory`: what rows weigh and how the budget is divided.
* `driver`: push and pull, for all of them. `output`: pairs of row numbers become batches.
* `sweep`: windows over sorted inputs, with spilling; `sort_merge`, `time_sweep` and `forward_scan` are sweeps.
* `partitioned`: inputs read to the end; `overlap_partition` (OIP, with `slot_store`) and `disjoint_partition` (DIP,
  with `disjoint_store`) partition both.
"""

from typing import Any

from dovetail.joins.interval.operators.disjoint_partition import DisjointPartitionJoin
from dovetail.joins.interval.operators.forward_scan import ForwardScanJoin
from dovetail.joins.interval.operators.overlap_partition import OverlapPartitionJoin
from dovetail.joins.interval.operators.sort_merge import SortMergeJoin
from dovetail.joins.interval.operators.spec import Frames
from dovetail.joins.interval.operators.time_sweep import TimeSweepJoin

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
