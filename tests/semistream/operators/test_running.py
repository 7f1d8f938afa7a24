"""Joins in progress: pauses, snapshots and crashes, new versions of the master data, new sizes, bounds on waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.semistream.operators.memory_pages import MemoryPages
from tests.semistream.operators.stream_cases import Case, answers, random_case, wait_percentiles
from tests.semistream.operators.test_answers import random_spec

from dovetail.engine.clock import VirtualClock
from dovetail.engine.host import Pause, Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.operators import (
    ALGORITHMS,
    CacheJoin,
    HybridJoin,
    MeshJoin,
    PartitionedJoin,
    XHybridJoin,
)
from dovetail.joins.semistream.request import CachePolicy, Lookup, Residence
from dovetail.joins.semistream.sizes import Sizes

CARRYING = [name for name in ALGORITHMS if name not in ("inlj", "hash_join")]


def opened(spec: Any, case: Case, memory: str = "8MB") -> Any:
    return spec.open(MemoryBudget(memory), {"stream": case.stream.schema})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_local_host_drives_every_join_with_pauses(name: str) -> None:
    for seed in range(4):
        case = random_case(300 + seed)
        spec = random_spec(np.random.default_rng(seed), name, case, "left")
        items = [item for batch in case.batches() for item in (batch, Pause(0.002))]
        schedule = Schedule(seed=seed, pause_chance=0.3)
        got = run_local(spec, {"stream": items}, "8MB", schedule, schemas={"stream": case.stream.schema})
        assert oracle.bag(answers(got)) == case.expected("left")


@pytest.mark.parametrize("name", CARRYING)
def test_a_crash_at_any_batch_changes_nothing(name: str) -> None:
    """Acceptance test A15: state N and answers N come from one attempt; a retry starts from state N - 1."""
    for seed in range(4):
        case = random_case(400 + seed, "string" if seed == 3 else "int")
        rng = np.random.default_rng(seed)
        spec, done, state = random_spec(rng, name, case, "left", hash_bits=64), [], None
        for batch in case.batches():
            attempts = [answers_of_attempt(spec, case, state, batch) for _ in range(2)]
            assert attempts[0][0] == attempts[1][0], "a retried batch gives the same rows in the same order"
            done += attempts[1][0]
            state = attempts[1][1]
        last = opened(spec, case)
        with last as operator:
            if state is not None:
                done += rows_in(operator.restore(state))
            done += answers(operator.finish())
        assert oracle.bag(done) == case.expected("left")


def rows_in(batches: list[pa.RecordBatch]) -> list[Any]:
    return answers(iter(batches))


def answers_of_attempt(spec: Any, case: Case, state: Any, batch: pa.RecordBatch) -> tuple[list[Any], Any]:
    with opened(spec, case) as operator:
        rows = rows_in(operator.restore(state)) if state is not None else []
        rows += answers(operator.push("stream", batch))
        return rows, operator.snapshot()


@pytest.mark.parametrize("name", CARRYING)
def test_a_snapshot_carries_policies_so_that_a_run_goes_on_as_if_never_stopped(name: str) -> None:
    for seed in range(3):
        case = random_case(450 + seed)
        spec = random_spec(np.random.default_rng(seed), name, case, "left", hash_bits=64)
        batches = case.batches()
        half = len(batches) // 2
        with opened(spec, case) as whole, opened(spec, case) as first, opened(spec, case) as second:
            straight = [row for batch in batches for row in answers(whole.push("stream", batch))]
            straight += answers(whole.finish())
            broken = [row for batch in batches[:half] for row in answers(first.push("stream", batch))]
            broken += rows_in(second.restore(first.snapshot()))
            broken += [row for batch in batches[half:] for row in answers(second.push("stream", batch))]
            broken += answers(second.finish())
        assert straight == broken


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_new_version_answers_later_rows_and_never_earlier_ones(name: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keys = np.arange(40)
        old = pa.table({"k": keys, "r": keys, "text": pa.array(["old"] * 40)})
        changed_keys = keys[rng.random(40) < 0.3]
        new = pa.table({"k": keys, "r": keys, "text": pa.array(["new" if k in changed_keys else "old" for k in keys])})
        pages, later = MemoryPages(old, ("k",), 4), MemoryPages(new, ("k",), 4, version="2")
        changed = np.unique(changed_keys // 4) if seed % 2 else None
        stream = pa.table({"id": np.arange(200), "k": rng.zipf(1.4, 200) % 45, "word": pa.array(["w"] * 200)})
        case = Case(stream, pages, old, ("k",), 50)
        spec = random_spec(rng, name, case, "left", hash_bits=64)
        batches = case.batches()
        with opened(spec, case) as operator:
            got = [row for batch in batches[:2] for row in answers(operator.push("stream", batch))]
            got += answers(operator.adopt(later, changed))
            got += [row for batch in batches[2:] for row in answers(operator.push("stream", batch))]
            got += answers(operator.finish())
        before = Case(stream.slice(0, 100), pages, old, ("k",), 50).expected("left")
        after = Case(stream.slice(100), later, new, ("k",), 50).expected("left")
        assert oracle.bag(got) == before + after


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rows_that_waited_may_be_answered_from_the_next_version(name: str) -> None:
    """Some pages changed, some keys gone, and the cache warm: every row once, and the late ones by the new rows."""
    for seed in range(3):
        rng, keys = np.random.default_rng(seed), np.arange(40)
        old = pa.table({"k": keys, "r": keys, "text": ["old"] * 40})
        moved = rng.random(40) < 0.3
        new = pa.table(
            {"k": np.where(moved & (keys > 30), 100 + keys, keys), "r": keys, "text": np.where(moved, "new", "old")}
        )
        pages, later = (MemoryPages(table, ("k",), 3, version=v) for table, v in ((old, "1"), (new, "2")))
        changed = np.flatnonzero([old.slice(3 * p, 3) != new.slice(3 * p, 3) for p in range(14)])
        stream = pa.table({"id": np.arange(200), "k": rng.zipf(1.4, 200) % 45, "word": pa.array(["w"] * 200)})
        case = Case(stream, pages, old, ("k",), 50)
        spec = random_spec(rng, name, case, "left")
        with opened(spec, case) as operator:
            first = [row for batch in case.batches()[:3] for row in answers(operator.push("stream", batch))]
            snapshot = operator.snapshot()
        with opened(replace(spec, pages=later, sizes=operator.sizes), case) as operator:
            second = answers(operator.readmit(snapshot, changed if seed else None))
            second += answers(operator.push("stream", case.batches()[3]))
            second += answers(operator.finish())
        early, late = ({row[0] for row in rows} for rows in (first, second))
        assert early.isdisjoint(late)
        assert early | late == set(range(200))
        ids = pa.array(sorted(early), pa.int64()), pa.array(sorted(late), pa.int64())
        assert oracle.bag(first) == Case(stream.take(ids[0]), pages, old, ("k",), 50).expected("left")
        assert oracle.bag(second) == Case(stream.take(ids[1]), later, new, ("k",), 50).expected("left")


def test_a_new_version_with_other_columns_is_refused() -> None:
    case = random_case(9)
    other = MemoryPages(pa.table({"k": [1], "z": [2]}), ("k",), 1)
    with opened(HybridJoin(pages=case.pages, on=case.on), case) as operator, pytest.raises(PlanError, match="columns"):
        list(operator.adopt(other))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_sizes_may_change_while_running(name: str) -> None:
    for seed in range(5):
        case, rng = random_case(500 + seed), np.random.default_rng(seed)
        spec = random_spec(rng, name, case, "left")
        with opened(spec, case) as operator:
            got = []
            for batch in case.batches():
                got += answers(operator.push("stream", batch))
                sizes = Sizes(
                    waiting=int(rng.integers(1, 60)) if "mesh" not in name else 150,
                    cached=int(rng.integers(1, 12)),
                    per_segment=int(rng.integers(1, 4)) if rng.random() < 0.3 else None,
                    page_cache=int(rng.integers(0, 4)),
                )
                got += answers(operator.resize(sizes))
                if name in CARRYING:
                    assert operator.waiting_rows <= operator.sizes.waiting == sizes.waiting
                if name in ("cachejoin", "sscj"):
                    assert len(operator.kept.cache) <= operator.sizes.cached == sizes.cached
            got += answers(operator.finish())
        assert oracle.bag(got) == case.expected("left")


@pytest.mark.parametrize("name", ["hybridjoin", "ssij", "partitioned", "cachejoin"])
def test_longer_segments_take_their_room_from_other_parts(name: str) -> None:
    """Sizes that fit a budget still do when they are taken up by a join whose segments were short."""
    master = pa.table({"k": np.arange(4000), "r": np.arange(4000), "text": ["x" * 80] * 4000})
    pages, rng, limit = MemoryPages(master, ("k",), 20), np.random.default_rng(1), 400 << 10
    stream = pa.table({"id": np.arange(6000), "k": rng.integers(0, 4000, 6000)})
    case = Case(stream, pages, master, ("k",), 500)
    spec, budget, got = ALGORITHMS[name](pages=pages, on=("k",), sizes=Sizes(per_segment=1)), MemoryBudget(limit), []
    with spec.open(budget, {"stream": stream.schema}) as operator:
        for number, batch in enumerate(case.batches()):
            if number == 6:
                longer = replace(spec, sizes=Sizes(per_segment=20)).fit(limit, stream.schema)
                got += answers(operator.resize(longer))
                assert operator.sizes.per_segment == 20
                assert operator.sizes.resident == longer.resident
            got += answers(operator.push("stream", batch))
        got += answers(operator.finish())
    rows = stream.to_pylist()  # each finds the one master row of its key
    assert oracle.bag(got) == oracle.bag((row["id"], row["k"], row["k"], "x" * 80) for row in rows)
    assert budget.peak <= limit


def test_pinned_pages_cannot_be_resized() -> None:
    case = random_case(3)
    spec = XHybridJoin(pages=case.pages, on=case.on, sizes=Sizes(waiting=4, per_segment=1, pinned=1))
    with opened(spec, case) as operator, pytest.raises(PlanError, match="pinned"):
        list(operator.resize(Sizes(pinned=2)))


def starving(lookup: Lookup, bound: Residence | None) -> int:
    """The longest residence, in loads, of a key that is asked for once among many requests for the others."""
    master = pa.table({"k": np.arange(8), "r": np.arange(8)})
    pages = MemoryPages(master, ("k",), 1)
    keys = np.tile([1, 1, 1, 2, 2, 2, 3, 3, 3], 60)
    keys[0] = 7
    stream = pa.table({"k": keys})
    sizes = Sizes(waiting=6, per_segment=1)
    spec = HybridJoin(pages=pages, on=("k",), sizes=sizes, lookup=lookup, max_residence=bound)
    case = Case(stream, pages, master, ("k",), 50)
    with opened(spec, case) as operator:
        for batch in case.batches():
            answers(operator.push("stream", batch))
        answers(operator.finish())
    return int(operator.metrics.value("longest_residence"))


def test_max_residence_forces_old_rows_to_be_served() -> None:
    assert starving(Lookup("greedy"), None) > 100
    assert starving(Lookup("greedy"), Residence(loads=10)) <= 12
    assert starving(Lookup("position", 0.1), Residence(loads=5)) <= 7
    assert starving(Lookup("greedy"), Residence(seconds=0.02)) < 20


def test_rows_older_than_max_residence_are_answered_by_the_next_push() -> None:
    master = pa.table({"k": np.arange(8), "r": np.arange(8)})
    for cls in (HybridJoin, PartitionedJoin, CacheJoin):
        pages = MemoryPages(master, ("k",), 1)
        clock = pages.device.clock
        assert isinstance(clock, VirtualClock)
        spec = cls(pages=pages, on=("k",), sizes=Sizes(waiting=100, per_segment=1), max_residence=Residence(seconds=5))
        with spec.open(MemoryBudget("1MB"), {"stream": pa.schema([("k", pa.int64())])}) as operator:
            assert answers(operator.push("stream", pa.record_batch({"k": [3]}))) == []
            clock.advance(6)
            assert answers(operator.push("stream", pa.record_batch({"k": [4]}))) == [(3, 3)]
            assert answers(operator.finish()) == [(4, 4)]


def test_rows_may_be_held_in_a_pause_until_they_are_due() -> None:
    pages = MemoryPages(pa.table({"k": np.arange(8), "r": np.arange(8)}), ("k",), 1)
    bound, sizes = Residence(seconds=5), Sizes(waiting=100, per_segment=1)
    spec = HybridJoin(pages=pages, on=("k",), sizes=sizes, max_residence=bound, when_idle="hold")
    with spec.open(MemoryBudget("1MB"), {"stream": pa.schema([("k", pa.int64())])}) as operator:
        answers(operator.push("stream", pa.record_batch({"k": [3]})))
        assert answers(operator.idle(lambda: False)) == []
        pages.device.clock.advance(6)
        answers(operator.push("stream", pa.record_batch({"k": pa.array([], pa.int64())})))
        assert answers(operator.idle(lambda: False)) == [(3, 3)]


def test_a_partial_chunk_is_joined_in_a_pause() -> None:
    master = pa.table({"k": np.arange(4), "r": np.arange(4)})
    pages = MemoryPages(master, ("k",), 1)
    spec = MeshJoin(pages=pages, on=("k",), sizes=Sizes(waiting=8, per_segment=1))
    with spec.open(MemoryBudget("1MB"), {"stream": pa.schema([("k", pa.int64())])}) as operator:
        assert answers(operator.push("stream", pa.record_batch({"k": [3]}))) == []
        assert answers(operator.idle(lambda: True)) == []
        assert not pages.reads
        assert answers(operator.idle(lambda: False)) == [(3, 3)]
        assert [first for first, _ in pages.reads] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_failed_read_loses_nothing_and_invents_nothing(name: str) -> None:
    case = random_case(14, unique=True)
    spec = random_spec(np.random.default_rng(1), name, case, "left", sizes=Sizes(waiting=500, per_segment=2))
    with opened(spec, case) as operator:
        read, got = case.pages.read, []
        for batch in case.batches():
            got += answers(operator.push("stream", batch))

        def failing(first: int, count: int) -> pa.RecordBatch:
            raise ConfigError("the disk is gone")

        case.pages.read = failing  # type: ignore[method-assign]
        if operator.waiting_rows:
            with pytest.raises(ConfigError):
                answers(operator.drain())
        case.pages.read = read  # type: ignore[method-assign]
        got += answers(operator.finish())
    assert oracle.bag(got) == case.expected("left")


def test_waiting_times_are_counted_and_have_percentiles() -> None:
    case = random_case(20)
    spec = HybridJoin(pages=case.pages, on=case.on, sizes=Sizes(waiting=5, per_segment=1))
    with opened(spec, case) as operator:
        for batch in case.batches():
            answers(operator.push("stream", batch))
        answers(operator.finish())
    waits = wait_percentiles(operator.metrics, "residence")
    assert 0 < waits[0.5] <= waits[0.95] <= waits[0.99]


def test_the_adaptive_cache_remembers_keys_that_are_missing() -> None:
    master = pa.table({"k": np.arange(0, 40, 2), "r": np.arange(20)})
    pages = MemoryPages(master, ("k",), 4, total=True)
    stream = pa.table({"k": np.tile([7, 7, 7, 7, 2, 4, 6, 8], 40)})
    case = Case(stream, pages, master, ("k",), 16)
    sizes = Sizes(waiting=8, per_segment=1, cached=10)
    loads = {}
    for rule in ("adaptive", "random"):
        spec = CacheJoin(pages=pages, on=("k",), how="left", sizes=sizes, cache=CachePolicy(rule, 2))  # type: ignore[arg-type]
        with opened(spec, case) as operator:
            rows = [row for batch in case.batches() for row in answers(operator.push("stream", batch))]
            rows += answers(operator.finish())
        assert [row for row in rows if row[0] == 7] == [(7, None)] * 160
        loads[rule] = operator.metrics.value("loads")
    assert loads["adaptive"] < loads["random"]


def test_closing_early_gives_back_all_memory() -> None:
    for name in ALGORITHMS:
        case = random_case(21)
        budget = MemoryBudget("8MB")
        operator = ALGORITHMS[name](pages=case.pages, on=case.on).open(budget, {"stream": case.stream.schema})
        pushed: Iterator[pa.RecordBatch] = operator.push("stream", case.batches()[0])
        next(pushed, None)
        operator.close()
        operator.close()
        assert budget.used == 0, budget.components()
