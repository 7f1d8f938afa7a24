"""Snapshots: an operator that is stopped and restored at any moment goes on as if nothing had happened."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.online.schedules import EVERY, Case, drive, pairs_of, random_case, steps, wrong

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.sizes import Sizes


@pytest.mark.parametrize("name", list(EVERY))
def test_restarts_change_neither_results_nor_the_phase_they_come_in(name: str) -> None:
    for seed in range(4):
        case = random_case(name, 500 + seed)
        undisturbed = drive(case, seed, restart=0.0)
        assert drive(case, seed, restart=0.6) == undisturbed, (name, seed)


def test_the_reactive_loop_can_be_cut_after_every_single_step() -> None:
    for seed in range(5):
        case = random_case("diner", 900 + seed)
        memory = MemoryBudget(1 << 17)
        operator = case.spec.open(memory, case.schemas)
        out: list[pa.RecordBatch] = []
        for piece in case.pieces:
            out += operator.push(piece[0], case.batch(piece))
            out += operator.idle(steps(1))
            tables = operator.snapshot()
            operator.close()
            operator = case.spec.open(memory, case.schemas)
            operator.restore(tables)
        out += operator.finish()
        operator.close()
        assert wrong(pairs_of(out), case) == (0, 0), seed


def test_snapshots_are_plain_tables_of_everything(tmp_path: object) -> None:
    case = _busy_case()
    memory = MemoryBudget(1 << 17)
    with case.spec.open(memory, case.schemas) as operator:
        for piece in case.pieces:
            list(operator.push(piece[0], case.batch(piece)))
        list(operator.idle(steps(3)))
        tables = operator.snapshot()
        rows = tables["memory.left"].num_rows + tables["blocks.left"].num_rows
        assert rows == case.left.num_rows - case.left.column("k").null_count
        assert set(tables) == {
            "header",
            "arrays",
            *(f"{kind}.{side}" for kind in ("memory", "directory", "blocks") for side in ("left", "right")),
        }
        assert tables["directory.left"].num_rows == len(operator.blocks[0])
        again = operator.snapshot()
        assert all(tables[name].equals(again[name]) for name in tables)


def test_a_snapshot_of_another_join_is_refused() -> None:
    case = _busy_case()
    schemas = case.schemas
    with case.spec.open(MemoryBudget(1 << 17), schemas) as operator:
        tables = operator.snapshot()
    other = Diner(on=("k",), sizes=Sizes(memory_rows=9, block_rows=2))
    with other.open(MemoryBudget(1 << 17), schemas) as operator, pytest.raises(PlanError, match="the state is of"):
        operator.restore(tables)


def _busy_case() -> Case:
    return next(
        case for seed in range(100) if (case := random_case("diner", seed)).left.num_rows > 30 < case.right.num_rows
    )
