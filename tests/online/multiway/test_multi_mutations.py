"""Known faults of multiway joins put in on purpose: the random schedules catch every one of them.

Reference: docs/algorithms/online.md, 5.1 (T1 to T12), 5.3 (R2) and 2.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.multiway.multi_schedules import drive, random_multi, wrong

import dovetail.joins.online.kernels.multi_combine as combining
from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.kernels.multi_combine import PARENT, Done, Stretches
from dovetail.joins.online.kernels.multi_rows import MultiArrivals
from dovetail.joins.online.multiway import settling
from dovetail.joins.online.multiway.base import MultiOperator
from dovetail.joins.online.multiway.miner import MinerOperator
from dovetail.joins.online.multiway.mjoin import MJoinOperator
from dovetail.joins.online.multiway.odometer import Arrange, Odometer
from dovetail.joins.online.multiway.settling import nothing_done
from dovetail.joins.online.multiway.sizes import MultiFitted
from dovetail.joins.online.multiway.spec import MultiJoin

TRIALS = 60


class FlushWithoutTick(MinerOperator):
    """T1: a flush is stamped with the last arrival's tick."""

    def _write(self, r: int, slots: I32, tick: int, mark: int, group: int) -> None:
        super()._write(r, slots, tick - 1, mark, group)


class ShadowTicks(MinerOperator):
    """Rows are written with other arrival ticks than those they had."""

    def allocate(self, fitted: MultiFitted) -> None:
        super().allocate(fitted)
        self.shadow = np.zeros(fitted.slots, np.int64)

    def _write(self, r: int, slots: I32, tick: int, mark: int, group: int) -> None:
        real, self.rows = self.rows, self.rows._replace(ats=self.shadow)
        super()._write(r, slots, self.stamp(tick), mark, group)
        self.rows = real

    def stamp(self, tick: int) -> int:
        return tick


class CoarseClock(ShadowTicks):
    """T1: four events a tick."""

    def arrive(self, new: MultiArrivals) -> int:
        status = super().arrive(new)
        self.shadow[:] = self.rows.ats // 4
        return status

    def stamp(self, tick: int) -> int:
        return tick // 4


class TickAtTheDoor(ShadowTicks):
    """T2: rows get the tick at which their batch came in, not that of their own probe."""

    def arrive(self, new: MultiArrivals) -> int:
        before = self.clock
        status = super().arrive(new)
        fresh = new.slot[new.slot >= 0]
        fresh = fresh[self.rows.ats[fresh] > before]
        self.shadow[fresh] = before + 1
        return status


class TickAfterRoom(ShadowTicks):
    """T2b: rows get their tick after the flush that made room for them."""

    def arrive(self, new: MultiArrivals) -> int:
        status = super().arrive(new)
        slots = new.slot[new.slot >= 0]
        self.shadow[slots] = np.append(self.rows.ats[slots][1:] - 1, self.clock)
        return status


class MemoryForgotten(MinerOperator):
    """T3: what is in memory at the end takes no part in the clean-up."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.begin({})
        self._finished = True
        yield from self.settle_all()
        self.flush_all()


class LoopsForgotten(MinerOperator):
    """R2: clean-up does not know what nested loops have produced."""

    def done(self) -> Done:
        return nothing_done(len(self.names))


class FlightForgotten(MinerOperator):
    """R2: clean-up does not know of the batch that was under way."""

    def done(self) -> Done:
        return super().done()._replace(flight=np.zeros(3, np.int64))


class GreedyOdometer(Odometer):
    """T5: the outer batch under way grows when there is more."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        found = super().ready(sizes, blocks, arrange)
        if found:
            self.outer_blocks = sizes[self.outer] - self.joined[self.outer]
        return found


class ForgetfulOdometer(Odometer):
    """T12: at a role change all inputs count as joined as far as they go now."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        outer = self.outer
        if self.started and not self.in_flight and self.joined[outer] == sizes[outer]:
            behind = [r for r, size in enumerate(sizes) if self.joined[r] < size]
            if behind:
                self.joined = [self.joined[r] if r == behind[0] else size for r, size in enumerate(sizes)]
        return super().ready(sizes, blocks, arrange)


class StubbornOdometer(Odometer):
    """T9: no role change when the outer input has nothing new on entry."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        if self.started and not self.in_flight and self.joined[self.outer] == sizes[self.outer]:
            return False
        return super().ready(sizes, blocks, arrange)


