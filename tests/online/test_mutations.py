"""Known faults put in on purpose: each must be caught by the very trials that the sound operators pass.

Reference: docs/algorithms/online.md, 5.1 (T1 to T5, T9), and the section that each docstring names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.schedules import drive, random_case, wrong

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.blocks import Leaving, Rule
from dovetail.joins.online.kernels.match import Visits
from dovetail.joins.online.keys import RowKeys
from dovetail.joins.online.nested_loop import NestedLoop
from dovetail.joins.online.operators.base import NOWHERE, OnlineOperator
from dovetail.joins.online.operators.diner import DinerOperator
from dovetail.joins.online.operators.dphj import DphjOperator
from dovetail.joins.online.operators.ehj import EhjOperator
from dovetail.joins.online.operators.hmj import HmjOperator
from dovetail.joins.online.operators.pmj import PmjOperator
from dovetail.joins.online.operators.rpj import RpjOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.operators.xjoin import XJoinOperator

TRIALS = 40


class CoarseClock(DinerOperator):
    """T1: four events share a tick."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        super().write(side, bucket, kind, tick // 4, rows._replace(ats=rows.ats // 4))


class FlushWithoutTick(DinerOperator):
    """T1: a flush is stamped with the tick of the last arrival."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        super().write(side, bucket, kind, tick - 1, rows)


class TickAtTheDoor(DinerOperator):
    """T2: the arrival tick is taken when rows enter the input buffer, not when they probe."""

    def allocate(self, fitted: Any) -> None:
        super().allocate(fitted)
        self.doors: list[int] = []

    def receive(self, *arguments: Any) -> Iterator[pa.RecordBatch]:
        self.doors.append(self.clock)
        yield from super().receive(*arguments)

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        doors = np.array(self.doors)
        entered = doors[np.searchsorted(doors, rows.ats, side="left") - 1]
        super().write(side, bucket, kind, tick, rows._replace(ats=entered))


class TickAfterRoom(DinerOperator):
    """T2b: the arrival tick is taken after the flush that made room for the row, though it probed before."""

    def allocate(self, fitted: Any) -> None:
        super().allocate(fitted)
        self.flushes: set[int] = set()

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.flushes.add(tick)
        late = [2 * self._after(int(ats)) for ats in rows.ats]
        super().write(side, bucket, kind, 2 * tick, rows._replace(ats=np.array(late, np.int64)))

    def _after(self, ats: int) -> float:
        last = ats
        while last + 1 in self.flushes:
            last += 1
        return ats if last == ats else last + 0.5


class MemoryForgotten(DinerOperator):
    """T3: rows still in memory take no part in the clean-up."""

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        return self.react(lambda: False)


class GreedyLoop(NestedLoop):
    """T5: the size of a batch in progress is computed anew."""

    def next_batch(self, sizes: tuple[int, int], most: Callable[[int, int], int]) -> range | None:
        found = super().next_batch(sizes, most)
        if found is None:
            return None
        left = sizes[self.outer] - self.joined_outer
        self.outer_mem = min(left, max(1, most(self.outer, self.joined_outer)))
        return range(self.joined_outer, self.joined_outer + self.outer_mem)


class MovingInner(NestedLoop):
    """T4: blocks appended to the inner side while the loop runs count as joined."""

    def next_batch(self, sizes: tuple[int, int], most: Callable[[int, int], int]) -> range | None:
        if self.joined_outer < sizes[self.outer]:
            self.joined_inner = sizes[1 - self.outer]
        return super().next_batch(sizes, most)


class NoSwapAtStart(NestedLoop):
    """T9: roles are swapped inside the loop only."""

    def next_batch(self, sizes: tuple[int, int], most: Callable[[int, int], int]) -> range | None:
        if self.joined_outer >= sizes[self.outer] and self.joined_inner < sizes[1 - self.outer]:
            raise RecursionError("the outer side has nothing new, so the loop never ends")
        return super().next_batch(sizes, most)


class ShortPass(NestedLoop):
    """3.5: the last inner block is left out of each pass."""

    @property
    def batch_done(self) -> bool:
        return self.inner >= max(0, self.joined_inner - 1)


def with_loop(loop: type[NestedLoop]) -> type[DinerOperator]:
    class Mutant(DinerOperator):
        def allocate(self, fitted: Any) -> None:
            super().allocate(fitted)
            self.loop = loop()

    Mutant.__name__ = loop.__name__
    return Mutant


class SymmetricRanges(RowKeys):
    """1.2: the right side looks for left keys in the same range as the left side for right ones."""

    def ranges(self, side: int, key: I64) -> tuple[I64, I64]:
        return super().ranges(0, key)


class WrongBand(DinerOperator):
    """An asymmetric band is probed as if it were symmetric."""

    def allocate(self, fitted: Any) -> None:
        super().allocate(fitted)
        self.keys.__class__ = SymmetricRanges


class NoVisits(XJoinOperator):
    """2.3: ticks alone, without the list of uses of disk parts."""

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        return NOWHERE, NOWHERE


class NoVisitsEither(RpjOperator):
    """2.6: the same for RPJ."""

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        return NOWHERE, NOWHERE


class WholeSide(RpjOperator):
    """2.6: new segments meet all segments of the other side, not those in the box."""

    def _step(self, side: int, bucket: int, most: int) -> tuple[list[int], list[int], int]:
        new, _, done = super()._step(side, bucket, most)
        return new, self.blocks[1 - side].of_bucket(bucket).tolist(), done


class SegmentsForgotten(HmjOperator):
    """2.5: pairs inside one segment pair come again."""

    def cross(self, left: Any, right: Any, rule: Rule, *visits: Any) -> Iterator[pa.RecordBatch]:
        return super().cross(left, right, "none", *visits)


class OneSegment(HmjOperator):
    """2.5: every flush belongs to the same segment pair."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.write_blocks(side, rows, tick, bucket, group=1)


