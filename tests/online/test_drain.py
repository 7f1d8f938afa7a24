"""Draining gives all that is owed without ending, at any moment; retiring lets old rows go and loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.multiway import multi_schedules
from tests.online.restarts import steps
from tests.online.schedules import BUDGET, EVERY, Case, pairs_of, random_case, wrong

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.hash_joins import EarlyHashJoin
from dovetail.joins.online.sizes import Sizes


@pytest.mark.parametrize("name", list(EVERY))
def test_after_a_drain_nothing_is_owed_and_later_rows_still_meet_earlier_ones(name: str) -> None:
    for seed in range(6):
        case = random_case(name, 3000 + seed)
        rng = np.random.default_rng([seed, 9])
        memory = MemoryBudget(BUDGET)
        operator = case.spec.open(memory, case.schemas)
        out: list[pa.RecordBatch] = []
        seen = {"left": 0, "right": 0}
        for piece in case.pieces:
            out += operator.push(piece[0], case.batch(piece))
            seen[piece[0]] += piece[2]
            if rng.random() < 0.3:
                out += operator.idle(steps(int(rng.integers(1, 8))))
            if rng.random() < 0.15:
                out += operator.drain()
                part = _prefix(case, seen)
                assert pairs_of(out) == part, (name, seed)
        out += operator.finish()
        operator.close()
        assert memory.used == 0
        assert wrong(pairs_of(out), case) == (0, 0), (name, seed)


def _prefix(case: Case, seen: dict[str, int]) -> Counter[Any]:
    cut = Case(case.left.slice(0, seen["left"]), case.right.slice(0, seen["right"]), case.spec, ())
    return cut.expected()


class ForgetsDrains(OnlineOperator):
    """What a drain has given is not remembered."""

    def all_met(self) -> None:
        super().all_met()
        for store in self.blocks:
            store.drained = 0


class RetiresWhatIsOwed(OnlineOperator):
    """docs/algorithms/online.md, 7.5: old blocks go before they have met what they must."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        self.flush_all()
        self.all_met()
        return iter(())


def test_a_drain_that_is_not_remembered_is_caught() -> None:
    def failed(seed: int) -> bool:
        case = random_case("xjoin", 3000 + seed)
        operator = ForgetsDrains(case.spec, MemoryBudget(BUDGET), case.schemas, None)
        out: list[pa.RecordBatch] = []
        for piece in case.pieces:
            out += operator.push(piece[0], case.batch(piece))
            out += operator.drain()
        out += operator.finish()
        operator.close()
        return wrong(pairs_of(out), case) != (0, 0)

    assert any(failed(seed) for seed in range(20))


@pytest.mark.parametrize("name", list(EVERY))
def test_retired_rows_leave_the_state_and_no_pair_within_the_bound_is_lost(name: str) -> None:
    right, most = _retiring(name, 0)
    assert right, name
    assert most < 250  # of 600: those of the last 60 units, and what leaves files with it once it is half of them


def test_blocks_that_are_retired_too_early_are_caught() -> None:
    assert not all(_retiring("diner", seed, RetiresWhatIsOwed)[0] for seed in range(4))


