"""The ten semi-stream joins, each inside a memory budget."""

from dovetail.semistream.operators.cachejoin import CacheJoin, Sscj
from dovetail.semistream.operators.hybridjoin import HybridJoin
from dovetail.semistream.operators.inlj import Inlj
from dovetail.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.semistream.operators.optimised_x_hybridjoin import OptimisedXHybridJoin
from dovetail.semistream.operators.partitioned import PartitionedJoin
from dovetail.semistream.operators.registry import ALGORITHMS
from dovetail.semistream.operators.spec import SemiStreamJoin
from dovetail.semistream.operators.ssij import Ssij
from dovetail.semistream.operators.x_hybridjoin import XHybridJoin

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
