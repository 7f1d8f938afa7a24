"""The five local interval joins, each inside a memory budget."""

from dovetail.interval.operators.disjoint_partition import DisjointPartitionJoin
from dovetail.interval.operators.forward_scan import ForwardScanJoin
from dovetail.interval.operators.frames import Frames
from dovetail.interval.operators.overlap_partition import OverlapPartitionJoin
from dovetail.interval.operators.sort_merge import SortMergeJoin
from dovetail.interval.operators.time_sweep import TimeSweepJoin

__all__ = [
    "DisjointPartitionJoin",
    "ForwardScanJoin",
    "Frames",
    "OverlapPartitionJoin",
    "SortMergeJoin",
    "TimeSweepJoin",
]
