"""Partitions on disk probed against memory of the other side, and the record that keeps pairs from coming twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, int64s
from dovetail.joins.online.blocks import Part
from dovetail.joins.online.kernels.match import NEVER, Visits
from dovetail.joins.online.kernels.table import queue_slots
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations
from dovetail.joins.online.operators.hash_index import HashIndex
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.row_pages import SHIFT


class Candidate(NamedTuple):
    """A disk part that can be probed against memory: what it promises, then which it is."""

    pairs: float
    side: int
    bucket: int


class Visiting(Disk):
    """Disk parts that are used against memory, each use recorded as (latest departure on disk, tick of the use).

    A row d of that part and a row m met in it exactly if d had left by then and m was in memory at that tick.
    """

    def __init__(self, join: OnlineOperator, index: HashIndex) -> None:
        super().__init__(join)
        self.index, self.combinations = index, Combinations(join)
        self.record: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        """The uses of a bucket's disk part, of left and of right."""
        found = [np.array(self.record.get((side, bucket), []), np.int64).reshape(-1, 2) for side in (0, 1)]
        left, right = (Visits(int64s(uses[:, 0]), int64s(uses[:, 1])) for uses in found)
        return left, right

    def visitable(self) -> Iterator[Candidate]:
        """Disk parts for which memory holds rows, unless the last use has met all of them already."""
        n, table, ats = self.index.buckets, self.index.table, self.index.rows.ats
        for side in (0, 1):
            rows, latest = self._disk_parts(side)
            for bucket in np.flatnonzero(rows > 0).tolist():
                queue = (1 - side) * n + bucket
                held = int(table.held[queue])
                if held == 0:
                    continue
                newest = int(ats[table.tail[queue]])
                last, tick = self.record.get((side, bucket), [(0, 0)])[-1]
                if latest[bucket] > last or newest > tick:
                    yield Candidate(float(rows[bucket]) * held, side, bucket)

    def _disk_parts(self, side: int) -> tuple[Any, Any]:
        """Rows on disk of each bucket, and when the last of them left."""
        store, n = self.blocks[side], self.index.buckets
        living, rows, latest = store.living(), np.zeros(n, np.int64), np.zeros(n, np.int64)
        buckets = store.column("bucket")[living]
        np.add.at(rows, buckets, store.column("rows")[living])
        np.maximum.at(latest, buckets, store.column("dts")[living])
        return rows, latest

    def visit(self, side: int, bucket: int) -> Iterator[pa.RecordBatch]:
        """New pairs of the disk part of one side with the memory part of the other; all blocks are used."""
        join, queue = self.join, (1 - side) * self.index.buckets + bucket
        room = self.blocks[side].largest + self.blocks[1 - side].beside * int(self.index.table.held[queue])
        join.reserve_blocks(room)
        visits = self.visits(bucket)
        latest, tick = self._disk_parts(side)[1][bucket], join.tick()
        if self.index.table.held[queue]:  # making room may have flushed it
            numbers = self.blocks[side].of_bucket(bucket).tolist()
            memory, steps = self._memory_part(1 - side, queue), self.combinations.path([1 - side, side])
            for number in numbers:
                if self.combinations.can_match(steps[1], memory, number):
                    parts = [memory, self.combinations.load(side, [number])]
                    yield from self.combinations.of(parts, steps, visits=visits)
        self.record.setdefault((side, bucket), []).append((int(latest), tick))
        join.let_blocks_go(room)

    def _memory_part(self, side: int, queue: int) -> Part:
        slots: I32 = np.empty(int(self.index.table.held[queue]), np.int32)
        queue_slots(self.index.table, queue, slots)
        r, pages = self.index.rows, self.join.pages[side]
        never, refs = np.full(len(slots), NEVER), r.ref[slots]
        used = {number: pages.page(number) for number in np.unique(refs >> SHIFT).tolist()}
        return Part(r.keys[:, slots], r.ats[slots], never, never, refs, used, self.join.schemas[side])

    def renumber(self) -> None:
        """Uses before a drain need not be remembered."""
        self.record.clear()
