"""Keys with a band besides, of every kind of number, in every join: batches of any size, from the least budget up."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.restarts import Restartable
from tests.online.schedules import EVERY

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.graph import Band, opened
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.merge_joins import ProgressiveMergeJoin
from dovetail.joins.online.sizes import Sizes
from dovetail.request import Closed

ROWS = 40
DAY, NOON = dt.date(2026, 3, 1), dt.datetime(2026, 3, 1, 12)
SOME = [0.1, 0.3, 0.25, 0.2, float("nan"), float("inf"), -0.0, 0.0, None]
Values = Callable[[np.random.Generator, int], list[Any]]
BANDS: dict[str, tuple[pa.DataType, Values, Any, Any]] = {
    "int": (pa.int64(), lambda rng, n: rng.integers(-9, 9, n).tolist(), -3, 1),
    "after": (pa.int32(), lambda rng, n: rng.integers(0, 12, n).tolist(), 2, 4),
    "before": (pa.int64(), lambda rng, n: rng.choice([-(2**63), -(2**63) + 3, 0, 2, 2**63 - 1], n).tolist(), -4, -1),
    "unsigned": (pa.uint64(), lambda rng, n: rng.integers(0, 6, n).tolist(), -3, -1),
    "decimal": (
        pa.decimal128(9, 2),
        lambda rng, n: [Decimal(int(x)) / 100 for x in rng.integers(0, 9, n)],
        Decimal("-0.02"),
        0,
    ),
    "double": (pa.float64(), lambda rng, n: [SOME[int(x)] for x in rng.integers(0, len(SOME), n)], -0.1, 0.1),
    "date": (
        pa.date32(),
        lambda rng, n: [DAY + dt.timedelta(int(x)) for x in rng.integers(0, 12, n)],
        dt.timedelta(-2),
        dt.timedelta(1),
    ),
    "time": (
        pa.timestamp("us"),
        lambda rng, n: [NOON + dt.timedelta(seconds=int(x)) for x in rng.integers(0, 20, n)],
        dt.timedelta(seconds=-3),
        dt.timedelta(seconds=5),
    ),
}
ON: dict[str, tuple[str, ...]] = {"number": ("k",), "text": ("s",), "two": ("k", "s")}


def table(column: str, kind: pa.DataType, values: list[Any], rng: np.random.Generator) -> pa.Table:
    """Few keys, equal ones often, nulls in each column."""
    n = len(values)
    missing = rng.random((3, n)) < 0.06
    keys = pa.array(rng.integers(0, 4, n), pa.int64(), mask=missing[0])
    text = pa.array(np.array(["", "a", "b"], object)[rng.integers(0, 3, n)], pa.string(), mask=missing[1])
    at = pa.array([None if gone else value for value, gone in zip(values, missing[2], strict=True)], kind)
    return pa.table({"k": keys, "s": text, "t": at, column: pa.array(np.arange(n))})


def tables_of(name: str, columns: str, seed: int, rows: int = ROWS) -> tuple[list[pa.Table], Any, Any]:
    kind, values, lo, hi = BANDS[name]
    rng = np.random.default_rng([seed, len(name)])
    return [table(column, kind, values(rng, rows), rng) for column in columns], lo, hi


def least_budget(spec: Any, schemas: dict[str, pa.Schema]) -> int:
    with pytest.raises(PlanError, match="the smallest for this join is") as refused:
        spec.open(MemoryBudget(100), schemas)
    return least_told(refused.value)


def least_told(error: PlanError) -> int:
    return int(str(error).split("the smallest for this join is ")[1].split(" bytes")[0])


def with_least(spec: Any, tables: dict[str, pa.Table], step: int, columns: list[str]) -> Counter[Any]:
    """As `driven` in the smallest budget, which may be known only when rows come."""
    least = least_budget(spec, {name: given.schema for name, given in tables.items()})
    try:
        return driven(spec, tables, step, least, columns)
    except PlanError as error:
        return driven(spec, tables, step, least_told(error), columns)


def driven(spec: Any, tables: dict[str, pa.Table], step: int, limit: int, columns: list[str]) -> Counter[Any]:
    """Answers of inputs that come in turn, with pauses, a drain and a restart."""
    schemas, budget = {name: table.schema for name, table in tables.items()}, MemoryBudget(limit)
    join = Restartable(lambda: spec.open(budget, schemas))
    out: list[pa.RecordBatch] = []
    for start in range(0, ROWS, step):
        for name, given in tables.items():
            for piece in given.slice(start, step).combine_chunks().to_batches():
                out += join.push(name, piece)
        out += join.idle(2)
        if start // step == 2:
            out += join.drain()
        if start // step % 9 == 4:
            join.restart()
    out += join.finish()
    assert budget.peak <= budget.limit
    assert budget.used == 0
    return oracle.bag(row for b in out for row in zip(*(b[c].to_pylist() for c in columns), strict=True))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("on", list(ON))
@pytest.mark.parametrize("band", list(BANDS))
@pytest.mark.parametrize("name", list(EVERY))
def test_pairs_of_a_key_and_a_band_are_those_of_the_oracle(name: str, band: str, on: str) -> None:
    (left, right), lo, hi = tables_of(band, "ab", 1)
    pairs = oracle.online_join(left.to_pylist(), right.to_pylist(), [(c, c) for c in ON[on]], ("t", "t", lo, hi))
    want = oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)
    assert want
    for sizes in (Sizes(), Sizes(memory_rows=11, block_rows=3, partitions=3)):
        sizes = Sizes() if name == "shj" else sizes
        spec = EVERY[name](on=ON[on], within=("t", "t", lo, hi), sizes=sizes)
        tables, ids = {"left": left, "right": right}, ["a", "b"]
        assert name == "shj" or all(with_least(spec, tables, step, ids) == want for step in (1, 7))
        for step, limit in ((2, 1 << 15), (50, 1 << 17), (1, 1 << 17)):
            assert driven(spec, tables, step, limit, ids) == want, (step, limit)


TREES = {
    "chain": (("a.{k}", "b.{k}"), ("a.t", "b.t", "lo", "hi"), ("b.{k}", "c.{k}")),
    "two bands": (("a.{k}", "b.{k}"), ("a.t", "b.t", "lo", "hi"), ("c.{k}", "b.{k}"), ("b.t", "c.t", "lo", "hi")),
    "other columns": (("a.{k}", "b.{k}"), ("a.t", "b.u", "lo", "hi"), ("b.{k}", "c.{k}"), ("b.t", "c.t", "lo", "hi")),
    "other keys": (("a.k", "b.k"), ("a.t", "b.t", "lo", "hi"), ("b.s", "c.s"), ("b.t", "c.t", "lo", "hi")),
    "band alone": (("a.k", "b.k"), ("a.t", "b.t", "lo", "hi"), ("b.t", "c.t", "lo", "hi")),
}


def expected(tables: dict[str, pa.Table], on: list[tuple[Any, ...]]) -> Counter[Any]:
    """Nested loops, every predicate asked of the oracle for two inputs."""
    names, found = list(tables), [()]
    rows = {name: given.to_pylist() for name, given in tables.items()}
    for at, name in enumerate(names):
        near: dict[int, Any] = {}
        for term in on:
            (r, x), (q, y) = ((names.index(n), c) for n, c in (end.split(".") for end in term[:2]))
            if max(r, q) == at:
                keys, bands = near.setdefault(min(r, q), ([], []))
                (x, y), sign = ((x, y), 1) if r < q else ((y, x), -1)
                if len(term) == 2:
                    keys.append((x, y))
                else:
                    bands.append((x, y, *((term[2], term[3]) if sign > 0 else (-term[3], -term[2]))))
        found = [
            (*before, row)
            for before in found
            for row in rows[name]
            if all(oracle.online_join([before[r]], [row], k, b[0] if b else None) for r, (k, b) in near.items())
        ]
    return oracle.bag(tuple(row["id"] for row in combination) for combination in found)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("key", ["k", "s"])
@pytest.mark.parametrize("tree", list(TREES))
@pytest.mark.parametrize("band", list(BANDS))
@pytest.mark.parametrize("name", list(MULTIWAY))
def test_combinations_of_keys_and_bands_are_those_of_the_oracle(name: str, band: str, tree: str, key: str) -> None:
    given, lo, hi = tables_of(band, "abc", 2, 24)
    tables = {name: t.rename_columns(["k", "s", "t", "id"]) for name, t in zip("abc", given, strict=True)}
    tables = {name: t.append_column("u", t["t"].take(pa.array(np.arange(24)[::-1]))) for name, t in tables.items()}
    bounds = {"lo": lo, "hi": hi}
    on = [(*(end.format(k=key) for end in term[:2]), *(bounds[b] for b in term[2:])) for term in TREES[tree]]
    want = expected(tables, on)
    for sizes in (Sizes(), Sizes(memory_rows=13, block_rows=3, partitions=2)):
        spec = MULTIWAY[name](inputs=("a", "b", "c"), on=tuple(on), sizes=sizes)
        ids = ["a_id", "b_id", "c_id"]
        assert all(with_least(spec, tables, step, ids) == want for step in (1, 7))
        assert all(driven(spec, tables, step, limit, ids) == want for step, limit in ((2, 1 << 17), (50, 1 << 18)))


@pytest.mark.parametrize("join", [Diner, ProgressiveMergeJoin])
@pytest.mark.parametrize("name", ["before", "unsigned"])
def test_a_row_at_the_end_of_all_numbers_hides_no_other(join: Any, name: str) -> None:
    """Its range is empty; rows after it still match."""
    (left, right), lo, hi = tables_of(name, "ab", 3)
    pairs = oracle.online_join(left.to_pylist(), right.to_pylist(), (), ("t", "t", lo, hi))
    spec = join(within=("t", "t", lo, hi), sizes=Sizes(memory_rows=8, block_rows=3))
    found = driven(spec, {"left": left, "right": right}, 7, 1 << 17, ["a", "b"])
    assert found == oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("closed", get_args(Closed))
def test_an_open_bound_leaves_out_its_own_distance_only(name: str, closed: Closed) -> None:
    kind, values, lo, hi = BANDS[name]
    band, rng = opened(Band("x", "y", lo, hi), kind, closed), np.random.default_rng(3)
    left, right = ([{column: value} for value in values(rng, 60)] for column in "xy")
    open_bounds = oracle.online_join(left, right, (), ("x", "y", lo, hi), closed=closed)
    moved = oracle.online_join(left, right, (), ("x", "y", band.lo, band.hi))
    assert oracle.bag(moved) == oracle.bag(open_bounds)


def test_open_bounds_between_values_and_without_any() -> None:
    assert opened(Band("a", "b", -0.5, 0.5), pa.int64(), "neither") == Band("a", "b", 0, 0)
    seconds = opened(Band("a", "b", dt.timedelta(0), dt.timedelta(days=1)), pa.date32(), "right")
    assert (seconds.lo, seconds.hi) == (dt.timedelta(1), dt.timedelta(1))
    with pytest.raises(PlanError, match="no distance left"):
        opened(Band("a", "b", 0, 1), pa.int64(), "neither")
    with pytest.raises(UnsupportedError, match="cast the column to microseconds"):
        opened(Band("a", "b", dt.timedelta(0), dt.timedelta(1)), pa.timestamp("ns"), "left")
