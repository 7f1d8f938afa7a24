"""The naive join against the oracle: every how, every type of key, every budget that can work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dovetail.engine.host import Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.nested_loop import NestedLoopJoin, Predicate
from dovetail.engine.rows.layout import HOWS
from dovetail.errors import BudgetExceeded, PlanError
from oracle import bag, equal, flat, join

BEFORE = Predicate(lambda a, b: pc.less(a.column("x"), b.column("y")), ("x",), ("y",), "x < y")


def rows(seed: int, n: int, key: str, value: str) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = pa.array([None if k == 0 else int(k) for k in rng.integers(0, 8, n)], pa.int64())
    values = pa.array(rng.integers(0, 100, n), mask=rng.random(n) < 0.1)
    text = pa.array(["t" * int(k) for k in rng.integers(0, 20, n)], pa.string())
    return pa.table({key: keys, value: values, "text": text})


def batches(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(max_chunksize=size))


def answer(spec: NestedLoopJoin, left: pa.Table, right: pa.Table, budget: int | str = "1MB", **how: Any) -> pa.Table:
    return run_local(spec, {"left": left, "right": right}, budget, **how).table()


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("budget", ["3KB", "6KB", "30KB", "1MB"])
@pytest.mark.parametrize("size", [1, 7, 50])
def test_every_how_at_every_budget(how: Any, budget: str, size: int, tmp_path: Path) -> None:
    left, right = rows(1, 60, "a", "x"), rows(2, 45, "b", "y")
    spec = NestedLoopJoin((("a", "b"),), BEFORE, how)
    inputs = {"left": batches(left, size), "right": batches(right, size)}
    run = run_local(spec, inputs, budget, Schedule(seed=size, pause_chance=0.1), spill_dir=tmp_path)
    got = run.table()

    def matches(a: Any, b: Any) -> bool:
        return equal([("a", "b")])(a, b) and a["x"] is not None and b["y"] is not None and a["x"] < b["y"]

    columns = () if how in ("left_semi", "left_anti") else right.column_names
    expected = flat(join(left.to_pylist(), right.to_pylist(), matches, how), left.column_names, columns)
    assert bag(tuples(got)) == bag(expected)
    assert run.budget.peak <= run.budget.limit
    assert (run.metrics.value("spilled") > 0) == (budget in ("3KB", "6KB"))
    assert run.metrics.value("rows_in", "left") == 60
    assert run.metrics.value("rows_out") == len(expected)
    assert run.metrics.value("comparisons") == 60 * 45 * (2 if how in ("right", "full") else 1)
    assert list(tmp_path.iterdir()) == []


KEYS: dict[str, list[Any]] = {
    "bool": [True, False, None, True],
    "int8": [1, -1, None, 1],
    "double": [float("nan"), 0.0, None, -0.0, float("inf"), float("nan")],
    "date32": [date(2020, 1, 1), None, date(1960, 5, 5), date(2020, 1, 1)],
    "timestamp": [datetime(2020, 1, 1), None, datetime(2020, 1, 1)],
    "decimal": [Decimal("1.50"), None, Decimal("-2.25"), Decimal("1.50")],
    "string": ["", "a", None, "ab", "a"],
    "binary": [b"", b"a\x00", None, b"a", b"a\x00"],
    "dictionary": ["x", None, "y", "x"],
}
TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "double": pa.float64(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "decimal": pa.decimal128(20, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("how", HOWS)
def test_keys_of_every_type(kind: str, how: Any) -> None:
    left = pa.table({"k": pa.array(KEYS[kind], TYPES[kind]), "n": range(len(KEYS[kind]))})
    right = pa.table({"k": pa.array(KEYS[kind][::-1], TYPES[kind]), "m": range(len(KEYS[kind]))})
    got = answer(NestedLoopJoin(("k",), how=how), left, right)
    pairs = join(left.to_pylist(), right.to_pylist(), equal([("k", "k")]), how)
    one_sided = how in ("left_semi", "left_anti")
    expected = [
        ((a or b)["k"], a and a["n"]) + (() if one_sided else (b and b["m"],))  # type: ignore[index]  # one of the two is there
        for a, b in pairs
    ]
    assert got.column_names == (["k", "n"] if one_sided else ["k", "n", "m"])
    assert bag(tuples(got)) == bag(expected)


def test_a_key_by_one_name_appears_once_and_other_clashes_get_suffixes() -> None:
    left, right = pa.table({"k": [1, 2], "v": [10, 20]}), pa.table({"v": [30, 40], "k": [2, 3]})
    got = answer(NestedLoopJoin(("k",), how="full", suffixes=("_l", "_r")), left, right).sort_by("k")
    assert got.to_pydict() == {"k": [1, 2, 3], "v_l": [10, 20, None], "v_r": [None, 30, 40]}


def test_two_keys_and_no_predicate() -> None:
    left, right = pa.table({"a": [1, 1, 2], "b": ["x", "y", None]}), pa.table({"c": [1, 2], "d": ["y", None]})
    got = answer(NestedLoopJoin((("a", "c"), ("b", "d"))), left, right)
    assert got.to_pydict() == {"a": [1], "b": ["y"], "c": [1], "d": ["y"]}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("n_left", "n_right"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sides(how: Any, n_left: int, n_right: int) -> None:
    left, right = rows(1, n_left, "a", "x"), rows(2, n_right, "b", "y")
    got = answer(NestedLoopJoin((("a", "b"),), how=how), left, right)
    expected = {"left": n_left, "right": n_right, "full": n_left + n_right, "left_anti": n_left}.get(how, 0)
    assert got.num_rows == expected


def test_predicates_may_give_nulls_or_numpy() -> None:
    left, right = pa.table({"x": [1, None, 5]}), pa.table({"y": [3, None]})
    plain = Predicate(lambda a, b: np.asarray(a.column("x").fill_null(9)) < 4, ("x",), (), "x < 4")
    assert answer(NestedLoopJoin(predicate=BEFORE), left, right).to_pydict() == {"x": [1], "y": [3]}
    assert answer(NestedLoopJoin(predicate=plain), left, right).to_pydict() == {"x": [1, 1], "y": [3, None]}


def test_wide_and_nested_columns_come_along(tmp_path: Path) -> None:
    left = pa.table({"k": [1, 2], "l": [[1, 2], None], "s": [{"a": "x"}, {"a": None}]})
    right = pa.table({"k": [2, 1], "t": ["long " * 40, None]})
    run = run_local(NestedLoopJoin(("k",)), {"left": left, "right": right}, "8KB", spill_dir=tmp_path)
    assert run.table().sort_by("k").to_pylist() == [
        {"k": 1, "l": [1, 2], "s": {"a": "x"}, "t": None},
        {"k": 2, "l": None, "s": {"a": None}, "t": "long " * 40},
    ]


def test_a_row_that_no_budget_part_can_hold_is_told() -> None:
    left = pa.table({"k": [1], "t": ["x" * 5000]})
    with pytest.raises(BudgetExceeded, match="give the join more memory"):
        answer(NestedLoopJoin(("k",)), left, left.rename_columns(["k", "u"]), "4KB")


def test_one_line() -> None:
    spec = NestedLoopJoin(("k", ("a", "b")), BEFORE, "left")
    assert spec.explain() == "NestedLoopJoin: how=left, on=k, a=b, where=x < y"
    assert NestedLoopJoin(predicate=BEFORE).explain() == "NestedLoopJoin: how=inner, on=none, where=x < y"


def test_wrong_requests() -> None:
    with pytest.raises(PlanError, match="unknown how='outer'"):
        NestedLoopJoin(("k",), how="outer")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(PlanError, match="neither was given"):
        NestedLoopJoin()
    table = pa.table({"k": [1], "l": [[1]], "t": ["x"]})
    wrong = {
        "left input has no column": NestedLoopJoin((("z", "k"),)),
        "right input has no column": NestedLoopJoin((("k", "z"),)),
        "cast one of them": NestedLoopJoin((("k", "t"),)),
        "cannot be compared": NestedLoopJoin(("l",)),
        "choose other suffixes": NestedLoopJoin(("k",), suffixes=("", "")),
        "right input has no column.*'y'": NestedLoopJoin(("k",), Predicate(BEFORE.test, ("k",), ("y",))),
    }
    for message, spec in wrong.items():
        with pytest.raises(PlanError, match=message):
            answer(spec, table, table)
    twice = pa.table([[1], [2]], names=["k", "k"])
    with pytest.raises(PlanError, match="more than once"):
        answer(NestedLoopJoin(("k",)), twice, twice)


def test_stopping_early_frees_everything(tmp_path: Path) -> None:
    table = rows(3, 200, "a", "x")
    budget = MemoryBudget("6KB")
    spec = NestedLoopJoin(("a",))
    with closing(run_local(spec, {"left": table, "right": table}, budget, spill_dir=tmp_path)) as run:
        next(run)
        assert budget.used > 0
        assert list(tmp_path.iterdir())
    assert budget.used == 0
    assert list(tmp_path.iterdir()) == []
