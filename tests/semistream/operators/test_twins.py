"""Every operator against its plain twin: the same loads in the same order, the same answers in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tests.semistream.operators.twins as twins
from tests.semistream.operators.memory_pages import plain_key
from tests.semistream.operators.stream_cases import Case, random_case

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.operators import (
    CacheJoin,
    HybridJoin,
    Inlj,
    MeshJoin,
    OptimisedXHybridJoin,
    PartitionedJoin,
    RMeshJoin,
    Sscj,
    Ssij,
    XHybridJoin,
)
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Segments, Sizes

SEEDS = range(30)
LOOKUPS = ("oldest", "alternate", "guarded", "position", "greedy", "greedy_oldest")


def rows_of(case: Case, segments: Segments) -> list[list[tuple[Any, int]]]:
    """Each segment's rows as (key, r)."""
    rows = case.pages.rows.to_pylist()
    pairs = [(plain_key([row[name] for name in case.on]), row["r"]) for row in rows]
    bounds = [
        (int(segments.starts[f]), int(segments.starts[t])) for f, t in zip(segments.first, segments.last, strict=True)
    ]
    return [pairs[start:stop] for start, stop in bounds]


def homes_of(case: Case, segments: Segments) -> Any:
    def home(key: Any) -> int:
        page = case.pages.home_of(key)
        if 0 <= page < segments.pinned:
            return segments.aligned
        return page // segments.per_segment if page >= 0 else -1

    return home


def check(spec: Any, twin: Any, case: Case, segments: Segments) -> Any:
    """Run both over the same batches, left join; loads and answers must agree after every batch."""
    names = case.stream.schema.names
    case.pages.reads.clear()
    got: list[tuple[int, Any]] = []
    with spec.open(MemoryBudget("64MB"), {"stream": case.stream.schema}) as operator:
        start = len(case.pages.reads)
        for batch in case.batches():
            for out in operator.push("stream", batch):
                got += list(zip(out["id"].to_pylist(), out["r"].to_pylist(), strict=True))
            keys = [plain_key([row[name] for name in case.on]) for row in batch.to_pylist()]
            twin.push(list(zip(batch["id"].to_pylist(), keys, strict=True)))
            assert [f for f, _ in case.pages.reads[start:]] == [int(segments.first[s]) for s in twin.loads], names
        for out in operator.finish():
            got += list(zip(out["id"].to_pylist(), out["r"].to_pylist(), strict=True))
        twin.drain()
        assert [f for f, _ in case.pages.reads[start:]] == [int(segments.first[s]) for s in twin.loads]
    assert sorted(got, key=str) == sorted(twin.answers, key=str)
    return operator


def cases(seed: int, unique: bool = False) -> tuple[Case, Any, int]:
    case = random_case(seed, "int", unique)
    return case, np.random.default_rng(seed), len(case.pages.page_lists)


@pytest.mark.parametrize("seed", SEEDS)
def test_inlj(seed: int) -> None:
    case, rng, _ = cases(seed)
    kept, segments = int(rng.integers(0, 4)), Segments(case.pages, 1)
    spec = Inlj(pages=case.pages, on=case.on, how="left", sizes=Sizes(page_cache=kept))
    check(spec, twins.InljTwin(rows_of(case, segments), homes_of(case, segments), kept), case, segments)