def _retiring(name: str, seed: int, running: type[OnlineOperator] = OnlineOperator) -> tuple[bool, int]:
    """Whether the answer is right, and the most rows ever kept; rows match within 20 units of event time and come at
    most 5 units late."""
    rng = np.random.default_rng([seed, 10])
    sides = [_timed(rng, column) for column in "ab"]
    schemas = {"left": sides[0].schema, "right": sides[1].schema}
    sizes = Sizes(memory_rows=None if name == "shj" else 25, block_rows=4, partitions=3)
    spec = EVERY[name](on=("k",), within=("t", "t", -20, 20), sizes=sizes)
    out: list[pa.RecordBatch] = []
    most, memory, ticks = 0, MemoryBudget(BUDGET), list[int]()
    with running(spec, memory, schemas, None) as operator:
        for start in range(0, 300, 10):
            for side, table in zip(("left", "right"), sides, strict=True):
                out += operator.push(side, table.slice(start, 10).combine_chunks().to_batches()[0])
            ticks.append(operator.clock)
            if start % 50 == 40:
                out += operator.drain()
                operator.retire(ticks[start // 10 - 3])
                kept = sum(int(store.column("rows").sum()) for store in operator.blocks)
                most = max(most, kept + int(operator.rows.held[0]) + int(operator.rows.held[1]))
        out += operator.finish()
    assert memory.used == 0
    pairs = oracle.online_join(sides[0].to_pylist(), sides[1].to_pylist(), [("k", "k")], ("t", "t", -20, 20))
    return pairs_of(out) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b), most


def test_unique_keys_and_drains_go_together() -> None:
    rng = np.random.default_rng(8)
    one = pa.table({"k": rng.permutation(80), "a": np.arange(80)})
    many = pa.table({"k": rng.integers(0, 90, 160), "b": np.arange(160)})
    spec = EarlyHashJoin(on=("k",), cardinality="one_to_many", sizes=Sizes(memory_rows=20, block_rows=4, partitions=3))
    out: list[pa.RecordBatch] = []
    with spec.open(MemoryBudget(BUDGET), {"left": one.schema, "right": many.schema}) as operator:
        for start in range(0, 80, 8):
            out += operator.push("left", one.slice(start, 8).combine_chunks().to_batches()[0])
            out += operator.push("right", many.slice(2 * start, 16).combine_chunks().to_batches()[0])
            if start % 24 == 16:
                out += operator.drain()
        out += operator.finish()
    pairs = oracle.equi_join(one.to_pylist(), many.to_pylist(), [("k", "k")])
    assert pairs_of(out) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


def _timed(rng: np.random.Generator, column: str) -> pa.Table:
    times = np.arange(300) - rng.integers(0, 6, 300)
    return pa.table({"k": rng.integers(0, 5, 300), "t": times, column: np.arange(300)})


def _drained(beside: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int, int]:
    """Rows in memory after each drain, rows flushed and blocks read, of small batches that are drained one by one."""
    if not beside:
        monkeypatch.setattr("dovetail.joins.online.operators.block_loop.makes_room", lambda join: 0)
    rng = np.random.default_rng(4)
    left, right = (pa.table({"k": rng.integers(0, 900, 3000), c: np.arange(3000)}) for c in "ab")
    spec = Diner(on=("k",), sizes=Sizes(memory_rows=1500, block_rows=25))
    out, held = list[pa.RecordBatch](), list[int]()
    with spec.open(MemoryBudget(1 << 20), {"left": left.schema, "right": right.schema}) as operator:
        for start in range(0, 3000, 50):
            for side, table in (("left", left), ("right", right)):
                out += operator.push(side, table.slice(start, 50).combine_chunks().to_batches()[0])
            out += operator.drain()
            held.append(int(operator.rows.held.sum()))
            operator.retire(operator.clock - 2500 if start > 1500 else 0)
        out += operator.finish()
    pairs = oracle.equi_join(left.to_pylist(), right.to_pylist(), [("k", "k")])
    near = oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)
    got = pairs_of(out)
    assert not got - near
    assert all(count == 1 for count in got.values())
    flushed, read = (sum(operator.metrics.value(name, side) for side in operator.names)
                     for name in ("rows_flushed", "blocks_read"))  # fmt: skip
    return held, flushed, read


def test_a_drain_of_few_new_rows_leaves_memory_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    held, flushed, _ = _drained(True, monkeypatch)
    full = held[20:]
    assert min(full) > 1000
    emptied, all_flushed, _ = _drained(False, monkeypatch)
    assert min(emptied[20:]) == 0
    assert flushed < all_flushed


@pytest.mark.parametrize("tree", ["pair", "chain3", "sstar4", "snowflake6"])
def test_joins_of_many_inputs_are_drained_beside_memory(tree: str) -> None:
    kept = 0
    for seed in range(6):
        case = multi_schedules.random_multi("miner", tree, 9000 + seed, rows=1.0)
        case = replace(case, spec=replace(case.spec, sizes=replace(case.spec.sizes, memory_rows=15, block_rows=2)))
        out, seen = list[pa.RecordBatch](), dict.fromkeys(case.tables, 0)
        with case.spec.open(MemoryBudget(1 << 20), case.schemas) as operator:
            for piece in case.pieces:
                out += operator.push(piece[0], case.batch(piece))
                seen[piece[0]] += piece[2]
                if len(out) % 3 == 0:
                    out += operator.drain()
                    kept += operator.is_spilled and int(operator.rows.held.sum()) > 0
                    part = replace(case, tables={n: t.slice(0, seen[n]) for n, t in case.tables.items()})
                    assert multi_schedules.combinations_of(out, case) == part.expected(), (tree, seed)
            out += operator.finish()
        assert multi_schedules.wrong(multi_schedules.combinations_of(out, case), case) == (0, 0)
    assert kept > 3
