"""The operator contract: columns, suffixes, phases, empty sides, early ends, metrics, explain, errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.restarts import steps
from tests.online.schedules import EVERY, Case, drive, random_case, random_pieces, wrong

from dovetail.engine.host import Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorError
from dovetail.errors import PlanError
from dovetail.joins.online.kernels.sorted import recount
from dovetail.joins.online.operators.diner import Diner, LeavesIndex
from dovetail.joins.online.operators.hash_joins import EarlyHashJoin
from dovetail.joins.online.operators.merge_joins import HashMergeJoin
from dovetail.joins.online.operators.probing_joins import RateBasedJoin
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Sizes

BUDGET = 1 << 17


def small_tables(n: int = 40, seed: int = 3) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    return (
        pa.table({"k": rng.integers(0, 6, n), "a": np.arange(n), "note": pa.array(["l"] * n)}),
        pa.table({"k": rng.integers(0, 6, n), "b": np.arange(n), "note": pa.array(["r"] * n)}),
    )


@pytest.mark.parametrize("name", list(EVERY))
def test_columns_suffixes_and_phase(name: str) -> None:
    left, right = small_tables()
    spec = EVERY[name](on=("k",), with_phase=True, sizes=Sizes(memory_rows=None if name == "shj" else 12))
    table = run_local(spec, {"left": left, "right": right}, BUDGET, Schedule(pause_chance=0.3)).table()
    assert table.column_names == ["k", "a", "note", "b", "note_right", "_phase"]
    assert set(table.column("note").to_pylist()) == {"l"}
    assert set(table.column("_phase").to_pylist()) <= {"arriving", "reactive", "cleanup"}
    pairs = oracle.online_join(left.to_pylist(), right.to_pylist(), [("k", "k")])
    want = oracle.bag((a["k"], a["a"], b["b"]) for a, b in pairs if a and b)
    assert oracle.bag(zip(*(table.column(c).to_pylist() for c in ("k", "a", "b")), strict=True)) == want


@pytest.mark.parametrize("name", list(EVERY))
def test_empty_sides_and_no_input_at_all(name: str) -> None:
    left, right = small_tables()
    spec = EVERY[name](on=("k",))
    schemas = {"left": left.schema, "right": right.schema}
    for sides in ((left, right.slice(0, 0)), (left.slice(0, 0), right), (left.slice(0, 0), right.slice(0, 0))):
        inputs = {"left": sides[0].to_batches(), "right": sides[1].to_batches()}
        assert run_local(spec, inputs, BUDGET, schemas=schemas).table().num_rows == 0
    with spec.open(MemoryBudget(BUDGET), schemas) as operator:
        assert list(operator.push("left", pa.RecordBatch.from_pylist([], left.schema))) == []
        assert list(operator.idle(lambda: True)) == []
        assert list(operator.finish()) == []


@pytest.mark.parametrize("name", list(EVERY))
def test_one_side_may_end_long_before_the_other(name: str) -> None:
    rng = np.random.default_rng(11)
    for order in (("left", "right"), ("right", "left")):
        case = random_case(name, 77, most_rows=60)
        pieces = sorted(random_pieces(rng, (case.left.num_rows, case.right.num_rows)), key=lambda p: order.index(p[0]))
        early = Case(case.left, case.right, case.spec, tuple(pieces))
        assert wrong(drive(early, 1)[0], early) == (0, 0)


def test_explain_says_what_will_run_in_one_line() -> None:
    spec = Diner(on=("k",), within=("t", 5), sizes=Sizes(memory_rows=100, block_rows=10))
    assert spec.explain() == "Diner: on k and -5 <= t - t <= 5, 100 rows, blocks of 10"
    assert (
        HashMergeJoin(on=("k",)).explain() == "HashMergeJoin: on k, flush=largest, rows by budget, blocks of by budget"
    )
    assert "ageing=0.9" in RateBasedJoin(on=("k",)).explain()


def test_specifications_cannot_be_built_wrong() -> None:
    for wrong_one in (
        lambda: RateBasedJoin(on=("k",), ageing=1.5),
        lambda: HashMergeJoin(on=("k",), flush="both"),  # type: ignore[arg-type]  # the mistake under test
        lambda: Sizes(memory_rows=1),
        lambda: Sizes(block_rows=0),
        lambda: Diner(),
    ):
        with pytest.raises(PlanError):
            wrong_one()


def test_pushes_that_break_the_contract_are_errors() -> None:
    left, right = small_tables()
    with Diner(on=("k",)).open(MemoryBudget(BUDGET), {"left": left.schema, "right": right.schema}) as operator:
        with pytest.raises(OperatorError, match="announced"):
            list(operator.push("left", right.to_batches()[0]))
        with pytest.raises(OperatorError, match="not one of"):
            list(operator.push("middle", left.to_batches()[0]))
        list(operator.finish())
        with pytest.raises(OperatorError, match="after finish"):
            list(operator.push("left", left.to_batches()[0]))


def test_a_phase_column_of_the_inputs_is_not_overwritten() -> None:
    left, right = small_tables()
    left = left.append_column("_phase", pa.array(["mine"] * left.num_rows))
    with pytest.raises(PlanError, match="_phase"):
        Diner(on=("k",), with_phase=True).open(MemoryBudget(BUDGET), {"left": left.schema, "right": right.schema})


def test_metrics_tell_phases_marks_memory_blocks_and_hand_over() -> None:
    left, right = small_tables(400)
    spec = Diner(on=("k",), sizes=Sizes(memory_rows=60, block_rows=5))
    with spec.open(MemoryBudget(BUDGET), {"left": left.schema, "right": right.schema}) as operator:
        given = 0
        for start in range(0, 400, 20):
            for side, table in (("left", left), ("right", right)):
                piece = table.slice(start, 20).combine_chunks().to_batches()[0]
                given += sum(b.num_rows for b in operator.push(side, piece))
        waiting = iter([10, 60, 120, 130, 130])
        reactive = sum(b.num_rows for b in operator.idle(lambda: next(waiting) > 100))
        rest = sum(b.num_rows for b in operator.finish())
    found = operator.metrics.as_dict()
    assert (found["results_arriving"], found["results_reactive"], found["results_cleanup"]) == (given, reactive, rest)
    assert list(waiting) == [130, 130]  # the operator stopped at 120
    assert found["handover_delay"] > 0
    marks = [found[f"arrivals_to_{mark}_percent"] for mark in (1, 10, 50, 90)]
    assert marks == sorted(marks)
    assert marks[0] <= 200
    assert marks[-1] == 800
    times = [found[f"time_to_{mark}_percent"] for mark in (1, 10, 50, 90)]
    assert times == sorted(times)
    for side in ("left", "right"):
        assert found[f"blocks_flushed.{side}"] >= (400 - 60) // 5
        assert found[f"blocks_read.{side}"] > 0
        assert found[f"memory.{side}"] > 0
        assert found[f"rows_flushed.{side}"] == 400
    assert sum(found[f"flushes_of_{r}.left"] for r in ("lower", "middle", "upper")) > 0


def test_idle_does_one_block_of_work_between_two_questions() -> None:
    left, right = small_tables(400)
    spec = Diner(on=("k",), sizes=Sizes(memory_rows=60, block_rows=5, outer_blocks=3))
    with spec.open(MemoryBudget(1 << 20), {"left": left.schema, "right": right.schema}) as operator:
        for side, table in (("left", left), ("right", right)):
            for _ in operator.push(side, table.to_batches()[0]):
                pass
        for _ in range(5):
            before = sum(store.file.blocks_read for store in operator.blocks)
            for _ in operator.idle(steps(1)):
                pass
            assert sum(store.file.blocks_read for store in operator.blocks) - before <= 1 + 3


def test_counters_of_regions_agree_with_a_recount_at_any_time() -> None:
    for seed in range(30):
        case = random_case("diner", 2000 + seed, most_rows=80)
        with case.spec.open(MemoryBudget(BUDGET), case.schemas) as operator:
            for piece in case.pieces:
                for _ in operator.push(piece[0], case.batch(piece)):
                    pass
                index = operator.index
                assert isinstance(index, LeavesIndex)
                regions = index.areas
                held = regions.held.copy()
                assert held.sum(axis=(1, 2)).tolist() == operator.rows.held.tolist()
                assert (regions.low < regions.up).all()
                for side in (0, 1):
                    recount(regions, side, index.leaves[side], int(operator.rows.held[side]))
                assert np.array_equal(held, regions.held)


def test_unique_keys_let_the_early_hash_join_drop_matched_rows() -> None:
    rng = np.random.default_rng(8)
    one = pa.table({"k": rng.permutation(80), "a": np.arange(80)})
    many = pa.table({"k": rng.integers(0, 90, 300), "b": np.arange(300)})
    want = oracle.bag(
        (a["a"], b["b"]) for a, b in oracle.equi_join(one.to_pylist(), many.to_pylist(), [("k", "k")]) if a and b
    )
    for seed in range(12):
        spec = EarlyHashJoin(on=("k",), cardinality="one_to_many", sizes=Sizes(memory_rows=40, block_rows=4))
        inputs = {"left": one.to_batches(max_chunksize=9), "right": many.to_batches(max_chunksize=13)}
        run = run_local(spec, inputs, BUDGET, Schedule(seed=seed))
        table = run.table()
        assert oracle.bag(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)) == want
        assert run.metrics.value("rows_flushed", "right") < 300


def test_the_same_seed_gives_the_same_run() -> None:
    case = random_case("diner", 31)
    assert drive(case, 5) == drive(case, 5)


def _spec(name: str) -> OnlineJoin:
    return EVERY[name](on=("k",))


@pytest.mark.parametrize("name", list(EVERY))
def test_closing_twice_or_in_the_middle_frees_everything(name: str) -> None:
    left, right = small_tables(200)
    budget = MemoryBudget(BUDGET)
    operator = _spec(name).open(budget, {"left": left.schema, "right": right.schema})
    answers = operator.push("left", left.to_batches()[0])
    list(answers)
    next(iter(operator.push("right", right.to_batches()[0])), None)
    operator.close()
    operator.close()
    assert budget.used == 0
