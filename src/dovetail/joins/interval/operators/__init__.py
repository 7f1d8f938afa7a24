"""The five local interval joins, each inside a memory budget."""

from dovetail.joins.interval.operators.disjoint_partition import DisjointPartitionJoin
from dovetail.joins.interval.operators.forward_scan import ForwardScanJoin
from dovetail.joins.interval.operators.frames import Frames
from dovetail.joins.interval.operators.overlap_partition import OverlapPartitionJoin
from dovetail.joins.interval.operators.sort_merge import SortMergeJoin
from dovetail.joins.interval.operators.time_sweep import TimeSweepJoin

__all__ = [
    "DisjointPartitionJoin",
    "ForwardScanJoin",
    "Frames",
    "OverlapPartitionJoin",
    "SortMergeJoin",
    "TimeSweepJoin",
]