class ShortOdometer(Odometer):
    """E5: the last inner block is left out."""

    def advance(self, digit: int) -> int:
        if self.current[digit] + 2 == self.joined[self.digits[digit]]:
            self.current[digit] += 1
        return super().advance(digit)


def with_odometer(cls: type[Odometer]) -> type[MinerOperator]:
    class Mutant(MinerOperator):
        def index_rows(self) -> None:
            super().index_rows()
            self.odometer = cls([0] * len(self.names))

    Mutant.__name__ = cls.__name__
    return Mutant


class OneGeneration(MJoinOperator):
    """2.8: all rows count as of one generation."""

    def _write(self, r: int, slots: I32, tick: int, mark: int, group: int) -> None:
        super()._write(r, slots, tick, mark, 0)


class NoGeneration(MJoinOperator):
    """2.8: no two inputs have a generation in common."""

    def _write(self, r: int, slots: I32, tick: int, mark: int, group: int) -> None:
        super()._write(r, slots, tick, mark, len(self.names) * group + r)


def _overlap(s: Stretches, one: int, other: int) -> bool:
    return bool(max(s.ats[one], s.ats[other]) < min(s.dts[one], s.dts[other]))


def _neighbours(s: Stretches, rows: I64) -> list[bool]:
    return [_overlap(s, rows[d], rows[s.plan[d, PARENT]]) for d in range(1, len(rows))]


def any_pair_met(s: Stretches, rows: I64) -> bool:
    """T10: a pair that met makes all its combinations old."""
    return any(_neighbours(s, rows))


def neighbours_met(s: Stretches, rows: I64) -> bool:
    """T11: only neighbours are asked whether they met, not all rows together."""
    return all(_neighbours(s, rows))


MINERS: list[type[MultiOperator]] = [
    FlushWithoutTick,
    CoarseClock,
    TickAtTheDoor,
    TickAfterRoom,
    MemoryForgotten,
    LoopsForgotten,
    FlightForgotten,
    with_odometer(GreedyOdometer),
    with_odometer(ForgetfulOdometer),
    with_odometer(StubbornOdometer),
    with_odometer(ShortOdometer),
]
BY_LOOPS = {"GreedyOdometer", "ForgetfulOdometer", "StubbornOdometer", "ShortOdometer"}


def failures(
    algorithm: str, tree: str, mutant: type[MultiOperator] | None, loops: bool = False, trials: int = TRIALS
) -> int:
    """How many trials an operator fails, up to the first one of a mutant; broken invariants count."""

    def opens(spec: MultiJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> MultiOperator:
        return (mutant or spec.operator)(spec, budget, schemas, spec.schema(schemas), None)

    failed = 0
    for seed in range(trials):
        case = random_multi(algorithm, tree, 7000 + seed)
        if loops:
            case = replace(case, spec=replace(case.spec, cleanup="odometer"))
        if mutant is not None and issubclass(mutant, MJoinOperator) and not case.spec.graph.is_common:
            continue
        try:
            got, _ = drive(case, seed, idle=0.6, restart=0.0, drain=0.0, opens=opens)
            failed += wrong(got, case) != (0, 0)
        except IndexError:
            failed += 1
        if failed and mutant:
            break
    return failed


@pytest.mark.parametrize("mutant", MINERS, ids=[mutant.__name__ for mutant in MINERS])
def test_faults_of_miner_are_caught(mutant: type[MultiOperator]) -> None:
    assert failures("miner", "chain3", mutant, mutant.__name__ in BY_LOOPS) > 0


@pytest.mark.parametrize("mutant", [OneGeneration, NoGeneration])
def test_faults_of_mjoin_are_caught(mutant: type[MultiOperator]) -> None:
    assert failures("mjoin", "sstar3", mutant) > 0


@pytest.mark.parametrize("rule", [any_pair_met, neighbours_met])
@pytest.mark.parametrize("tree", ["chain3", "star4"])
def test_faults_of_the_rule_are_caught(monkeypatch: pytest.MonkeyPatch, rule: Any, tree: str) -> None:
    plain = combining.combine.py_func  # type: ignore[attr-defined]  # the kernel as it was written
    monkeypatch.setattr(settling, "combine", plain)
    assert failures("miner", tree, None, trials=4) == 0
    monkeypatch.setattr(combining, "met_in_memory", rule)
    assert any(failures("miner", tree, None, trials=n) for n in (5, 15, 40))


def test_without_a_fault_the_same_trials_pass() -> None:
    assert failures("miner", "chain3", None) == 0
    assert failures("miner", "chain3", None, loops=True) == 0
    assert failures("mjoin", "sstar3", None) == 0
