"""Loads and rates of real operators with simulated reads, against the models and the sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.simulation import Rate, SimulatedPages, service_rate

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.operators import CacheJoin, HybridJoin, MeshJoin, OptimisedXHybridJoin
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads.zipf import ZipfLaw, permuted

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])


def stream(domain: int, exponent: float, seed: int = 1) -> Any:
    law, rng = ZipfLaw(domain, exponent, "integral"), np.random.default_rng(seed)
    return lambda n: law.ranks(rng, n) - 1


def hybrid(n: int, rows: int, slots: int, exponent: float, lookup: Lookup, rounds: tuple[int, int] = (10, 10)) -> Rate:
    """HYBRIDJOIN over `n` master rows in segments of `rows`, measured after a warm-up, in queue lengths."""
    sizes = Sizes(waiting=slots, per_segment=1)
    spec = HybridJoin(pages=SimulatedPages(n, rows), on=("key",), how="left_semi", sizes=sizes, lookup=lookup)
    return service_rate(spec, stream(n, exponent), rounds[0] * slots, rounds[1] * slots)


def test_uniform_keys_give_twice_the_average_queue_per_segment() -> None:
    n_segments, slots = 400, 20_000
    rate = hybrid(n_segments * 100, 100, slots, 0.0, Lookup("oldest"), (10, 20))
    assert 1.95 <= rate.rows_per_load * n_segments / slots <= 2.05


@pytest.mark.parametrize(("kind", "rounds"), [("oldest", 1), ("alternate", 2), ("guarded", 2)])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_loads_of_a_segment_are_apart_and_residence_is_bounded(kind: Any, rounds: int, exponent: float) -> None:
    n_segments, slots = 200, 2_000
    pages = SimulatedPages(n_segments * 50, 50)
    spec = HybridJoin(
        pages=pages, on=("key",), how="left_semi", sizes=Sizes(waiting=slots, per_segment=1), lookup=Lookup(kind)
    )
    keys, when, read = stream(n_segments * 50, exponent), [], pages.read
    with spec.open(MemoryBudget("1GB"), {"stream": SCHEMA}) as operator:

        def noted(first: int, count: int) -> pa.RecordBatch:
            when.append((first, operator.counts["admits"]))
            return read(first, count)

        pages.read = noted  # type: ignore[method-assign]
        for _ in range(30):
            list(operator.push("stream", pa.record_batch([pa.array(keys(5_000))], schema=SCHEMA)))
        list(operator.finish())
    assert 0 < operator.metrics.value("longest_residence") <= rounds * n_segments
    if kind == "oldest":
        full = [(segment, at) for segment, at in when if at < 30 * 5_000]
        last: dict[int, int] = {}
        gaps = []
        for segment, at in full:
            gaps += [at - last[segment]] if segment in last else []
            last[segment] = at
        assert min(gaps) >= slots


def test_every_row_of_meshjoin_stays_for_one_round_of_chunks() -> None:
    n_segments, slots = 12, 1_000
    pages = SimulatedPages(n_segments * 20, 20)
    spec = MeshJoin(pages=pages, on=("key",), how="left_semi", sizes=Sizes(waiting=slots, per_segment=1))
    with spec.open(MemoryBudget("1GB"), {"stream": SCHEMA}) as operator:
        assert operator.chunk_rows == slots // n_segments  # type: ignore[attr-defined]
        keys = stream(n_segments * 20, 0.0)(slots)
        got = sum(b.num_rows for b in operator.push("stream", pa.record_batch([pa.array(keys)], schema=SCHEMA)))
        got += sum(b.num_rows for b in operator.finish())
    assert got == slots
    # One load an iteration: those of the full chunks, one for the rest, and a round in which the last chunk leaves.
    assert operator.metrics.value("loads") == slots // (slots // n_segments) + 1 + n_segments - 1


# The source's 50 MB hold 304,470 waiting rows for 2 M master rows, 500 a segment. Here is a fifth of the segments, with
# as many waiting rows for each: what decides how many rows a load answers.
SMALL = 400_000, 500, 60_894


@pytest.mark.sampled(3)
def test_alternate_lookup_under_skew() -> None:
    oldest = hybrid(*SMALL, 1.0, Lookup("oldest"), (8, 8)).rows_per_load
    alternate = hybrid(*SMALL, 1.0, Lookup("alternate"), (16, 8)).rows_per_load
    assert 2.5 <= alternate / oldest <= 3.0
    by_position = {c: hybrid(*SMALL, 1.0, Lookup("alternate", c), (12, 8)).rows_per_load for c in (0.03, 0.2, 0.7)}
    assert max(by_position, key=by_position.__getitem__) == 0.2
    guarded = hybrid(*SMALL, 1.0, Lookup("guarded", 0.2), (12, 8)).rows_per_load
    assert guarded >= by_position[0.2]


@pytest.mark.sampled(3)
def test_alternate_lookup_without_skew_costs_and_guarded_does_not() -> None:
    oldest, alternate, guarded = (
        hybrid(*SMALL, 0.0, Lookup(kind), (8, 8)).rows_per_load for kind in ("oldest", "alternate", "guarded")
    )
    assert 0.84 <= alternate / oldest <= 0.92
    assert guarded / oldest >= 0.99


@pytest.mark.sampled(3)
def test_flow_balance_of_the_two_phases() -> None:
    n, cached, slots = 200_000, 1_600, 28_000
    sizes = Sizes(waiting=slots, per_segment=1, pinned=cached // 50)
    spec = OptimisedXHybridJoin(pages=SimulatedPages(n, 50), on=("key",), how="left_semi", sizes=sizes)
    rate = service_rate(spec, stream(n, 1.0), 10 * slots, 20 * slots)
    expected = ZipfLaw(n, 1.0, "integral").share(cached)
    got = rate.cached_share / (1 - rate.cached_share)
    assert got == pytest.approx(expected / (1 - expected), rel=0.02)


class Drifting:
    """Keys whose popularity is one order of the domain at first and another one after `replace`."""

    def __init__(self, domain: int) -> None:
        self.law, self.rng, self.order = ZipfLaw(domain, 1.0, "integral"), np.random.default_rng(5), 0

    def __call__(self, n: int) -> Any:
        return permuted(self.law.ranks(self.rng, n) - 1, self.law.domain, self.order)


START = {"adaptive": 2, "random": 5, "perfect": 1 << 30}


def windows(rule: Any, n: int, slots: int, cached: int, lengths: list[int]) -> list[float]:
    """Rows a load in successive stretches of the stream; after the first two the popular set is replaced.

    "perfect" is a cache that holds the most popular keys from the start and lets nothing else in.
    """
    pages = SimulatedPages(n, 50, order="none")
    policy = CachePolicy("random" if rule == "perfect" else rule, threshold=START[rule], every=50)
    sizes = Sizes(waiting=slots, per_segment=1, cached=cached)
    spec, keys, out = CacheJoin(pages=pages, on=("key",), how="left_semi", sizes=sizes, cache=policy), Drifting(n), []
    with spec.open(MemoryBudget("1GB"), {"stream": SCHEMA}) as operator:
        if rule == "perfect":
            best = permuted(np.arange(cached), n, 0)
            rows = pa.record_batch([pa.array(best)], schema=SCHEMA)
            operator.kept.cache.fill(rows, best, lambda some: some)  # type: ignore[attr-defined]
        for at, length in enumerate(lengths):
            keys.order = 1 if at >= 2 else 0
            before = dict(operator.counts)
            for start in range(0, length, 1 << 16):
                batch = pa.record_batch([pa.array(keys(min(1 << 16, length - start)))], schema=SCHEMA)
                list(operator.push("stream", batch))
            did = {name: count - before[name] for name, count in operator.counts.items()}
            out.append((did["answered_by_page"] + did["answered_by_cache"]) / did["loads"])
    return out


@pytest.mark.slow
def test_the_adaptive_cache_is_nearly_perfect_and_alone_recovers_from_a_replaced_popular_set() -> None:
    """At half the scale of docs/algorithms/semistream.md, 6.7: keys, waiting, cached and stream rows."""
    scale, lengths = (100_000, 14_000, 800), [500_000, 200_000, 1_000_000, 200_000]
    adaptive, random = (windows(rule, *scale, lengths) for rule in ("adaptive", "random"))
    best = windows("perfect", *scale, [300_000, 200_000])[1]
    assert adaptive[1] >= 0.9 * best
    assert adaptive[-1] >= 0.9 * adaptive[1]
    assert random[-1] < 0.7 * random[1]


def test_master_rows_that_are_never_looked_up() -> None:
    n, rows, slots = 40_000, 100, 20_000

    def rates(size: int) -> tuple[float, float]:
        sizes = Sizes(waiting=slots, per_segment=1)
        index = HybridJoin(pages=SimulatedPages(size, rows), on=("key",), how="left_semi", sizes=sizes)
        mesh = MeshJoin(pages=SimulatedPages(size, rows), on=("key",), how="left_semi", sizes=sizes)
        return (
            service_rate(index, stream(n, 0.5), 10 * slots, 10 * slots).rows_per_load,
            service_rate(mesh, stream(n, 0.5), 3 * slots, 2 * slots).rows_per_load,
        )

    alone, with_unused = rates(n), rates(2 * n)
    assert with_unused[0] == pytest.approx(alone[0], rel=0.02)
    assert with_unused[1] == pytest.approx(alone[1] / 2, rel=0.02)
