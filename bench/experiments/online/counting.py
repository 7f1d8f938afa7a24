"""Results that joins give while rows arrive: counted by the indexes of the operators, not written.

One of these results has nine thousand million rows. Inputs come in turns of 20 rows, all at one rate, so that none
drifts away from the others by more; memory is a number of rows, and nothing is read back from disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bench.experiments.online.streams import Streams, pairs_in_all
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.errors import DovetailError
from dovetail.joins.online.kernels.rows import DONE, EMIT, GONE, HEADS, INDEX_FULL, RESULTS, arrivals, release
from dovetail.joins.online.kernels.table import OLDEST
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.diner import LeavesIndex
from dovetail.joins.online.operators.hash_joins import HashIndex
from dovetail.joins.online.operators.parts import Disk, Index
from dovetail.joins.online.operators.spec import OnlineJoin, OnlineSpec
from dovetail.joins.online.sizes import FITTED, Fitted, Sizes

BUCKETS, TURN = 50, 20
HASHED = ("HMJ", "HMJ smallest", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "EHJ", "DPHJ")
COLUMNS = ("DINER", "HMJ", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "EHJ", "PMJ")
"""The joins that are compared; RPJ 1.0 forgets nothing, RPJ 0.9 counts recent arrivals more; oldest is our baseline."""
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "HMJ smallest": ("hmj", {"flush": "smallest"}),
    "RPJ 1.0": ("rpj", {"ageing": 1.0}),
    "RPJ 0.9": ("rpj", {"ageing": 0.9}),
}
"""Names of joins in the registry, and their options, if they have any."""


def specification(name: str, sizes: Sizes = FITTED, band: int = 0) -> OnlineJoin:
    """One of the compared joins, on the columns `key` of both sides."""
    kind, options = _OPTIONS.get(name, (name.lower(), {}))
    predicate: dict[str, Any] = {"within": ("key", "key", -band, band)} if band else {"on": ("key",)}
    return (ALGORITHMS | BASELINES)[kind](**predicate, sizes=sizes, with_phase=True, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestFirst(OnlineJoin):
    """The oldest block of the side with more rows in memory leaves; blocks are joined as in DINER.

    With f the share of each side that fits in memory, 2f - f² of the result comes online if the order is random.
    A baseline of ours, not of the sources.
    Reference: docs/algorithms/online.md, 6.4.
    """

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """One bucket: the queue of all rows of a side."""
        return HashIndex(fitted, keys, OLDEST, buckets=1)

    def disk(self, join: OnlineOperator) -> Disk:
        """The nested loop over blocks."""
        return BlockLoop(join)


BASELINES: dict[str, type[OnlineJoin]] = {"oldest": OldestFirst}
"""Joins to compare with, which no source proposes."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts while rows arrived: results after each turn, rows of all inputs after each turn.

    `regions` are DINER's flushes that began with the lower, the middle and the upper region.
    """

    pairs: I64
    rows: I64
    regions: tuple[int, ...] = (0, 0, 0)

    @property
    def found(self) -> int:
        """Results when all rows had come."""
        return int(self.pairs[-1]) if len(self.pairs) else 0

    def found_at(self, part: float) -> int:
        """Results when that part of all rows had come."""
        return int(self.pairs[np.searchsorted(self.rows, part * self.rows[-1], side="left")])


def counted(name: str, streams: Streams, memory: int, block: int, turn: int = TURN) -> Counted:
    """One of COLUMNS or HASHED over two streams, with room for `memory` rows."""
    if name == "PMJ":
        return _pmj(streams, memory, turn)
    if streams.band and name not in ("DINER", "oldest"):
        raise DovetailError(f"{name} hashes its keys, so it finds no pairs within {streams.band} of each other.")
    oldest = name == "oldest" and streams.band > 0
    spec = specification("DINER" if oldest else name, band=streams.band)
    return arriving(spec, streams.batches(), memory, block, turn, oldest)


def share(name: str, streams: Streams, memory: int, block: int, turn: int = TURN) -> float:
    """Percent of the result that comes while rows arrive."""
    return 100.0 * counted(name, streams, memory, block, turn).found / streams.pairs


def turns(sizes: Sequence[int], turn: int = TURN) -> Iterator[tuple[int, int, int]]:
    """All inputs in turn, at one rate, as input, first row and last row: a smaller one has come before the others."""
    for start in range(0, max(sizes), turn):
        for number, size in enumerate(sizes):
            if start < size:
                yield number, start, min(size, start + turn)


def arriving(
    spec: OnlineSpec,
    inputs: Mapping[str, pa.RecordBatch],
    memory: int,
    block: int,
    turn: int = TURN,
    oldest: bool = False,
    make: Callable[[Fitted, JoinKeys], Index] | None = None,
) -> Counted:
    """Let all rows come, with room for `memory` of them, into the index of the join or another one.

    With `oldest`, the oldest block of the input with the most rows leaves, whatever the join would choose.
    """
    keys = JoinKeys(spec.graph, {name: batch.schema for name, batch in inputs.items()})
    index = (make or spec.index)(_fitted(spec, memory, block, forever=oldest), keys)
    index.rows.meta[EMIT] = 0  # counted, not written
    held, pairs, came = [deque[int]() for _ in inputs], list[int](), list[int]()
    encoded = [keys.encode(number, batch)[0] for number, batch in enumerate(inputs.values())]
    for number, start, stop in turns([batch.num_rows for batch in inputs.values()], turn):
        came.append(stop - start)
        while start < stop:
            end = min(stop, start + _make_room(index, held, memory, block)) if oldest else stop
            slots = _let_in(index, number, encoded[number][:, start:end])
            if oldest:
                held[number].extend(slots)
            start = end
        pairs.append(int(index.rows.meta[RESULTS]))
    regions = tuple(index.areas.chosen.sum(axis=(0, 1)).tolist()) if isinstance(index, LeavesIndex) else (0, 0, 0)
    return Counted(int64s(pairs), int64s(np.cumsum(came)), regions)


def _fitted(spec: OnlineSpec, memory: int, block: int, forever: bool) -> Fitted:
    """Room for `memory` rows, which stay `forever` if the caller lets them leave; bytes do not count."""
    slots = memory + max(64, block)
    room = dict.fromkeys(("limit", "row_bytes", "block_bytes", "chunk_rows", "chunk_bytes", "answer_bytes"), 2**62)
    sizes = {"slots": slots, "block_rows": block, "partitions": BUCKETS, "combinations": 1}
    return Fitted(needs=spec.footprint(), widths=(), rows=slots if forever else memory, **room, **sizes)


def _let_in(index: Index, number: int, key: I64) -> list[int]:
    """Rows with these keys arrive; their slots."""
    n = key.shape[1]
    new = arrivals(number, 0, key, np.ones(n, np.int64), np.full(n, -1, np.int32))
    while (status := index.arrive(new)) != DONE:
        if status == INDEX_FULL:
            index.enlarge()
        _free(index)
    _free(index)
    slots: list[int] = new.slot.tolist()
    return slots


def _free(index: Index) -> None:
    release(index.rows, index.out.gone[: index.out.n[GONE]])
    index.out.n[GONE] = index.out.n[HEADS] = 0


def _make_room(index: Index, held: Sequence[deque[int]], memory: int, block: int) -> int:
    """For how many rows there is room, after the oldest block of the largest input left if there was none."""
    if (room := memory - sum(map(len, held))) > 0:
        return room
    largest = max(range(len(held)), key=lambda number: len(held[number]))
    leaving = [held[largest].popleft() for _ in range(min(block, len(held[largest])))]
    index.drop(largest, np.array(leaving, np.int32))
    _free(index)
    return room + len(leaving)


def _pmj(streams: Streams, memory: int, turn: int) -> Counted:
    """Pairs come when memory is full; the last load, which is not full, is joined after the end of the input."""
    at, start, found = [0, 0], [0, 0], 0
    sides, pairs, came = (streams.left, streams.right), list[int](), list[int]()
    for side, first, last in turns([len(keys) for keys in sides], turn):
        at[side] += last - first
        if sum(at) - sum(start) >= memory:
            at[side] -= (extra := sum(at) - sum(start) - memory)
            load = [keys[low:high] for keys, low, high in zip(sides, start, at, strict=True)]
            found += pairs_in_all(load[0], load[1], streams.band)
            start[:] = at
            at[side] += extra
        pairs.append(found)
        came.append(last - first)
    return Counted(int64s(pairs), int64s(np.cumsum(came)))
