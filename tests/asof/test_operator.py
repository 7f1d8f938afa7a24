"""The as-of join without Spark: what it means, every direction, ties, nulls, and the smallest budgets."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracle

from dovetail.engine.host import Schedule, run_local
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.asof.operator import AsofJoin

LEFT = pa.schema([("k", pa.string()), ("t", pa.int64()), ("l", pa.int64())])
RIGHT = pa.schema([("rk", pa.string()), ("rt", pa.int64()), ("r", pa.int64())])
SPEC = AsofJoin(on=("t", "rt"), by=(("k", "rk"),))


def table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def run(spec: AsofJoin, left: pa.Table, right: pa.Table, budget: int = 1 << 20, batch: int = 7, seed: int = 0) -> Any:
    inputs = {"left": left.to_batches(batch), "right": right.to_batches(batch)}
    schemas = {"left": left.schema, "right": right.schema}
    return run_local(spec, inputs, budget, Schedule(seed=seed), schemas=schemas)


def answer(spec: AsofJoin, left: pa.Table, right: pa.Table, **how: Any) -> Any:
    found = run(spec, left, right, **how).table()
    return oracle.bag(tuple(row.values()) for row in found.to_pylist())


def expected(spec: AsofJoin, left: pa.Table, right: pa.Table) -> Any:
    pairs = oracle.asof_join(
        left.to_pylist(),
        right.to_pylist(),
        on=spec.on,
        by=spec.by,
        direction=spec.direction,
        tolerance=spec.tolerance,
        allow_exact=spec.allow_exact,
        how=spec.how,
        prefer=(lambda row: tuple(row[c] for c in spec.tie_order)) if spec.tie_order else None,
        last=spec.tie != "first",
    )
    return oracle.bag(oracle.flat(pairs, left.column_names, right.column_names))


def test_the_last_quote_before_each_trade() -> None:
    trades = table([("A", 10, 1), ("A", 15, 2), ("B", 10, 3), ("B", 1, 4)], LEFT)
    quotes = table([("A", 9, 90), ("A", 10, 91), ("A", 14, 92), ("B", 9, 93)], RIGHT)
    found = run(SPEC, trades, quotes).table()
    assert sorted(zip(found["l"].to_pylist(), found["r"].to_pylist(), strict=True)) == [(1, 91), (2, 92), (3, 93)]


def test_explain_says_all_in_one_line() -> None:
    spec = AsofJoin(("t", "rt"), (("k", "k"),), "nearest", 5, False, "last", ("r",), "left")
    assert spec.explain() == (
        "AsofJoin: nearest on t=rt, keys=k, tolerance=5, no exact matches, ties=last by r, how=left"
    )


def test_of_equally_near_rows_the_earlier_one_is_nearest() -> None:
    spec = AsofJoin(on=("t", "rt"), direction="nearest")
    found = run(spec, table([("a", 5, 0)], LEFT), table([("a", 3, 1), ("a", 7, 2)], RIGHT)).table()
    assert found["r"].to_pylist() == [1]


@pytest.mark.parametrize("tie", ["first", "last"])
def test_ties_are_decided_by_the_order_columns_nulls_first(tie: str) -> None:
    schema = pa.schema([("rk", pa.string()), ("rt", pa.int64()), ("r", pa.float64())])
    quotes = table([("A", 5, 2.0), ("A", 5, None), ("A", 5, float("nan")), ("A", 5, -1.0)], schema)
    spec = AsofJoin(("t", "rt"), (("k", "rk"),), tie=tie, tie_order=("r",))  # type: ignore[arg-type]  # checked words
    [found] = run(spec, table([("A", 9, 0)], LEFT), quotes).table()["r"].to_pylist()
    assert found is None if tie == "first" else found != found


def test_any_is_the_same_row_in_whatever_order_rows_come() -> None:
    rows = [("A", 5, n) for n in range(40)]
    answers = set()
    for seed in range(8):
        Random(seed).shuffle(rows)  # noqa: S311  (repeatable, no secrets)
        found = run(SPEC, table([("A", 9, 0)], LEFT), table(rows, RIGHT), batch=3, seed=seed).table()
        answers.add(tuple(found["r"].to_pylist()))
    assert len(answers) == 1


@pytest.mark.parametrize("how", ["inner", "left"])
def test_nulls_match_nothing_and_are_kept_by_a_left_join(how: str) -> None:
    left = table([(None, 5, 1), ("A", None, 2), ("A", 5, 3), ("B", 5, 4)], LEFT)
    right = table([(None, 4, 1), ("A", None, 2), ("A", 4, 3)], RIGHT)
    spec = AsofJoin(("t", "rt"), (("k", "rk"),), how=how)  # type: ignore[arg-type]  # checked words
    assert answer(spec, left, right) == expected(spec, left, right)


@pytest.mark.parametrize(
    ("kind", "values", "tolerance"),
    [
        (pa.float64(), [-1e300, -1.5, -0.0, 0.0, 2.5, 1e300, float("nan"), None], 3.0),
        (pa.float32(), [-1.5, 0.0, 0.25, 2.5, float("inf"), float("-inf")], 0.5),
        (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1], 2**63),
        (pa.int8(), [-128, -1, 0, 127], 1),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 1, 1), dt.date(2024, 1, 3)], 2),
        (
            pa.timestamp("us", "UTC"),
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)],
            5,
        ),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.01"), Decimal("3.00")], 150),
    ],
)
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_every_type_of_time(kind: pa.DataType, values: list[Any], tolerance: float, direction: str) -> None:
    left = pa.table({"t": pa.array(values, kind), "l": list(range(len(values)))})
    right = pa.table({"rt": pa.array(values[::2], kind), "r": list(range(len(values[::2])))})
    spec = AsofJoin(("t", "rt"), direction=direction, allow_exact=False, how="left")  # type: ignore[arg-type]
    assert answer(spec, left, right) == expected(spec, left, right)
    units = {"date": dt.timedelta(days=1), "time": dt.timedelta(microseconds=1), "deci": Decimal("0.01")}
    one = units.get(str(kind)[:4], 1)
    near = AsofJoin(("t", "rt"), direction=direction, tolerance=tolerance, how="left")  # type: ignore[arg-type]
    pairs = oracle.asof_join(
        left.to_pylist(), right.to_pylist(), on=near.on, direction=direction, tolerance=tolerance * one, how="left"
    )
    assert answer(near, left, right) == oracle.bag(oracle.flat(pairs, left.column_names, right.column_names))


rows_of = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "", None]), st.one_of(st.none(), st.integers(-9, 9)), st.integers(0, 3)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    left=rows_of,
    right=rows_of,
    direction=st.sampled_from(["backward", "forward", "nearest"]),
    tolerance=st.sampled_from([None, 0, 1, 4]),
    exact=st.booleans(),
    tie=st.sampled_from(["any", "first", "last"]),
    how=st.sampled_from(["inner", "left"]),
    keyed=st.booleans(),
    budget=st.sampled_from([1 << 20, 30_000, 12_000]),
    batch=st.sampled_from([1, 2, 7, 50]),
)
def test_random_rows(
    left: Any,
    right: Any,
    direction: Any,
    tolerance: Any,
    exact: bool,
    tie: Any,
    how: Any,
    keyed: bool,
    budget: int,
    batch: int,
) -> None:
    spec = AsofJoin(
        on=("t", "rt"),
        by=(("k", "rk"),) if keyed else (),
        direction=direction,
        tolerance=tolerance,
        allow_exact=exact,
        tie=tie,
        tie_order=() if tie == "any" else ("r", "rk"),
        how=how,
    )
    one, other = table(left, LEFT), table([(key or "", *rest) for key, *rest in right], RIGHT)
    ran = run(spec, one, other, budget, batch, seed=len(left))
    rows, wanted = [tuple(row.values()) for row in ran.table().to_pylist()], expected(spec, one, other)
    if tie == "any":  # which row of a tie it is, is free
        assert oracle.bag((*row[:3], row[4]) for row in rows) == oracle.bag(
            (*row[:3], row[4]) for row in wanted.elements()
        )
        assert {row[3:] for row in rows} <= {tuple(row.values()) for row in other.to_pylist()} | {(None, None, None)}
    else:
        assert oracle.bag(rows) == wanted
    assert ran.budget.peak <= budget


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize(("keys", "times"), [(1, 10**6), (3, 300), (2000, 10**6), (1, 3)])
@pytest.mark.parametrize("budget", [40_000, 100_000, 4 << 20])
def test_rows_that_do_not_fit_are_joined_piece_by_piece(direction: str, keys: int, times: int, budget: int) -> None:
    rng = Random(7)  # noqa: S311  (repeatable, no secrets)
    left, right = (
        table([(f"key {rng.randrange(keys)}", rng.randrange(times), n) for n in range(1500)], schema)
        for schema in (LEFT, RIGHT)
    )
    spec = AsofJoin(("t", "rt"), (("k", "rk"),), direction, how="left", tie="last", tie_order=("r",))  # type: ignore[arg-type]
    ran = run(spec, left, right, budget, batch=500)
    rows = oracle.bag(tuple(row.values()) for row in ran.table().to_pylist())
    assert rows == _by_sorting(spec, left, right)
    assert ran.budget.peak <= budget
    if budget < 1 << 20:
        assert ran.metrics.value("bytes_written", "right") > 0


def _by_sorting(spec: AsofJoin, left: pa.Table, right: pa.Table) -> Any:
    """The oracle for many rows: per key a sorted list, searched."""
    import bisect

    best: dict[Any, dict[int, Any]] = {}
    for row in right.to_pylist():
        at = best.setdefault(row["rk"], {})
        if row["rt"] not in at or row["r"] > at[row["rt"]]["r"]:
            at[row["rt"]] = row
    times = {key: sorted(at) for key, at in best.items()}
    found = []
    for row in left.to_pylist():
        own = times.get(row["k"], [])
        before, after = bisect.bisect_right(own, row["t"]) - 1, bisect.bisect_left(own, row["t"])
        one = own[before] if before >= 0 and spec.direction != "forward" else None
        two = own[after] if after < len(own) and spec.direction != "backward" else None
        if one is not None and two is not None:
            one = one if row["t"] - one <= two - row["t"] else two
        time = one if one is not None else two
        match = best[row["k"]][time] if time is not None else dict.fromkeys(RIGHT.names)
        found.append((*row.values(), *match.values()))
    return oracle.bag(found)


def test_a_row_that_no_budget_of_this_size_holds_is_refused() -> None:
    left = table([("A", 5, 1)], LEFT)
    right = pa.table({"rk": ["A"], "rt": [1], "r": ["x" * 100_000]})
    with pytest.raises(BudgetExceeded, match="give the join more memory"):
        run(SPEC, left, right, 50_000).table()


def test_columns_that_are_not_there_or_differ_in_type_are_refused() -> None:
    left, right = table([], LEFT), table([], RIGHT)
    with pytest.raises(PlanError, match="left input has no column"):
        run(AsofJoin(("x", "rt")), left, right)
    with pytest.raises(PlanError, match="cast one of them") as caught:
        run(AsofJoin(("t", "rk")), left, right)
    assert caught.value.argument == "on"
