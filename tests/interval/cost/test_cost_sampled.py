"""Sweeps followed over samples: what they hold and move is what the operators hold and move."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.host import Schedule, run_local
from dovetail.engine.kernels.arrays import F64
from dovetail.joins.interval.cost.model import Algorithm
from dovetail.joins.interval.cost.sampled import SampledSide, follow
from dovetail.joins.interval.operators import OPERATORS, Frames
from dovetail.joins.interval.relation import Relation

CAPACITY = 600  # tuples


def rows(n: int, span: int, long_rows: int, seed: int, length: int = 5) -> tuple[F64, F64]:
    """Short rows, of which some last a third of the span."""
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, span, n))
    lengths = np.full(n, length)
    lengths[rng.permutation(n)[:long_rows]] = span // 3
    return start.astype(float), (start + lengths).astype(float)


def counted(algorithm: str, left: tuple[F64, F64], right: tuple[F64, F64]) -> tuple[int, int]:
    """Rows written and read, and spills, of the operator with as many tuples in memory."""
    batches = {
        side: [pa.record_batch({"_start": s.astype(int), "_end": e.astype(int), f"{side}_id": np.arange(len(s))})]
        for side, (s, e) in zip(("left", "right"), (left, right), strict=True)
    }
    frames = Frames(CAPACITY, 1, 1)
    spec = OPERATORS[algorithm](relation=Relation.parse("overlapping"), emit="count", frames=frames)
    run = run_local(spec, batches, 8 << 20, Schedule("round_robin"))
    for _ in run:
        pass
    value = run.metrics.value
    moved = sum(value(what, side) for what in ("rows_written", "rows_read") for side in ("left", "right"))
    return int(moved), int(sum(value("spills", side) for side in ("left", "right")))


def predicted(
    algorithm: Algorithm, left: tuple[F64, F64], right: tuple[F64, F64], part: int = 1
) -> tuple[float, float]:
    sides = []
    for start, end in (left, right):
        few = np.random.default_rng(1).permutation(len(start))[: len(start) // part]
        sides.append(SampledSide.of(start[few], end[few], len(start), 1.0))
    moved = follow(algorithm, sides[0], sides[1], float(CAPACITY))
    return sum(moved.written) + sum(moved.read), moved.spills


INPUTS = {
    "short": (rows(6_000, 20_000, 0, 1), rows(6_000, 20_000, 0, 2)),
    "left long": (rows(6_000, 20_000, 12, 1), rows(6_000, 20_000, 0, 2)),
    "right long": (rows(6_000, 20_000, 0, 1), rows(6_000, 20_000, 12, 2)),
    "both long": (rows(6_000, 20_000, 12, 1), rows(6_000, 20_000, 12, 2)),
    "all long": (rows(3_000, 3_000, 0, 1, 900), rows(3_000, 3_000, 0, 2, 900)),
}


@pytest.mark.parametrize("algorithm", ["sort_merge", "time_sweep", "forward_scan"])
@pytest.mark.parametrize("name", INPUTS)
def test_whether_a_sweep_spills_and_about_how_much(algorithm: Algorithm, name: str) -> None:
    left, right = INPUTS[name]
    moved, spills = counted(algorithm, left, right)
    for part in (1, 4):
        rows_moved, times = predicted(algorithm, left, right, part)
        assert (times > 0) == (spills > 0), part
        if spills:
            assert 0.3 * moved <= rows_moved <= 3 * moved


def test_a_few_long_rows_make_only_time_sweep_stay_in_memory() -> None:
    left, right = INPUTS["both long"]
    assert [predicted(a, left, right)[1] > 0 for a in ("sort_merge", "time_sweep", "forward_scan")] == [
        True,
        False,
        True,
    ]  # type: ignore[arg-type]


def test_sort_merge_depends_on_which_side_is_inner() -> None:
    left, right = INPUTS["left long"]
    assert predicted("sort_merge", left, right)[1] > 0
    assert predicted("sort_merge", right, left)[1] == 0
