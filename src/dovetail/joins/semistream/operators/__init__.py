"""The ten semi-stream joins and a plain hash join, each inside a memory budget.

In the order in which rows pass them:

* `operator`: the specification of every join, and the running join, which codes rows and collects answers.
* `inlj`, `meshjoin`, `hybridjoin`, `cachejoin`, `resident`: the algorithms. The loop of all joins that load the home
  segments of waiting rows is HYBRIDJOIN's. `hash_join`: for master data that fits in memory.
* `waiting`: stream rows that wait, and loads that answer them. `master_rows`: master rows as read, and cached by key.
* `answers`: rows by name, and answers made of them.
"""

from dovetail.joins.semistream.operators.cachejoin import CacheJoin, OptimisedXHybridJoin, Sscj
from dovetail.joins.semistream.operators.hash_join import HashJoin
from dovetail.joins.semistream.operators.hybridjoin import HybridJoin, XHybridJoin
from dovetail.joins.semistream.operators.inlj import Inlj
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.operators.operator import SemiStreamJoin
from dovetail.joins.semistream.operators.resident import PartitionedJoin, Ssij

ALGORITHMS: dict[str, type[SemiStreamJoin]] = {
    "inlj": Inlj,
    "meshjoin": MeshJoin,
    "r_meshjoin": RMeshJoin,
    "partitioned": PartitionedJoin,
    "ssij": Ssij,
    "hybridjoin": HybridJoin,
    "x_hybridjoin": XHybridJoin,
    "optimised_x_hybridjoin": OptimisedXHybridJoin,
    "cachejoin": CacheJoin,
    "sscj": Sscj,
    "hash_join": HashJoin,
}

__all__ = [
    "ALGORITHMS",
    "CacheJoin",
    "HashJoin",
    "HybridJoin",
    "Inlj",
    "MeshJoin",
    "OptimisedXHybridJoin",
    "PartitionedJoin",
    "RMeshJoin",
    "SemiStreamJoin",
    "Sscj",
    "Ssij",
    "XHybridJoin",
]
