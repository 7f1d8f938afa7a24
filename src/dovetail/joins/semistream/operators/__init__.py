"""The ten semi-stream joins, each inside a memory budget."""

from dovetail.joins.semistream.operators.cachejoin import CacheJoin, Sscj
from dovetail.joins.semistream.operators.hybridjoin import HybridJoin
from dovetail.joins.semistream.operators.inlj import Inlj
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.operators.optimised_x_hybridjoin import OptimisedXHybridJoin
from dovetail.joins.semistream.operators.partitioned import PartitionedJoin
from dovetail.joins.semistream.operators.registry import ALGORITHMS
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.operators.ssij import Ssij
from dovetail.joins.semistream.operators.x_hybridjoin import XHybridJoin

__all__ = [
    "ALGORITHMS",
    "CacheJoin",
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
