"""One input is left: rows of the ended inputs are reloaded, and every combination still comes exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.multiway import multi_schedules
from tests.online.restarts import steps
from tests.online.schedules import BUDGET, by_phase, pairs_of, random_case, wrong

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorError
from dovetail.errors import PlanError
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Running
from dovetail.joins.online.events import Event, Piece, pack_events
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.ended import Met
from dovetail.joins.online.sizes import Sizes


def ended_run(
    operator: OnlineOperator, pieces: Sequence[tuple[str, pa.RecordBatch]], seed: int, drain: float = 0.0
) -> list[pa.RecordBatch]:
    """A run with pauses and drains that learns the end of every input at once."""
    rng, out = np.random.default_rng([seed, 11]), list[pa.RecordBatch]()
    left = Counter(side for side, _ in pieces)
    with operator:
        for side in operator.names:
            if not left[side]:
                operator.end(side)
        for side, batch in pieces:
            out += operator.push(side, batch)
            left[side] -= 1
            if not left[side]:
                operator.end(side)
            if rng.random() < 0.3:
                out += operator.idle(steps(int(rng.integers(1, 12))))
            if drain and rng.random() < drain:
                out += operator.drain()
        out += operator.finish()
    assert operator.budget.used == 0
    assert operator.budget.peak <= operator.budget.limit
    return out


@pytest.mark.parametrize("name", ["diner", "oldest", "xjoin", "hmj", "ehj"])
def test_every_pair_comes_once_where_one_input_ends_before_the_other(name: str) -> None:
    reloads = 0
    for seed in range(40):
        case = random_case(name, 7000 + seed, most_rows=90)
        operator = case.spec.open(MemoryBudget(BUDGET), case.schemas)
        out = ended_run(operator, [(piece[0], case.batch(piece)) for piece in case.pieces], seed, (0.0, 0.1)[seed % 2])
        assert wrong(pairs_of(out), case) == (0, 0), (name, seed, case.spec.explain())
        reloads += operator.metrics.value("reloads")
    assert (reloads > 5) == (name in ("diner", "oldest"))


@pytest.mark.parametrize("algorithm", ["miner", "mjoin"])
@pytest.mark.parametrize("tree", ["pair", "chain3", "star4", "snowflake6"])
def test_every_combination_comes_once_where_inputs_end(algorithm: str, tree: str) -> None:
    reloads = 0
    for seed in range(8):
        case = multi_schedules.random_multi(algorithm, tree, 7000 + seed, rows=1.0)
        case = replace(case, spec=replace(case.spec, sizes=replace(case.spec.sizes, memory_rows=12)))
        operator = case.spec.open(MemoryBudget(multi_schedules.BUDGET), case.schemas)
        out = ended_run(operator, [(piece[0], case.batch(piece)) for piece in case.pieces], seed, (0.0, 0.05)[seed % 2])
        assert multi_schedules.wrong(multi_schedules.combinations_of(out, case), case) == (0, 0), (tree, seed)
        reloads += operator.metrics.value("reloads")
    if algorithm == "miner":
        assert reloads > 0


def _table(rng: np.random.Generator, rows: int, column: str) -> pa.Table:
    return pa.table({"k": rng.integers(0, 60, rows), column: np.arange(rows), f"{column}_text": ["x" * 30] * rows})


def _split(table: pa.Table, side: str, rows: int) -> list[tuple[str, pa.RecordBatch]]:
    return [(side, batch) for batch in table.combine_chunks().to_batches(max_chunksize=rows)]


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 50])
@pytest.mark.parametrize("times", [1, 1.3, 3])
@pytest.mark.parametrize("within", [None, ("k", "k", -1, 2)])
def test_batches_and_budgets_down_to_the_smallest(
    batch_rows: int, times: float, within: tuple[Any, ...] | None
) -> None:
    rng = np.random.default_rng(5)
    left, right = _table(rng, 300, "a"), _table(rng, 300, "b")
    spec = Diner(on=() if within else ("k",), within=within)
    schemas = {"left": left.schema, "right": right.schema}
    pieces = [*_split(left, "left", batch_rows), *_split(right, "right", batch_rows)]
    operator = spec.open(MemoryBudget(int(times * _smallest(spec, schemas))), schemas)
    pairs = oracle.online_join(
        left.to_pylist(), right.to_pylist(), [] if within else [("k", "k")], within and ("k", "k", -1, 2)
    )
    assert pairs_of(ended_run(operator, pieces, 1)) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


def _smallest(spec: Diner, schemas: dict[str, pa.Schema]) -> int:
    with pytest.raises(PlanError, match=r"smallest for this join is (\d+) bytes") as caught:
        spec.fit(1, list(schemas.values()), {0: 60, 1: 60})
    return int(str(caught.value).partition("for this join is ")[2].split()[0])


def test_reloaded_rows_bring_results_forward_and_complete_ones_are_not_written() -> None:
    rng = np.random.default_rng(6)
    left, right = _table(rng, 400, "a"), _table(rng, 4000, "b")
    schemas = {"left": left.schema, "right": right.schema}
    early = [*_split(right.slice(0, 400), "right", 50), *_split(left, "left", 50)]
    pieces = [*early, *_split(right.slice(400), "right", 50)]
    spec = Diner(on=("k",), with_phase=True, sizes=Sizes(memory_rows=500, block_rows=20))
    found = {}
    for told in (False, True):
        operator = spec.open(MemoryBudget(1 << 20), schemas)
        out = ended_run(operator, pieces, 1) if told else list[pa.RecordBatch]()
        if not told:
            with operator:
                for side, batch in pieces:
                    out += operator.push(side, batch)
                out += operator.finish()
        found[told] = by_phase(out)["arriving"], operator.metrics.value("rows_flushed", "right")
    assert found[True][0] > 1.15 * found[False][0]
    assert found[True][1] < 1000 < found[False][1]


class NothingMet(Met):
    """R1' is left out: pairs with reloaded rows come again."""

    def has(self, blocks: Sequence[I64]) -> Bool:
        return np.zeros(len(blocks[0]), np.bool_)


