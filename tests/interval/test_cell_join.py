"""The join of one cell as a task runs it, without Spark: every operator, join type and relation against the oracle."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.interval.frame.answers import LEFT_COLUMNS, expected, random_rows

import oracle
from dovetail.engine.exchange.delivery import CELL, SIDE
from dovetail.engine.exchange.packets import FIRST, Packing, pack_rows
from dovetail.engine.memory import parse_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.interval.cell_join import CellJoin, join_cell
from dovetail.joins.interval.index.answers import Question, answer_cell
from dovetail.joins.interval.operators import OPERATORS
from dovetail.joins.interval.operators.spec import sweepable
from dovetail.joins.interval.relation import Relation, SideColumns

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
SHARING = ("overlapping", "covers", "covered_by", "overlaps", "overlapped_by", "starts", "equals", "ends")
TYPES = {"id": pa.int64(), "k": pa.int64(), "j": pa.string(), "start": pa.int64(), "end": pa.int64()}
LEFT = {f"l_{name}": name for name in TYPES}
RIGHT = {f"r_{name}": name for name in TYPES}
SCHEMAS = [pa.schema([(name, TYPES[place]) for name, place in own.items()]) for own in (LEFT, RIGHT)]


def stream(
    left: Any, right: Any, keys: tuple[str, ...], batch_rows: int, right_first: bool = False
) -> list[pa.RecordBatch]:
    """Both sides as a task receives them: tagged, in the places that they share, sorted by (keys, start, end)."""
    rows = [(0, row) for row in left] + [(1, row) for row in right]
    place = [*keys, "start", "end"]
    order = (lambda item: -item[0]) if right_first else (lambda item: [_nulls_first(item[1][c]) for c in place])
    rows.sort(key=order)  # type: ignore[arg-type]
    columns: dict[str, list[Any]] = {SIDE: [side for side, _ in rows], CELL: [0] * len(rows)}
    columns |= {name: [row[name] for _, row in rows] for name in TYPES}
    fields = [pa.field(SIDE, pa.int8()), pa.field(CELL, pa.int32())]
    fields += [pa.field(name, kind) for name, kind in TYPES.items()]
    table = pa.table(columns, pa.schema(fields))
    return table.to_batches(max_chunksize=batch_rows)


def packed(left: Any, right: Any, batch_packets: int) -> list[pa.RecordBatch]:
    """Both sides as a task of a join without keys receives them: in packets, ordered by their first starts."""
    parts = []
    for number, (side, rows) in enumerate(zip(("l", "r"), (left, right), strict=True)):
        packing = Packing(number, CELL, f"{side}_start", SCHEMAS[number], 4_000 if batch_packets < 3 else 1 << 18)
        schema = pa.schema([*SCHEMAS[number], (CELL, pa.int32())])
        named = [{f"{side}_{name}": value for name, value in row.items()} | {CELL: 0} for row in rows]
        batches = pa.Table.from_pylist(named, schema).to_batches(max_chunksize=7)
        parts += list(pack_rows(packing, iter(batches)))
    return pa.Table.from_batches(parts).sort_by(FIRST).to_batches(max_chunksize=batch_packets) if parts else []


def _nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def sides(keys: tuple[str, ...], closed: tuple[str, str]) -> tuple[SideColumns, SideColumns]:
    return (
        SideColumns(LEFT, "l_start", "l_end", tuple(f"l_{key}" for key in keys), closed[0]),  # type: ignore[arg-type]
        SideColumns(RIGHT, "r_start", "r_end", tuple(f"r_{key}" for key in keys), closed[1]),  # type: ignore[arg-type]
    )


def joined(batches: Any) -> Any:
    return oracle.bag(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", OPERATORS)
@pytest.mark.parametrize("relation", SHARING)
def test_every_join_type_equals_the_oracle(algorithm: str, relation: str) -> None:
    rng = random.Random(f"{algorithm} {relation}")  # noqa: S311  (test data)
    for how, strict in itertools.product(HOWS, (False, True)):
        keys = rng.choice([(), ("k",), ("k", "j")])
        closed = rng.choice([("left", "left"), ("both", "both"), ("right", "left"), ("both", "neither")])
        left, right = (
            random_rows(rng.random(), rng.choice([0, 1, 40])),
            random_rows(rng.random(), rng.choice([0, 2, 40])),
        )
        spec = Relation.parse(relation, strict, closed)
        if not sweepable(spec):
            closed = ("left", "left")
            spec = Relation.parse(relation, strict, closed)
        task = CellJoin(algorithm, spec, how, *sides(keys, closed), rng.choice([1 << 20, 1 << 26]), keys)
        batch_rows = rng.choice([1, 2, 7, 50])
        answer = joined(join_cell(task, stream(left, right, keys, batch_rows)))
        if not keys:  # such rows come in packets, too
            in_packets = replace(task, schemas=dict(zip(("left", "right"), SCHEMAS, strict=True)))
            assert joined(join_cell(in_packets, packed(left, right, batch_rows))) == answer
        on = [(key, key) for key in keys]
        assert answer == expected(left, right, how, relation=relation, strict=strict, closed=closed, on=on), (how, keys)


@pytest.mark.parametrize("algorithm", OPERATORS)
def test_a_small_budget_is_kept_and_spills(algorithm: str) -> None:
    rng = random.Random(5)  # noqa: S311  (test data)
    rows = [
        [
            {"id": i, "k": 1, "j": "x" * 400, "start": s, "end": s + 3_000}
            for i, s in enumerate(sorted(rng.sample(range(9_000), 2_500)))
        ]
        for _ in range(2)
    ]
    task = CellJoin(algorithm, Relation.parse("overlapping"), "left_semi", *sides((), ("left", "left")), 1 << 20)
    metrics = Metrics()
    answer = [batch.num_rows for batch in join_cell(task, stream(*rows, (), 100), metrics)]
    assert sum(answer) == 2_500
    assert 0 < metrics.value("memory") <= 1 << 20


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(PlanError, match="hash_join"):
        CellJoin("hash_join", Relation.parse("overlapping"), "inner", *sides((), ("left", "left")), 1 << 20)


@pytest.mark.parametrize("kind", ["count", "left_semi", "left_anti"])
@pytest.mark.parametrize("portion", [False, True])
def test_answers_of_a_cell(kind: str, portion: bool) -> None:
    left = random_rows(1, 80)
    right = random_rows(2, 60) + (
        [{**row, "start": 500, "end": 501} for row in random_rows(3, 6_000)] if portion else []
    )
    question = Question(kind, Relation.parse("overlapping"), *sides(("k",), ("left", "left")), 1 << 20)  # type: ignore[arg-type]
    batches = list(answer_cell(question, stream(left, right, ("k",), 50, right_first=True)))
    answer = joined(batches)
    if kind == "count":
        wanted = oracle.count_overlaps(left, right, on=[("k", "k")])
        assert answer == oracle.bag((*(row[c] for c in LEFT_COLUMNS), n) for row, n in wanted)
    else:
        assert answer == expected(left, right, kind, on=[("k", "k")])


def wide_stream(n: int, width: int, together: bool) -> Iterator[pa.RecordBatch]:
    """Rows of `width` bytes on both sides, all of them overlapping or each with its neighbours, some rows a batch."""
    rows = sorted(
        (0 if together else 10 * at, 10 * n if together else 10 * at + 15, tag, at) for at in range(n) for tag in (0, 1)
    )
    for first in range(0, len(rows), 5):
        some = rows[first : first + 5]
        columns: dict[str, pa.Array] = {
            SIDE: pa.array([row[2] for row in some], pa.int8()),
            CELL: pa.array([0] * len(some), pa.int32()),
        }
        for prefix, tag in (("l_", 0), ("r_", 1)):
            own = [row if row[2] == tag else None for row in some]
            columns[f"{prefix}start"] = pa.array([row and row[0] for row in own], pa.int64())
            columns[f"{prefix}end"] = pa.array([row and row[1] for row in own], pa.int64())
            columns[f"{prefix}text"] = pa.array([row and f"{row[3]:06d}".ljust(width) for row in own], pa.string())
        yield pa.RecordBatch.from_pydict(columns)


def wide_task(algorithm: str, how: str, memory: int) -> CellJoin:
    left, right = (
        SideColumns({c: c for c in (f"{p}_start", f"{p}_end", f"{p}_text")}, f"{p}_start", f"{p}_end", (), "left")
        for p in "lr"
    )
    return CellJoin(algorithm, Relation.parse("overlapping"), how, left, right, memory)


def wide_pairs(task: CellJoin, n: int, width: int, together: bool, metrics: Metrics | None = None) -> list[Any]:
    found = []
    for batch in join_cell(task, wide_stream(n, width, together), metrics):
        texts = (pc.utf8_slice_codeunits(batch[name], 0, 6).to_pylist() for name in ("l_text", "r_text"))
        found += list(zip(*texts, strict=True))
    return found


@pytest.mark.parametrize("algorithm", OPERATORS)
@pytest.mark.parametrize("together", [True, False])
def test_wide_rows_spill_inside_the_smallest_budget(algorithm: str, together: bool) -> None:
    n, metrics = 60, Metrics()
    found = wide_pairs(wide_task(algorithm, "full", 1 << 20), n, 10_000, together, metrics)
    wanted = [(f"{a:06d}", f"{b:06d}") for a in range(n) for b in range(n) if together or abs(a - b) < 2]
    assert sorted(found) == sorted(wanted)
    assert metrics.value("memory") <= 1 << 20


@pytest.mark.parametrize("algorithm", OPERATORS)
def test_rows_too_wide_for_the_budget_are_refused_with_memory_that_is_enough(algorithm: str) -> None:
    n, width = 12, 150_000
    with pytest.raises(BudgetExceeded, match=r"rows of up to 146.* KiB do not fit.*memory=1 MiB per task") as refused:
        wide_pairs(wide_task(algorithm, "full", 1 << 20), n, width, together=True)
    advised = re.search(r'give it memory="(\w+)"', str(refused.value))
    assert advised is not None
    found = wide_pairs(wide_task(algorithm, "full", parse_bytes(advised[1])), n, width, together=True)
    assert len(found) == n * n


@pytest.mark.parametrize("kind", ["count", "left_semi", "left_anti"])
@pytest.mark.parametrize("width", [0, 10_000])
def test_answers_stay_inside_the_smallest_budget(kind: Any, width: int) -> None:
    """More left rows than answers fit, or keys so wide that few right rows fit an index."""
    n_left, n_right, keys = (150_000, 6_000, 1) if width == 0 else (150, 300, 60)
    names = [f"{at % keys:06d}".ljust(width) for at in range(max(n_left, n_right))]
    batches = []
    for tag, n in ((1, n_right), (0, n_left)):
        for first in range(0, n, 10_000 if width == 0 else 10):
            at = range(first, min(n, first + (10_000 if width == 0 else 10)))
            own = {"start": [5] * len(at), "end": [9] * len(at), "k": [names[i] for i in at]}
            columns: dict[str, Any] = {SIDE: pa.array([tag] * len(at), pa.int8())}
            for prefix, side in (("l_", 0), ("r_", 1)):
                for name, kind_ in (("start", pa.int64()), ("end", pa.int64()), ("k", pa.string())):
                    columns[prefix + name] = pa.array(own[name] if side == tag else [None] * len(at), kind_)
            batches.append(pa.RecordBatch.from_pydict(columns))
    left, right = (
        SideColumns({c: c for c in (f"{p}_start", f"{p}_end", f"{p}_k")}, f"{p}_start", f"{p}_end", (f"{p}_k",), "left")
        for p in "lr"
    )
    metrics = Metrics()
    found = list(answer_cell(Question(kind, Relation.parse("overlapping"), left, right, 1 << 20), batches, metrics))
    assert sum(batch.num_rows for batch in found) == (0 if kind == "left_anti" else n_left)
    if kind == "count":
        assert {n for batch in found for n in batch["n_overlaps"].unique().to_pylist()} == {n_right // keys}
    assert 0 < metrics.value("memory") <= 1 << 20
