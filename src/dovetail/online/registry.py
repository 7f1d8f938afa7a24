"""The two-way online algorithms by name."""

from __future__ import annotations

from dovetail.online.operators.diner import Diner
from dovetail.online.operators.dphj import DoublePipelinedJoin
from dovetail.online.operators.ehj import EarlyHashJoin
from dovetail.online.operators.hmj import HashMergeJoin
from dovetail.online.operators.oldest import OldestFirst
from dovetail.online.operators.pmj import ProgressiveMergeJoin
from dovetail.online.operators.rpj import RateBasedJoin
from dovetail.online.operators.shj import SymmetricHashJoin
from dovetail.online.operators.spec import OnlineJoin
from dovetail.online.operators.xjoin import XJoin

ALGORITHMS: dict[str, type[OnlineJoin]] = {
    "shj": SymmetricHashJoin,
    "dphj": DoublePipelinedJoin,
    "xjoin": XJoin,
    "pmj": ProgressiveMergeJoin,
    "hmj": HashMergeJoin,
    "rpj": RateBasedJoin,
    "ehj": EarlyHashJoin,
    "diner": Diner,
}
BASELINES: dict[str, type[OnlineJoin]] = {"oldest": OldestFirst}
"""Joins to compare with, which no source proposes."""
