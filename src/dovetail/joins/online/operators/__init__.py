"""The online joins: algorithms made of two parts, an index of rows in memory and work on disk.

`spec` has the common part of all specifications, `base` the running join, `parts` the interface of its two parts. On
disk, `combinations` joins blocks of any number of inputs, and `block_loop` does so in nested loops that stop for new
rows.

* `diner`: DINER. `miner`: MINER and MJoin, of many inputs.
* `hash_joins`: SHJ, DPHJ and EHJ.
* `probing_joins`: XJoin and RPJ, which probe blocks against memory. `merge_joins`: HMJ and PMJ, which merge runs.
"""

from __future__ import annotations

from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.hash_joins import DoublePipelinedJoin, EarlyHashJoin, SymmetricHashJoin
from dovetail.joins.online.operators.merge_joins import HashMergeJoin, ProgressiveMergeJoin
from dovetail.joins.online.operators.miner import Miner, MJoin
from dovetail.joins.online.operators.probing_joins import RateBasedJoin, XJoin
from dovetail.joins.online.operators.spec import MultiJoin, OnlineJoin

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
MULTIWAY: dict[str, type[MultiJoin]] = {"mjoin": MJoin, "miner": Miner}
"""Joins of two inputs or more."""
