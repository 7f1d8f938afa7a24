"""MESHJOIN and R-MESHJOIN: the master data read round and round, every stream row staying for one whole round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pyarrow as pa

from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.answers import Shape
from dovetail.joins.semistream.operators.mesh_cycle import RING_BYTES, MeshCycle
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.sizes import GARBAGE, Footprint, Part, Sizes, footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshJoin(SemiStreamJoin):
    """Every iteration reads the next segment and takes in one chunk of stream rows; a chunk leaves after a round.

    Needs no index and no order. A chunk is `sizes.waiting` rows divided by the segments of a round. When input pauses
    for `max_chunk_wait_s`, iterations go on with partial and empty chunks.
    Reference: Naeem 2012, 3.2 and algorithm 1; docs/algorithms/semistream.md, 2.2.
    """

    max_chunk_wait_s: float = 0.0
    parts: ClassVar[tuple[Part, ...]] = ("waiting", "chunks")
    needs_index: ClassVar[bool] = False

    def __post_init__(self) -> None:
        SemiStreamJoin.__post_init__(self)
        if self.max_chunk_wait_s < 0:
            raise PlanError(f"max_chunk_wait_s={self.max_chunk_wait_s}: a chunk cannot wait for less than 0 s.")

    def logical_parts(self) -> int:
        """Parts of a segment that are met one after the other."""
        return 1

    def fit(self, limit: int, stream: pa.Schema) -> Sizes:
        """Longer and longer segments until a chunk has at least one row; `PlanError` if there is none such."""
        n_pages, parts = max(1, len(self.pages.starts) - 1), self.logical_parts()
        fitting, least = None, []
        for per in [self.sizes.per_segment] if self.sizes.per_segment else _lengths(n_pages):
            cost = self._cost(stream, per, limit)
            chunks = max(1, cost.segments.n) * parts
            rows = self.sizes.waiting or int((limit - cost.fixed) / _row_bytes(cost)) - chunks
            least.append(_enough(partial(self._cost, stream, per), 2 * chunks))
            if rows >= chunks:
                fitting = replace(self.sizes, per_segment=per, waiting=rows, parts=parts)
                if cost.segment >= _wanted_bytes(limit):
                    break
        if fitting is None or limit < min(least):
            raise PlanError(
                f"{format_bytes(limit)} of memory, waiting={self.sizes.waiting}: not enough for chunks of one row; the "
                f"join needs at least {min(least)} bytes, and as many waiting rows as segments x parts."
            )
        return fitting

    def _cost(self, stream: pa.Schema, per_segment: int, limit: int) -> Footprint:
        return footprint(self.pages, stream, per_segment, 0, limit, 1)

    def start(self, budget: MemoryBudget, stream: pa.Schema, shape: Shape, sizes: Sizes) -> MeshCycle:
        """The running join with these sizes."""
        segments = -(-(len(self.pages.starts) - 1) // (sizes.per_segment or 1))
        rows = (sizes.waiting or 1) // (max(1, segments) * (sizes.parts or 1))
        base = self, budget, stream, shape, sizes
        return MeshCycle(*base, chunk_rows=max(1, rows), max_chunk_wait_s=self.max_chunk_wait_s)


def _enough(cost: Callable[[int], Footprint], rows: int) -> int:
    """The smallest budget for so many waiting rows, beside which the fixed parts grow with the budget."""
    limit, need = -1, 0
    while limit < need:
        limit = need
        need = int(cost(limit).fixed + rows * _row_bytes(cost(limit))) + 4096
    return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RMeshJoin(MeshJoin):
    """MESHJOIN whose segments are met in `sizes.parts` logical parts, with a chunk of stream rows taken in after each.

    Reference: Naeem 2012, 4.3 and algorithm 2; docs/algorithms/semistream.md, 2.3.
    """

    def logical_parts(self) -> int:
        """Parts of a segment that are met one after the other; two unless given."""
        return self.sizes.parts or 2


def _lengths(n_pages: int) -> list[int]:
    powers = [1 << bits for bits in range(n_pages.bit_length())]
    return [*(p for p in powers if p < n_pages), n_pages]


def _wanted_bytes(limit: int) -> float:
    """About the best segment for a device whose seek is worth 50 kB (docs/algorithms/semistream.md, 3.1)."""
    return float((50_000 * limit) ** 0.5)


def _row_bytes(cost: Footprint) -> float:
    """A waiting row: its place in the ring, its entry in the hash table at its emptiest, and its columns."""
    table = HashMultimap(1000).nbytes / 1000 * 2
    return RING_BYTES + table + GARBAGE * (cost.stream_row + 1)
