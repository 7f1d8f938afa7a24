"""Packets: rows sorted before an exchange and merged behind it, at every size of chunks, packets and batches."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.exchange.delivery import CELL
from dovetail.engine.exchange.packets import FIRST, MergedDelivery, Packing, pack_rows
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics

SCHEMAS = {
    "left": pa.schema([("start", pa.int64()), ("text", pa.string())]),
    "right": pa.schema([("at", pa.int64()), ("value", pa.float64())]),
}
ORDER = {"left": "start", "right": "at"}


def rows_of(rng: random.Random, side: str, n: int, span: int) -> pa.RecordBatch:
    """Rows with nulls among the starts, in any order."""
    starts = [None if rng.random() < 0.05 else rng.randrange(span) for _ in range(n)]
    payload = [str(i) * rng.randrange(5) if side == "left" else i / 2 for i in range(n)]
    cells = pa.array([rng.randrange(2) for _ in range(n)], pa.int32())
    columns = zip(SCHEMAS[side], (starts, payload), strict=True)
    return pa.RecordBatch.from_pydict({field.name: pa.array(v, field.type) for field, v in columns} | {"c": cells})


def packing(side: str, memory: int) -> Packing:
    return Packing(list(SCHEMAS).index(side), "c", ORDER[side], SCHEMAS[side], memory)


def packets(rows: pa.RecordBatch, side: str, memory: int, batch_rows: int) -> list[pa.RecordBatch]:
    batches = (rows.slice(at, batch_rows) for at in range(0, rows.num_rows, batch_rows))
    return list(pack_rows(packing(side, memory), batches))


def exchanged(parts: list[pa.RecordBatch], cell: int, batch_packets: int) -> list[pa.RecordBatch]:
    """The packets of one partition as Spark delivers them: ordered by their first codes."""
    table = pa.Table.from_batches(parts)
    table = table.filter(pa.array(np.asarray(table[CELL]) == cell)).sort_by(FIRST)
    return list(table.combine_chunks().to_batches(max_chunksize=batch_packets))


def delivered(batches: list[pa.RecordBatch], memory: int) -> tuple[dict[str, list[Any]], MergedDelivery, int]:
    budget = MemoryBudget(memory)
    delivery = MergedDelivery(SCHEMAS, ORDER, batches[0], budget, 0.5)
    found: dict[str, list[Any]] = {"left": [], "right": []}
    for batch in batches:
        for side, rows in delivery.take_sorted(batch):
            found[side] += rows.to_pylist()
    spilled = sum(file.rows for files in delivery._runs.values() for file in files)
    for side, rows in delivery.finish_sorted():
        found[side] += rows.to_pylist()
    delivery.close()
    return found, delivery, spilled


@pytest.mark.parametrize("batch_packets", [1, 3, 10_000])
@pytest.mark.parametrize("memory", [4_000, 1 << 20])
@pytest.mark.parametrize("span", [1, 40, 1 << 40])
def test_all_rows_of_a_partition_come_in_order(batch_packets: int, memory: int, span: int) -> None:
    rng = random.Random(f"{batch_packets} {memory} {span}")  # noqa: S311  (test data)
    sides = {side: rows_of(rng, side, rng.choice([0, 30, 400]), span) for side in SCHEMAS}
    sides["left"] = rows_of(rng, "left", 200, span)
    parts = [part for side, rows in sides.items() for part in packets(rows, side, memory, 7)]
    for cell in (0, 1):
        batches = exchanged(parts, cell, batch_packets)
        found, delivery, _ = delivered(batches, memory)
        for side, rows in sides.items():
            wanted = [row for row in rows.to_pylist() if row.pop("c") == cell]
            assert Counter(map(str, found[side])) == Counter(map(str, wanted))
            starts = [row[ORDER[side]] or 0 for row in found[side]]
            assert starts == sorted(starts)
            assert delivery.rows[side] == len(wanted)


def test_rows_that_wait_are_spilled_and_merged() -> None:
    """Few rows a chunk: every packet reaches over all starts, and no row may leave before the last one is there."""
    rng, memory = random.Random(5), 1 << 16  # noqa: S311  (test data)
    rows = {side: rows_of(rng, side, 20_000, 1 << 40) for side in SCHEMAS}
    chunks = ((side, rows[side].slice(at, 4)) for side in SCHEMAS for at in range(0, 20_000, 4))
    parts = [packing(side, 1 << 20).packets(chunk) for side, chunk in chunks]
    found, _, spilled = delivered(exchanged(parts, 0, 4), memory)
    assert spilled > 10_000
    for side in SCHEMAS:
        starts = [row[ORDER[side]] or 0 for row in found[side]]
        assert starts == sorted(starts)
        assert len(starts) == rows[side]["c"].to_pylist().count(0)


def test_the_current_batch_is_charged() -> None:
    rng, memory = random.Random(6), 1 << 20  # noqa: S311  (test data)
    parts = packets(rows_of(rng, "left", 5_000, 1 << 40), "left", memory, 500)
    budget, metrics = MemoryBudget(memory), Metrics()
    batches = exchanged(parts, 0, 1_000)
    delivery = MergedDelivery(SCHEMAS, ORDER, batches[0], budget, 0.5)
    for batch in batches:
        for _ in delivery.take_sorted(batch):
            assert batch.nbytes <= budget.used <= memory // 2
    delivery.close()
    delivery.record(metrics, budget)
    assert budget.used == 0
    assert 0 < metrics.value("memory") <= memory // 2
