"""Reloads inputs that have ended while one input still arrives: its rows meet as much of the others as memory holds.

Rows of the input that still arrives are of no use in memory, since no row will look for them. So all rows go to disk
and the index is dropped. Blocks of the ended inputs are loaded in its place, and stay on disk too. Arriving rows probe
the loaded blocks, wait for a block of their own to be full, and go to disk; if all blocks of the ended inputs are
loaded, they have met every row they can match, and are dropped.
Reference: Bornea 2010, footnote 1; docs/algorithms/online.md, 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.rows.columns import nbytes
from dovetail.joins.online.answers import ARRIVING
from dovetail.joins.online.blocks import Leaving, Part
from dovetail.joins.online.kernels.match import NEVER
from dovetail.joins.online.kernels.rows import CLOCK
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations, Done, Step, neighbours

_CHUNKS = 3  # arriving rows are in memory with their keys, sorted, and once more when they are written
_SPARE = 4096


class Met(NamedTuple):
    """R1' as a rule on blocks: an arriving row of a block from `first` on has met every row of the loaded blocks.

    `loaded` has the loaded blocks of each ended input, sorted; that of the arriving input is empty.
    """

    arriving: int
    first: int
    loaded: tuple[I64, ...]

    def has(self, blocks: Sequence[I64]) -> Bool:
        """Which combinations of blocks, given by relation, were produced."""
        found: Bool = blocks[self.arriving] >= self.first
        for r, block in enumerate(blocks):
            if r != self.arriving:
                found &= np.isin(block, self.loaded[r])
        return found


class Produced(NamedTuple):
    """Combinations of blocks that several rules call produced."""

    rules: Sequence[Done | Met]

    def has(self, blocks: Sequence[I64]) -> Bool:
        """Which combinations of blocks, given by relation, one of the rules has."""
        found: Bool = np.logical_or.reduce([rule.has(blocks) for rule in self.rules])
        return found


class Reloaded:
    """Blocks of the ended inputs in memory, and rows of the arriving input on their way to disk."""

    def __init__(self, join: OnlineOperator, arriving: int, combinations: Combinations) -> None:
        self._join, self._arriving, self._combinations = join, arriving, combinations
        self._others = [r for r in range(len(join.names)) if r != arriving]
        self._size = self._waiting_bytes = 0
        self._waiting: list[Leaving] = []
        numbers = self._chosen()
        none = np.zeros(0, np.int64)
        loaded = tuple(np.sort(numbers[r]) if r in numbers else none for r in range(len(join.names)))
        self.met = Met(arriving, len(join.blocks[arriving]), loaded)
        self.complete = all(len(numbers[r]) == len(join.blocks[r].living()) for r in self._others)
        """Whether all rows of the ended inputs are loaded."""
        join.metrics.add("reloads", 1, unit="reloads")
        self._parts: dict[int, Part] = {}
        for r in filter(lambda r: len(numbers[r]), self._others):
            self._size += join.buffer.hold(r, numbers[r].tolist())
            self._parts[r] = combinations.load(r, numbers[r].tolist(), "none")
            join.metrics.add("rows_reloaded", self._parts[r].n_rows, join.names[r])
        self._growth = join.keys.growth

    def _chosen(self) -> dict[int, I64]:
        """The blocks to load: the same bytes of each input, those first that left memory last."""
        join, inputs = self._join, sorted(self._others, key=self._bytes)
        left: tuple[int, ...] = (room_to_reload(join), join.spec.sizes.memory_rows or NEVER)
        chosen = dict[int, I64]()
        for at, r in enumerate(inputs):
            share, numbers = tuple(each // (len(inputs) - at) for each in left), list[int]()
            for number in join.blocks[r].living()[::-1].tolist():
                size = join.blocks[r].bytes_of(number), join.blocks[r].directory[number].rows
                if size[0] > share[0] or size[1] > share[1]:
                    break
                share, left = _minus(share, size), _minus(left, size)
                numbers.append(number)
            chosen[r] = np.array(numbers, np.int64)
        return chosen

    def _bytes(self, r: int) -> int:
        store = self._join.blocks[r]
        return sum(map(store.bytes_of, store.living().tolist()))

    def receive(self, chunk: pa.RecordBatch, keys: I64) -> Iterator[pa.RecordBatch]:
        """Take rows with keys: yields their combinations with the loaded rows."""
        join, n, r = self._join, chunk.num_rows, self._arriving
        ats = join.clock + 1 + np.arange(n)
        join.rows.meta[CLOCK] += n
        if self._growth != join.keys.growth:  # keys are sorted for a band that has grown since
            for part in self._parts.values():
                part.faces.clear()
            self._growth = join.keys.growth
        size = nbytes(chunk) + join.blocks[r].beside * n
        join.buffer.reserve(size)
        if len(self._parts) == len(self._others):
            never = np.full(n, NEVER)
            part = Part(keys, ats, np.zeros(n, np.int64), never, np.arange(n), {0: chunk}, join.schemas[r])
            steps = self._steps()
            parts = [part if step.relation == r else self._parts[step.relation] for step in steps]
            yield from self._combinations.of(parts, steps, phase=ARRIVING)
        join.buffer.release(size)
        if not self.complete:
            self._wait(Leaving(chunk, keys, ats))

    def _steps(self) -> list[Step]:
        """The join tree from the arriving input on."""
        order = [self._arriving]
        while len(order) < len(self._join.names):
            near = {q for r in order for q in neighbours(self._join.keys, r)} - set(order)
            order.append(min(near, key=lambda r: (self._parts[r].n_rows, r)))
        return self._combinations.path(order)

    def _wait(self, rows: Leaving) -> None:
        """Add rows to those that wait for a full block."""
        join = self._join
        size = nbytes(rows.batch) + rows.keys.nbytes + rows.ats.nbytes
        join.buffer.reserve(size)
        self._waiting.append(rows)
        self._waiting_bytes += size
        full = sum(len(some.ats) for some in self._waiting) >= join.fitted.block_rows
        if full or self._waiting_bytes > join.fitted.chunk_bytes:
            self.write()

    def write(self) -> None:
        """Write the rows that wait, as blocks."""
        if not self._waiting:
            return
        join, some = self._join, self._waiting
        batch = pa.concat_batches([rows.batch for rows in some])
        keys = np.concatenate([rows.keys for rows in some], axis=1)
        rows = Leaving(batch, keys, np.concatenate([rows.ats for rows in some]))
        by = join.index.sorted_by(self._arriving, 0)
        rows = rows.take(np.argsort(keys[by], kind="stable"))
        join.metrics.add("rows_flushed", len(rows.ats), join.names[self._arriving])
        join.disk.write(self._arriving, 0, 0, join.tick(), rows)
        join.buffer.release(self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        """Write the rows that wait, and free the memory of loaded blocks."""
        self.write()
        self._join.buffer.release(self._size)
        self._size, self._parts = 0, {}


def _minus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def room_to_reload(join: OnlineOperator) -> int:
    """Bytes that loaded blocks may have once memory is empty: what arriving rows and work in pauses leave."""
    index = join.fitted.index_bytes - join.fitted.needs.kept * join.fitted.slots if join.rows.keys.size else 0
    pauses = join.disk.blocks_at_once * sum(store.largest for store in join.blocks)
    beside = max(store.beside for store in join.blocks) * join.fitted.chunk_rows
    return join.buffer.room + index - _CHUNKS * join.fitted.chunk_bytes - beside - pauses - _SPARE
