"""The online joins: one file an algorithm, made of parts.

`spec` has what all specifications share, `base` the running join, `parts` what its two parts must do. In memory:
`hash_index`; `diner`, `pmj` and `miner` have their own. On disk: `pairs` (blocks of two inputs), `settling` (blocks of
all inputs), `merging`, `visiting` and `block_loop`.
"""

from __future__ import annotations

from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.dphj import DoublePipelinedJoin
from dovetail.joins.online.operators.ehj import EarlyHashJoin
from dovetail.joins.online.operators.hmj import HashMergeJoin
from dovetail.joins.online.operators.miner import Miner
from dovetail.joins.online.operators.mjoin import MJoin
from dovetail.joins.online.operators.oldest import OldestFirst
from dovetail.joins.online.operators.pmj import ProgressiveMergeJoin
from dovetail.joins.online.operators.rpj import RateBasedJoin
from dovetail.joins.online.operators.shj import SymmetricHashJoin
from dovetail.joins.online.operators.spec import MultiJoin, OnlineJoin
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
"""Joins of two inputs."""
BASELINES: dict[str, type[OnlineJoin]] = {"oldest": OldestFirst}
"""Joins to compare with, which no source proposes."""
MULTIWAY: dict[str, type[MultiJoin]] = {"mjoin": MJoin, "miner": Miner}
"""Joins of two inputs or more."""
