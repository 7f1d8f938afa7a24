"""Inputs, the brute-force answer, and a runner for the tests of the interval operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.operators import (
    DisjointPartitionJoin,
    ForwardScanJoin,
    Frames,
    OverlapPartitionJoin,
    SortMergeJoin,
    TimeSweepJoin,
)
from dovetail.joins.interval.relation import Relation

STREAMING: list[Any] = [SortMergeJoin, TimeSweepJoin, ForwardScanJoin]
ALGORITHMS: list[Any] = [*STREAMING, DisjointPartitionJoin, OverlapPartitionJoin]
RELATIONS: list[str | tuple[str, ...]] = ["overlapping", "overlaps", "overlapped_by", "covers", "covered_by"]
MORE_RELATIONS: list[str | tuple[str, ...]] = [
    "equals",
    "starts",
    "started_by",
    "ends",
    "ended_by",
    ("starts", "overlaps"),
    ("covers", "covered_by"),
    ("ends", "overlapped_by"),
]
Pairs = list[tuple[int, int]]
Ints = npt.NDArray[np.int64]


def side(start: Any, end: Any, key: Any = None, name: str = "id") -> pa.RecordBatch:
    """Rows in the order that operators expect, with a number and a text of varying length as payload."""
    s, e = np.asarray(start, np.int64), np.asarray(end, np.int64)
    k = np.zeros(s.size, np.int64) if key is None else np.asarray(key, np.int64)
    order = np.lexsort((e, s, k))
    texts = ["t" * (i % 5) if i % 4 else None for i in range(s.size)]
    columns = {"_start": s[order], "_end": e[order], "_key": k[order], name: np.arange(s.size)}
    return pa.record_batch({**columns, f"{name}_text": pa.array(texts, pa.string())})


def random_side(rng: np.random.Generator, n: int, time: int, longest: int, keys: int = 1, name: str = "id") -> Any:
    """Random intervals; small domains make duplicates and touching bounds common."""
    start = rng.integers(0, time, n)
    return side(start, start + rng.integers(1, longest + 1, n), rng.integers(0, keys, n), name)


def steady(time: int, rate: int, duration: int) -> pa.RecordBatch:
    """The deterministic data of the source: `rate` intervals of one duration start at every instant."""
    start = np.repeat(np.arange(time), rate)
    return pa.record_batch({"_start": start, "_end": start + duration})


def expected(
    relation: Relation,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    *,
    keyed: bool = False,
    range_start: int | None = None,
    halves: int = 0,
    shift: int = 0,
) -> Pairs:
    """Every pair of row numbers for which the relation holds, by comparing all of them."""
    a, b, k = (left.column(name).to_numpy()[:, None] for name in ("_start", "_end", "_key"))
    c, d, m = (right.column(name).to_numpy()[None, :] for name in ("_start", "_end", "_key"))
    raw = [a >> halves, (b - shift) >> halves, c >> halves, (d - shift) >> halves]
    ss, se, es, ee = (np.sign(raw[i] - raw[j]) + 1 for i, j in ((0, 2), (0, 3), (1, 2), (1, 3)))
    found = relation.table()[27 * ss + 9 * se + 3 * es + ee]
    if keyed:
        found &= k == m
    if range_start is not None:
        found &= np.maximum(a, c) >= range_start
    return [(int(i), int(j)) for i, j in np.argwhere(found)]


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of `rows` rows."""
    return (batch.slice(i, rows) for i in range(0, batch.num_rows, rows))


def schemas(left: pa.RecordBatch, right: pa.RecordBatch) -> dict[str, pa.Schema]:
    return {"left": left.schema, "right": right.schema}


def pairs_of(batches: Iterator[pa.RecordBatch]) -> Pairs:
    """Left and right row numbers of all answers, sorted, whether they came as pairs or as rows."""
    found: Pairs = []
    for batch in batches:
        names = ("left", "right") if "left" in batch.schema.names else ("l", "r")
        found += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return sorted(found)


def run(
    spec: Any, left: pa.RecordBatch, right: pa.RecordBatch, rows: int = 50, budget: int | str = "8MB"
) -> tuple[Pairs, Metrics]:
    """The answers of a pulled join, with the checks that hold for every run: memory kept, and all of it given back."""
    memory = MemoryBudget(budget)
    with spec.open(memory, schemas(left, right)) as operator:
        found = pairs_of(operator.join(cut(left, rows), cut(right, rows)))
        metrics: Metrics = operator.metrics
    assert memory.used == 0, memory.components()
    assert memory.peak <= memory.limit
    return found, metrics


def tuples(n: int) -> Frames:
    """Memory for exactly n active tuples."""
    return Frames(count=n, frame_bytes=10, tuple_bytes=10)
