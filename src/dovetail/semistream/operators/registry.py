"""The semi-stream algorithms by name."""

from __future__ import annotations

from dovetail.semistream.operators.cachejoin import CacheJoin, Sscj
from dovetail.semistream.operators.hybridjoin import HybridJoin
from dovetail.semistream.operators.inlj import Inlj
from dovetail.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.semistream.operators.optimised_x_hybridjoin import OptimisedXHybridJoin
from dovetail.semistream.operators.partitioned import PartitionedJoin
from dovetail.semistream.operators.spec import SemiStreamJoin
from dovetail.semistream.operators.ssij import Ssij
from dovetail.semistream.operators.x_hybridjoin import XHybridJoin

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
