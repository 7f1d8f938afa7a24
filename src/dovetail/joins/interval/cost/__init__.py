"""Cost models of the interval joins: result size, spilling, comparisons and frames, and the choice between algorithms.

Pure Python on summaries of the inputs. Symbols follow the source: R and S are the left and right input, T rows,
lambda the arrival rate, d the duration, L the active rows, F frames, T_f tuples per frame, T_M tuples in memory.

* `statistics`: statistics of an input, and the memory. `choose`: the price of each algorithm, and the cheapest.
* `model`: the interface of every model, and the number of pairs. `sweeps`, `partitions`: the five models.
"""

from dovetail.joins.interval.cost.choose import ALGORITHMS, Choice, MixedCost, Price, choose
from dovetail.joins.interval.cost.model import Algorithm, CostModel, expected_pairs
from dovetail.joins.interval.cost.partitions import DisjointPartitionCost, OverlapPartitionCost, choose_slots
from dovetail.joins.interval.cost.statistics import FrameMemory, IntervalStatistics
from dovetail.joins.interval.cost.sweeps import ForwardScanCost, SortMergeCost, TimeSweepCost, freed_share

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
    "SortMergeCost",
    "TimeSweepCost",
    "choose",
    "choose_slots",
    "expected_pairs",
    "freed_share",
]