@pytest.mark.parametrize("seed", SEEDS)
def test_meshjoin_and_its_logical_parts(seed: int) -> None:
    case, rng, n_pages = cases(seed)
    per, parts = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    segments, step = Segments(case.pages, per), -(-per // parts)
    waiting = int(rng.integers(1, 6)) * max(1, segments.n) * parts
    rows = rows_of(case, Segments(case.pages, 1))
    logical = []
    for first, last in zip(segments.first.tolist(), segments.last.tolist(), strict=True):
        bounds = [(min(first + p * step, last), min(first + (p + 1) * step, last)) for p in range(parts)]
        logical.append([[pair for page in rows[start:stop] for pair in page] for start, stop in bounds])
    twin = twins.MeshTwin(logical, waiting // (max(1, segments.n) * parts))
    cls = MeshJoin if parts == 1 else RMeshJoin
    spec = cls(pages=case.pages, on=case.on, how="left", sizes=Sizes(waiting=waiting, per_segment=per, parts=parts))
    check(spec, twin, case, segments)
    assert n_pages == len(rows)


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("seed", SEEDS[::3])
def test_hybridjoin(seed: int, lookup: str) -> None:
    case, rng, _ = cases(seed)
    per, slots, position = int(rng.integers(1, 4)), int(rng.integers(1, 40)), float(rng.choice([0.1, 0.3, 0.7, 1.0]))
    segments = Segments(case.pages, per)
    twin = twins.HybridTwin(rows_of(case, segments), homes_of(case, segments), slots, lookup, position)
    sizes = Sizes(waiting=slots, per_segment=per)
    policy = Lookup(lookup, position)
    operator = check(
        HybridJoin(pages=case.pages, on=case.on, how="left", sizes=sizes, lookup=policy), twin, case, segments
    )
    assert operator.metrics.value("longest_residence") == twin.worst


@pytest.mark.parametrize("seed", SEEDS)
def test_x_hybridjoin(seed: int) -> None:
    case, rng, _ = cases(seed)
    per, slots, pinned = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(0, 5))
    segments = Segments(case.pages, per, pinned)
    twin = twins.XHybridTwin(rows_of(case, segments), homes_of(case, segments), slots)
    twin.pinned = bool(segments.pinned)
    sizes = Sizes(waiting=slots, per_segment=per, pinned=pinned)
    check(XHybridJoin(pages=case.pages, on=case.on, how="left", sizes=sizes), twin, case, segments)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimised_x_hybridjoin(seed: int) -> None:
    case, rng, n_pages = cases(seed)
    per, slots, pinned = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(0, 5))
    probe = None if rng.random() < 0.5 else int(rng.integers(1, 20))
    segments = Segments(case.pages, per)
    twin = twins.CacheTwin(rows_of(case, segments), homes_of(case, segments), slots, max_probe=probe)
    for page in rows_of(case, Segments(case.pages, 1))[: min(pinned, n_pages)]:
        for key, row in page:
            twin.cache.setdefault(key, []).append(row)
    sizes = Sizes(waiting=slots, per_segment=per, pinned=pinned)
    spec = OptimisedXHybridJoin(pages=case.pages, on=case.on, how="left", sizes=sizes, max_probe=probe)
    operator = check(spec, twin, case, segments)
    found = operator.metrics.value("answered_by_cache")
    assert found == twin.by_cache


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algorithm", ["sscj", "cachejoin"])
def test_sscj_and_cachejoin_by_the_printed_rule(algorithm: str, seed: int) -> None:
    case, rng, _ = cases(seed, unique=True)
    per, slots, threshold = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(1, 4))
    capacity = int(rng.integers(1, 8)) if algorithm == "sscj" else 1000
    segments = Segments(case.pages, per)
    base = rows_of(case, segments), homes_of(case, segments), slots
    twin = twins.SscjTwin(*base, capacity=capacity, threshold=threshold)
    sizes = Sizes(waiting=slots, per_segment=per, cached=capacity)
    policy = CachePolicy("least_frequent" if algorithm == "sscj" else "random", threshold)
    cls = Sscj if algorithm == "sscj" else CacheJoin
    spec = cls(pages=case.pages, on=case.on, how="left", sizes=sizes, cache=policy)
    operator = check(spec, twin, case, segments)
    assert operator.metrics.value("cache_inserts") - operator.metrics.value("evictions") == len(twin.cache)


@pytest.mark.parametrize("seed", SEEDS)
def test_ssij(seed: int) -> None:
    case, rng, _ = cases(seed)
    per, slots, resident = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(0, 4))
    segments = Segments(case.pages, per)
    twin = twins.SsijTwin(rows_of(case, segments), homes_of(case, segments), slots, resident)
    sizes = Sizes(waiting=slots, per_segment=per, resident=resident)
    check(Ssij(pages=case.pages, on=case.on, how="left", sizes=sizes), twin, case, segments)


@pytest.mark.parametrize("seed", SEEDS)
def test_partitioned_join(seed: int) -> None:
    case, rng, _ = cases(seed)
    per, slots, resident = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(0, 4))
    threshold, low = int(rng.integers(1, 12)), float(rng.choice([0.0, 0.5, 0.9]))
    segments = Segments(case.pages, per)
    base = rows_of(case, segments), homes_of(case, segments), slots, resident
    twin = twins.PartitionedTwin(*base, threshold=threshold, low_water=low)
    sizes = Sizes(waiting=slots, per_segment=per, resident=resident)
    spec = PartitionedJoin(pages=case.pages, on=case.on, how="left", sizes=sizes, threshold=threshold, low_water=low)
    check(spec, twin, case, segments)
