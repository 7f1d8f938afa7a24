"""Covered lengths from an index of right rows, without Spark: the definition, portions, budgets and long intervals."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests import oracle
from tests.interval.test_cell_join import TYPES, sides, stream

from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, DataError
from dovetail.joins.interval.relation import SideColumns
from dovetail.joins.sets.cover_index import Coverage, answer_range, build_index, sent_index


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
        sent = pickle.loads(pickle.dumps(sent_index(Coverage(columns, columns, 1 << 20), tables[1])))  # noqa: S301
        opened = sent.open()
        counts, lengths = opened.index.answer(tables[0])
        unit = 100 if pa.types.is_decimal(kind) else 1  # lengths of decimals count their last digit
        assert lengths.tolist() == [n * unit for n in covered(left, right, keys, closed)]
        wanted = oracle.count_overlaps(left, right, on=[(key, key) for key in keys], closed=closed)
        assert counts.tolist() == [n for _, n in wanted]
        assert 0 < opened.budget.peak <= sent.nbytes


def _typed(rows: list[Any], kind: Any) -> pa.RecordBatch:
    """The rows with bounds of this type, which are small whole numbers."""
    narrow = pa.int8() if pa.types.is_decimal(kind) else pa.int32() if pa.types.is_date(kind) else pa.int64()
    whole = pa.RecordBatch.from_pylist(rows, pa.schema(TYPES | {"start": narrow, "end": narrow}))
    return whole.cast(pa.schema(TYPES | {"start": kind, "end": kind}))


@pytest.mark.parametrize("batch_rows", [1, 7, 5000])
@pytest.mark.parametrize("extra", [0, 9_000])
@pytest.mark.parametrize("keys", [(), ("k",)])
def test_answers_add_up_over_portions_inside_the_smallest_budget(
    batch_rows: int, extra: int, keys: tuple[str, ...]
) -> None:
    left = random_rows(1, 60)
    right = random_rows(2, 30)
    right += [
        row | {"start": row["start"] + 100, "end": row["start"] + 100 + n % 400}
        for n, row in enumerate([row for row in random_rows(3, 40) if row["start"] is not None] * (extra // 36))
    ]
    right.sort(key=lambda row: (row["start"] is not None, row["start"] or 0))
    left += [row | {"id": 60 + n, "start": 90 + n, "end": 130 + n} for n, row in enumerate(left[:9])]
    asked = Coverage(*sides(keys, ("left", "left")), 1 << 20)
    metrics = Metrics()
    if extra and batch_rows == 1:
        batch_rows = 50
    found = list(answer_range(asked, stream(left, right, keys, batch_rows, right_first=True), metrics))
    answers = {row["l_id"]: (row["n_overlaps"], row["covered"]) for batch in found for row in batch.to_pylist()}
    counts = [n for _, n in oracle.count_overlaps(left, right, on=[(key, key) for key in keys])]
    wanted = list(zip(counts, covered(left, right, keys, "left"), strict=True))
    assert [answers[row["id"]] for row in left] == wanted
    assert 0 < metrics.value("memory") <= 1 << 20
    assert (metrics.value("portions") > 1) == bool(extra)


@pytest.mark.parametrize("closed", oracle.CLOSED)
def test_rows_cut_to_ranges_add_up_to_the_whole(closed: Any) -> None:
    left, right = random_rows(5, 50), random_rows(6, 40)
    points = [10, 25, 26, 40]
    began = ("began", "began")
    names = {name: name for name in (*TYPES, "began")}
    columns = SideColumns(names, "start", "end", ("k",), closed)
    totals = {row["id"]: [0, 0] for row in left}
    for low, high in pairwise([-100, *points, 100]):
        cut = [_cut(rows, low, high, closed) for rows in (left, right)]
        found = build_index(Coverage(columns, columns, 1 << 20, began), cut[1]).answer(cut[0])
        for name, count, length in zip(cut[0]["id"].to_pylist(), *(f.tolist() for f in found), strict=True):
            totals[name][0] += count
            totals[name][1] += length
    counts = [n for _, n in oracle.count_overlaps(left, right, on=[("k", "k")], closed=closed)]
    assert list(totals.values()) == [
        list(pair) for pair in zip(counts, covered(left, right, ("k",), closed), strict=True)
    ]


def _cut(rows: list[Any], low: int, high: int, closed: str) -> pa.RecordBatch:
    """The rows that reach a range, cut to it."""
    found = []
    for row in rows:
        if oracle.is_empty(row["start"], row["end"], closed):
            continue
        reaches = row["end"] > low if closed in ("left", "neither") else row["end"] >= low
        if (reaches or row["start"] >= low) and row["start"] < high:
            inside = {"start": max(low, row["start"]), "end": min(high, row["end"]), "began": row["start"] >= low}
            found.append(row | inside)
    return pa.RecordBatch.from_pylist(found, pa.schema([*TYPES.items(), ("began", pa.bool_())]))


def test_infinite_bounds() -> None:
    inf = float("inf")
    right = [(-inf, 0.0), (2.0, 3.0), (10.0, inf), (inf, inf), (-inf, -inf)]
    left = [(-inf, 1.0), (1.0, 4.0), (-5.0, 2.5), (0.0, inf), (-inf, inf), (20.0, 30.0), (-inf, -inf), (0.5, 1.5)]
    names = {"start": "start", "end": "end"}
    for some, wanted in (
        (right, [inf, 1.0, 5.5, inf, inf, 10.0, 0.0, 0.0]),
        (right[1:2], [0.0, 1.0, 0.5, 1.0, 1.0, 0, 0, 0]),
        (right[3:], [0.0] * 8),
    ):
        columns = SideColumns(names, "start", "end", (), "both")
        batches = [
            pa.RecordBatch.from_pydict({"start": [a for a, _ in rows], "end": [b for _, b in rows]})
            for rows in (left, some)
        ]
        index = build_index(Coverage(columns, columns, 1 << 20), batches[1])
        assert index.answer(batches[0])[1].tolist() == wanted


@pytest.mark.parametrize("far", [-1e18, 1e18, -1e300, 1e300])
def test_a_far_bound_does_not_round_other_lengths(far: float) -> None:
    """Lengths are exact sums of the stretches inside of a row, whatever lies elsewhere in its key."""
    rng = Random(int(far > 0))  # noqa: S311  (repeatable, no secrets)
    near = [(a, a + rng.random()) for a in (rng.uniform(0, 50) for _ in range(40))]
    beyond = (far, 7.25) if far < 0 else (41.75, far)
    left = [(a, a + 9.5) for a in (rng.uniform(-2, 50) for _ in range(60))] + [beyond]
    columns = SideColumns({"start": "start", "end": "end"}, "start", "end", (), "left")
    batches = [
        pa.RecordBatch.from_pydict({"start": [a for a, _ in rows], "end": [b for _, b in rows]})
        for rows in (left, [*near, beyond])
    ]
    found = build_index(Coverage(columns, columns, 1 << 20), batches[1]).answer(batches[0])[1].tolist()
    exact = [{"start": Fraction(a), "end": Fraction(b)} for a, b in [*near, beyond]]
    wanted = [float(oracle.covered(exact, Fraction(a), Fraction(b))) for a, b in left]
    assert found == pytest.approx(wanted, rel=1e-12)
    assert max(wanted[:-1]) <= 9.5 < wanted[-1]


def test_a_length_beyond_64_bits_is_refused() -> None:
    schema = pa.schema(TYPES)
    whole = {"id": 1, "k": 1, "j": None, "start": -(2**63), "end": 2**63 - 1}
    rows = pa.RecordBatch.from_pylist([whole], schema)
    columns = SideColumns({name: name for name in TYPES}, "start", "end", (), "left")
    index = build_index(Coverage(columns, columns, 1 << 20), rows)
    with pytest.raises(DataError, match="too long for its covered length"):
        index.answer(rows)
    parts = pa.RecordBatch.from_pylist([whole | {"start": 5}, whole | {"end": 7 - 2**63}], schema)
    assert index.answer(parts)[1].tolist() == [2**63 - 6, 7]


def test_an_index_beyond_the_budget_of_a_task_is_refused() -> None:
    columns = SideColumns({name: name for name in TYPES}, "start", "end", ("k",), "left")
    rows = pa.RecordBatch.from_pylist(random_rows(9, 400), pa.schema(TYPES))
    sent = sent_index(Coverage(columns, columns, 4096), rows)
    assert sent.nbytes > 4096
    with pytest.raises(BudgetExceeded):
        sent.open()
