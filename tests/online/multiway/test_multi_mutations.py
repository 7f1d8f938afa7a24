"""Known faults of multiway joins put in on purpose: the random schedules catch every one of them.

Reference: docs/algorithms/online.md, 5.1 (T1 to T12), 5.3 (R2) and 2.8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online import faults
from tests.online.faults import faulty
from tests.online.multiway.multi_schedules import drive, random_multi, wrong

import dovetail.joins.online.kernels.combine as combining
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.kernels.combine import PARENT, Done, Stretches
from dovetail.joins.online.operators import settling
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import Odometer
from dovetail.joins.online.operators.miner import MinerLoops
from dovetail.joins.online.operators.mjoin import Generations
from dovetail.joins.online.operators.settling import nothing_done
from dovetail.joins.online.operators.spec import MultiJoin

TRIALS = 60


class LoopsForgotten(MinerLoops):
    """R2: clean-up does not know what nested loops have produced."""

    def done(self) -> Done:
        return nothing_done(len(self.blocks))


class FlightForgotten(MinerLoops):
    """R2: clean-up does not know of the batch that was under way."""

    def done(self) -> Done:
        return super().done()._replace(flight=np.zeros(3, np.int64))


class OneGeneration(Generations):
    """2.8: all rows count as of one generation."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=0)


class NoGeneration(Generations):
    """2.8: no two inputs have a generation in common."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=len(self.blocks) * tick + side)


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


MINERS: list[type[Any]] = [
    faults.FlushWithoutTick,
    faults.CoarseClock,
    faults.TickAtTheDoor,
    faults.TickAfterRoom,
    faults.MemoryForgotten,
    LoopsForgotten,
    FlightForgotten,
    faults.GreedyOdometer,
    faults.ForgetfulOdometer,
    faults.StubbornOdometer,
    faults.ShortOdometer,
]


def failures(algorithm: str, tree: str, fault: type[Any] | None, loops: bool = False, trials: int = TRIALS) -> int:
    """How many trials an operator fails, up to the first one of a fault; broken invariants count."""

    def opens(spec: MultiJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> OnlineOperator:
        return (faulty(fault) if fault else OnlineOperator)(spec, budget, schemas, None)

    failed = 0
    for seed in range(trials):
        case = random_multi(algorithm, tree, 7000 + seed)
        if loops:
            case = replace(case, spec=replace(case.spec, cleanup="odometer"))
        if fault is not None and issubclass(fault, Generations) and not case.spec.graph.is_common:
            continue
        try:
            got, _ = drive(case, seed, idle=0.6, restart=0.0, drain=0.0, opens=opens)
            failed += wrong(got, case) != (0, 0)
        except IndexError:
            failed += 1
        if failed and fault:
            break
    return failed


@pytest.mark.parametrize("fault", MINERS, ids=[fault.__name__ for fault in MINERS])
def test_faults_of_miner_are_caught(fault: type[Any]) -> None:
    assert failures("miner", "chain3", fault, loops=issubclass(fault, Odometer)) > 0


@pytest.mark.parametrize("fault", [OneGeneration, NoGeneration])
def test_faults_of_mjoin_are_caught(fault: type[Any]) -> None:
    assert failures("mjoin", "sstar3", fault) > 0


@pytest.mark.parametrize("rule", [any_pair_met, neighbours_met])
@pytest.mark.parametrize("tree", ["chain3", "star4"])
def test_faults_of_the_rule_are_caught(monkeypatch: pytest.MonkeyPatch, rule: Any, tree: str) -> None:
    plain = combining.combine.py_func  # type: ignore[attr-defined]  # the kernel as it was written
    monkeypatch.setattr(settling, "combine", plain)
    assert failures("miner", tree, None, trials=4) == 0
    monkeypatch.setattr(combining, "met_in_memory", rule)
    assert any(failures("miner", tree, None, trials=n) for n in (5, 15, 40))


@pytest.mark.sampled(3)
def test_without_a_fault_the_same_trials_pass() -> None:
    assert failures("miner", "chain3", None) == 0
    assert failures("miner", "chain3", None, loops=True) == 0
    assert failures("mjoin", "sstar3", None) == 0
