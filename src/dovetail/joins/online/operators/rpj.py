"""RPJ, the rate-based progressive join: rows that the least likely arrivals would join with leave memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.flush import ALPHA, N_FLUSH, RPJ
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.hash_index import HashIndex, hashed_footprint
from dovetail.joins.online.operators.parts import Disk
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.operators.visiting import Visiting
from dovetail.joins.online.sizes import Fitted, Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBasedJoin(OnlineJoin):
    """The bucket in which the next arrival is least likely tells which rows of the other side leave.

    Probabilities are counts of arrivals, multiplied by `ageing` at each flush (1: nothing is forgotten, the reading of
    the sources' critics; 0.9: recent arrivals count more). `flush_rows` leave at a time (a block if None), from the
    next bucket where one has too few. In pauses the task of the highest expected rate runs: a disk part against
    memory, or up to `fan_in` segments of one side against the other's joined ones; a task is the unit of work, after
    which `until` is asked.
    Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.6.
    """

    ageing: float = 0.9
    flush_rows: int | None = None

    def __post_init__(self) -> None:
        OnlineJoin.__post_init__(self)
        if not 0 <= self.ageing <= 1:
            raise PlanError(f"ageing={self.ageing} is not between 0 and 1.")
        if self.flush_rows is not None and self.flush_rows < 1:
            raise PlanError(f"flush_rows={self.flush_rows} is too small; the least is 1.")

    def footprint(self) -> Footprint:
        """That of a hash table."""
        return hashed_footprint(self)

    def index(self, fitted: Fitted, keys: JoinKeys) -> HashIndex:
        """Rows that the least likely arrivals would join with leave."""
        index = HashIndex(fitted, keys, RPJ)
        index.knobs[ALPHA], index.knobs[N_FLUSH] = self.ageing, self.flush_rows or fitted.block_rows
        return index

    def disk(self, join: OnlineOperator) -> Disk:
        """Tasks by expected rate."""
        assert isinstance(join.index, HashIndex)  # noqa: S101  (for the type checker)
        return Tasks(join, join.index)

    def options(self) -> list[str]:
        """How fast arrivals are forgotten."""
        return [f"ageing={self.ageing}"]


class Task(NamedTuple):
    """Reactive work: expected results a block read, whether on disk alone, and for which side and bucket."""

    rate: float
    on_disk: bool
    side: int
    bucket: int


class Tasks(Visiting):
    """RPJ's work on disk. A block's group is its segment, the tick of its flush.

    `boxes` are the numbers of joined segments of each side, by bucket.
    """

    def __init__(self, join: OnlineOperator, index: HashIndex) -> None:
        super().__init__(join, index)
        self.boxes, self._fan_in = np.zeros((2, index.buckets), np.int64), join.spec.sizes.fan_in

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows that left together from one bucket are a sorted segment."""
        self.join.write_blocks(side, rows, tick, bucket, group=tick)

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Tasks by expected rate, until there is nothing to do or `until()`."""
        while (task := max(self._tasks(), default=None)) is not None:
            if task.on_disk:
                yield from self._grow_box(task.side, task.bucket, self._fan_in)
            else:
                yield from self.visit(task.side, task.bucket)
            if until():
                return

    def _tasks(self) -> Iterator[Task]:
        density = (self.index.table.met + 1.0) / (self.index.table.compared + 1.0)
        for found in self.visitable():
            blocks = len(self.blocks[found.side].of_bucket(found.bucket))
            yield Task(density[found.bucket] * found.pairs / blocks, False, found.side, found.bucket)
        for bucket in self.combinations.buckets():
            for side in (0, 1):
                if (rate := self._box_rate(side, bucket)) is not None:
                    yield Task(density[bucket] * rate, True, side, bucket)

    def _segments(self, side: int, bucket: int) -> list[list[int]]:
        """The blocks of each segment of a bucket, segments in the order written."""
        store = self.blocks[side]
        numbers = store.of_bucket(bucket)
        of_block = store.column("group")[numbers]
        return [numbers[of_block == group].tolist() for group in np.unique(of_block)]

    def _step(self, side: int, bucket: int, most: int) -> tuple[list[int], list[int], int]:
        """Blocks of the next segments of one side, those of the other side in the box, and segments joined then."""
        mine, theirs = self._segments(side, bucket), self._segments(1 - side, bucket)
        done, met = int(self.boxes[side, bucket]), int(self.boxes[1 - side, bucket])
        return list(chain(*mine[done : done + most])), list(chain(*theirs[:met])), min(len(mine), done + most)

    def _box_rate(self, side: int, bucket: int) -> float | None:
        """Comparable pairs a block read if the box grew on this side; None if it cannot."""
        new, old, _ = self._step(side, bucket, self._fan_in)
        if not new:
            return None
        rows = [int(self.blocks[s].column("rows")[n].sum()) for s, n in ((side, new), (1 - side, old))]
        return rows[0] * rows[1] / (len(new) + len(old))

    def _grow_box(self, side: int, bucket: int, most: int) -> Iterator[pa.RecordBatch]:
        """Some further segments of one side meet those of the other side that are in the box."""
        new, old, self.boxes[side, bucket] = self._step(side, bucket, most)
        numbers = (new, old) if side == 0 else (old, new)
        yield from self.combinations.settle(numbers, visits=self.visits(bucket))

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every box grows to its full size."""
        for bucket in self.combinations.buckets():
            for side in (0, 1):
                yield from self._grow_box(side, bucket, len(self.blocks[side]))

    def renumber(self) -> None:
        """All segments that are left are joined."""
        super().renumber()
        for side in (0, 1):
            for bucket in range(self.index.buckets):
                self.boxes[side, bucket] = len(self._segments(side, bucket))
