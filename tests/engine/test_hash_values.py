"""Hashes and codes that are stored: they decide the buckets of online joins and the pages of keys in page files.

Checkpoints and page files that earlier versions wrote are read only while every value below stays what it is.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.rows.hashes import KeyCodes, row_hashes
from dovetail.joins.online.bucket_rule import bucket_of
from dovetail.joins.online.graph import Predicate, pair_graph
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.semistream.keys import hashes_of, key_form

COLUMNS: dict[str, pa.Array] = {
    "int64": pa.array([0, 7, -3, None, 2**63 - 1, -(2**63)]),
    "uint64": pa.array([0, 7, 2**64 - 1, None], pa.uint64()),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "bool": pa.array([True, False, None]),
    "float64": pa.array([0.0, -0.0, -1.5, float("nan"), None, float("inf")]),
    "float32": pa.array([0.25, -0.25, float("nan"), None], pa.float32()),
    "date": pa.array([dt.date(2026, 3, 1), None, dt.date(1960, 1, 1)]),
    "timestamp": pa.array([dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal("-1.25"), Decimal("3.50"), None], pa.decimal128(12, 2)),
    "wide": pa.array([Decimal("12345678901234567890.12345"), Decimal("-1.00000"), None], pa.decimal128(38, 5)),
    "text": pa.array(["", "a", "ab", "ein längerer Text", None]),
    "large": pa.array(["", "a", "ab", None], pa.large_string()),
    "binary": pa.array([b"", b"\0", b"\0\0", None]),
    "fixed": pa.array([b"abc", b"abd", None], pa.binary(3)),
    "view": pa.array(["view", "a long text that does not fit into a view", None], pa.string_view()),
    "dictionary": pa.array(["red", "green", None, "red"]).dictionary_encode(),
}
NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1, 2], [2, 1], [], None, [None]]),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None]),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "nulls": pa.nulls(2),
}
PAIRED = pa.RecordBatch.from_arrays([pa.array(["a", "a", None, "b"]), pa.array([1, 2, 3, None])], names=["k", "n"])


def batch_of(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], names=["k"])


def known(codes: Any, valid: Any) -> list[Any]:
    """The codes; None where a row matches nothing."""
    return [code if is_valid else None for code, is_valid in zip(codes.tolist(), valid.tolist(), strict=True)]


def online(batch: pa.RecordBatch, null_safe: bool = False, bits: int = 64) -> list[Any]:
    predicate = Predicate(tuple(batch.schema.names), null_safe=null_safe)
    keys = JoinKeys(pair_graph(predicate), {"left": batch.schema, "right": batch.schema}, bits)
    codes, valid = keys.encode(0, batch)
    return known(codes[0], valid)


def looked_up(batch: pa.RecordBatch, null_safe: bool = False, bits: int = 64) -> list[Any]:
    return known(*KeyCodes(batch.schema.types, bits, null_safe=null_safe).encode(batch.columns))


def stored(batch: pa.RecordBatch) -> list[Any]:
    """The codes and the hashes of keys in a page file."""
    normal, valid = key_form(batch.schema, batch.schema.names).normal(batch.columns)
    return [known(normal.codes(), valid), known(hashes_of(normal).values, valid)]


def all_values() -> dict[str, Any]:
    found: dict[str, Any] = {}
    keys = {name: batch_of(array) for name, array in COLUMNS.items()} | {"two columns": PAIRED}
    for name, batch in keys.items():
        found[f"online {name}"] = online(batch)
        found[f"online null-safe {name}"] = online(batch, null_safe=True)
        found[f"online 6 bits {name}"] = online(batch, bits=6)
        found[f"page file {name}"] = stored(batch)
        if name != "dictionary":
            found[f"enrich {name}"] = looked_up(batch)
            found[f"enrich null-safe {name}"] = looked_up(batch, null_safe=True)
            found[f"enrich 6 bits {name}"] = looked_up(batch, bits=6)
    rows = {name: batch for name, batch in keys.items() if name not in ("dictionary", "view")}
    rows |= {name: batch_of(array) for name, array in NESTED.items()}
    return found | {f"rows {name}": row_hashes(batch).tolist() for name, batch in rows.items()}


def test_stored_hashes_are_those_of_earlier_versions() -> None:
    assert all_values() == json.loads(Path(__file__).with_name("hash_values.json").read_text())


def test_buckets_are_those_of_earlier_versions() -> None:
    assert bucket_of(np.array([0, 7, -3, 2**63 - 1, 808248087834046420]), 16).tolist() == [7, 10, 8, 6, 10]
