"""Key codes: equal exactly where keys are equal, for every type, across batches, inside the budget."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.keys import KeyEncoder
from dovetail.errors import BudgetExceeded, PlanError
from oracle import same

NAN = float("nan")
BY_VALUE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, True]),
    (pa.int8(), [-128, 127, 0, -1]),
    (pa.uint8(), [255, 0, 128]),
    (pa.int16(), [-32768, 5]),
    (pa.uint32(), [2**32 - 1, 0]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0, 2**53 + 1, 2**53]),
    (pa.uint64(), [2**64 - 1, 2**63, 0]),
    (pa.float16(), [np.float16(1.5), np.float16(-0.0), np.float16(0.0)]),
    (pa.float32(), [0.1, -0.0, 0.0, NAN, -NAN, float("inf")]),
    (pa.float64(), [0.1, -0.0, 0.0, NAN, -NAN, 1e300, 5e-324]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    (pa.date64(), [date(1970, 1, 1), date(1969, 12, 31)]),
    (pa.time64("us"), [time(1, 2, 3), time(23, 59)]),
    (pa.timestamp("us"), [datetime(2020, 1, 1), datetime(1900, 1, 1, 1, 1, 1, 7)]),
    (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1), datetime(2020, 1, 2)]),
    (pa.duration("us"), [timedelta(seconds=-5), timedelta(microseconds=1)]),
    (pa.decimal32(9, 2), [Decimal("9999999.99"), Decimal("-0.01")]),
    (pa.decimal64(18, 4), [Decimal("1.5"), Decimal("-1.5")]),
    (pa.decimal128(18, 2), [Decimal("-9999999999999999.99"), Decimal("0.01"), Decimal("-0.01")]),
]
BY_SIGHT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.decimal128(38, 2), [Decimal("1") * 10**30, Decimal("-0.01"), Decimal("0.01"), Decimal("1") * 10**30 + 1]),
    (pa.decimal256(60, 0), [Decimal(10) ** 50, Decimal(-1), Decimal(10) ** 50 + 1]),
    (pa.string(), ["", "a", "b", "ä", "a" * 100, "a\x00"]),
    (pa.large_string(), ["", "a", "ab"]),
    (pa.string_view(), ["", "short", "a long one, longer than twelve"]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00"]),
    (pa.large_binary(), [b"", b"\xff"]),
    (pa.binary_view(), [b"", b"\xff", b"x" * 30]),
    (pa.binary(3), [b"abc", b"abd"]),
    (pa.dictionary(pa.int8(), pa.string()), ["red", "green", "blue"]),
    (pa.dictionary(pa.int32(), pa.int64()), [7, -7]),
]


def column(values: list[Any], kind: pa.DataType, seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    chosen = [None if p < 0.2 else values[int(p * 1000) % len(values)] for p in rng.random(33)]
    if pa.types.is_dictionary(kind):
        return pa.array(chosen, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(chosen, kind)


def check(columns: list[list[pa.Array]], encoder: KeyEncoder) -> None:
    """Encode batch after batch, each a list of columns; codes must be equal exactly where the rows are."""
    rows = [row for batch in columns for row in zip(*[c.to_pylist() for c in batch], strict=True)]
    encoded = [encoder.encode(batch) for batch in columns]
    codes, valid = np.concatenate([c for c, _ in encoded]), np.concatenate([v for _, v in encoded])
    assert valid.tolist() == [all(value is not None for value in row) for row in rows]
    assert codes.dtype == np.int64
    assert set(codes[~valid].tolist()) <= {0}
    for (i, a), (j, b) in product(enumerate(rows), enumerate(rows)):
        if valid[i] and valid[j]:
            assert (codes[i] == codes[j]) == all(same(x, y) for x, y in zip(a, b, strict=True)), (a, b)


@pytest.mark.parametrize(
    ("kind", "values"), BY_VALUE + BY_SIGHT, ids=lambda p: str(p) if isinstance(p, pa.DataType) else ""
)
def test_codes_of_one_column(kind: pa.DataType, values: list[Any]) -> None:
    encoder = KeyEncoder([kind])
    first, second = column(values, kind, 1), column(values, kind, 2)
    check([[first], [second.slice(3, 20)], [first.slice(9)], [first.slice(0, 0)]], encoder)
    assert encoder.stable == ((kind, values) in BY_VALUE)


@pytest.mark.parametrize(("kind", "values"), BY_VALUE, ids=lambda p: str(p) if isinstance(p, pa.DataType) else "")
def test_codes_by_value_do_not_depend_on_the_encoder(kind: pa.DataType, values: list[Any]) -> None:
    keys = column(values, kind, 3)
    ahead = KeyEncoder([kind])
    ahead.encode([keys[::-1]])
    assert ahead.encode([keys])[0].tolist() == KeyEncoder([kind]).encode([keys])[0].tolist()
    assert ahead.nbytes == 0


@pytest.mark.parametrize("seed", range(12))
def test_codes_of_several_columns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [(BY_VALUE + BY_SIGHT)[i] for i in rng.integers(0, len(BY_VALUE) + len(BY_SIGHT), rng.integers(2, 5))]
    encoder = KeyEncoder([kind for kind, _ in parts])
    check(
        [[column(values, kind, seed * 10 + b + i) for i, (kind, values) in enumerate(parts)] for b in range(3)], encoder
    )
    assert not encoder.stable


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(-2, 2)), max_size=25))
def test_any_text_and_number(rows: list[tuple[str | None, int | None]]) -> None:
    columns = [pa.array([a for a, _ in rows], pa.string()), pa.array([b for _, b in rows], pa.int32())]
    check([columns], KeyEncoder([pa.string(), pa.int32()]))


def test_pairs_are_not_confused_with_their_concatenation() -> None:
    encoder = KeyEncoder([pa.string(), pa.string()])
    codes, _ = encoder.encode([pa.array(["a", "ab", "", "abc"]), pa.array(["bc", "c", "abc", ""])])
    assert len(set(codes.tolist())) == 4


def test_finding_remembers_nothing() -> None:
    encoder = KeyEncoder([pa.string(), pa.int64()])
    encoder.encode([pa.array(["a", "b"]), pa.array([1, 2])])
    held = encoder.nbytes
    codes, valid = encoder.find([pa.array(["b", "a", "z", None]), pa.array([2, 2, 1, 1])])
    assert valid.tolist() == [True, False, False, False]
    assert codes.tolist() == [1, 0, 0, 0]
    assert encoder.nbytes == held


def test_chunked_columns_and_null_columns() -> None:
    encoder = KeyEncoder([pa.null(), pa.int64()])
    codes, valid = encoder.encode([pa.nulls(3), pa.chunked_array([[1], [2, 3]])])
    assert (codes.tolist(), valid.tolist()) == ([0, 0, 0], [False, False, False])


def test_memory_is_charged_as_it_is_held() -> None:
    budget = MemoryBudget("10MB")
    encoder = KeyEncoder([pa.string()], budget.reserve("keys"))
    for start in range(0, 20_000, 1000):
        encoder.encode([pa.array([f"key {n}" for n in range(start, start + 1000)])])
        assert budget.used == encoder.nbytes
    assert 20_000 * 20 < budget.used < budget.peak <= 20_000 * 200
    before = budget.used
    encoder.encode([pa.array([f"key {n}" for n in range(20_000)])])
    assert budget.used == before, "values seen before take no more memory"
    encoder.close()
    assert budget.used == 0


def test_values_seen_before_fit_a_budget_that_new_ones_do_not() -> None:
    budget = MemoryBudget("16KB")
    encoder = KeyEncoder([pa.string()], budget.reserve("keys"))
    known = [f"key {n}" for n in range(60)]
    codes, _ = encoder.encode([pa.array(known)])
    again, _ = encoder.encode([pa.array(known * 100)])
    assert again.tolist() == codes.tolist() * 100
    with pytest.raises(BudgetExceeded, match="'keys'"):
        encoder.encode([pa.array([f"new {n}" for n in range(5000)])])
    assert budget.used == encoder.nbytes
    assert budget.peak <= budget.limit
    assert encoder.find([pa.array(known)])[0].tolist() == codes.tolist()


def test_wrong_keys() -> None:
    with pytest.raises(PlanError, match="at least one column"):
        KeyEncoder([])
    for kind in (pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.month_day_nano_interval()):
        with pytest.raises(PlanError, match="cannot be a join key"):
            KeyEncoder([kind])
    with pytest.raises(PlanError, match=r"\['string'\]; this encoder is for \['int64'\]"):
        KeyEncoder([pa.int64()]).encode([pa.array(["x"])])
