"""The interval join algorithms by the names that users give them."""

from __future__ import annotations

from typing import Any

from dovetail.joins.interval.operators import (
    DisjointPartitionJoin,
    ForwardScanJoin,
    OverlapPartitionJoin,
    SortMergeJoin,
    TimeSweepJoin,
)

OPERATORS: dict[str, Any] = {
    "sort_merge": SortMergeJoin,
    "time_sweep": TimeSweepJoin,
    "forward_scan": ForwardScanJoin,
    "oip": OverlapPartitionJoin,
    "dip": DisjointPartitionJoin,
}
