"""The semi-stream algorithms by name."""

from __future__ import annotations

from dovetail.joins.semistream.operators.cachejoin import CacheJoin, Sscj
from dovetail.joins.semistream.operators.hybridjoin import HybridJoin
from dovetail.joins.semistream.operators.inlj import Inlj
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.operators.optimised_x_hybridjoin import OptimisedXHybridJoin
from dovetail.joins.semistream.operators.partitioned import PartitionedJoin
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.operators.ssij import Ssij
from dovetail.joins.semistream.operators.x_hybridjoin import XHybridJoin

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
}
