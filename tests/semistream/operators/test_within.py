"""Validity at a time: every operator against the definition, and master rows that overlap."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.semistream.operators.memory_pages import MemoryPages
from tests.semistream.operators.stream_cases import HOWS, KEYS, Case, answers, random_case, run, smallest_budget
from tests.semistream.operators.test_answers import random_spec

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.operators import ALGORITHMS, HybridJoin, MeshJoin
from dovetail.joins.semistream.sizes import Sizes
from dovetail.joins.semistream.within import PairCheck, Within

TIMES = {
    "int": (pa.int64(), int),
    "small": (pa.int16(), int),
    "float": (pa.float64(), lambda n: n / 4),
    "decimal": (pa.decimal128(9, 2), lambda n: Decimal(n) / 4),
    "date": (pa.date32(), lambda n: dt.date(2026, 1, 1) + dt.timedelta(days=n)),
    "time": (pa.timestamp("us", "UTC"), lambda n: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n)),
    "text": (pa.string(), lambda n: f"{n:02}" * (n % 2 + 1)),
    "binary": (pa.binary(), lambda n: bytes([n % 256, n % 7])),
}


def timed(case: Case, seed: int, kind: str = "int") -> Case:
    """The case with times: bounds touch, overlap, are nested, empty, inverted or missing."""
    rng = np.random.default_rng(seed)
    type_, value = TIMES[kind]

    def column(numbers: Any, nulls: float) -> pa.Array:
        lost = rng.random(len(numbers)) < nulls
        return pa.array([None if x else value(int(n)) for n, x in zip(numbers, lost, strict=True)], type_)

    start = rng.integers(0, 20, case.master.num_rows)
    end = start + rng.integers(-1, 9, case.master.num_rows)
    master = case.master.append_column("lo", column(start, 0.1)).append_column("hi", column(np.maximum(end, 0), 0.15))
    stream = case.stream.append_column("at", column(rng.integers(0, 25, case.stream.num_rows), 0.1))
    pages = MemoryPages(master, case.on, 3 + seed % 5, total=case.pages.total)
    return replace(case, stream=stream, master=master, pages=pages)


def expected(case: Case, how: str, closed: str) -> Any:
    rows, on = (case.stream.to_pylist(), case.master.to_pylist()), [(name, name) for name in case.on]
    pairs = oracle.enrich(*rows, on, how, [("at", "lo", "hi", closed)])
    given = ["r", "text", "lo", "hi"] if how in ("inner", "left") else []
    return oracle.bag(oracle.flat(pairs, case.stream.schema.names, given))


def check(closed: str = "left", overlap: str = "all") -> PairCheck:
    return PairCheck((Within("at", "lo", "hi", closed),), overlap=overlap)  # type: ignore[arg-type]  # as parametrised


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_rows_are_joined_with_the_master_rows_that_are_valid_then(name: str, kind: str) -> None:
    for seed, times in enumerate(TIMES):
        case, rng = timed(random_case(700 + seed, kind), seed, times), np.random.default_rng(seed)
        how, closed = HOWS[seed % 4], oracle.CLOSED[(seed // 2) % 4]
        spec = random_spec(rng, name, case, how, check=check(closed))
        got = run(spec, case, pauses=seed % 3)
        assert got.bag == expected(case, how, closed), (spec, times)
        met = [got.metrics.value(n) for n in ("answered_by_page", "answered_by_cache", "misses")]
        assert sum(met) == got.metrics.value("rows") == case.stream.num_rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_closed_inside_the_smallest_budget(name: str, how: str) -> None:
    for seed, closed in enumerate(oracle.CLOSED):
        case = timed(random_case(800 + seed), seed)
        spec = ALGORITHMS[name](pages=case.pages, on=case.on, how=how, check=check(closed))
        low = smallest_budget(spec, case)
        assert run(spec, case, memory=low).bag == expected(case, how, closed), spec


@pytest.mark.parametrize("name", ALGORITHMS)
def test_waiting_rows_are_restored_with_their_times(name: str) -> None:
    """A snapshot between any two batches, restored in another operator: nothing is lost, nothing comes twice."""
    case = replace(timed(random_case(903), 3), batch_rows=7)
    spec = random_spec(np.random.default_rng(2), name, case, "left", check=check())
    given, state = [], None
    for batch in case.batches():
        with spec.open(MemoryBudget("4MB"), {"stream": case.stream.schema}) as operator:
            given += answers(iter(operator.restore(state))) if state else []
            given += answers(operator.push("stream", batch))
            state = operator.snapshot()
    with spec.open(MemoryBudget("4MB"), {"stream": case.stream.schema}) as operator:
        given += answers(iter(operator.restore(state))) if state else []
        given += answers(operator.finish())
    assert oracle.bag(given) == expected(case, "left", "left")


def prices(rows: list[tuple[int, int | None, int | None]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.int64()),
            "lo": pa.array([lo for _, lo, _ in rows], pa.int64()),
            "hi": pa.array([hi for _, _, hi in rows], pa.int64()),
        }
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_rows_that_are_valid_at_once_are_an_error(name: str) -> None:
    """Touching is not overlapping; nothing is wrong until a stream row has two matches."""
    master = prices([(1, None, 5), (1, 5, 9), (1, 9, None), (2, 0, 6), (2, 5, None), (3, 4, 4)])
    pages = MemoryPages(master, ("k",), 2)
    stream = pa.table({"id": [0, 1, 2, 3], "k": [1, 1, 2, 3], "at": [5, 9, 4, 4]})
    spec = ALGORITHMS[name](pages=pages, on=("k",), how="left", check=check(overlap="error"))
    case = Case(stream, pages, master, ("k",), 2)
    assert [row[3:] for row in sorted(run(spec, case).rows)] == [(5, 9), (9, None), (0, 6), (None, None)]
    wrong = replace(case, stream=pa.table({"id": [0, 1], "k": [1, 2], "at": [5, 5]}))
    with pytest.raises(
        DataError, match=r"several master rows with k = 2 match one stream row: 5 lies in \(lo, hi\) = "
    ):
        run(spec, wrong)
    assert len(run(replace(spec, check=check()), wrong).rows) == 3


def test_overlapping_rows_of_different_pages_are_found_by_scans() -> None:
    """Without an index the rows of a key may be in any pages, which are read one after the other."""
    master = prices([(1, 0, 6), (2, 0, 6), (1, 5, 9), (2, 6, 9)])
    pages = MemoryPages(master, ("lo", "hi"), 1, indexed=False)
    pages.key = ("k",)
    spec = MeshJoin(pages=pages, on=("k",), sizes=Sizes(per_segment=1), check=check(overlap="error"))
    case = Case(pa.table({"k": [1, 2], "at": [2, 8]}), pages, master, ("k",), 1)
    assert run(spec, case).bag == oracle.bag([(1, 2, 0, 6), (2, 8, 6, 9)])
    with pytest.raises(DataError, match=r"with k = 1 match one stream row: 5 lies in \(lo, hi\) = \((0, 6|5, 9)\)\. "):
        run(spec, replace(case, stream=pa.table({"k": [2, 1], "at": [8, 5]})))


def test_times_of_other_units_and_far_ends() -> None:
    """Nanoseconds end in the year 2262; a bound of microseconds beyond that is still after every time."""
    seconds = pa.array([0, 10, 20, 253_402_214_400, None], pa.timestamp("s"))
    lo = pa.array([10_000, 10_000, 20_001, None, 0], pa.timestamp("ms"))
    hi = pa.array([2**62, 2**62, 2**62, 2**62, 2**62], pa.timestamp("us"))
    ns = pa.array([2**62] * 5, pa.timestamp("ns"))
    one = Within("at", "lo", "hi", "both")
    assert one.holds(seconds, lo, hi).tolist() == [False, True, False, True, False]
    assert one.holds(seconds, lo, ns).tolist() == [False, True, False, False, False]


def test_explain_names_the_bounds() -> None:
    case = timed(random_case(1), 1)
    line = HybridJoin(pages=case.pages, on=("k",), check=check("both")).explain()
    assert line.startswith("HybridJoin: on k, lo <= at <= hi, inner, ")
