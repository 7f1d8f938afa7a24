"""Covered lengths from an index of right rows, without Spark: the definition, portions, budgets and long intervals."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests import oracle
from tests.interval.test_cell_join import TYPES, sides, stream

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import DataError
from dovetail.joins.interval.index.answers import Question, RightIndex, answer, answer_cell
from dovetail.joins.interval.relation import Relation, SideColumns


def random_rows(seed: int, n: int, span: int = 60) -> list[dict[str, Any]]:
    rng = Random(seed)  # noqa: S311  (repeatable, no secrets)
    found = []
    for number in range(n):
        start = rng.choice([None, *range(span)]) if rng.random() < 0.1 else rng.randrange(span)
        end = None if start is None else start + rng.randrange(6)
        found.append({"id": number, "k": rng.choice([None, 1, 2]), "j": None, "start": start, "end": end})
    return found


def covered(left: list[Any], right: list[Any], keys: tuple[str, ...], closed: str) -> list[Any]:
    usable = oracle.by_key(right, keys, closed)
    return [
        0
        if oracle.is_empty(row["start"], row["end"], closed)
        else oracle.covered(usable.get(tuple(row[key] for key in keys), []), row["start"], row["end"])
        for row in left
    ]


@pytest.mark.parametrize("closed", oracle.CLOSED)
@pytest.mark.parametrize("keys", [(), ("k",)])
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.float32(), pa.decimal128(9, 2), pa.timestamp("us"), pa.date32()]
)
def test_covered_lengths_equal_the_definition(kind: Any, keys: tuple[str, ...], closed: str) -> None:
    for seed in range(5):
        left, right = random_rows(seed, 40), random_rows(seed + 100, seed * 8)
        tables = [_typed(rows, kind) for rows in (left, right)]
        names = {name: name for name in TYPES}
        columns = SideColumns(names, "start", "end", keys, closed)  # type: ignore[arg-type]
        relation = Relation.parse("overlapping", closed=closed)  # type: ignore[arg-type]
        question = Question("coverage", relation, columns, columns, 1 << 20)
        index = RightIndex(question, tables[1], MemoryBudget(1 << 20, "test"))
        found = [row for batch in answer(question, index, tables[0]) for row in batch.to_pylist()]
        unit = 100 if pa.types.is_decimal(kind) else 1  # lengths of decimals count their last digit
        assert [row["covered"] for row in found] == [n * unit for n in covered(left, right, keys, closed)]
        counts = oracle.count_overlaps(left, right, on=[(key, key) for key in keys], closed=closed)
        assert [row["n_overlaps"] for row in found] == [n for _, n in counts]
        index.close()
        assert index.budget.used == 0


def _typed(rows: list[Any], kind: Any) -> pa.RecordBatch:
    """The rows with bounds of this type, which are small whole numbers."""
    narrow = pa.int8() if pa.types.is_decimal(kind) else pa.int32() if pa.types.is_date(kind) else pa.int64()
    whole = pa.RecordBatch.from_pylist(rows, pa.schema(TYPES | {"start": narrow, "end": narrow}))
    return whole.cast(pa.schema(TYPES | {"start": kind, "end": kind}))


@pytest.mark.parametrize("batch_rows", [1, 7, 5000])
@pytest.mark.parametrize("extra", [0, 9_000])
def test_lengths_add_up_over_portions_inside_the_smallest_budget(batch_rows: int, extra: int) -> None:
    left = random_rows(1, 60)
    merged = [{"start": at, "end": at + 2} for at in range(0, 60, 3)]
    right = [{"id": 0, "k": 1, "j": None} | row for row in merged]
    right += [{"id": 0, "k": 1, "j": None, "start": 100 + 2 * at, "end": 101 + 2 * at} for at in range(extra)]
    question = Question("cover", Relation.parse("overlapping"), *sides(("k",), ("left", "left")), 1 << 20)
    metrics = Metrics()
    if extra and batch_rows == 1:
        batch_rows = 50
    found = list(answer_cell(question, stream(left, right, ("k",), batch_rows, right_first=True), metrics))
    answers = {row["l_id"]: row["covered"] for batch in found for row in batch.to_pylist()}
    assert [answers[row["id"]] for row in left] == covered(left, right[:20], ("k",), "left")
    assert 0 < metrics.value("memory") <= 1 << 20
    assert (metrics.value("portions") > 1) == bool(extra)


def test_a_length_beyond_64_bits_is_refused() -> None:
    schema = pa.schema(TYPES)
    whole = {"id": 1, "k": 1, "j": None, "start": -(2**63), "end": 2**63 - 1}
    rows = pa.RecordBatch.from_pylist([whole], schema)
    columns = SideColumns({name: name for name in TYPES}, "start", "end", (), "left")
    question = Question("coverage", Relation.parse("overlapping"), columns, columns, 1 << 20)
    index = RightIndex(question, rows, MemoryBudget(1 << 20, "test"))
    with pytest.raises(DataError, match="too long for its covered length"):
        list(answer(question, index, rows))
    parts = pa.RecordBatch.from_pylist([whole | {"start": 5}, whole | {"end": 7 - 2**63}], schema)
    assert index.covered(parts).tolist() == [2**63 - 6, 7]
