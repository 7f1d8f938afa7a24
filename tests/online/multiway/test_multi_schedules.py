"""Every combination exactly once, for both algorithms and every tree, under random schedules, pauses and restarts.

`python -m tests.online.sweep many 2000` runs many more of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.online.multiway.multi_schedules import (
    BUDGET,
    TREES,
    combinations_of,
    drive,
    opened,
    random_multi,
    wrong,
)
from tests.online.restarts import steps

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import BlockLoop

TRIALS = {"pair": 8, "chain3": 12, "chain4": 8, "sstar3": 8, "sstar4": 8, "star4": 8, "snowflake6": 40}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("algorithm", ["mjoin", "miner"])
def test_every_combination_comes_exactly_once_under_random_schedules(algorithm: str, tree: str) -> None:
    phases: Counter[str] = Counter()
    for seed in range(TRIALS[tree]):
        case = random_multi(algorithm, tree, 1000 + seed)
        got, results = drive(case, seed)
        assert wrong(got, case) == (0, 0), (algorithm, tree, seed, case.spec.explain())
        phases.update(results)
    assert phases["arriving"] > 0
    assert phases["cleanup"] > 50


@pytest.mark.parametrize("tree", ["chain3", "star4"])
def test_longer_runs_with_many_blocks_are_right_too(tree: str) -> None:
    case = random_multi("miner", tree, 5001, rows=3)
    got, results = drive(case, 1, idle=0.5, restart=0.01)
    assert wrong(got, case) == (0, 0), (tree, case.spec.explain())
    assert results["reactive"] > 0 or tree != "chain3"


@pytest.mark.parametrize("tree", ["pair", "chain3", "sstar4"])
def test_nested_loops_and_survivors_give_the_same_at_the_end(tree: str) -> None:
    for seed in range(8):
        case = random_multi("miner", tree, 2000 + seed)
        loops = replace(case, spec=replace(case.spec, cleanup="odometer"))
        got, _ = drive(loops, seed, drain=0.0)
        assert wrong(got, loops) == (0, 0), (tree, seed, case.spec.explain())


def test_work_in_pauses_can_be_stopped_after_every_step() -> None:
    for seed in range(5):
        case = random_multi("miner", "chain3", 3000 + seed)
        memory, out = MemoryBudget(BUDGET), []
        rng = np.random.default_rng(seed)
        operator = opened(case.spec, memory, case.schemas)
        for piece in case.pieces:
            out += operator.push(piece[0], case.batch(piece))
            for _ in range(int(rng.integers(0, 6))):
                out += operator.idle(steps(1))
        disk = operator.disk
        assert isinstance(disk, BlockLoop)
        while disk.odometer.ready(disk.sizes(), disk._outer_blocks, disk._inner_inputs):
            out += operator.idle(steps(1))
        out += operator.finish()
        operator.close()
        assert wrong(combinations_of(out, case), case) == (0, 0), seed


@pytest.mark.parametrize("tree", ["chain3", "star4"])
def test_a_unit_of_work_is_one_block_of_each_input_beside_the_outer_batch(tree: str) -> None:
    """So the input buffer grows by no more than comes in that time; how much waits is asked after each unit."""
    for seed in range(5):
        case = random_multi("miner", tree, 6000 + seed)
        operator, n = opened(case.spec, MemoryBudget(BUDGET), case.schemas), len(case.tables)
        for piece in case.pieces:
            list(operator.push(piece[0], case.batch(piece)))
            read = [sum(store.file.blocks_read for store in operator.blocks)]

            def until(operator: OnlineOperator = operator, read: list[int] = read) -> bool:
                read.append(sum(store.file.blocks_read for store in operator.blocks))
                return len(read) > 6

            list(operator.idle(until))
            assert max(np.diff(read), default=0) <= case.spec.sizes.outer_blocks + n - 1
        operator.close()


@pytest.mark.sampled(3)
def test_after_a_drain_nothing_is_owed_and_nothing_comes_twice() -> None:
    for algorithm in ("mjoin", "miner"):
        for tree in ("sstar3", "chain3"):
            for seed in range(3):
                case = random_multi(algorithm, tree, 4000 + seed)
                got, _ = drive(case, seed, drain=0.3)
                assert wrong(got, case) == (0, 0), (algorithm, tree, seed)
