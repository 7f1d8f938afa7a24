"""DINER: evicts rows of little benefit, by three regions of the key's domain on each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, int64s
from dovetail.engine.metrics import Metrics
from dovetail.joins.online.kernels.areas import BENEFIT, Areas, empty_areas
from dovetail.joins.online.kernels.rows import Arrivals, flush_list_bytes, hold_all
from dovetail.joins.online.kernels.sorted import arrive_sorted, drop_sorted, flush_block, key_rows, recount
from dovetail.joins.online.kernels.sorted_leaves import LIVE, Leaves, copy_rows, empty_leaves, insert_sorted
from dovetail.joins.online.kernels.tree import LINK_BYTES, Trees, empty_trees
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Fitted, Footprint

_LEAF_SHARE = 2.5  # leaves are at least some two fifths full on average before they are packed
_FLUSHES = 24
_CELL_BYTES = 12  # of each slot: both sides have at most half as many trees as there are slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Diner(OnlineJoin):
    """Rows that joined least leave memory first: lower, middle or upper region of the larger side's keys.

    The middle region is evicted by the Clock algorithm. What was flushed is joined in pauses by a nested loop over
    sorted blocks, which stops after each inner block when input resumes. Equality and bands. Decisions are those of
    the tuple-at-a-time algorithm, for every batch size.
    Reference: Bornea 2010, algorithms 1 to 4; docs/algorithms/online.md, 3.
    """

    bands: ClassVar[bool] = True

    def footprint(self) -> Footprint:
        """Slots, leaves of both sides with room to pack them, and trees by key and band if rows have both."""
        keyed = LINK_BYTES + _CELL_BYTES if self.predicate.on and self.predicate.within is not None else 0
        slot, fixed = self.row_bytes + keyed + int(_LEAF_SHARE * 16) + 16, flush_list_bytes(_FLUSHES)
        return Footprint(slot, fixed=fixed + 2 * _least_leaves() + 512)

    def index(self, fitted: Fitted, keys: JoinKeys) -> Index:
        """Sorted leaves, whose rows of least benefit leave."""
        return LeavesIndex(fitted, keys, self.seed)

    def disk(self, join: OnlineOperator) -> Disk:
        """The nested loop over blocks."""
        return BlockLoop(join)


def _least_leaves() -> int:
    return 4 * (8 * 16 + 16)


def _empty_keyed(slots: int) -> Trees:
    """Trees of rows by code, then key: on each side half as many as slots, in powers of two."""
    return empty_trees(2 << max(0, slots.bit_length() - 2), 1, slots)


def _places(slots: int) -> int:
    """Rows per leaf: about a root of all rows, so that neither leaves nor their list are long."""
    return 8 if slots < 256 else 32 if slots < 8192 else 128


def count_regions(areas: Areas, names: Sequence[str], metrics: Metrics) -> None:
    """Record how often each region of each input was flushed first."""
    for r, name in enumerate(names):
        for region, n in zip(("lower", "middle", "upper"), areas.chosen[r].sum(axis=0), strict=True):
            metrics.add(f"flushes_of_{region}", int(n), name, unit="flushes")


class LeavesIndex(Index):
    """Sorted leaves and regions for each side, and trees by code and key where rows have both."""

    def __init__(self, fitted: Fitted, keys: JoinKeys, seed: int) -> None:
        super().__init__(fitted, keys, _FLUSHES)
        self.areas = empty_areas(np.ones(2, np.int64), fitted.block_rows, seed, BENEFIT, 0)
        self._n_leaves = 4 + int(_LEAF_SHARE * fitted.slots) // _places(fitted.slots)
        half = self._n_leaves // 2
        self.leaves = [self._leaves(half), self._leaves(self._n_leaves - half)]
        self.keyed: Trees = _empty_keyed(fitted.slots if self.keys.coded else 0)
        self._one_key, self._one_slot = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def forget(self) -> None:
        """Drop all leaves and trees."""
        self.leaves, self.keyed = [self._leaves(1), self._leaves(1)], _empty_keyed(0)

    def _leaves(self, n: int) -> Leaves:
        return empty_leaves(n, _places(self.fitted.slots))

    def arrive(self, new: Arrivals) -> int:
        """Let rows arrive one by one."""
        left, right = self.leaves
        room = (self._one_key, self._one_slot)
        return arrive_sorted(self.rows, self.areas, self.keys.reach, left, right, self.keyed, new, self.out, *room)

    def flush(self) -> bool:
        """Flush one block of the larger side."""
        left, right = self.leaves
        return flush_block(self.areas, self.rows, left, right, self.keyed, self.out)

    def enlarge(self) -> None:
        """Pack the leaves of both sides, and give each side leaves in proportion to its rows."""
        items = [self._items(side) for side in (0, 1)]
        rows = [len(keys) for keys, _ in items]
        places = _places(self.fitted.slots)
        least = [n // places + 2 for n in rows]
        spare = max(0, self._n_leaves - sum(least))
        more = spare * rows[0] // max(1, sum(rows))
        counts = (least[0] + more, least[1] + spare - more)
        self.leaves.clear()
        for (keys, slots), n in zip(items, counts, strict=True):
            leaves = self._leaves(n)
            insert_sorted(leaves, int64s(keys), int64s(slots), 0)
            self.leaves.append(leaves)

    def _items(self, side: int) -> tuple[I64, I64]:
        n = int(self.leaves[side].meta[LIVE])
        keys, slots = np.empty(n, np.int64), np.empty(n, np.int64)
        copy_rows(self.leaves[side], keys, slots)
        return keys, slots

    def count(self, names: Sequence[str], metrics: Metrics) -> None:
        """How often each region was flushed first."""
        count_regions(self.areas, names, metrics)

    def store(self, side: int, slots: I32) -> None:
        """Insert the rows into the indexes, equal keys by arrival."""
        order = np.argsort(self.rows.keys[-1, slots], kind="stable")
        wide = slots[order].astype(np.int64)
        keys, done = self.rows.keys[-1, wide], 0
        hold_all(self.rows, wide, side)
        if self.keys.coded:
            key_rows(self.rows, self.keyed, side, wide)
        while (done := insert_sorted(self.leaves[side], int64s(keys), int64s(wide), done)) < len(keys):
            self.enlarge()
        recount(self.areas, side, self.leaves[side], int(self.rows.held[side]))

    def drop(self, side: int, slots: I32) -> None:
        """Remove the rows from the indexes, those of equal keys one after the other."""
        slots = slots[np.argsort(self.rows.keys[-1, slots], kind="stable")]
        drop_sorted(self.rows, self.areas, self.leaves[side], self.keyed, self.out, side, slots)
