"""Rounds: several segments loaded together give the answers of single loads, inside the budget, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.semistream.operators.memory_pages import MemoryPages
from tests.semistream.operators.stream_cases import HOWS, KEYS, Case, answers, order_kept, random_case, run
from tests.semistream.operators.test_answers import random_spec

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS, CacheJoin, HybridJoin
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes

TOGETHER = (1, 2, 3, 7, 1000)
INDEXED = [name for name in ALGORITHMS if name not in ("meshjoin", "r_meshjoin", "hash_join")]
DRIVEN = [name for name in INDEXED if name != "inlj"]


class KeyedMemory(MemoryPages):
    """Pages that also find single keys, as a database does; every request is noted."""

    finds_keys = True
    reads_homes = False
    asked: list[int]

    def read_keys(self, key: list[pa.Array], room: int) -> pa.RecordBatch:
        self.asked = [*getattr(self, "asked", []), len(key[0])]
        wanted = set(zip(*(k.to_pylist() for k in key), strict=True))
        have = list(zip(*(self.rows[name].to_pylist() for name in self.key), strict=True))
        at = [n for n, k in enumerate(have) if plain(k) in {plain(w) for w in wanted}]
        np.random.default_rng(len(at)).shuffle(at)
        found = self.rows.take(pa.array(at, pa.int64()))
        return self.device.call(lambda: found, int(found.nbytes))


def plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if k != k else k for k in key)


def many_pages(rng: np.random.Generator, keyed: bool = False) -> Case:
    """Some hundred short pages and a stream that asks for all of them, misses among it."""
    keys = np.arange(300)
    master = pa.table({"k": keys, "r": keys * 2, "text": pa.array([f"t{k % 7}" for k in keys])})
    stream = pa.table({"id": np.arange(800), "k": rng.zipf(1.2, 800) % 330, "word": pa.array(["w"] * 800)})
    kind = KeyedMemory if keyed else MemoryPages
    return Case(stream, kind(master, ("k",), 4, total=True), master, ("k",), 200)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("kind", KEYS)
def test_rounds_of_any_size_answer_as_the_definition(name: str, kind: str) -> None:
    for seed, together in enumerate(TOGETHER):
        case, rng = random_case(700 + seed, kind), np.random.default_rng(seed)
        for how in HOWS:
            spec = random_spec(rng, name, case, how)
            spec = replace(spec, sizes=replace(spec.sizes, together=together))
            got = run(spec, case, pauses=seed % 3)
            assert got.bag == case.expected(how), spec
            assert order_kept(got.rows, case.stream.schema.names, case.on), spec
            met = [got.metrics.value(n) for n in ("answered_by_page", "answered_by_cache", "misses")]
            assert sum(met) == got.metrics.value("rows") == case.stream.num_rows


@pytest.mark.parametrize(
    ("name", "lookup"),
    [
        ("ssij", ""),
        ("partitioned", ""),
        *(("hybridjoin", x) for x in ("oldest", "alternate", "guarded", 0.4, "greedy")),
    ],
)
def test_rounds_load_the_segments_that_single_loads_would(name: str, lookup: str | float) -> None:
    case = many_pages(np.random.default_rng(1))
    reads, expected = {}, case.expected("left")
    for together in (1, 5, 400):
        options = {"lookup": Lookup.of(lookup)} if name == "hybridjoin" else {}
        sizes = Sizes(waiting=5000, per_segment=2, together=together, resident=0)
        spec = ALGORITHMS[name](pages=case.pages, on=case.on, sizes=sizes, how="left", **options)
        case.pages.reads.clear()
        got = run(spec, case)
        assert got.bag == expected
        reads[together] = got.metrics.value("loads"), sorted(case.pages.reads), got.metrics.value("longest_residence")
    assert reads[1] == reads[5] == reads[400]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("waiting", [3, 40, 200])
def test_rounds_make_room_when_all_slots_are_taken(name: str, waiting: int) -> None:
    """Loads are a few more than single ones at most, as every round leaves most rows waiting."""
    case = many_pages(np.random.default_rng(7))
    expected, loads = case.expected("left"), {}
    for together in (1, 1000):
        sizes = Sizes(waiting=waiting, per_segment=1, together=together, cached=20, resident=2, pinned=2)
        spec = ALGORITHMS[name](pages=case.pages, on=case.on, how="left", sizes=sizes)
        got = run(spec, case)
        assert got.bag == expected
        assert order_kept(got.rows, case.stream.schema.names, case.on)
        loads[together] = got.metrics.value("loads")
    assert loads[1000] <= 1.15 * loads[1] + 5


def test_no_page_is_loaded_twice_in_a_round_and_loads_are_pages() -> None:
    case = many_pages(np.random.default_rng(2))
    spec = HybridJoin(pages=case.pages, on=case.on, sizes=Sizes(waiting=5000, per_segment=1, together=30))
    rounds: list[list[int]] = []
    read_many = case.pages.read_many

    def noted(first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        rounds.append(first.tolist())
        return read_many(first, count)

    case.pages.read_many = noted  # type: ignore[method-assign]
    got = run(spec, case)
    assert len(rounds) > 1
    assert max(map(len, rounds)) == 30
    assert all(sorted(set(loaded)) == loaded for loaded in rounds)
    assert got.metrics.value("loads") == sum(map(len, rounds)) == len(case.pages.reads)


@pytest.mark.parametrize("name", INDEXED)
def test_a_round_stays_inside_the_budget_and_its_bytes_are_reserved(name: str) -> None:
    case = many_pages(np.random.default_rng(3))
    expected = case.expected("left")
    spec = ALGORITHMS[name](pages=case.pages, on=case.on, how="left", sizes=Sizes(per_segment=1, together=1 << 15))
    for memory in ("60KB", "200KB", "1MB"):
        got = run(spec, case, memory)
        assert got.bag == expected
        assert got.budget.peak <= got.budget.limit
        assert got.budget.components()["round"][1] > 0
        rows = most_rows_read_at_once(spec, case, memory)
        stored = case.pages.stored_bytes(0, 1) / 4
        assert rows > 4
        assert rows * stored <= got.budget.components()["disk buffer"][1] <= got.budget.limit // 4


def most_rows_read_at_once(spec: Any, case: Case, memory: str) -> int:
    read_many, most = case.pages.read_many, [0]

    def noted(first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        batch, offsets = read_many(first, count)
        most.append(batch.num_rows)
        return batch, offsets

    case.pages.read_many = noted  # type: ignore[method-assign]
    try:
        run(spec, case, memory)
    finally:
        del case.pages.read_many
    return max(most)


@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_round_that_fails_loses_nothing_and_keeps_the_order_of_waiting_rows(name: str, fails_at: int) -> None:
    case = many_pages(np.random.default_rng(4))
    sizes = Sizes(waiting=5000, per_segment=2, together=30)
    spec = ALGORITHMS[name](pages=case.pages, on=case.on, how="left", sizes=sizes)
    with spec.open(MemoryBudget("8MB"), {"stream": case.stream.schema}) as operator:
        got = [row for batch in case.batches() for row in answers(operator.push("stream", batch))]
        read_many, calls = case.pages.read_many, iter(range(100))

        def failing(first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
            if next(calls) == fails_at:
                raise ConfigError("the disk is gone")
            return read_many(first, count)

        case.pages.read_many = failing  # type: ignore[method-assign]
        with pytest.raises(ConfigError):
            collect(operator.drain(), got)
        del case.pages.read_many
        tickets = operator.waiting.pool.ticket[operator.waiting.in_order()]
        assert (np.diff(tickets) > 0).all()
        got += answers(operator.finish())
    assert oracle.bag(got) == case.expected("left")
    assert order_kept(got, case.stream.schema.names, case.on)


def collect(batches: Iterator[pa.RecordBatch], into: list[Any]) -> None:
    """Answers one batch at a time, so that those before a failure are not lost."""
    for batch in batches:
        into += answers(iter([batch]))


def test_a_round_fills_the_cache_as_single_loads_do() -> None:
    case, cached = many_pages(np.random.default_rng(5)), {}
    for together in (1, 300):
        sizes = Sizes(waiting=5000, per_segment=1, cached=2000, together=together)
        spec = CacheJoin(pages=case.pages, on=case.on, how="left", sizes=sizes, cache=CachePolicy(threshold=1))
        with spec.open(MemoryBudget("8MB"), {"stream": case.stream.schema}) as operator:
            got: list[Any] = []
            for batch in case.batches():
                got += answers(operator.push("stream", batch))
                got += answers(operator.drain())
            keys, rows = operator.kept.cache.snapshot()
            assert oracle.bag(got) == case.expected("left")
            cached[together] = sorted(zip(*(keys[n].to_pylist() for n in ("code", "rows", "page")), strict=True))
            assert rows.num_rows == sum(size for _, size, _ in cached[together])
            assert sorted(rows["r"].to_pylist()) == sorted(2 * code for code, size, _ in cached[together] if size)
    assert cached[1] == cached[300]
    assert any(size == 0 for _, size, _ in cached[1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("kind", KEYS)
def test_stores_that_find_keys_are_asked_for_those_that_wait(name: str, kind: str) -> None:
    for seed in range(3):
        case, rng = random_case(800 + seed, kind), np.random.default_rng(seed)
        pages = KeyedMemory(case.master, case.on, int(rng.integers(1, 6)), total=bool(seed % 2))
        case = Case(case.stream, pages, case.master, case.on, case.batch_rows)
        for how in HOWS:
            spec = random_spec(rng, name, case, how)
            spec = replace(spec, sizes=replace(spec.sizes, together=50))
            assert run(spec, case, pauses=seed % 3).bag == case.expected(how), spec


@pytest.mark.parametrize("name", ["ssij", "partitioned"])
def test_after_a_round_those_stay_that_are_asked_for_most(name: str) -> None:
    case = many_pages(np.random.default_rng(8))
    sizes = Sizes(waiting=5000, per_segment=1, together=1000, resident=6)
    spec = ALGORITHMS[name](pages=case.pages, on=case.on, how="left", sizes=sizes)
    with spec.open(MemoryBudget("8MB"), {"stream": case.stream.schema}) as operator:
        got: list[Any] = []
        for batch in case.batches():
            got += answers(operator.push("stream", batch))
            got += answers(operator.drain())
            kept = sorted(operator.kept._residents)
            others = np.delete(operator.kept.requests, kept)
            assert len(kept) == 6
            assert operator.kept.requests[kept].min() >= others.max()
            assert sorted(np.flatnonzero(operator.kept._there)) == kept
        assert operator.counts["answered_by_cache"] > 0
    assert oracle.bag(got) == case.expected("left")


def test_a_batch_is_one_request_for_its_distinct_keys() -> None:
    case = many_pages(np.random.default_rng(6), keyed=True)
    spec = HybridJoin(pages=case.pages, on=case.on, how="left", sizes=Sizes(waiting=5000, per_segment=1, together=1000))
    got = run(spec, case)
    assert got.bag == case.expected("left")
    assert case.pages.asked == [len(np.unique(case.stream["k"].to_numpy()))]  # type: ignore[attr-defined]
    assert not case.pages.reads
    assert got.metrics.value("loads") == 1


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("repeats", [1, 40])
def test_keys_of_a_page_file_with_more_rows_than_planned_stay_inside_the_budget(
    name: str, repeats: int, tmp_path: Path
) -> None:
    keys = np.repeat(np.arange(1200), repeats)
    master = pa.table({"k": keys, "r": np.arange(len(keys)), "text": pa.array(["x" * 50] * len(keys))})
    write_pages(tmp_path / "m.pages", master, "k")
    stream = pa.table({"id": np.arange(2500), "k": np.random.default_rng(3).integers(0, 1250, 2500)})
    spec, limit, got = ALGORITHMS[name], 600 << 10, 0
    with closing(MasterStore.open(tmp_path / "m.pages").at()) as pages:
        budget = MemoryBudget(limit)
        with spec(pages=pages, on=("k",)).open(budget, {"stream": stream.schema}) as operator:
            for batch in stream.to_batches(max_chunksize=700):
                for answer in operator.push("stream", batch):
                    got += answer.num_rows
                    assert answer["k"].equals(pa.array(keys[answer["r"].to_numpy()]))
            got += sum(answer.num_rows for answer in operator.finish())
    assert got == repeats * int((stream["k"].to_numpy() < 1200).sum())
    assert budget.peak <= limit
