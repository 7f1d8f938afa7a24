"""Memory in real bytes: budgets from 1 % to 200 % of the input, the smallest legal one, and disks that are full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.restarts import steps
from tests.online.schedules import EVERY

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.hash_joins import SymmetricHashJoin

ROWS = 600
FLUSHING = [name for name in EVERY if name != "shj"]


def wide_tables(seed: int = 1, rows: int = ROWS, domain: int = 300) -> tuple[pa.Table, pa.Table]:
    """Rows of some 200 bytes, texts of different length."""
    rng = np.random.default_rng(seed)
    tables = []
    for column in "ab":
        text = pa.array(["x" * int(n) for n in rng.integers(100, 250, rows)])
        keys = pa.array(np.where(rng.random(rows) < 0.1, 7, rng.integers(0, domain, rows)))
        tables.append(pa.table({"k": keys, column: pa.array(np.arange(rows)), f"{column}_text": text}))
    return tables[0], tables[1]


LEFT, RIGHT = wide_tables()
INPUT_BYTES = LEFT.nbytes + RIGHT.nbytes
SCHEMAS = {"left": LEFT.schema, "right": RIGHT.schema}


def expected(left: pa.Table = LEFT, right: pa.Table = RIGHT) -> Any:
    """The answer by NumPy, as there are many pairs."""
    a, b = left.column("k").to_numpy(), right.column("k").to_numpy()
    i, j = np.nonzero(a[:, None] == b[None, :])
    return oracle.bag(zip(i.tolist(), j.tolist(), strict=True))


def run(
    spec: Any, budget: MemoryBudget, batch_rows: int = 64, spill_dir: Path | None = None, pauses: bool = True
) -> Any:
    out: list[tuple[int, int]] = []
    with spec.open(budget, SCHEMAS, spill_dir) as operator:
        for start in range(0, ROWS, batch_rows):
            for side, table in (("left", LEFT), ("right", RIGHT)):
                piece = table.slice(start, batch_rows).combine_chunks().to_batches()[0]
                for batch in operator.push(side, piece):
                    out += zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)
            if pauses and start % 256 == 0:
                for batch in operator.idle(steps(4)):
                    out += zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)
        for batch in operator.finish():
            out += zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)
    return oracle.bag(out)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FLUSHING)
def test_budgets_from_ten_to_two_hundred_percent_of_the_input(name: str) -> None:
    want = expected()
    for percent in (10, 50, 200):
        budget = MemoryBudget(INPUT_BYTES * percent // 100)
        assert run(EVERY[name](on=("k",)), budget) == want, percent
        assert 0 < budget.peak <= budget.limit
        assert budget.used == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FLUSHING)
def test_one_percent_of_the_input(name: str) -> None:
    """Keys rise slowly, so that few blocks meet each other: otherwise nested loops read each block a hundred times."""
    rng = np.random.default_rng(4)
    keys = [np.sort(rng.integers(0, 2500, 2500)) + rng.integers(0, 40, 2500) for _ in range(2)]
    text = pa.array(["y" * int(n) for n in rng.integers(350, 450, 2500)])
    left, right = (
        pa.table({"k": keys[i], column: np.arange(2500), f"{column}_text": text}) for i, column in enumerate("ab")
    )
    budget = MemoryBudget((left.nbytes + right.nbytes) // 100)
    out: list[tuple[int, int]] = []
    with EVERY[name](on=("k",)).open(budget, {"left": left.schema, "right": right.schema}) as operator:
        for start in range(0, 2500, 100):
            for side, table in (("left", left), ("right", right)):
                for batch in operator.push(side, table.slice(start, 100).combine_chunks().to_batches()[0]):
                    out += zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)
        for batch in operator.finish():
            out += zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)
    i, j = np.nonzero(keys[0][:, None] == keys[1][None, :])
    assert oracle.bag(out) == oracle.bag(zip(i.tolist(), j.tolist(), strict=True))
    assert budget.peak <= budget.limit


@pytest.mark.parametrize("name", list(EVERY))
def test_with_memory_for_everything_all_results_come_while_rows_arrive(name: str) -> None:
    spec = EVERY[name](on=("k",), with_phase=True)
    with spec.open(MemoryBudget(20 * INPUT_BYTES), SCHEMAS) as operator:
        early = [*operator.push("left", LEFT.to_batches()[0]), *operator.push("right", RIGHT.to_batches()[0])]
        late = list(operator.finish())
    total = expected().total()
    assert sum(b.num_rows for b in early) == (0 if name == "pmj" else total)
    assert sum(b.num_rows for b in late) == (total if name == "pmj" else 0)


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("name", FLUSHING)
def test_the_smallest_legal_budget_works_and_one_byte_less_is_refused(name: str, drains: bool) -> None:
    spec = EVERY[name](on=("k",))
    with pytest.raises(PlanError, match="the smallest for this join is") as refused:
        spec.open(MemoryBudget(100), SCHEMAS)
    least = int(str(refused.value).split("the smallest for this join is ")[1].split(" bytes")[0])
    with pytest.raises(PlanError, match=f"is {least} bytes"):
        spec.open(MemoryBudget(least - 1), SCHEMAS)
    assert least < 16_000  # a hundredth of one and a half megabytes
    narrow = [table.slice(0, 120).select(["k", c]) for table, c in ((LEFT, "a"), (RIGHT, "b"))]
    schemas = {side: table.schema for side, table in zip(("left", "right"), narrow, strict=True)}
    with pytest.raises(PlanError) as refused:
        spec.open(MemoryBudget(100), schemas)
    budget = MemoryBudget(int(str(refused.value).split("the smallest for this join is ")[1].split(" bytes")[0]))
    rows = []
    with spec.open(budget, schemas) as operator:
        for start in range(0, 120, 8):
            for side, table in zip(("left", "right"), narrow, strict=True):
                rows += operator.push(side, table.slice(start, 8).combine_chunks().to_batches()[0])
            rows += operator.drain() if drains and start % 40 == 0 else operator.idle(steps(2))
        rows += operator.finish()
    found = oracle.bag(pair for b in rows for pair in zip(b["a"].to_pylist(), b["b"].to_pylist(), strict=True))
    assert found == expected(*narrow)
    assert budget.peak <= budget.limit


@pytest.mark.parametrize("first", [1, 7, 60])
def test_nulls_need_no_more_than_the_smallest_budget_that_was_told(first: int) -> None:
    """However few rows come first: bits of validity are a part of each row's bytes from the start."""
    keys, values = (
        pa.array([n % gone for n in range(60)], kind, mask=np.arange(60) % gone == 0)
        for gone, kind in ((7, pa.int64()), (5, pa.int32()))
    )
    tables = [pa.table({"k": keys, name: values, f"{name}_n": values}) for name in "ab"]
    schemas = {side: table.schema for side, table in zip(("left", "right"), tables, strict=True)}
    with pytest.raises(PlanError) as refused:
        Diner(on=("k",)).open(MemoryBudget(100), schemas)
    budget = MemoryBudget(int(str(refused.value).split("the smallest for this join is ")[1].split(" bytes")[0]))
    with Diner(on=("k",)).open(budget, schemas) as operator:
        rows = []
        for piece in (slice(0, first), slice(first, 60)):
            for side, table in zip(("left", "right"), tables, strict=True):
                rows += operator.push(side, table.to_batches()[0][piece])
        rows += operator.finish()
    assert sum(batch.num_rows for batch in rows) == sum(
        1 for one in keys.to_pylist() for other in keys.to_pylist() if one is not None and one == other
    )


