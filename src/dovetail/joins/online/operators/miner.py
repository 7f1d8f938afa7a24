"""MINER: many streams, rows of little benefit leave memory by regions of each join attribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, int64s
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Part, united
from dovetail.joins.online.kernels.areas import BENEFIT, drop_rows, empty_areas, flush_areas
from dovetail.joins.online.kernels.combine import Done
from dovetail.joins.online.kernels.indexed import arrive_multi, edges_of, empty_stack, store_all
from dovetail.joins.online.kernels.rows import Arrivals
from dovetail.joins.online.kernels.tree import LINK_BYTES, empty_trees
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop, Matcher
from dovetail.joins.online.operators.diner import count_regions
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.settling import (
    Combinations,
    Step,
    neighbours,
    nothing_done,
    path_of,
    reduced,
)
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Fitted, Footprint

CLEANUPS = ("survivors", "odometer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Miner(MultiJoin):
    """Rows that took part in fewest results leave memory first, by three regions of each join attribute.

    Arriving rows probe along the edges of least selectivity. In pauses blocks of all inputs meet in nested loops that
    stop after each block when input is back, and pass over what cannot match. Decisions are those of the
    tuple-at-a-time algorithm, whatever the size of batches. `cleanup` is how what is owed at the end is found:
    "survivors" holds rows that can still match, "odometer" goes on with the nested loops of the pauses.
    Reference: Bornea 2010, 4; docs/algorithms/online.md, 4 and 5.3.
    """

    cleanup: Literal["survivors", "odometer"] = "survivors"

    def check(self) -> None:
        """`PlanError` for predicates that make no tree and a clean-up that there is not."""
        MultiJoin.check(self)
        if self.cleanup not in CLEANUPS:
            raise PlanError(f"cleanup={self.cleanup!r} is not one of {CLEANUPS}.")

    def footprint(self) -> Footprint:
        """Slots, and nodes of the indexes for each attribute."""
        return self.needs(LINK_BYTES * self.most_attributes)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Ordered indexes, whose rows of least benefit leave."""
        return TreeIndex(fitted, keys, self.seed, BENEFIT)

    def disk(self, join: OnlineOperator) -> Disk:
        """Nested loops over blocks."""
        return MinerLoops(join, survivors=self.cleanup == "survivors")


class TreeIndex(Index):
    """An ordered index with three regions for each input and attribute, and the join tree along which rows probe."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, seed: int, policy: int) -> None:
        super().__init__(fitted, keys, flushes=32)
        self.stack = empty_stack(len(keys.counts))
        self.trees = empty_trees(len(keys.counts), int(keys.counts.max()), fitted.slots)
        self.areas = empty_areas(keys.counts, fitted.block_rows, seed, policy, fitted.slots, keys.order)
        each = (keys.ends, keys.attributes, keys.around, keys.near, keys.near_around)
        self.edges = edges_of(*(np.array(some) for some in each))

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_multi(self.rows, self.areas, self.trees, self.edges, new, self.stack, self.out)

    def flush(self) -> bool:
        """One block of the input with the most rows leaves."""
        return flush_areas(self.areas, self.rows, self.trees, self.out)

    def store(self, side: int, slots: I32) -> None:
        """The rows are in all indexes."""
        store_all(self.rows, self.areas, self.trees, side, slots.astype(np.int64))

    def drop(self, side: int, slots: I32) -> None:
        """The rows leave all indexes."""
        drop_rows(self.areas, self.rows, self.trees, self.out, side, slots)

    def forget(self) -> None:
        """All indexes go."""
        self.trees = empty_trees(len(self.keys.counts), 1, 0)

    def sorted_by(self, side: int, bucket: int) -> int:
        """The attribute that the flush was chosen by."""
        return bucket

    def count(self, names: Sequence[str], metrics: Metrics) -> None:
        """How often each region was flushed first, and selectivities."""
        count_regions(self.areas, names, metrics)
        for edge, ends in enumerate(self.keys.ends.tolist()):
            label = "-".join(names[r] for r in ends)
            metrics.peak("sigma", int(1e9 * self.edges.sigma[edge]), label, unit="per billion")


class TreeMatcher(Matcher[list[Part]]):
    """Blocks of all inputs along the join tree: rows that cannot match are left out with every input that is added."""

    def __init__(self, join: OnlineOperator) -> None:
        self._join, self._combinations = join, Combinations(join)
        self._steps: list[Step] = []

    def outer_blocks(self, r: int, first: int) -> int:
        """As printed, or in clean-up all that memory takes, beside a block of each other input."""
        join = self._join
        room = join.block_room // 4 - sum(store.largest for store in join.blocks)
        most = join.fitted.rows if join.finished else join.spec.sizes.outer_blocks
        return max(1, min(most, room // max(1, join.blocks[r].largest)))

    def path(self, outer: int) -> list[int]:
        """The sequences that hang off the outer input, those with few blocks first, neighbours before what follows."""
        sequences = [self._sequence(outer, near) for near in neighbours(self._join.keys, outer)]
        sequences.sort(key=lambda some: (max(len(self._join.blocks[r]) for r in some), some[0]))
        return [r for some in sequences for r in some]

    def _sequence(self, before: int, first: int) -> list[int]:
        further = [self._sequence(first, near) for near in neighbours(self._join.keys, first) if near != before]
        return [first, *(r for some in further for r in some)]

    def first(self, order: Sequence[int], numbers: Sequence[int]) -> list[Part] | None:
        """Blocks of the outer input."""
        self._steps = path_of(self._join.keys, order)
        part = united([self._join.blocks[order[0]].load(number) for number in numbers])
        return [part] if part.n_rows else None

    def passes_over(self, level: list[Part], r: int, number: int) -> bool:
        """A block must be read to know."""
        return False

    def extended(self, level: list[Part], r: int, number: int) -> list[Part] | None:
        """Rows that still match."""
        parts = [*level, self._join.blocks[r].load(number)]
        found = reduced(parts, self._steps[: len(parts)])
        return found if all(part.n_rows for part in found) else None

    def answers(self, level: list[Part]) -> Iterator[pa.RecordBatch]:
        """New combinations."""
        return self._combinations.of(level, self._steps, nothing_done(len(level)))


class MinerLoops(BlockLoop):
    """Nested loops in pauses, if it `reacts`; at the end the `survivors` of all blocks, or the rest of the loops."""

    blocks_at_once: ClassVar[int] = 2

    def __init__(self, join: OnlineOperator, reacts: bool = True, survivors: bool = True) -> None:
        super().__init__(join, TreeMatcher(join))
        self.combinations, self._reacts, self._survivors = Combinations(join), reacts, survivors

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nested loops over blocks, from where they stopped."""
        return super().react(until) if self._reacts else iter(())

    def renumber(self) -> None:
        """All blocks that are left have met; roles stay as they are."""
        outer = self.odometer.outer
        super().renumber()
        self.odometer.outer = outer

    def done(self) -> Done:
        """What nested loops have produced so far."""
        o = self.odometer
        flight = np.array([o.in_flight, o.outer, o.outer_blocks], np.int64)
        box, digits, current = (int64s(np.array(each, np.int64)) for each in (o.joined, o.digits, o.current))
        return Done(box, int64s(flight), digits, current)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every combination of blocks that nested loops have not produced."""
        if not self._survivors:
            return super().settle_all()
        return self.combinations.settle([store.living().tolist() for store in self.blocks], self.done())