class MergedKeepsNothing(HmjOperator):
    """2.5: merged segments are thrown away although others will come."""

    def merge_turn(self, bucket: int, keep: bool) -> Iterator[pa.RecordBatch]:
        yield from super().merge_turn(bucket, keep)
        for store in self.blocks:
            store.directory.bury(store.of_bucket(bucket))


class LastLoadLost(PmjOperator):
    """2.4: the last, partly filled memory is no run."""

    def clean_up(self) -> Iterator[pa.RecordBatch]:
        self.forget_memory()
        while (bucket := self.most_segments()) is not None:
            yield from self.merge_turn(bucket, keep=False)


class OneRun(PmjOperator):
    """2.4: all runs are the same pair of runs."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.write_blocks(side, rows, tick, bucket, group=1)


class NoFlag(DphjOperator):
    """2.2: new rows are not told from old ones."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.write_blocks(side, rows, tick, bucket, group=int(self.table.frozen[bucket]))


class LateFreeze(EhjOperator):
    """2.7: rows of a frozen partition are stamped when they are written, not when it was frozen."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.write_blocks(side, rows, tick, bucket)


MUTANTS: list[tuple[str, type[OnlineOperator]]] = [
    ("diner", CoarseClock),
    ("diner", FlushWithoutTick),
    ("diner", TickAtTheDoor),
    ("diner", TickAfterRoom),
    ("diner", MemoryForgotten),
    ("diner", with_loop(GreedyLoop)),
    ("diner", with_loop(MovingInner)),
    ("diner", with_loop(NoSwapAtStart)),
    ("diner", with_loop(ShortPass)),
    ("diner", WrongBand),
    ("xjoin", NoVisits),
    ("rpj", NoVisitsEither),
    ("rpj", WholeSide),
    ("hmj", SegmentsForgotten),
    ("hmj", OneSegment),
    ("hmj", MergedKeepsNothing),
    ("pmj", LastLoadLost),
    ("pmj", OneRun),
    ("dphj", NoFlag),
    ("ehj", LateFreeze),
]


def failures(name: str, mutant: type[OnlineOperator] | None, trials: int = TRIALS) -> int:
    """How many trials an operator fails; errors count."""

    def opens(spec: OnlineJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> OnlineOperator:
        cls = mutant or spec.operator
        return cls(spec, budget, schemas, spec.layout(schemas), None)

    failed = 0
    for seed in range(trials):
        case = random_case(name, seed)
        try:
            got, _ = drive(case, seed, idle=0.5, restart=0.0, opens=opens)
            failed += wrong(got, case) != (0, 0)
        except (RecursionError, ValueError):
            failed += 1
        if failed and mutant:
            break
    return failed


@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=[mutant.__name__ for _, mutant in MUTANTS])
def test_the_fault_is_caught(name: str, mutant: type[OnlineOperator]) -> None:
    assert failures(name, mutant) > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted({name for name, _ in MUTANTS}))
def test_without_a_fault_the_same_trials_pass(name: str) -> None:
    assert failures(name, None) == 0
