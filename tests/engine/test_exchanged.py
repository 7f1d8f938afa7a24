"""Rows of both sides of a join in one stream of batches: each side apart, and the memory of the batch in hand."""

from __future__ import annotations

import pyarrow as pa

from dovetail.engine.exchange.delivery import LEFT, RIGHT, SIDE, RowDelivery
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics


def batch(sides: list[int]) -> pa.RecordBatch:
    fields = [pa.field(SIDE, pa.int8()), pa.field("p0", pa.int64(), nullable=False), pa.field("p1", pa.string())]
    rows = {SIDE: sides, "p0": list(range(len(sides))), "p1": [None if side else "x" for side in sides]}
    return pa.RecordBatch.from_pydict(rows, schema=pa.schema(fields))


def test_columns_of_both_sides_share_a_place() -> None:
    mixed, budget = batch([LEFT, RIGHT, RIGHT, LEFT]), MemoryBudget(1 << 20)
    delivery = RowDelivery({"id": "p0", "text": "p1"}, {"number": "p0"}, mixed, budget, 0.5)
    found = {side: (rows.to_pylist(), at.tolist()) for side, rows, at in delivery.by_side(mixed)}
    assert found["left"] == ([{"id": 0, "text": "x"}, {"id": 3, "text": "x"}], [0, 3])
    assert found["right"] == ([{"number": 1}, {"number": 2}], [1, 2])
    assert all(field.nullable for schema in delivery.schemas.values() for field in schema)
    assert [side for side, _, _ in delivery.by_side(batch([RIGHT]))] == ["right"]
    metrics = Metrics()
    delivery.record(metrics, budget)
    assert (metrics.value("placed", "left"), metrics.value("placed", "right")) == (2, 3)


def test_a_batch_in_hand_is_counted_up_to_its_share() -> None:
    mixed, budget = batch([LEFT] * 100), MemoryBudget(1_000)
    delivery = RowDelivery({"id": "p0"}, {"number": "p0"}, mixed, budget, 0.25)
    pieces = []
    for piece in delivery.take(mixed, 300):
        pieces.append(piece.num_rows)
        assert budget.used == delivery.room == 250, "the batch itself is larger"
    assert budget.used == 0
    assert sum(pieces) == 100
    assert max(pieces) < 50
    assert [piece.num_rows for piece in delivery.take(mixed)] == [100]
