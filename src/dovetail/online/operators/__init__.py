"""The two-way online joins, one file an algorithm."""

from __future__ import annotations

from dovetail.online.operators.diner import Diner
from dovetail.online.operators.dphj import DoublePipelinedJoin
from dovetail.online.operators.ehj import EarlyHashJoin
from dovetail.online.operators.hmj import HashMergeJoin
from dovetail.online.operators.oldest import OldestFirst
from dovetail.online.operators.pmj import ProgressiveMergeJoin
from dovetail.online.operators.rpj import RateBasedJoin
from dovetail.online.operators.shj import SymmetricHashJoin
from dovetail.online.operators.xjoin import XJoin

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
