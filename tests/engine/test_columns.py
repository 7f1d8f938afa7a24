"""Rows by number out of columns of every type, compared with plain Python lists."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.rows.columns import held_bytes, take_columns, taken_bytes
from dovetail.errors import UnsupportedError

N = 40


def some(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values again and again to N rows, every fifth a null."""
    return pa.array([None if i % 5 == 3 else values[i % len(values)] for i in range(N)], kind)


COLUMNS: dict[str, pa.Array] = {
    "int8": some([1, -1, 127], pa.int8()),
    "int16": some([1, -300], pa.int16()),
    "int32": some([1, -70_000], pa.int32()),
    "int64": some([2**62 + 1, -1, 5, 2**53 + 1, -(2**63)], pa.int64()),
    "no nulls": pa.array(range(N)),
    "uint64": some([2**64 - 1, 0], pa.uint64()),
    "half": pa.array(np.arange(N, dtype=np.float16)),
    "float": some([1.5, -0.0], pa.float32()),
    "double": some([1.5, float("inf")], pa.float64()),
    "date": some([date(2020, 1, 1), date(1950, 2, 3)], pa.date32()),
    "timestamp": some([datetime(2020, 1, 1, 5), datetime(1950, 2, 3)], pa.timestamp("us")),
    "zoned": some([datetime(2020, 1, 1, 5)], pa.timestamp("us", "UTC")),
    "duration": some([timedelta(seconds=5)], pa.duration("us")),
    "decimal": some([Decimal("1.25"), Decimal("-9.50")], pa.decimal128(38, 2)),
    "decimal256": some([Decimal("1.25"), Decimal("-9.50")], pa.decimal256(50, 2)),
    "fixed binary": some([b"abc", b"xyz"], pa.binary(3)),
    "bool": some([True, False, False], pa.bool_()),
    "string": some(["", "a", "länger", "x" * 50], pa.string()),
    "large string": some(["", "a", "x" * 50], pa.large_string()),
    "binary": some([b"", b"\x00\x01", b"q" * 20], pa.binary()),
    "large binary": some([b"", b"\x00\x01"], pa.large_binary()),
    "null": pa.nulls(N),
    "list": some([[], [1], [None, 2, 3]], pa.list_(pa.int16())),
    "large list": some([[], ["a", None], ["bb"]], pa.large_list(pa.string())),
    "list of lists": some([[[1], []], [], [None, [2, 3]]], pa.list_(pa.list_(pa.int64()))),
    "fixed list": some([[1, 2], [3, None]], pa.list_(pa.int8(), 2)),
    "map": some([[("a", 1)], [], [("b", None), ("c", 3)]], pa.map_(pa.string(), pa.int32())),
    "struct": some(
        [{"x": 1, "y": ["p"]}, {"x": None, "y": None}], pa.struct({"x": pa.int8(), "y": pa.list_(pa.string())})
    ),
    "dictionary": some(["red", "green"], pa.string()).dictionary_encode(),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), some([b"0123456789abcdef"], pa.binary(16))),
    "string view": some(["", "short", "rather longer than twelve"], pa.string_view()),
    "binary view": some([b"", b"short", b"rather longer than twelve"], pa.binary_view()),
    "empty binary": some([b""], pa.binary(0)),
}


def picks(rng: np.random.Generator, n: int) -> list[np.ndarray[Any, Any]]:
    return [
        rng.integers(-1, n, 60),
        rng.integers(0, n, 7),
        np.arange(n),
        np.arange(n // 3, n // 2),
        np.full(9, -1),
        np.empty(0, np.int64),
        np.array([n - 1]),
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_by_number(name: str) -> None:
    rng = np.random.default_rng(7)
    for start, length in ((0, N), (3, 30), (17, 9), (5, 8)):
        column = COLUMNS[name].slice(start, length)
        batch, plain = pa.record_batch({"c": column}), column.to_pylist()
        for rows in picks(rng, length):
            got = take_columns(batch, rows)
            got.validate(full=True)
            assert got.column("c").type == column.type
            assert got.column("c").to_pylist() == [None if i < 0 else plain[i] for i in rows]
            assert taken_bytes(batch, rows) + 64 >= held_bytes(got) or name == "dictionary"


def test_a_whole_batch_keeps_its_schema_and_owns_its_memory() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())], {"made": "here"})
    batch = pa.record_batch([pa.array(range(1000)), pa.array(["text"] * 1000)], schema=schema)
    got = take_columns(batch, np.array([5, 6]))
    assert got.schema.equals(schema, check_metadata=True)
    assert held_bytes(got) < 64
    missing = take_columns(batch, np.array([5, -1]))
    assert missing.schema.field("a").nullable
    assert missing.to_pydict() == {"a": [5, None], "b": ["text", None]}


def test_tables_of_several_chunks() -> None:
    table = pa.concat_tables([pa.table({"n": [1, 2]}), pa.table({"n": [3]}), pa.table({"n": pa.array([], pa.int64())})])
    assert take_columns(table, np.array([2, 0, -1])).to_pydict() == {"n": [3, 1, None]}
    assert take_columns(table.slice(0, 0), np.array([-1])).to_pydict() == {"n": [None]}


def test_no_rows_and_no_columns() -> None:
    for column in COLUMNS.values():
        empty = pa.record_batch({"c": column.slice(0, 0)})
        assert take_columns(empty, np.array([-1, -1])).column("c").to_pylist() == [None, None]
        assert take_columns(empty, np.empty(0, np.int64)).num_rows == 0
    bare = pa.record_batch({"n": [1, 2, 3]}).select([])
    assert take_columns(bare, np.array([0, 2])).num_rows == 2


@pytest.mark.parametrize("rows", [[N], [-2], [0, N + 5]])
@pytest.mark.parametrize("name", ["int64", "null", "string", "list", "struct", "dictionary", "string view"])
def test_rows_that_are_not_there(name: str, rows: list[int]) -> None:
    with pytest.raises(IndexError):
        take_columns(pa.record_batch({"c": COLUMNS[name]}), np.array(rows))


def test_types_that_cannot_be_picked_say_so() -> None:
    batch = pa.record_batch({"c": pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None])})
    for function in (take_columns, taken_bytes):
        with pytest.raises(UnsupportedError, match="cast the column"):
            function(batch, np.array([0]))


def test_too_much_text_for_narrow_offsets() -> None:
    batch = pa.record_batch({"t": ["x" * 2**20]})
    with pytest.raises(OverflowError, match="take fewer rows"):
        take_columns(batch, np.zeros(2048, np.int64))
    assert taken_bytes(batch, np.zeros(2048, np.int64)) > 2**31
