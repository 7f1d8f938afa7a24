"""Known faults put in on purpose: the trials that the sound operators pass must catch each of them.

Reference: docs/algorithms/online.md, 5.1 (T1 to T5, T9), and the section that each docstring names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.online import faults
from tests.online.faults import faulty
from tests.online.schedules import drive, random_case, wrong

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.blocks import Leaving, Rule
from dovetail.joins.online.kernels.match import Visits
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import NOWHERE, Combinations, Step
from dovetail.joins.online.operators.hash_joins import FrozenBuckets, FrozenPartitions
from dovetail.joins.online.operators.merge_joins import MergedInPauses, Runs
from dovetail.joins.online.operators.probing_joins import Tasks, XJoinStages
from dovetail.joins.online.operators.spec import OnlineJoin

TRIALS = 40


class SymmetricRanges(Combinations):
    """1.2: the right side looks for left keys in the same range as the left side for right ones."""

    def path(self, order: Sequence[int]) -> list[Step]:
        first, second = super().path(order)
        sought = {second.relation: second.up, first.relation: second.down}
        return [first, second._replace(down=sought[0], up=sought[0]._replace(key=sought[1].key, near=sought[1].near))]


class NoVisits(XJoinStages):
    """2.3: ticks alone, without the list of uses of disk parts."""

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        return NOWHERE, NOWHERE


class NoVisitsEither(Tasks):
    """2.6: the same for RPJ."""

    def visits(self, bucket: int) -> tuple[Visits, Visits]:
        return NOWHERE, NOWHERE


class WholeSide(Tasks):
    """2.6: new segments meet all segments of the other side, not those in the box."""

    def _step(self, side: int, bucket: int, most: int) -> tuple[list[int], list[int], int]:
        new, _, done = super()._step(side, bucket, most)
        return new, self.blocks[1 - side].of_bucket(bucket).tolist(), done


class SegmentsForgotten(Combinations):
    """2.5: pairs inside one segment pair come again."""

    def settle(self, numbers: Any, rule: Rule = "ticks", *rest: Any, **others: Any) -> Iterator[pa.RecordBatch]:
        return super().settle(numbers, "none", *rest, **others)


class OneSegment(MergedInPauses):
    """2.5: every flush belongs to the same segment pair."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=1)


class MergedKeepsNothing(MergedInPauses):
    """2.5: merged segments are thrown away although others will come."""

    def merge_once(self, bucket: int, keep: bool) -> Iterator[pa.RecordBatch]:
        yield from super().merge_once(bucket, keep)
        for store in self.blocks:
            store.directory.bury(store.of_bucket(bucket))


class LastLoadLost(Runs):
    """2.4: the last, partly filled memory is no run."""

    def end_load(self, phase: str) -> Iterator[pa.RecordBatch]:
        return iter(()) if self.join.finished else super().end_load(phase)

    def leave_memory(self) -> None:
        self.join.forget_memory()


class OneRun(Runs):
    """2.4: all runs are the same pair of runs."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=1)


class NoFlag(FrozenBuckets):
    """2.2: new rows are not told from old ones."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=int(self.index.table.frozen[bucket]))


class LateFreeze(FrozenPartitions):
    """2.7: rows of a frozen partition are stamped when they are written, not when it was frozen."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket)


FAULTS: list[tuple[str, type[Any]]] = [
    ("diner", faults.CoarseClock),
    ("diner", faults.FlushWithoutTick),
    ("diner", faults.TickAtTheDoor),
    ("diner", faults.TickAfterRoom),
    ("diner", faults.MemoryForgotten),
    ("diner", faults.GreedyOdometer),
    ("diner", faults.MovingInner),
    ("diner", faults.StubbornOdometer),
    ("diner", faults.ShortOdometer),
    ("diner", SymmetricRanges),
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


def failures(name: str, fault: type[Any] | None, trials: int = TRIALS) -> int:
    """How many trials an operator fails; errors count."""

    def opens(spec: OnlineJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> OnlineOperator:
        return (faulty(fault) if fault else OnlineOperator)(spec, budget, schemas, None)

    failed = 0
    for seed in range(trials):
        case = random_case(name, seed)
        try:
            got, _ = drive(case, seed, idle=0.5, restart=0.0, opens=opens)
            failed += wrong(got, case) != (0, 0)
        except (RecursionError, ValueError):
            failed += 1
        if failed and fault:
            break
    return failed


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
def test_the_fault_is_caught(name: str, fault: type[Any]) -> None:
    assert failures(name, fault) > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted({name for name, _ in FAULTS}))
def test_without_a_fault_the_same_trials_pass(name: str) -> None:
    assert failures(name, None) == 0
