"""The order of a micro-batch's rows follows from the rows alone, whatever their types and however they were cut."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.rows.hashes import row_hashes
from dovetail.joins.online.row_pages import in_fixed_order

N = 60
RNG = np.random.default_rng(4)
NUMBERS = [None if n == 7 else int(n) for n in RNG.integers(0, 9, N)]
TEXTS = [None if n is None else "x" * n for n in NUMBERS]
LISTS = [None if n is None else [*range(n), None][:n] for n in NUMBERS]
COLUMNS = {
    "long": pa.array(NUMBERS),
    "double": pa.array([None if n is None else (-0.0 if n == 1 else n / 2) for n in NUMBERS]),
    "boolean": pa.array([None if n is None else n > 4 for n in NUMBERS]),
    "text": pa.array(TEXTS),
    "binary": pa.array([None if t is None else t.encode() for t in TEXTS], pa.binary()),
    "date": pa.array([None if n is None else date(2020, 1, 1 + n) for n in NUMBERS]),
    "decimal": pa.array([None if n is None else Decimal(n) for n in NUMBERS], pa.decimal128(38, 2)),
    "list": pa.array(LISTS, pa.list_(pa.int64())),
    "lists": pa.array([None if n is None else [some, None] for n, some in zip(NUMBERS, LISTS, strict=True)]),
    "map": pa.array([None if n is None else [(n, "v")] for n in NUMBERS], pa.map_(pa.int64(), pa.string())),
    "struct": pa.array([None if n is None else {"a": n, "b": {"c": "y" * n}} for n in NUMBERS]),
    "void": pa.nulls(N),
}


@pytest.mark.parametrize("name", list(COLUMNS))
def test_hashes_of_rows_are_equal_where_rows_are(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS[name]], [name])
    hashes, values = row_hashes(batch), [str(value) for value in COLUMNS[name].to_pylist()]
    assert len(set(zip(hashes.tolist(), values, strict=True))) == len(set(hashes.tolist())) == len(set(values))
    assert row_hashes(batch.slice(11, 30)).tolist() == hashes[11:41].tolist()


def test_what_lies_below_a_null_does_not_count() -> None:
    hidden = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.array([5, 6]).buffers()[1]])
    plain = pa.array([None, 6])
    assert hidden.equals(plain)
    first, second = (row_hashes(pa.RecordBatch.from_arrays([column], ["n"])) for column in (hidden, plain))
    assert first.tolist() == second.tolist()


def test_places_in_a_list_count() -> None:
    lists = pa.array([[1, 2], [2, 1], [1], [1, None], [], [None]])
    assert len(set(row_hashes(pa.RecordBatch.from_arrays([lists], ["l"])).tolist())) == 6


@pytest.mark.parametrize(("most_rows", "most_bytes"), [(1000, 1 << 20), (7, 1 << 20), (1000, 900)])
def test_rows_come_in_one_order_and_cut(most_rows: int, most_bytes: int) -> None:
    whole = pa.RecordBatch.from_pydict(COLUMNS)
    found = [batch.to_pylist() for batch in in_fixed_order([whole], most_rows, most_bytes)]
    assert sorted(str(row) for rows in found for row in rows) == sorted(map(str, whole.to_pylist()))
    assert (len(found) == 1) == (most_rows == 1000 and most_bytes > 900)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        mixed = whole.take(pa.array(rng.permutation(N)))
        edges = [0, *np.sort(rng.integers(0, N, 3)).tolist(), N]
        parts = [mixed.slice(a, b - a) for a, b in pairwise(edges)]
        assert [batch.to_pylist() for batch in in_fixed_order(parts, most_rows, most_bytes)] == found
