"""Bundles: every row reaches its partition once, copies reach theirs, at every size of chunks and budgets."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.exchange.delivery import CELL, ROWS, BundledDelivery, Bundling, InColumn, bundle_rows
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics

SCHEMAS = {
    "left": pa.schema([("id", pa.int64()), ("text", pa.string())]),
    "right": pa.schema([("at", pa.timestamp("us", "UTC")), ("parts", pa.list_(pa.int32())), ("id", pa.int64())]),
}


def rows_of(rng: random.Random, side: str, n: int) -> pa.RecordBatch:
    """Rows with nulls in every column, and texts of any length."""

    def some(value: object) -> object:
        return None if rng.random() < 0.1 else value

    columns = {"id": [some(i) for i in range(n)], "text": [some("x" * rng.randrange(50)) for _ in range(n)]}
    columns |= {"at": [some(i) for i in range(n)], "parts": [some([1] * rng.randrange(4)) for _ in range(n)]}
    arrays = {field.name: pa.array(columns[field.name], field.type) for field in SCHEMAS[side]}
    return pa.RecordBatch.from_pydict(arrays | {"cell": pa.array([rng.randrange(5) for _ in range(n)], pa.int32())})


class _FirstToAll:
    """The first row goes to partitions 7 and 8, too."""

    def copies(self, rows: pa.RecordBatch, cells: I64) -> tuple[I64, I64]:
        return int64s([0, 0]), int64s([7, 8])


def _received(sent: list[pa.RecordBatch], cell: int, memory: int, packed: int) -> dict[str, list[tuple[object, ...]]]:
    table = pa.Table.from_batches(sent)
    own = table.filter(pa.array(np.asarray(table[CELL]) == cell)).combine_chunks()
    found: dict[str, list[tuple[object, ...]]] = {"left": [], "right": []}
    budget, delivery = MemoryBudget(memory), None
    for batch in own.to_batches(max_chunksize=packed):
        delivery = delivery or BundledDelivery(SCHEMAS, batch, budget, 0.25)
        for side, rows in delivery.take(batch):
            assert rows.schema == SCHEMAS[side]
            assert budget.used <= delivery.room <= memory // 4
            found[side] += [tuple(map(str, row.values())) for row in rows.to_pylist()]
    if delivery is not None:
        metrics = Metrics()
        delivery.record(metrics, budget)
        assert metrics.value("placed", "left") == len(found["left"])
        delivery.close()
        assert budget.used == 0
    return found


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
@pytest.mark.parametrize("memory", [1 << 10, 1 << 20])
def test_every_row_arrives_once(batch_rows: int, memory: int) -> None:
    rng = random.Random(batch_rows + memory)  # noqa: S311  (test data)
    given = {side: rows_of(rng, side, 300) for side in SCHEMAS}
    sent = []
    for number, (side, rows) in enumerate(given.items()):
        batches = (rows.slice(at, batch_rows) for at in range(0, rows.num_rows, batch_rows))
        sent += list(bundle_rows(Bundling(number, InColumn("cell"), SCHEMAS[side], memory), batches))
    for cell in range(5):
        found = _received(sent, cell, memory, rng.randrange(1, 9))
        for side, rows in given.items():
            own = rows.filter(pa.array(np.asarray(rows["cell"]) == cell)).select(SCHEMAS[side].names)
            assert Counter(found[side]) == Counter(tuple(map(str, row.values())) for row in own.to_pylist())


def test_copies_go_to_their_partitions() -> None:
    rows = rows_of(random.Random(3), "left", 9)  # noqa: S311  (test data)
    [sent] = bundle_rows(Bundling(0, InColumn("cell"), SCHEMAS["left"], 1 << 20, _FirstToAll()), iter([rows]))
    assert {7, 8} < set(sent[CELL].to_pylist())
    first = tuple(map(str, rows.select(SCHEMAS["left"].names).to_pylist()[0].values()))
    assert [_received([sent], cell, 1 << 20, 3)["left"] for cell in (7, 8)] == [[first], [first]]


def test_rows_in_another_zone_or_width_come_as_the_schema_says() -> None:
    kinds = {"id": pa.int64(), "text": pa.large_string()}
    rows = pa.RecordBatch.from_pydict({"id": [1], "text": pa.array(["a"], kinds["text"]), "cell": pa.array([0])})
    [sent] = bundle_rows(Bundling(0, InColumn("cell"), SCHEMAS["left"], 1 << 20), iter([rows]))
    assert sent[ROWS].type == pa.binary()
    assert _received([sent], 0, 1 << 20, 1)["left"] == [("1", "a")]
