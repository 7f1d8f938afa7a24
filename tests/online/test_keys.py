"""Keys of any type, nulls, NaN, composite keys, hashed keys that meet, and bands on every kind of number."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle

from dovetail.engine.host import Schedule, run_local
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.graph import Band, Predicate, whole_bounds
from dovetail.joins.online.kernels.ranges import float_images, float_ranges, whole_ranges
from dovetail.joins.online.operators.diner import Diner
from dovetail.joins.online.operators.hash_joins import EarlyHashJoin
from dovetail.joins.online.operators.merge_joins import ProgressiveMergeJoin
from dovetail.joins.online.operators.probing_joins import XJoin
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Sizes

SMALL = Sizes(memory_rows=12, block_rows=3, partitions=3)
DAY = dt.date(2026, 3, 1)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, 2, -3, None, 2**63 - 1, -(2**63)],
    pa.uint64(): [0, 1, 2**64 - 1, None],
    pa.int8(): [-128, 127, 0, None],
    pa.bool_(): [True, False, None],
    pa.float64(): [0.0, -0.0, float("nan"), 1.5, None, float("inf")],
    pa.float32(): [0.0, -0.0, float("nan"), 0.5, None],
    pa.string(): ["", "a", "ab", "abc", None],
    pa.large_string(): ["x", "y", None],
    pa.string_view(): ["view", "a long text that does not fit into a view", None],
    pa.binary(): [b"", b"\0", b"\0\0", None],
    pa.binary(3): [b"abc", b"abd", None],
    pa.date32(): [DAY, DAY + dt.timedelta(1), None],
    pa.timestamp("us", "UTC"): [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None],
    pa.decimal128(12, 2): [Decimal("1.25"), Decimal("-3.50"), None],
    pa.decimal128(38, 5): [Decimal("12345678901234567890.12345"), Decimal("1.00000"), None],
    pa.dictionary(pa.int32(), pa.string()): ["red", "green", None],
}


def table_of(kind: pa.DataType, values: list[Any], column: str, rng: np.random.Generator, n: int = 30) -> pa.Table:
    picked = [values[i] for i in rng.integers(0, len(values), n)]
    return pa.table({"k": pa.array(picked, kind), column: pa.array(np.arange(n))})


def pairs(spec: OnlineJoin, left: pa.Table, right: pa.Table, seed: int = 0) -> Any:
    inputs = {"left": left.to_batches(max_chunksize=5), "right": right.to_batches(max_chunksize=4)}
    schemas = {"left": left.schema, "right": right.schema}
    run = run_local(spec, inputs, 1 << 18, Schedule(seed=seed, pause_chance=0.2), schemas=schemas)
    table = run.table()
    return oracle.bag(zip(table.column("a").to_pylist(), table.column("b").to_pylist(), strict=True))


def wanted(left: pa.Table, right: pa.Table, on: Any = (), within: Any = None) -> Any:
    found = oracle.online_join(left.to_pylist(), right.to_pylist(), on, within)
    return oracle.bag((a["a"], b["b"]) for a, b in found if a and b)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
@pytest.mark.parametrize("join", [Diner, XJoin, ProgressiveMergeJoin])
def test_keys_of_every_type_match_as_in_spark(join: type[OnlineJoin], kind: pa.DataType) -> None:
    rng = np.random.default_rng(1)
    left, right = (table_of(kind, VALUES[kind], column, rng) for column in "ab")
    found = pairs(join(on=("k",), sizes=SMALL), left, right)
    assert found == wanted(left, right, [("k", "k")])
    assert found


@pytest.mark.parametrize("join", [Diner, XJoin, EarlyHashJoin])
def test_composite_keys_and_hashes_that_meet_are_checked(join: type[OnlineJoin]) -> None:
    rng = np.random.default_rng(2)
    left, right = (
        table_of(pa.string(), ["a", "b", "c", None], column, rng, 40).append_column(
            "n", pa.array(rng.integers(0, 3, 40))
        )
        for column in "ab"
    )
    for bits in (64, 2, 0):
        spec = join(on=("k", "n"), sizes=SMALL, hash_bits=bits)
        assert pairs(spec, left, right) == wanted(left, right, [("k", "k"), ("n", "n")]), bits


def test_keys_of_different_names_both_appear() -> None:
    left, right = pa.table({"x": [1, 2], "a": [0, 1]}), pa.table({"y": [2, 2], "b": [0, 1]})
    run = run_local(Diner(on=(("x", "y"),)), {"left": left, "right": right}, 1 << 18)
    table = run.table()
    assert table.column_names == ["x", "a", "y", "b"]
    assert table.num_rows == 2


BANDS: list[tuple[pa.DataType, Any, Any, Any]] = [
    (pa.int64(), lambda rng, n: rng.integers(-20, 20, n).tolist(), -3, 1),
    (pa.int64(), lambda rng, n: rng.integers(-20, 20, n).tolist(), 2, 5),
    (pa.int64(), lambda rng, n: rng.choice([2**63 - 1, -(2**63), 0, 5], n).tolist(), -7, 2**63 - 1),
    (pa.uint64(), lambda rng, n: [int(x) for x in rng.choice([0, 1, 7, 2**63, 2**63 + 3], n)], -1, 7),
    (pa.int16(), lambda rng, n: rng.integers(-9, 9, n).tolist(), -1.5, 0.5),
    (pa.float64(), lambda rng, n: np.round(rng.normal(0, 0.3, n), 2).tolist(), -0.05, 0.1),
    (pa.float64(), lambda rng, n: rng.choice([np.nan, np.inf, -np.inf, 0.1, 0.3, 1e300], n).tolist(), -0.2, 0.2),
    (pa.float32(), lambda rng, n: rng.integers(0, 9, n).astype(np.float32).tolist(), -1.0, 0.0),
    (pa.decimal128(9, 2), lambda rng, n: [Decimal(int(x)) / 100 for x in rng.integers(0, 50, n)], Decimal("-0.05"), 0),
    (pa.date32(), lambda rng, n: [DAY + dt.timedelta(int(x)) for x in rng.integers(0, 20, n)], -2, 3),
    (pa.timestamp("ms"), lambda rng, n: [dt.datetime(2026, 1, 1, 0, 0, int(x)) for x in rng.integers(0, 50, n)], -1, 4),
]


@pytest.mark.parametrize(("kind", "values", "lo", "hi"), BANDS, ids=[f"{b[0]}_{b[2]}_{b[3]}" for b in BANDS])
@pytest.mark.parametrize("join", [Diner, ProgressiveMergeJoin])
def test_bands_mean_the_difference_of_the_columns(
    join: type[OnlineJoin], kind: pa.DataType, values: Any, lo: Any, hi: Any
) -> None:
    if pa.types.is_temporal(kind):
        unit = dt.timedelta(days=1) if pa.types.is_date(kind) else dt.timedelta(seconds=1)
        lo, hi = lo * unit, hi * unit
    rng = np.random.default_rng(5)
    columns = [[None, *values(rng, 29)], values(rng, 30)]
    left, right = (
        pa.table({f"{c}_at": pa.array(v, kind), c: pa.array(np.arange(len(v)))})
        for c, v in zip("ab", columns, strict=True)
    )
    within = ("a_at", "b_at", lo, hi)
    assert pairs(join(within=within, sizes=SMALL), left, right) == wanted(left, right, within=within)


def test_equality_and_band_together_for_every_join_that_hashes() -> None:
    rng = np.random.default_rng(6)
    left, right = (
        table_of(pa.string(), ["a", "b", None], c, rng, 40).append_column("t", pa.array(rng.integers(0, 30, 40)))
        for c in "ab"
    )
    for join in (Diner, XJoin, EarlyHashJoin, ProgressiveMergeJoin):
        spec = join(on=("k",), within=("t", "t", -2, 6), sizes=SMALL)
        assert pairs(spec, left, right) == wanted(left, right, [("k", "k")], ("t", "t", -2, 6)), join


def test_ranges_of_doubles_are_exactly_those_of_their_rounded_difference() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=200) * 10.0 ** rng.integers(-20, 20, 200)
    numbers = np.concatenate([numbers, [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 0.1 + 0.2, 5e-324]])
    images = float_images(numbers)
    assert np.array_equal(numbers[np.argsort(images)], np.sort(numbers))
    differences = numbers[None, :] - numbers[:, None]
    for lo, hi in ((-0.05, 0.05), (0.1, 0.2), (-1e15, 1.0), (0.0, 0.0), (-0.1, -0.1)):
        inside = (differences >= lo) & (differences <= hi)
        for own_is_left in (True, False):
            low, high = float_ranges(images, lo, hi, own_is_left)
            found = (images[None, :] >= low[:, None]) & (images[None, :] <= high[:, None])
            assert np.array_equal(found, inside if own_is_left else inside.T)


def test_ranges_of_whole_numbers_end_where_int64_does() -> None:
    keys = np.array([-(2**63), -1, 0, 2**63 - 1])
    low, high = whole_ranges(keys, -5, 5)
    assert low.tolist() == [-(2**63), -6, -5, 2**63 - 6]
    assert high.tolist() == [-(2**63) + 5, 4, 5, 2**63 - 1]
    low, high = whole_ranges(keys, 3, 4)
    assert (low > high).tolist() == [False, False, False, True]


def test_bands_are_checked_when_they_are_made() -> None:
    assert Band.of(("price", 5)) == Band("price", "price", -5, 5)
    assert str(Predicate(("k", ("a", "b")), Band("x", "y", -1, 2))) == "k and a = b and -1 <= y - x <= 2"
    for bad in (
        ("x", "y", 2, 1),
        ("x", "y", 0, float("nan")),
        ("x", "y", True, 2),
        ("x", "y", dt.timedelta(1), 2),
        ("x",),
    ):
        with pytest.raises(PlanError, match=r"band|within"):
            Band.of(bad)
    with pytest.raises(PlanError, match="needs keys"):
        Predicate()
    with pytest.raises(PlanError, match="timedeltas"):
        whole_bounds(Band("x", "y", 1, 2), pa.date32())
    with pytest.raises(PlanError, match="no distance"):
        whole_bounds(Band("x", "y", 1, 2), pa.string())


def test_requests_that_cannot_work_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Diner or ProgressiveMergeJoin"):
        XJoin(within=("x", 1))
    schemas = {"left": pa.schema([("k", pa.int64())]), "right": pa.schema([("k", pa.int32()), ("x", pa.int32())])}
    with pytest.raises(PlanError, match="cast one of them"):
        Diner(on=("k",)).layout(schemas)
    with pytest.raises(PlanError, match=r"left input has no column \['x'\]"):
        Diner(within=("x", 1)).layout(schemas)
    with pytest.raises(PlanError, match="of one type"):
        Diner(within=("k", 1)).layout(schemas)
    with pytest.raises(PlanError, match="cardinality"):
        EarlyHashJoin(on=("k",), cardinality="some")  # type: ignore[arg-type]  # the mistake under test