def test_leaving_out_the_rule_of_reloaded_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.joins.online.operators.ended.Met", NothingMet)
    lost = twice = 0
    for seed in range(30):
        case = random_case("diner", 7000 + seed, most_rows=90)
        operator = case.spec.open(MemoryBudget(BUDGET), case.schemas)
        out = ended_run(operator, [(piece[0], case.batch(piece)) for piece in case.pieces], seed)
        found = wrong(pairs_of(out), case)
        lost, twice = lost + found[0], twice + found[1]
    assert (lost, twice > 0) == (0, True)


def test_rows_after_the_end_are_refused() -> None:
    table = _table(np.random.default_rng(1), 3, "a")
    with Diner(on=("k",)).open(MemoryBudget(1 << 20), {"left": table.schema, "right": table.schema}) as operator:
        operator.end("left")
        with pytest.raises(OperatorError, match="its end"):
            list(operator.push("left", table.to_batches()[0]))


def test_a_bucket_takes_the_end_of_an_input_as_an_event_and_takes_it_up_again() -> None:
    rng = np.random.default_rng(2)
    left, right = _table(rng, 900, "a"), _table(rng, 600, "b")
    join = BucketJoin("diner", Pair(("k",)), 40_000, False, (("left", left.schema), ("right", right.schema)))
    early = [Event("push", 0, rows=batch.serialize()) for _, batch in _split(left, "left", 50)]
    late = [Event("push", 1, rows=batch.serialize()) for _, batch in _split(right, "right", 50)]
    events, out = [*early, Event("end", 0), *late], list[pa.RecordBatch]()
    running = Running(join)
    for event in events[:-3]:
        out += running.apply(event)
    assert running.totals()["rows_reloaded left"] > 0
    running.close()
    again = Running(join)
    again.take_up([Piece(pack_events(events[:-3]), settled=False)])
    for event in [*events[-3:], Event("finish")]:
        out += again.apply(event)
    again.close()
    pairs = oracle.equi_join(left.to_pylist(), right.to_pylist(), [("k", "k")])
    assert pairs_of(out) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)
