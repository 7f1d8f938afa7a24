"""MINER: many streams, rows of little benefit leave memory by regions of each join attribute."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, int64s
from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.kernels.multi_arrive import arrive_multi, edges_of, store_all
from dovetail.joins.online.kernels.multi_combine import Done
from dovetail.joins.online.kernels.multi_flush import BENEFIT, drop_rows, empty_areas, flush_areas
from dovetail.joins.online.kernels.multi_rows import MultiArrivals
from dovetail.joins.online.kernels.tree import LINK_BYTES, empty_trees
from dovetail.joins.online.multiway.base import MultiOperator
from dovetail.joins.online.multiway.blocks import Part, united
from dovetail.joins.online.multiway.odometer import Odometer
from dovetail.joins.online.multiway.settling import NONE, neighbours, nothing_done, path_of, reduced
from dovetail.joins.online.multiway.sizes import MultiFootprint
from dovetail.joins.online.multiway.spec import MultiJoin

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

    def footprint(self) -> MultiFootprint:
        """Slots, and nodes of the indexes for each attribute."""
        return self.needs(LINK_BYTES * self.most_attributes)

    @property
    def operator(self) -> type[MultiOperator]:
        """The class of the running join."""
        return MinerOperator


def _never() -> bool:
    return False


class MinerOperator(MultiOperator):
    """A running MINER join."""

    policy: ClassVar[int] = BENEFIT

    def index_rows(self) -> None:
        """Indexes and regions for each input and attribute, the join tree, and the positions of nested loops."""
        counts, keys = self.keys.counts, self.keys
        self.trees = empty_trees(len(self.names), int(counts.max()), self.fitted.slots)
        self.areas = empty_areas(counts, self.fitted.block_rows, self.spec.seed, self.policy)
        each = (keys.ends, keys.attributes, keys.around, keys.near, keys.near_around)
        self.edges = edges_of(*(np.array(some) for some in each))
        self.odometer = Odometer([0] * len(self.names))

    def drop_index(self) -> None:
        """Forget all indexes."""
        self.trees = empty_trees(len(self.names), 1, 0)

    def arrive(self, new: MultiArrivals) -> int:
        """Let rows arrive one by one."""
        return arrive_multi(self.rows, self.areas, self.trees, self.edges, new, self.stack, self.out)

    def flush(self) -> bool:
        """One block of the input with the most rows leaves."""
        return flush_areas(self.areas, self.rows, self.trees, self.out)

    # ------------------------------------------------------------------ what is on disk

    def sizes(self) -> list[int]:
        """Blocks of each input."""
        return [len(store) for store in self.blocks]

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nested loops over blocks, from where they stopped."""
        while self.odometer.ready(self.sizes(), self._outer_blocks, self._arranged):
            if (yield from self._batch(until)):
                return

    def _outer_blocks(self, r: int) -> int:
        """How many blocks of an outer input may be in memory together, beside one of each other input."""
        room = self.block_room // 4 - sum(store.largest for store in self.blocks)
        most = self.fitted.rows if self._finished else self.spec.sizes.outer_blocks
        return max(1, min(most, room // max(1, self.blocks[r].largest)))

    def _arranged(self, outer: int) -> list[int]:
        """The sequences that hang off the outer input, those with few blocks first, neighbours before what follows."""
        sequences = [self._sequence(outer, near) for near in neighbours(self.keys, outer)]
        sequences.sort(key=lambda some: (max(len(self.blocks[r]) for r in some), some[0]))
        return [r for some in sequences for r in some]

    def _sequence(self, before: int, first: int) -> list[int]:
        further = [self._sequence(first, near) for near in neighbours(self.keys, first) if near != before]
        return [first, *(r for some in further for r in some)]

    def _batch(self, until: Until) -> Generator[pa.RecordBatch, None, bool]:
        """Steps of the batch under way, until it is complete or `until()`, which is what it returns.

        A prefix of digits that leaves no partial combination is passed over at once.
        """
        odometer = self.odometer
        steps = path_of(self.keys, [odometer.outer, *odometer.digits])
        held = [self.hold_blocks(odometer.outer, odometer.batch)]
        levels = [[united([self.blocks[odometer.outer].load(number) for number in odometer.batch])]]
        stop = False
        while odometer.in_flight and not stop:
            digit = len(levels) - 1
            if digit < len(steps) - 1 and all(part.n_rows for part in levels[-1]):
                r = odometer.digits[digit]
                held.append(self.hold_blocks(r, range(odometer.current[digit], odometer.current[digit] + 1)))
                levels.append(reduced([*levels[-1], self._inner(r, odometer.current[digit])], steps[: digit + 2]))
                continue
            if digit == len(steps) - 1 and all(part.n_rows for part in levels[-1]):
                yield from self.combined(levels[-1], steps, nothing_done(len(steps)))
            changed = odometer.advance(digit - 1)
            while len(levels) > changed + 1 and len(levels) > 1:
                levels.pop()
                self.let_blocks_go(held.pop())
            stop = until()
        self.let_blocks_go(sum(held))
        return stop

    def _inner(self, r: int, number: int) -> Part:
        return self.blocks[r].load(number)

    def done(self) -> Done:
        """What nested loops have produced so far."""
        o = self.odometer
        flight = np.array([o.in_flight, o.outer, o.outer_blocks], np.int64)
        box, digits, current = (int64s(np.array(each, np.int64)) for each in (o.joined, o.digits, o.current))
        return Done(box, int64s(flight), digits, current, NONE, NONE)

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every combination of blocks that nested loops have not produced."""
        if isinstance(self.spec, Miner) and self.spec.cleanup == "odometer":
            yield from self.react(_never)
            return
        yield from self.settle([store.living().tolist() for store in self.blocks], self.done())

    # ------------------------------------------------------------------ state

    def count_all(self) -> None:
        """Besides what all joins count, how often each region was flushed first, and selectivities."""
        super().count_all()
        if not self._begun:
            return
        for r, name in enumerate(self.names):
            for region, n in zip(("lower", "middle", "upper"), self.areas.chosen[r].sum(axis=0), strict=True):
                self.metrics.add(f"flushes_of_{region}", int(n), name, unit="flushes")
        for edge, ends in enumerate(self.keys.ends.tolist()):
            label = "-".join(self.names[r] for r in ends)
            self.metrics.peak("sigma", int(1e9 * self.edges.sigma[edge]), label, unit="per billion")

    def renumber(self) -> None:
        """All blocks have met."""
        self.odometer.all_done(self.sizes())

    def store(self, r: int, slots: I32) -> None:
        """The rows are in all indexes."""
        store_all(self.rows, self.areas, self.trees, r, slots.astype(np.int64))

    def drop(self, number: int, slots: I32) -> None:
        """The rows leave all indexes."""
        drop_rows(self.areas, self.rows, self.trees, self.out, number, slots)
        self.forget_gone(number)
