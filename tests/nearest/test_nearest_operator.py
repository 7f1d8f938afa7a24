"""The nearest join without Spark: what it means, directions, nulls, ties, and the smallest budgets."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracle

from dovetail.engine.host import Schedule, run_local
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.nearest.operator import NearestJoin

LEFT = pa.schema([("k", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("l", pa.int64())])
RIGHT = pa.schema([("rk", pa.string()), ("rs", pa.int64()), ("re", pa.int64()), ("r", pa.int64())])
BOUNDS = ("start", "end"), ("rs", "re")
WAYS = {
    ("any", False): {},
    ("upstream", False): {"after": False},
    ("downstream", False): {"before": False},
    ("upstream", True): {"after": False, "overlapping": False},
    ("downstream", True): {"before": False, "overlapping": False},
}


def table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def run(
    spec: NearestJoin, left: pa.Table, right: pa.Table, budget: int = 1 << 20, batch: int = 7, seed: int = 0
) -> Any:
    inputs = {"left": left.to_batches(batch), "right": right.to_batches(batch)}
    schemas = {"left": left.schema, "right": right.schema}
    return run_local(spec, inputs, budget, Schedule(seed=seed), schemas=schemas)


def check(found: list[dict[str, Any]], expected: list[Any], k: int, how: str) -> None:
    """Every left row has its k nearest distances, each with a right row that is at this distance, none twice."""
    answers: dict[int, list[tuple[Any, Any]]] = {}
    for row in found:
        answers.setdefault(row["l"], []).append((row["distance"], row["r"]))
    for left, near in expected:
        mine = answers.pop(left["l"], [])
        if not near:
            assert mine == ([(None, None)] if how == "left" else [])
            continue
        assert sorted(d for d, _ in mine) == [d for d, _ in near[:k]]
        assert set(mine) <= {(d, b["r"]) for d, b in near}
        assert len(set(mine)) == len(mine)
    assert answers == {}


def compare(left: pa.Table, right: pa.Table, way: tuple[str, bool], how: str = "inner", **options: Any) -> None:
    k, closed = options.get("k", 1), options.get("closed", ("left", "left"))
    keyed, most = options.get("by", ()), options.get("farthest")
    spec = NearestJoin(*BOUNDS, keyed, k, farthest=most, closed=closed, how=how, **WAYS[way])  # type: ignore[arg-type]
    rest = {name: options[name] for name in ("budget", "batch", "seed") if name in options}
    result = run(spec, left, right, **rest)
    expected = oracle.interval_nearest(
        left.to_pylist(), right.to_pylist(), BOUNDS, keyed, k, way[0], way[1], most, closed
    )
    check(result.table().to_pylist(), expected, k, how)


def test_the_nearest_gene_of_each_peak() -> None:
    peaks = table([("a", 10, 12, 1), ("a", 30, 31, 2), ("b", 0, 5, 3), ("c", 0, 5, 4)], LEFT)
    genes = table([("a", 0, 5, 10), ("a", 11, 40, 11), ("b", 5, 9, 12), ("b", -9, -1, 13)], RIGHT)
    found = run(NearestJoin(*BOUNDS, (("k", "rk"),)), peaks, genes).table()
    rows = sorted(zip(found["l"].to_pylist(), found["r"].to_pylist(), found["distance"].to_pylist(), strict=True))
    assert rows == [(1, 11, 0), (2, 11, 0), (3, 12, 0)]


def test_explain_says_all_in_one_line() -> None:
    spec = NearestJoin(*BOUNDS, (("k", "rk"),), 3, True, False, False, 5, how="left")
    assert spec.explain() == "NearestJoin: k=3 of rows before, keys=k=rk, farthest=5, how=left"


def test_a_specification_that_needs_two_joins_is_refused() -> None:
    with pytest.raises(PlanError, match="two joins"):
        NearestJoin(*BOUNDS, overlapping=False)
    with pytest.raises(PlanError, match="k=0"):
        NearestJoin(*BOUNDS, k=0)


def test_bounds_of_two_types_are_refused() -> None:
    other = pa.schema([("rk", pa.string()), ("rs", pa.int64()), ("re", pa.float64()), ("r", pa.int64())])
    with pytest.raises(PlanError, match="'re' is double"):
        run(NearestJoin(*BOUNDS), table([], LEFT), table([], other))


def test_bounds_at_the_ends_of_their_type_do_not_wrap() -> None:
    least, most = -(2**63), 2**63 - 1
    left = table([("a", most - 1, most, 1), ("a", least, least + 1, 2)], LEFT)
    right = table([("a", least, least + 1, 5)], RIGHT)
    found = run(NearestJoin(*BOUNDS), left, right).table()
    assert sorted(zip(found["l"].to_pylist(), found["distance"].to_pylist(), strict=True)) == [(1, most), (2, 0)]


def test_infinite_bounds() -> None:
    kinds = [(f.name, pa.float64() if f.name in ("start", "end", "rs", "re") else f.type) for f in (*LEFT, *RIGHT)]
    inf = float("inf")
    left = table(
        [("a", -inf, -inf, 0), ("a", -inf, -5.0, 1), ("a", 5.0, inf, 2), ("a", 1.0, 2.0, 3)], pa.schema(kinds[:4])
    )
    right = table([("a", -inf, 0.5, 7), ("a", float("nan"), 0.0, 8)], pa.schema(kinds[4:]))
    found = run(NearestJoin(*BOUNDS), left, right).table()
    rows = sorted(zip(found["l"].to_pylist(), found["distance"].to_pylist(), strict=True))
    assert rows == [(1, 0.0), (2, 4.5), (3, 0.5)]


KEYS = st.sampled_from(["a", "b", None])
BOUND = st.one_of(st.none(), st.integers(-9, 9))
LEFTS = st.lists(st.tuples(KEYS, BOUND, BOUND), max_size=12)
CLOSED = st.sampled_from(["left", "right", "both", "neither"])


@given(
    LEFTS, LEFTS, st.sampled_from(list(WAYS)), st.sampled_from(["inner", "left"]), st.integers(1, 4),
    st.tuples(CLOSED, CLOSED), st.booleans(), st.sampled_from([None, 0, 3]), st.sampled_from([1, 2, 7, 50]),
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_random_rows(
    mine: Any, theirs: Any, way: Any, how: str, k: int, closed: Any, keyed: bool, most: Any, batch: int
) -> None:
    left = table([(*row, number) for number, row in enumerate(mine)], LEFT)
    right = table([(*row, number) for number, row in enumerate(theirs)], RIGHT)
    by = (("k", "rk"),) if keyed else ()
    compare(left, right, way, how, k=k, closed=closed, by=by, farthest=most, batch=batch)


@pytest.mark.parametrize("way", list(WAYS), ids=str)
@pytest.mark.parametrize(("keys", "span", "k"), [(1, 2000, 1), (1, 3, 4), (3, 300, 5), (500, 2000, 2)])
def test_rows_that_do_not_fit_are_joined_piece_by_piece(way: Any, keys: int, span: int, k: int) -> None:
    random = Random(f"{way}{keys}{span}{k}")  # noqa: S311  (test data)

    def rows(n: int) -> list[tuple[Any, ...]]:
        return [
            (str(random.randrange(keys)), at := random.randrange(span), at + random.choice((1, 2, span)), number)
            for number in range(n)
        ]

    left, right = table(rows(400), LEFT), table(rows(2500), RIGHT)
    spec = NearestJoin(*BOUNDS, (("k", "rk"),), k, **WAYS[way])
    roomy = run(spec, left, right, 1 << 22, 50).table().to_pylist()
    ran = run(spec, left, right, 60_000, 50, seed=3)
    tight = ran.table().to_pylist()
    assert ran.budget.peak <= 60_000
    assert oracle.bag(map(tuple, map(dict.values, tight))) == oracle.bag(map(tuple, map(dict.values, roomy)))
    expected = oracle.interval_nearest(left.to_pylist(), right.to_pylist(), BOUNDS, (("k", "rk"),), k, *way)
    check(tight, expected, k, "inner")


def test_a_budget_that_cannot_hold_the_matches_of_a_row_is_refused() -> None:
    left, right = table([("a", 0, 1, 0)], LEFT), table([("a", 0, 1, n) for n in range(3000)], RIGHT)
    with pytest.raises(BudgetExceeded, match="more memory"):
        run(NearestJoin(*BOUNDS, k=3000), left, right, 60_000, 50).table()
