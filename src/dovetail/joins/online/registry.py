"""The two-way online algorithms by name."""

from __future__ import annotations

from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.dphj import DoublePipelinedJoin
from dovetail.joins.online.operators.ehj import EarlyHashJoin
from dovetail.joins.online.operators.hmj import HashMergeJoin
from dovetail.joins.online.operators.oldest import OldestFirst
from dovetail.joins.online.operators.pmj import ProgressiveMergeJoin
from dovetail.joins.online.operators.rpj import RateBasedJoin
from dovetail.joins.online.operators.shj import SymmetricHashJoin
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.operators.xjoin import XJoin

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
