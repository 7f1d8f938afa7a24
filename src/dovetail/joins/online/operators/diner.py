"""DINER: rows of little benefit leave memory, by three regions of the key's domain on each side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.engine.kernels.arrays import I32, int64s
from dovetail.joins.online.kernels.regions import Regions, drop_sorted, empty_regions, flush_block, recount
from dovetail.joins.online.kernels.rows import CODE_BYTES, ROW_BYTES, Arrivals, hold_all
from dovetail.joins.online.kernels.sorted import arrive_sorted, key_rows
from dovetail.joins.online.kernels.sorted_leaves import LIVE, Leaves, copy_rows, empty_leaves, insert_sorted
from dovetail.joins.online.kernels.tree import LINK_BYTES, Trees, empty_trees
from dovetail.joins.online.nested_loop import NestedLoop
from dovetail.joins.online.operators.base import OnlineOperator, outcome_footprint
from dovetail.joins.online.operators.block_loop import BlockLoopOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint

_LEAF_SHARE = 2.5  # leaves are at least some two fifths full on average before they are packed
_FLUSHES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Diner(OnlineJoin):
    """Rows that joined least leave memory first: lower, middle or upper region of the larger side's keys.

    The middle region is evicted by the Clock algorithm. What was flushed is joined in pauses by a nested loop over
    sorted blocks, which stops after each inner block when input is back. Equality and bands. Decisions are those of the
    tuple-at-a-time algorithm, whatever the size of batches.
    Reference: Bornea 2010, algorithms 1 to 4; docs/algorithms/online.md, 3.
    """

    bands: ClassVar[bool] = True

    def footprint(self) -> Footprint:
        """Slots, leaves of both sides with room to pack them, and where rows have a key and a band, trees by both."""
        slot, fixed = outcome_footprint(_FLUSHES)
        keyed = CODE_BYTES + LINK_BYTES if self.predicate.on and self.predicate.within is not None else 0
        return Footprint(slot + ROW_BYTES + keyed + int(_LEAF_SHARE * 16) + 16, 0, fixed + 2 * _least_leaves() + 512)

    @property
    def operator(self) -> type[OnlineOperator]:
        """The class of the running join."""
        return DinerOperator


def _least_leaves() -> int:
    return 4 * (8 * 16 + 16)


def _places(slots: int) -> int:
    """Rows a leaf: some root of all rows, so that neither leaves nor the list of them are long."""
    return 8 if slots < 256 else 32 if slots < 8192 else 128


class DinerOperator(BlockLoopOperator):
    """A running DINER join."""

    def allocate(self, fitted: Fitted) -> None:
        """Besides what all joins need, an index and regions for each side."""
        super().allocate(fitted)
        self.loop = NestedLoop()
        self.regions: Regions = empty_regions(fitted.block_rows, self.spec.seed)
        self._n_leaves = 4 + int(_LEAF_SHARE * fitted.slots) // _places(fitted.slots)
        half = self._n_leaves // 2
        self.index = [self._leaves(half), self._leaves(self._n_leaves - half)]
        self.keyed: Trees = empty_trees(2, 1, fitted.slots if self.keys.coded else 0)
        self._one_key, self._one_slot = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def drop_index(self) -> None:
        """Forget all indexes."""
        self.index, self.keyed = [self._leaves(1), self._leaves(1)], empty_trees(2, 1, 0)

    def _leaves(self, n: int) -> Leaves:
        return empty_leaves(n, _places(self.fitted.slots))

    def flushes_listed(self) -> int:
        """How many flushes a kernel may list before they are written."""
        return _FLUSHES

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        left, right = self.index
        room = (self._one_key, self._one_slot)
        return arrive_sorted(self.rows, self.regions, left, right, self.keyed, new, self.out, *room)

    def flush(self) -> bool:
        """One block of the larger side leaves."""
        left, right = self.index
        return flush_block(self.regions, self.rows, left, right, self.keyed, self.out)

    def enlarge(self) -> None:
        """Pack the leaves of both sides, and give each side leaves in proportion to its rows."""
        items = [self._items(side) for side in (0, 1)]
        rows = [len(keys) for keys, _ in items]
        places = _places(self.fitted.slots)
        least = [n // places + 2 for n in rows]
        spare = max(0, self._n_leaves - sum(least))
        more = spare * rows[0] // max(1, sum(rows))
        counts = (least[0] + more, least[1] + spare - more)
        self.index.clear()
        for (keys, slots), n in zip(items, counts, strict=True):
            leaves = self._leaves(n)
            insert_sorted(leaves, int64s(keys), int64s(slots), 0)
            self.index.append(leaves)

    def _items(self, side: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], ...]:
        n = int(self.index[side].meta[LIVE])
        keys, slots = np.empty(n, np.int64), np.empty(n, np.int64)
        copy_rows(self.index[side], 0, keys, slots)
        return keys, slots

    def count_all(self) -> None:
        """Besides what all joins count, how often each region was flushed first."""
        super().count_all()
        for side, name in enumerate(self.spec.sides if self._begun else ()):
            for region, n in zip(("lower", "middle", "upper"), self.regions.chosen[side], strict=True):
                self.metrics.add(f"flushes_of_{region}", int(n), name, unit="flushes")

    def store(self, number: int, slots: I32) -> None:
        """The rows are in the indexes, equal keys by arrival."""
        order = np.argsort(self.rows.key[slots], kind="stable")
        wide = slots[order].astype(np.int64)
        keys, done = self.rows.key[wide], 0
        hold_all(self.rows, wide, number)
        if self.keys.coded:
            key_rows(self.rows, self.keyed, number, wide)
        while (done := insert_sorted(self.index[number], int64s(keys), int64s(wide), done)) < len(keys):
            self.enlarge()
        recount(self.regions, number, self.index[number], self.in_memory(number))

    def drop(self, number: int, slots: I32) -> None:
        """The rows leave the indexes, those of equal keys one after the other."""
        slots = slots[np.argsort(self.rows.key[slots], kind="stable")]
        drop_sorted(self.rows, self.regions, self.index[number], self.keyed, self.out, number, slots)
        self.write_gone()
