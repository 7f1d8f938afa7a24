"""Ranges as keys: every operator over a page file of ranges, against the definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.semistream.operators.stream_cases import HOWS, Case, answers, run, smallest_budget
from tests.semistream.operators.test_answers import random_spec
from tests.semistream.operators.test_within import TIMES
from tests.semistream.range_files import write_range_pages

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.cells import CELL
from dovetail.joins.semistream.cost.choose import choose
from dovetail.joins.semistream.cost.distribution import uniform
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS
from dovetail.joins.semistream.decision import keys_in, setting_of
from dovetail.joins.semistream.kernels.cells import cut_cells, first_overlap
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.operators import ALGORITHMS, HybridJoin
from dovetail.joins.semistream.sizes import Sizes, row_bytes
from dovetail.joins.semistream.within import PairCheck, Within

GIVEN = ("lo", "hi", "r")
COUNTRIES = ["", "a", "b", "b\0", "c"]


def random_ranges(seed: int, kind: str, place: Path, keyed: bool = False, **more: Any) -> Case:
    """Ranges that touch, overlap, are nested, empty, inverted or open, and values in and beside them."""
    rng = np.random.default_rng(seed)
    type_, value = TIMES[kind]
    n_master, n_stream, spread = int(rng.integers(0, 150)), int(rng.integers(0, 130)), int(rng.choice([3, 12, 60]))

    def column(numbers: Any, nulls: float) -> pa.Array:
        lost = rng.random(len(numbers)) < nulls
        return pa.array([None if x else value(int(n)) for n, x in zip(numbers, lost, strict=True)], type_)

    def country(n: int) -> pa.Array:
        return pa.array([None if x == 9 else COUNTRIES[x % 5] for x in rng.integers(0, 10, n)], pa.string())

    start = rng.integers(0, 99, n_master)
    end = np.clip(start + rng.integers(-1, spread, n_master), 0, 99)
    columns = {"lo": column(start, 0.04), "hi": column(end, 0.04), "r": pa.array(np.arange(n_master))}
    master = pa.table(({"c": country(n_master)} if keyed else {}) | columns)
    wanted = {"id": pa.array(np.arange(n_stream)), "v": column(rng.integers(0, 99, n_stream), 0.1)}
    stream = pa.table(wanted | ({"c": country(n_stream)} if keyed else {}))
    write_range_pages(place, master, ("c",) if keyed else (), ("lo", "hi"), page=int(rng.choice([1, 200, 900])), **more)
    pages = PageFileSource(str(place)).open()
    pages.page_lists = [[]] * (len(pages.starts) - 1)  # type: ignore[attr-defined]  # as `random_spec` counts them
    on = ("c", "v") if keyed else ("v",)
    return Case(stream, pages, master, on, int(rng.choice([1, 2, 7, 50, 1000])))  # type: ignore[arg-type]  # runs alike


def check(case: Case, closed: str, overlap: str = "all") -> PairCheck:
    equal = (("c", "c"),) if len(case.on) > 1 else ()
    return PairCheck((Within("v", "lo", "hi", closed),), equal, overlap)  # type: ignore[arg-type]  # as parametrised


def expected(case: Case, how: str, closed: str) -> Any:
    on = [("c", "c")] if len(case.on) > 1 else []
    pairs = oracle.enrich(case.stream.to_pylist(), case.master.to_pylist(), on, how, [("v", "lo", "hi", closed)])
    return oracle.bag(oracle.flat(pairs, case.stream.schema.names, GIVEN if how in ("inner", "left") else []))


LOOKED_UP = [name for name in ALGORITHMS if not name.endswith("x_hybridjoin")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("name", LOOKED_UP)
def test_values_are_joined_with_the_ranges_that_have_them(name: str, keyed: bool, parts: int, tmp_path: Path) -> None:
    for seed, kind in enumerate(TIMES):
        case = random_ranges(seed + 11 * parts, kind, tmp_path / f"{seed}.pages", keyed, parts=parts)
        how, closed = HOWS[seed % 4], oracle.CLOSED[(seed // 2) % 4]
        more = {"check": check(case, closed), "columns": GIVEN}
        spec = random_spec(np.random.default_rng(seed), name, case, how, **more)
        got = run(spec, case, pauses=seed % 3)
        assert got.bag == expected(case, how, closed), (spec, kind)
        met = [got.metrics.value(n) for n in ("answered_by_page", "answered_by_cache", "misses")]
        assert sum(met) == got.metrics.value("rows") == case.stream.num_rows
        case.pages.close()


@pytest.mark.parametrize("name", LOOKED_UP)
def test_the_smallest_budget_is_enough(name: str, tmp_path: Path) -> None:
    for seed, how in enumerate(HOWS):
        case = random_ranges(40 + seed, "int", tmp_path / f"{seed}.pages", keyed=seed % 2 == 1, parts=2)
        spec = ALGORITHMS[name](
            pages=case.pages,
            on=case.on,
            how=how,
            check=check(case, "both"),
            columns=GIVEN,  # type: ignore[arg-type]  # of HOWS
        )
        low = smallest_budget(spec, case)
        assert run(spec, case, memory=low).bag == expected(case, how, "both"), spec


@pytest.mark.parametrize("name", LOOKED_UP)
def test_rows_that_wait_find_the_ranges_of_another_version(name: str, tmp_path: Path) -> None:
    """A snapshot is taken, the file is built again with other cells, and waiting rows are answered from it."""
    old = replace(random_ranges(7, "int", tmp_path / "m.pages"), batch_rows=40)
    new = random_ranges(8, "int", tmp_path / "m.pages", parts=3)
    sizes = Sizes(waiting=60, per_segment=4, cached=3)
    spec = ALGORITHMS[name](
        pages=old.pages, on=("v",), how="left", check=check(old, "both"), columns=GIVEN, sizes=sizes
    )
    head, *rest = old.batches()
    with spec.open(MemoryBudget("4MB"), {"stream": old.stream.schema}) as operator:
        given = answers(operator.push("stream", head))
        state = operator.snapshot()
    done = {row[0] for row in given}
    with replace(spec, pages=new.pages).open(MemoryBudget("4MB"), {"stream": old.stream.schema}) as operator:
        given += answers(operator.readmit(state, None)) if state else []
        for batch in rest:
            given += answers(operator.push("stream", batch))
        given += answers(operator.finish())
    parts = [replace(old, stream=old.stream.filter(pa.array([n in done for n in old.stream["id"].to_pylist()])))]
    parts.append(
        replace(new, stream=old.stream.filter(pa.array([n not in done for n in old.stream["id"].to_pylist()])))
    )
    assert oracle.bag(given) == sum((expected(part, "left", "both") for part in parts), start=oracle.bag([]))


def test_a_range_around_all_others_is_in_every_cell_and_no_more_rows_are_stored_than_needed(tmp_path: Path) -> None:
    n = 4_000
    lo = np.append(np.arange(n) * 10, [0, 5])
    hi = pa.array([*(10 * at + 9 for at in range(n)), 10 * n, None], pa.int64())
    master = pa.table({"lo": lo, "hi": hi})
    write_range_pages(tmp_path / "m", master, (), ("lo", "hi"), page="2KB", parts=3)
    pages = PageFileSource(str(tmp_path / "m")).open()
    assert pages.ranges is not None
    assert n / 10 < len(pages.ranges) <= n / 8 + 3
    assert n + 2 * n / 10 < pages.starts[-1] < n + 2 * n / 7
    case = Case(pa.table({"v": [0, 7, 39_999, 40_000, 40_001, -1]}), pages, master, ("v",), 3)  # type: ignore[arg-type]
    spec = HybridJoin(pages=pages, on=("v",), check=check(case, "both"), columns=("lo",))
    starts = {0: [0, 0], 7: [0, 0, 5], 39_999: [0, 5, 39_990], 40_000: [0, 5], 40_001: [5]}
    assert run(spec, case).bag == oracle.bag([(v, lo) for v, all_lo in starts.items() for lo in all_lo])
    told = PageFileSource(str(tmp_path / "m")).explain()
    assert f"ranges lo to hi, in {len(pages.ranges)} cells; overlapping ones are in all cells" in told


def test_models_see_a_cell_as_one_row_of_all_its_bytes(tmp_path: Path) -> None:
    n = 800
    master = pa.table({"lo": np.arange(n) * 10, "hi": np.arange(n) * 10 + 9, "r": np.arange(n)})
    write_range_pages(tmp_path / "m", master, (), ("lo", "hi"), page="2KB")
    pages = PageFileSource(str(tmp_path / "m")).open()
    assert keys_in(pages) == n // 8
    schema, distribution = pa.schema([("v", pa.int64())]), uniform(keys_in(pages))
    setting = setting_of(pages, schema, 1 << 20, distribution, SOURCE_COSTS)
    assert setting.master_rows == n // 8
    assert setting.row_bytes == pytest.approx(8 * row_bytes(pages))
    assert setting.stored_row_bytes == pytest.approx(pages.stored_bytes(0, len(pages.starts) - 1) / (n // 8))
    assert setting.costs.emit == pytest.approx(SOURCE_COSTS.emit + 7 * SOURCE_COSTS.probe)
    prices = choose(setting).explain()
    assert "cachejoin" in prices
    assert "needs master data in order of frequency" in prices


@pytest.mark.parametrize("seed", range(20))
def test_cells_hold_what_their_values_may_match(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 80))
    group = np.sort(rng.integers(0, 4, n))
    start = rng.integers(0, 30, n)
    order = np.lexsort((start, group))
    start = start[order].astype(np.int64)
    end = start + rng.integers(-2, 25, n)
    rows, cells, heads = cut_cells(group, start, end, least=3)
    assert len(rows) <= 4 * n
    for row in range(n):
        for value in range(int(start[row]), int(end[row]) + 1):
            cell = max(at for at, head in enumerate(heads) if group[head] == group[row] and start[head] <= value)
            assert (rows[cells == cell] == row).sum() == 1
    overlaps = any(group[a] == group[b] and start[b] < end[a] for b in range(n) for a in range(b))
    assert (first_overlap(group, start, end) is not None) == overlaps
    meets = any(group[a] == group[b] and start[b] <= end[a] for b in range(n) for a in range(b))
    assert (first_overlap(group, start, end, touching=True) is not None) == meets


def test_open_ranges_are_not_copied_to_every_part(tmp_path: Path) -> None:
    starts = list(range(4000))
    rows = pa.table({"lo": starts, "hi": pa.array([None] * 4000, pa.int64()), "r": starts})
    found = write_range_pages(tmp_path / "m", rows, (), ("lo", "hi"), parts=20)
    assert len(found.parts) > 2
    assert found.rows < 4 * 4000
    pages = PageFileSource(str(tmp_path / "m")).open()
    case = Case(pa.table({"v": [0, 7, 1500, 3999]}), pages, rows, ("v",), 9)  # type: ignore[arg-type]
    spec = HybridJoin(pages=pages, on=case.on, check=check(case, "both", "all"), columns=("r",))
    met = run(spec, case).bag
    assert sum(met.values()) == 1 + 8 + 1501 + 4000


def test_ranges_that_overlap_are_refused_when_they_are_built_or_met(tmp_path: Path) -> None:
    rows = pa.table({"c": ["a", "a", "b", "a"], "lo": [0, 5, 3, 9], "hi": [5, 9, 8, 12]})
    write_range_pages(tmp_path / "m", rows, "c", ("lo", "hi"), unique=True, parts=2, closed="left")
    with pytest.raises(DataError, match=r"'lo': 0, 'hi': 5} and {'c': 'a', 'lo': 5, 'hi': 9}; .*closed='left'"):
        write_range_pages(tmp_path / "m", rows, "c", ("lo", "hi"), unique=True)
    days = rows.set_column(1, "lo", rows["lo"].cast(pa.int32()).cast(pa.date32()))
    days = days.set_column(2, "hi", days["hi"].cast(pa.int32()).cast(pa.date32()))
    write_range_pages(tmp_path / "days", days, "c", ("lo", "hi"), unique=True)
    wrong = pa.concat_tables([rows, pa.table({"c": ["b"], "lo": [7], "hi": [20]})])
    with pytest.raises(
        DataError, match=r"ranges overlap: {'c': 'b', 'lo': 3, 'hi': 8} and {'c': 'b', 'lo': 7, 'hi': 20}"
    ):
        write_range_pages(tmp_path / "m", wrong, "c", ("lo", "hi"), unique=True, closed="left")
    write_range_pages(tmp_path / "m", wrong, "c", ("lo", "hi"))
    pages = PageFileSource(str(tmp_path / "m")).open()
    case = Case(pa.table({"c": ["b", "a"], "v": [3, 5]}), pages, wrong, ("c", "v"), 9)  # type: ignore[arg-type]
    spec = HybridJoin(pages=pages, on=case.on, check=check(case, "left", "error"), columns=("hi",))
    assert run(spec, case).bag == oracle.bag([("b", 3, 8), ("a", 5, 9)])
    with pytest.raises(
        DataError, match=r"with c = 'a' match one stream row: 5 lies in \(lo, hi\) = \(0, 5\) and \(5, 9\)"
    ):
        run(replace(spec, check=check(case, "both", "error")), case)


def test_what_ranges_cannot_be(tmp_path: Path) -> None:
    rows = pa.table({"c": ["a"], "lo": [0], "hi": [5.0], "yes": [True]})
    for bounds, message in {
        ("lo", "hi"): "cast both to one type",
        ("lo", "up"): r"there is no column \['up'\]",
        ("yes", "yes"): "cast both to one type",
        ("lo", "lo"): "have a column twice",
        "lo": "name two columns",
    }.items():
        with pytest.raises(PlanError, match=message):
            write_range_pages(tmp_path / "m", rows, (), bounds)
    with pytest.raises(PlanError, match="is for our own use"):
        write_range_pages(tmp_path / "m", rows.append_column(CELL, pa.array([1])), (), ("lo", "lo"))


def test_damaged_cells_are_an_error(tmp_path: Path) -> None:
    write_range_pages(tmp_path / "m", pa.table({"lo": [0], "hi": [5]}), (), ("lo", "hi"))
    place = next((tmp_path / "m").glob("generation-1/*.cells"))
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    with pytest.raises(ConfigError, match="is damaged"):
        PageFileSource(str(tmp_path / "m")).open()