def test_rows_that_are_wider_than_their_types_say_are_told_when_the_first_come() -> None:
    spec = Diner(on=("k",))
    with pytest.raises(PlanError, match="the smallest for this join is") as refused:
        spec.open(MemoryBudget(100), SCHEMAS)
    least = int(str(refused.value).split("the smallest for this join is ")[1].split(" bytes")[0])
    budget = MemoryBudget(least)
    with spec.open(budget, SCHEMAS) as operator, pytest.raises(PlanError, match=r"rows of some .* the smallest"):
        list(operator.push("left", LEFT.to_batches()[0]))
    assert budget.used == 0


def test_the_symmetric_hash_join_says_that_it_cannot_flush() -> None:
    with pytest.raises(BudgetExceeded, match="keeps both inputs in memory"):
        run(SymmetricHashJoin(on=("k",)), MemoryBudget(INPUT_BYTES // 2))


@pytest.mark.parametrize("name", FLUSHING)
def test_a_full_disk_is_told_and_nothing_wrong_was_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want, written = expected(), [0]
    real = os.pwrite

    def full_after_a_while(fd: int, data: Any, offset: int) -> int:
        written[0] += 1
        if written[0] > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full_after_a_while)
    budget = MemoryBudget(INPUT_BYTES // 10)
    given: list[tuple[int, int]] = []
    operator = EVERY[name](on=("k",)).open(budget, SCHEMAS)

    def drive() -> None:
        for start in range(0, ROWS, 64):
            for side, table in (("left", LEFT), ("right", RIGHT)):
                for batch in operator.push(side, table.slice(start, 64).combine_chunks().to_batches()[0]):
                    given.extend(zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True))
        list(operator.finish())

    with operator, pytest.raises(ConfigError, match="no room to spill"):
        drive()
    assert budget.used == 0
    assert not oracle.bag(given) - want


def test_files_are_gone_when_the_join_is_closed(tmp_path: Path) -> None:
    run(Diner(on=("k",)), MemoryBudget(INPUT_BYTES // 10), spill_dir=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "online" in path.name] == []


def test_all_algorithms_are_registered() -> None:
    assert list(ALGORITHMS) == ["shj", "dphj", "xjoin", "pmj", "hmj", "rpj", "ehj", "diner"]
