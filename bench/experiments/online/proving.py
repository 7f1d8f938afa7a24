"""The counts are of joins that are right: operators over the first rows give what the definition says, once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.experiments.online.counting import BUCKETS, TURN, counted, turns
from bench.experiments.online.streams import Streams
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.phases import ARRIVING, PHASE_COLUMN
from dovetail.joins.online.registry import ALGORITHMS, BASELINES
from dovetail.joins.online.sizes import Sizes

_BUDGET = 1 << 22
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "DINER": ("diner", {}),
    "HMJ": ("hmj", {}),
    "HMJ smallest": ("hmj", {"flush": "smallest"}),
    "RPJ 1.0": ("rpj", {"ageing": 1.0}),
    "RPJ 0.9": ("rpj", {"ageing": 0.9}),
    "XJoin": ("xjoin", {}),
    "oldest": ("oldest", {}),
    "EHJ": ("ehj", {}),
    "DPHJ": ("dphj", {}),
    "PMJ": ("pmj", {}),
}
"""How the compared joins are called in the registry, and what they are told."""


def specification(name: str, sizes: Sizes, band: int = 0) -> OnlineJoin:
    """One of the compared joins, on the columns `key` of both sides."""
    kind, options = _OPTIONS[name]
    predicate: dict[str, Any] = {"within": ("key", "key", -band, band)} if band else {"on": ("key",)}
    return (ALGORITHMS | BASELINES)[kind](**predicate, sizes=sizes, with_phase=True, **options)


def numbered(keys: I64, side: str) -> pa.RecordBatch:
    """Rows of one side with these keys: `key`, and a number of its own for each."""
    return pa.record_batch({"key": keys, f"{side}_id": np.arange(len(keys))})


def proved(streams: Streams, names: Iterable[str], rows: int = 600) -> int:
    """Pairs of the first rows that all these joins gave, to the end, exactly once each; DataError where one did not.

    Also compared: what they gave while rows arrived, with what is counted for them. PMJ joins the rest of its memory
    at the end of the input, so of its count nothing is asked here.
    """
    few = streams.first(rows)
    memory, block = max(20, few.rows // 10), max(2, few.rows // 200)
    wanted = _definition(few)
    for name in names:
        spec = specification(name, Sizes(memory_rows=memory, block_rows=block, partitions=BUCKETS), few.band)
        given, online = _run(spec, few)
        if not np.array_equal(np.sort(given), wanted):
            raise DataError(f"{name} over {few.name} gave {len(given)} pairs, not the {len(wanted)} of the definition.")
        if name != "PMJ" and online != (expected := counted(name, few, memory, block).found):
            raise DataError(f"{name} over {few.name} gave {online} pairs while rows came, but {expected} were counted.")
    return len(wanted)


def _definition(streams: Streams) -> I64:
    """Every pair as left number * rows of the right side + right number, ascending."""
    match = np.abs(streams.left[:, None] - streams.right[None, :]) <= streams.band
    return int64s(np.flatnonzero(match.ravel()))


def _run(spec: OnlineJoin, streams: Streams) -> tuple[I64, int]:
    """All pairs of an operator, and how many came while rows arrived."""
    sides = (numbered(streams.left, "left"), numbered(streams.right, "right"))
    schemas = {name: side.schema for name, side in zip(("left", "right"), sides, strict=True)}
    given, online = [], 0
    with spec.open(MemoryBudget(_BUDGET), schemas) as operator:
        for batch in _everything(operator, sides, turns(streams.left, streams.right, TURN)):
            left, right = (batch.column(f"{side}_id").to_numpy() for side in ("left", "right"))
            given.append(left * len(streams.right) + right)
            online += sum(phase == ARRIVING for phase in batch.column(PHASE_COLUMN).to_pylist())
    return int64s(np.concatenate(given or [np.empty(0, np.int64)])), online


def _everything(
    operator: OnlineOperator, sides: tuple[pa.RecordBatch, pa.RecordBatch], chunks: list[tuple[int, I64]]
) -> Iterator[pa.RecordBatch]:
    at = [0, 0]
    for side, keys in chunks:
        yield from operator.push(("left", "right")[side], sides[side].slice(at[side], len(keys)))
        at[side] += len(keys)
    yield from operator.finish()
