"""Joins that another operator takes up at any moment: nothing is lost, and what was settled is not joined again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.multiway import multi_schedules as multi
from tests.online.restarts import Restartable
from tests.online.schedules import BUDGET, EVERY, Case, drive, pairs_of, random_case, random_spec, wrong

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators.base import OnlineOperator

MULTI = [(name, tree) for name in ("miner", "mjoin") for tree in ("chain3", "sstar3")]


@pytest.mark.parametrize("name", list(EVERY))
def test_restarts_change_neither_results_nor_the_phase_they_come_in(name: str) -> None:
    for seed in range(4):
        case = random_case(name, 500 + seed)
        undisturbed = drive(case, seed, restart=0.0)
        assert drive(case, seed, restart=0.6) == undisturbed, (name, seed)


@pytest.mark.parametrize("name", list(EVERY))
def test_rows_that_were_settled_are_loaded_and_meet_later_ones(name: str) -> None:
    for seed in range(12):
        case = random_case(name, 700 + seed)
        got, _ = drive(case, seed, restart=0.3, drain=0.25)
        assert wrong(got, case) == (0, 0), (name, seed)


@pytest.mark.parametrize(("name", "tree"), MULTI)
def test_combinations_of_rows_that_were_loaded(name: str, tree: str) -> None:
    for seed in range(8):
        case = multi.random_multi(name, tree, 700 + seed)
        got, _ = multi.drive(case, seed, restart=0.2, drain=0.2)
        assert multi.wrong(got, case) == (0, 0), (name, tree, seed)


def test_the_reactive_loop_can_be_cut_after_every_single_step() -> None:
    for seed in range(5):
        case = random_case("diner", 900 + seed)
        memory = MemoryBudget(1 << 17)
        join = Restartable(lambda case=case, memory=memory: case.spec.open(memory, case.schemas))
        out: list[pa.RecordBatch] = []
        for piece in case.pieces:
            out += join.push(piece[0], case.batch(piece))
            out += join.idle(1)
            join.restart()
        out += join.finish()
        assert wrong(pairs_of(out), case) == (0, 0), seed


def test_settled_rows_are_taken_up_by_any_other_join() -> None:
    """What is settled is no more than its rows: algorithm, sizes and budget may be others."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        names = [str(name) for name in rng.choice(list(EVERY), 8)]
        case = random_case("diner", 1300 + seed)
        predicate = {"on": ("k",), "within": None}
        out: list[pa.RecordBatch] = []
        spec = [case.spec]

        def opened(spec: Any = spec, case: Case = case) -> OnlineOperator:
            return spec[0].open(MemoryBudget(BUDGET), case.schemas)

        spec[0] = EVERY[names[0]](**predicate, with_phase=True, sizes=random_spec(names[0], rng).sizes)
        join = Restartable(opened)
        for number, piece in enumerate(case.pieces):
            out += join.push(piece[0], case.batch(piece))
            if number % 3 == 2:
                name = names[number // 3 % len(names)]
                spec[0] = EVERY[name](**predicate, with_phase=True, sizes=random_spec(name, rng).sizes)
                out += join.drain()
        out += join.finish()
        assert wrong(pairs_of(out), Case(case.left, case.right, spec[0], ())) == (0, 0), seed


@pytest.mark.parametrize("name", list(EVERY))
def test_a_restart_compares_nothing_that_was_settled(name: str) -> None:
    for seed in range(6):
        case = random_case(name, 1100 + seed)
        join = Restartable(lambda case=case: case.spec.open(MemoryBudget(BUDGET), case.schemas))
        for piece in case.pieces:
            join.push(piece[0], case.batch(piece))
        join.drain()
        assert join.restart() == 0
        join.finish()


@pytest.mark.parametrize(("name", "tree"), MULTI)
def test_a_restart_of_many_inputs_compares_nothing_that_was_settled(name: str, tree: str) -> None:
    case = multi.random_multi(name, tree, 1100)
    join = Restartable(lambda: case.spec.open(MemoryBudget(multi.BUDGET), case.schemas))
    for piece in case.pieces:
        join.push(piece[0], case.batch(piece))
    join.drain()
    assert join.restart() == 0
    join.finish()


class Retained:
    """A join whose oldest rows leave, the rows that are left, and what it must have given."""

    def __init__(self, operator: OnlineOperator, expected: Any) -> None:
        self.operator, self._expected = operator, expected
        self.held: list[tuple[str, pa.RecordBatch, int]] = []
        self.out: list[pa.RecordBatch] = []
        self.wanted: Counter[Any] = Counter()

    def push(self, side: str, batch: pa.RecordBatch) -> None:
        """Rows come, and meet those that are left."""
        before = self._expected([(name, rows) for name, rows, _ in self.held])
        self.out += self.operator.push(side, batch)
        self.held.append((side, batch, self.operator.clock))
        self.wanted += self._expected([(name, rows) for name, rows, _ in self.held]) - before

    def retire(self, events: int) -> None:
        """The rows of the oldest events leave; what stays is not compared."""
        self.out += self.operator.drain()
        compared = self.operator.metrics.value("comparisons")
        self.operator.retire(self.held[events - 1][2])
        self.held = self.held[events:]
        assert self.operator.metrics.value("comparisons") == compared
        left = sum(int(store.column("rows")[store.living()].sum()) for store in self.operator.blocks)
        assert int(self.operator.rows.held.sum()) + left >= self._present()

    def _present(self) -> int:
        held = sum(len(pages.slots()) for pages in self.operator.pages)
        stored = sum(len(store.read(n).ats) for store in self.operator.blocks for n in store.living().tolist())
        assert held + stored <= sum(batch.num_rows for _, batch, _ in self.held)
        return held + stored


def together(schemas: dict[str, pa.Schema], held: list[tuple[str, pa.RecordBatch]]) -> dict[str, pa.Table]:
    """The rows of each input as one table."""
    return {
        name: pa.Table.from_batches([rows for side, rows in held if side == name], schema)
        for name, schema in schemas.items()
    }


def retained(spec: Any, memory: MemoryBudget, case: Any, expected: Any, seed: int) -> tuple[Retained, OnlineOperator]:
    """A run in which rows leave at random moments."""
    rng, operator = np.random.default_rng([seed, 3]), spec.open(memory, case.schemas)
    join = Retained(operator, expected)
    for piece in case.pieces:
        join.push(piece[0], case.batch(piece))
        if rng.random() < 0.3:
            join.out += operator.drain()
        if rng.random() < 0.25 and join.held:
            join.retire(int(rng.integers(1, len(join.held) + 1)))
    join.out += operator.finish()
    operator.close()
    assert memory.used == 0
    assert memory.peak <= memory.limit
    return join, operator


@pytest.mark.parametrize("name", list(EVERY))
def test_rows_that_leave_meet_no_later_ones_and_all_others_do(name: str) -> None:
    for seed in range(12):
        case = random_case(name, 1500 + seed)

        def expected(held: list[tuple[str, pa.RecordBatch]], case: Case = case) -> Counter[Any]:
            tables = together(case.schemas, held)
            return Case(tables["left"], tables["right"], case.spec, ()).expected()

        join, _ = retained(case.spec, MemoryBudget(BUDGET), case, expected, seed)
        assert pairs_of(join.out) == join.wanted, (name, seed)


@pytest.mark.parametrize(("name", "tree"), MULTI)
def test_rows_of_many_inputs_that_leave(name: str, tree: str) -> None:
    for seed in range(6):
        case = multi.random_multi(name, tree, 1500 + seed)

        def expected(held: list[tuple[str, pa.RecordBatch]], case: multi.MultiCase = case) -> Counter[Any]:
            return multi.MultiCase(together(case.schemas, held), case.spec, ()).expected()

        join, _ = retained(case.spec, MemoryBudget(multi.BUDGET), case, expected, seed)
        assert multi.combinations_of(join.out, case) == join.wanted, (name, tree, seed)
