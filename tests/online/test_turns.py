"""Calls that give a bounded number of results: all of them come, in the same order, over more calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.restarts import steps
from tests.online.schedules import EVERY, pairs_of

from dovetail.engine.host import InTurns, Pause, Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Sizes


def _tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    return {side: pa.table({"k": rng.integers(0, 12, 120), name: np.arange(120)}) for side, name in SIDES.items()}


SIDES = {"left": "a", "right": "b"}


def _pieces(rows: int) -> list[tuple[str, pa.RecordBatch]]:
    parts = [[(side, batch) for batch in table.to_batches(max_chunksize=rows)] for side, table in _tables().items()]
    return [piece for pair in zip_longest(*parts) for piece in pair if piece is not None]


def _open(name: str, times: float = 2.0) -> tuple[OnlineJoin, MemoryBudget, dict[str, pa.Schema]]:
    spec = EVERY[name](on=("k",), sizes=Sizes(memory_rows=None if name == "shj" else 40, block_rows=4, partitions=3))
    schemas = {side: table.schema for side, table in _tables().items()}
    with pytest.raises(PlanError) as caught:
        spec.fit(1, list(schemas.values()), {})
    least = int(str(caught.value).partition("for this join is ")[2].split()[0])
    return spec, MemoryBudget(1 << 20 if name == "shj" else int(times * least)), schemas


@pytest.mark.parametrize("most_rows", [1, 9, 1000])
@pytest.mark.parametrize("batch_rows", [1, 2, 7, 50])
@pytest.mark.parametrize("name", ["diner", "pmj", "xjoin", "shj"])
def test_no_call_gives_more_and_all_comes_in_the_same_order(name: str, batch_rows: int, most_rows: int) -> None:
    plain, given = list[pa.RecordBatch](), list[pa.RecordBatch]()
    spec, budget, schemas = _open(name, 1.0 if batch_rows == 7 else 2.0)
    with spec.open(budget, schemas) as operator:
        for side, batch in _pieces(batch_rows):
            plain += operator.push(side, batch)
        plain += operator.finish()
    spec, budget, schemas = _open(name, 1.0 if batch_rows == 7 else 2.0)
    with InTurns(spec.open(budget, schemas), most_rows, waiting_bytes=600) as join:
        calls = [lambda s=side, b=batch: join.push(s, b) for side, batch in _pieces(batch_rows)] + [join.finish]
        for call in calls:
            given.append(_one(join, list(call()), most_rows))
        while join.pending:
            given.append(_one(join, list(join.finish()), most_rows))
        assert most_rows > 1 or join.metrics.value("batches_waiting") > 1
    assert budget.used == 0
    assert pa.Table.from_batches(given).equals(pa.Table.from_batches(plain))
    left, right = (table.to_pylist() for table in _tables().values())
    pairs = oracle.equi_join(left, right, [("k", "k")])
    assert pairs_of(given) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


def _one(join: InTurns, batches: list[pa.RecordBatch], most_rows: int) -> pa.RecordBatch:
    """What one call gave."""
    found = pa.Table.from_batches(batches, join.schema).combine_chunks()
    assert found.num_rows <= most_rows
    return (found.to_batches() or [pa.RecordBatch.from_pylist([], join.schema)])[0]


def test_pauses_give_what_is_pending_first_and_then_work() -> None:
    spec, budget, schemas = _open("diner")
    given = list[pa.RecordBatch]()
    with InTurns(spec.open(budget, schemas), 5) as join:
        for side, batch in _pieces(50):
            given.append(_one(join, list(join.push(side, batch)), 5))
        while join.pending:
            given.append(_one(join, list(join.idle(steps(3))), 5))
        before = sum(batch.num_rows for batch in given)
        for _ in range(400):
            given.append(_one(join, list(join.idle(steps(3))), 5))
        assert sum(batch.num_rows for batch in given) > before  # of rows on disk
        for side in SIDES:
            join.end(side)
        given.append(_one(join, list(join.finish()), 5))
        while join.pending:
            given.append(_one(join, list(join.finish()), 5))
    left, right = (table.to_pylist() for table in _tables().values())
    pairs = oracle.equi_join(left, right, [("k", "k")])
    assert pairs_of(given) == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


@pytest.mark.parametrize("rows_per_call", [1, 9, 1000])
@pytest.mark.parametrize("name", ["diner", "pmj", "xjoin"])
def test_the_local_host_takes_rows_after_a_number_of_results(name: str, rows_per_call: int) -> None:
    """Between two batches that arrive, and in each pause, at most `rows_per_call` rows come; in all the same ones."""
    spec, budget, schemas = _open(name)
    given, since = list[pa.RecordBatch](), [0]

    def arriving(table: pa.Table) -> Iterator[pa.RecordBatch | Pause]:
        for number, batch in enumerate(table.to_batches(max_chunksize=7)):
            since.append(0)
            yield batch
            since.append(0)
            if number % 3 == 2:
                yield Pause(0.004)

    inputs = {side: arriving(table) for side, table in _tables().items()}
    schedule = Schedule("round_robin")
    with closing(run_local(spec, inputs, budget, schedule, schemas=schemas, rows_per_call=rows_per_call)) as run:
        for batch in run:
            given.append(batch)
            since[-1] += batch.num_rows
    assert max(since[:-1]) <= rows_per_call  # the last are of calls after the last row
    plain = {side: arriving(table) for side, table in _tables().items()}
    whole = list(run_local(spec, plain, budget, schedule, schemas=schemas))
    assert pairs_of(given) == pairs_of(whole)
    assert budget.used == 0


def test_a_local_run_without_rows_a_call_is_refused() -> None:
    spec, budget, _ = _open("diner")
    with pytest.raises(PlanError, match="rows_per_call=0"):
        run_local(spec, _tables(), budget, rows_per_call=0)
    assert budget.used == 0


def test_a_bound_of_no_rows_is_refused() -> None:
    spec, budget, schemas = _open("diner")
    with spec.open(budget, schemas) as operator, pytest.raises(PlanError, match="most_rows=0"):
        InTurns(operator, 0)
