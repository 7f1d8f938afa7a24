"""Known faults of multiway joins put in on purpose: the random schedules catch every one of them.

Reference: docs/algorithms/online.md, 5.1 (T1 to T12), 5.3 (R2) and 2.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online import faults
from tests.online.faults import faulty
from tests.online.multiway.multi_schedules import drive, random_multi, wrong

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop, Odometer
from dovetail.joins.online.operators.combinations import Done, Matching
from dovetail.joins.online.operators.miner import Generations
from dovetail.joins.online.operators.spec import MultiJoin

TRIALS = 60


class LoopsForgotten(BlockLoop):
    """R2: clean-up does not know what nested loops have produced."""

    def done(self) -> Done:
        return Done([0] * len(self.blocks), (False, 0, 0), [], [])


class FlightForgotten(BlockLoop):
    """R2: clean-up does not know of the batch that was under way."""

    def done(self) -> Done:
        return super().done()._replace(flight=(False, 0, 0))


class OneGeneration(Generations):
    """2.8: all rows count as of one generation."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=0)


class NoGeneration(Generations):
    """2.8: no two inputs have a generation in common."""

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        self.join.write_blocks(side, rows, tick, bucket, group=len(self.blocks) * tick + side)


def _ticks(joined: Matching, rows: tuple[I64, ...]) -> tuple[list[I64], list[I64]]:
    of = list(zip(joined.parts, rows, strict=True))
    return [part.ats[at] for part, at in of], [part.dts[at] for part, at in of]


def _neighbours(joined: Matching, rows: tuple[I64, ...]) -> list[Any]:
    """For each step whether its row and that of its neighbour were in memory together, by combination."""
    ats, dts = (
        [getattr(part, name)[at] for part, at in zip(joined.parts, rows, strict=True)] for name in ("ats", "dts")
    )
    pairs = [(depth, step.parent) for depth, step in enumerate(joined.steps)][1:]
    return [np.maximum(ats[a], ats[b]) < np.minimum(dts[a], dts[b]) for a, b in pairs]


def any_pair_met(joined: Matching, rows: tuple[I64, ...]) -> Any:
    """T10: a pair that met makes all its combinations old."""
    return np.logical_or.reduce(_neighbours(joined, rows))


def neighbours_met(joined: Matching, rows: tuple[I64, ...]) -> Any:
    """T11: only neighbours are asked whether they met, not all rows together."""
    return np.logical_and.reduce(_neighbours(joined, rows))


def all_met(joined: Matching, rows: tuple[I64, ...]) -> Any:
    """R1 as it is meant."""
    ats, dts = (
        [getattr(part, name)[at] for part, at in zip(joined.parts, rows, strict=True)] for name in ("ats", "dts")
    )
    return np.maximum.reduce(ats) < np.minimum.reduce(dts)


def use_rule(monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    """This rule distinguishes combinations."""
    rows, pairs = Matching.rows, Matching._pairs

    def told_apart(joined: Matching, before: Any = None) -> Iterator[tuple[I64, ...]]:
        for found in rows(joined, before):
            complete = before is None and len(found) == len(joined.steps)
            yield tuple(some[~rule(joined, found)] for some in found) if complete else found

    monkeypatch.setattr(Matching, "rows", told_apart)
    monkeypatch.setattr(Matching, "_pairs", lambda *arguments: pairs(*arguments[:-1], False))


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
    use_rule(monkeypatch, all_met)
    assert failures("miner", tree, None, trials=4) == 0
    monkeypatch.undo()
    use_rule(monkeypatch, rule)
    assert any(failures("miner", tree, None, trials=n) for n in (5, 15, 40))


@pytest.mark.sampled(3)
def test_without_a_fault_the_same_trials_pass() -> None:
    assert failures("miner", "chain3", None) == 0
    assert failures("miner", "chain3", None, loops=True) == 0
    assert failures("mjoin", "sstar3", None) == 0
