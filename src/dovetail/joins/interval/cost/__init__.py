"""Cost models of the interval joins: result size, spilling, comparisons and frames, and the choice between algorithms.

Pure Python on summaries of the inputs. Symbols follow the source: R and S are the left and right input, T rows,
lambda the arrival rate, d the duration, L the active rows, F frames, T_f tuples per frame, T_M tuples in memory.
"""

from dovetail.joins.interval.cost.choose import ALGORITHMS, Choice, choose
from dovetail.joins.interval.cost.classes import length_classes, summarise
from dovetail.joins.interval.cost.dip import DisjointPartitionCost
from dovetail.joins.interval.cost.forward_scan import ForwardScanCost
from dovetail.joins.interval.cost.frames import FrameMemory
from dovetail.joins.interval.cost.join_size import (
    Variant,
    emitted_at,
    estimate_after,
    estimate_before,
    expected_pairs,
    join_estimate,
    join_estimate_at,
)
from dovetail.joins.interval.cost.mixture import MixedCost
from dovetail.joins.interval.cost.model import Algorithm, CostModel
from dovetail.joins.interval.cost.oip import OverlapPartitionCost
from dovetail.joins.interval.cost.price import Price, Request, UnitCosts, price
from dovetail.joins.interval.cost.slots import choose_slots
from dovetail.joins.interval.cost.sort_merge import SortMergeCost
from dovetail.joins.interval.cost.spill_map import SpillMap, spill_map, uniform
from dovetail.joins.interval.cost.statistics import IntervalStatistics
from dovetail.joins.interval.cost.time_sweep import TimeSweepCost, freed_share, freed_shares

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Choice",
    "CostModel",
    "DisjointPartitionCost",
    "ForwardScanCost",
    "FrameMemory",
    "IntervalStatistics",
    "MixedCost",
    "OverlapPartitionCost",
    "Price",
    "Request",
    "SortMergeCost",
    "SpillMap",
    "TimeSweepCost",
    "UnitCosts",
    "Variant",
    "choose",
    "choose_slots",
    "emitted_at",
    "estimate_after",
    "estimate_before",
    "expected_pairs",
    "freed_share",
    "freed_shares",
    "join_estimate",
    "join_estimate_at",
    "length_classes",
    "price",
    "spill_map",
    "summarise",
    "uniform",
]
