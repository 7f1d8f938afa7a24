"""Pairs that two-way joins give while rows arrive: counted by the kernels of the operators, not written.

One of these results has nine thousand million rows. Rows come in turns of 20 of one side, then of the other, so the two
streams never drift apart by more; memory is a number of rows, and nothing is read back from disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.experiments.online.streams import Streams, pairs_in_all
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.errors import DovetailError
from dovetail.joins.online.kernels.areas import BENEFIT, empty_areas
from dovetail.joins.online.kernels.flush import DPHJ, EHJ, HMJ, HMJ_SMALLEST, OLDEST, RPJ, XJOIN
from dovetail.joins.online.kernels.hashed import arrive_hashed, empty_search
from dovetail.joins.online.kernels.ranges import WHOLE
from dovetail.joins.online.kernels.rows import (
    DONE,
    GONE,
    HEADS,
    INDEX_FULL,
    RESULTS,
    Arrivals,
    Outcome,
    Rows,
    arrivals,
    empty_outcome,
    empty_rows,
    release,
)
from dovetail.joins.online.kernels.sorted import arrive_sorted
from dovetail.joins.online.kernels.sorted_leaves import empty_leaves
from dovetail.joins.online.kernels.table import empty_table
from dovetail.joins.online.kernels.tree import empty_trees

BUCKETS, TURN = 50, 20
HASHED = {
    "HMJ": (HMJ, 1.0),
    "HMJ smallest": (HMJ_SMALLEST, 1.0),
    "RPJ 1.0": (RPJ, 1.0),
    "RPJ 0.9": (RPJ, 0.9),
    "XJoin": (XJOIN, 1.0),
    "oldest": (OLDEST, 1.0),
    "EHJ": (EHJ, 1.0),
    "DPHJ": (DPHJ, 1.0),
}
COLUMNS = ("DINER", "HMJ", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "EHJ", "PMJ")
"""The joins that are compared; RPJ 1.0 forgets nothing, RPJ 0.9 counts recent arrivals more; oldest is our baseline."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What came while rows arrived: pairs after each turn, rows of both sides after each turn.

    `regions` are DINER's flushes that began with the lower, the middle and the upper region.
    """

    pairs: I64
    rows: I64
    regions: tuple[int, int, int] = (0, 0, 0)

    @property
    def found(self) -> int:
        """Pairs when all rows had come."""
        return int(self.pairs[-1]) if len(self.pairs) else 0

    def found_at(self, part: float) -> int:
        """Pairs when that part of all rows had come."""
        return int(self.pairs[np.searchsorted(self.rows, part * self.rows[-1], side="left")])


def counted(name: str, streams: Streams, memory: int, block: int, turn: int = TURN) -> Counted:
    """One of COLUMNS or HASHED over two streams, with room for `memory` rows."""
    if name == "PMJ":
        return _pmj(streams, memory, turn)
    if name == "DINER":
        return _diner(streams, memory, block, turn)
    if streams.band:
        if name != "oldest":
            raise DovetailError(f"{name} hashes its keys, so it finds no pairs within {streams.band} of each other.")
        return _oldest_in_bands(streams, memory, block, turn)
    return _hashed(name, streams, memory, block, turn)


def share(name: str, streams: Streams, memory: int, block: int, turn: int = TURN) -> float:
    """Percent of the result that comes while rows arrive."""
    return 100.0 * counted(name, streams, memory, block, turn).found / streams.pairs


def turns(left: I64, right: I64, turn: int) -> list[tuple[int, I64]]:
    """Both sides in turn, at one rate: the smaller one has come before the other."""
    starts = range(0, max(len(left), len(right)), turn)
    parts = ((side, keys[start : start + turn]) for start in starts for side, keys in ((0, left), (1, right)))
    return [(side, part) for side, part in parts if len(part)]


def _over(streams: Streams, turn: int, take: Callable[[int, I64], None], found: Callable[[], int]) -> tuple[I64, I64]:
    """Let all rows come; pairs and rows after each turn."""
    pairs, rows = [], []
    for side, keys in turns(streams.left, streams.right, turn):
        take(side, keys)
        pairs.append(found())
        rows.append(len(keys))
    return int64s(np.array(pairs, np.int64)), int64s(np.cumsum(rows))


def _diner(streams: Streams, memory: int, block: int, turn: int, seed: int = 0) -> Counted:
    slots = memory + max(64, block)
    rows, out = empty_rows(slots, memory, 2**62, emit=False), empty_outcome(1, slots, 64)
    areas, reach = empty_areas(np.ones(2, np.int64), block, seed, BENEFIT, 0), around(streams.band)
    indexes = empty_leaves(4 * slots // 64 + 4, 64), empty_leaves(4 * slots // 64 + 4, 64)
    one, other, keyed = np.zeros(1, np.int64), np.zeros(1, np.int64), empty_trees(2, 1, 0)

    def take(side: int, keys: I64) -> None:
        new = _arriving(side, keys)
        while (status := arrive_sorted(rows, areas, reach, *indexes, keyed, new, out, one, other)) != DONE:
            if status == INDEX_FULL:
                raise DovetailError(f"the index has no room for {memory} rows.")
            _free(rows, out)
        _free(rows, out)

    pairs, came = _over(streams, turn, take, partial(_results, rows))
    lower, middle, upper = (int(n) for n in areas.chosen.sum(axis=(0, 1)))
    return Counted(pairs, came, (lower, middle, upper))


def _results(rows: Rows) -> int:
    return int(rows.meta[RESULTS])


def _hashed(name: str, streams: Streams, memory: int, block: int, turn: int) -> Counted:
    policy, ageing = HASHED[name]
    buckets = 1 if policy == OLDEST else BUCKETS
    slots = memory + max(64, block)
    rows, out = empty_rows(slots, memory, 2**62, emit=False), empty_outcome(1, slots, 512)
    table, search = empty_table(slots, buckets, policy, block, memory // 10), empty_search(2)
    knobs = np.array([ageing, float(block), 0.05])

    def take(side: int, keys: I64) -> None:
        new = _arriving(side, keys)
        while arrive_hashed(rows, table, search, new, out, knobs) != DONE:
            _free(rows, out)
        _free(rows, out)

    return Counted(*_over(streams, turn, take, partial(_results, rows)))


def around(band: int) -> I64:
    """The range of keys of the other side around a key of each side."""
    return int64s(np.tile([-band, band, WHOLE], (2, 1)))


def _arriving(side: int, keys: I64) -> Arrivals:
    slots = np.full(len(keys), -1, np.int32)
    return arrivals(side, 0, keys[None, :], np.ones(len(keys), np.int64), slots)


def _free(rows: Rows, out: Outcome) -> None:
    release(rows, out.gone[: out.n[GONE]])
    out.n[GONE] = out.n[HEADS] = 0


def _pmj(streams: Streams, memory: int, turn: int) -> Counted:
    """Pairs come when memory is full; the last load, which is not full, is joined after the end of the input."""
    at, start, found = [0, 0], [0, 0], [0]
    sides = (streams.left, streams.right)

    def take(side: int, keys: I64) -> None:
        at[side] += len(keys)
        if sum(at) - sum(start) >= memory:
            at[side] -= (extra := sum(at) - sum(start) - memory)
            load = [keys[low:high] for keys, low, high in zip(sides, start, at, strict=True)]
            found[0] += pairs_in_all(load[0], load[1], streams.band)
            start[:] = at
            at[side] += extra

    return Counted(*_over(streams, turn, take, lambda: found[0]))


def _oldest_in_bands(streams: Streams, memory: int, block: int, turn: int) -> Counted:
    """What the oldest block of the larger side leaves behind: who is in memory does not depend on keys."""
    chunks = turns(streams.left, streams.right, turn)
    sides = int64s(np.concatenate([np.full(len(keys), side) for side, keys in chunks]))
    found = _count_oldest(streams.left, streams.right, sides, memory, block, streams.band)
    came = np.cumsum([len(keys) for _, keys in chunks])
    return Counted(int64s(np.cumsum(found)[came - 1]), int64s(came))


@kernel
def _count_oldest(left: I64, right: I64, sides: I64, memory: int, block: int, band: int) -> I64:
    """Pairs of each arrival with the other side's rows in memory, the latest ones, once there is room for it."""
    first, end = np.zeros(2, np.int64), np.zeros(2, np.int64)
    found = np.zeros(len(sides), np.int64)
    for at in range(len(sides)):
        side = sides[at]
        if end.sum() - first.sum() >= memory:
            larger = 0 if end[0] - first[0] >= end[1] - first[1] else 1
            first[larger] = min(first[larger] + block, end[larger])
        mine, others = (left, right) if side == 0 else (right, left)
        key = mine[end[side]]
        for row in range(first[1 - side], end[1 - side]):
            found[at] += abs(others[row] - key) <= band
        end[side] += 1
    return found
