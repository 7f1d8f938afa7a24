"""The two-way online joins, one file an algorithm."""

from __future__ import annotations

from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.dphj import DoublePipelinedJoin
from dovetail.joins.online.operators.ehj import EarlyHashJoin
from dovetail.joins.online.operators.hmj import HashMergeJoin
from dovetail.joins.online.operators.oldest import OldestFirst
from dovetail.joins.online.operators.pmj import ProgressiveMergeJoin
from dovetail.joins.online.operators.rpj import RateBasedJoin
from dovetail.joins.online.operators.shj import SymmetricHashJoin
from dovetail.joins.online.operators.xjoin import XJoin

__all__ = [
    "Diner",
    "DoublePipelinedJoin",
    "EarlyHashJoin",
    "HashMergeJoin",
    "OldestFirst",
    "ProgressiveMergeJoin",
    "RateBasedJoin",
    "SymmetricHashJoin",
    "XJoin",
]
