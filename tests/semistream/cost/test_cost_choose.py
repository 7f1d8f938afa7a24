"""The choice: what the source advises for which data, what cannot run and why, and what explain shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.engine.profile import Profile
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.choose import ALGORITHMS, choose, price
from dovetail.joins.semistream.cost.distribution import Zipf, seen_share, uniform
from dovetail.joins.semistream.cost.models import drained, predict
from dovetail.joins.semistream.cost.setting import EntryBytes, Policy, ReadCosts, Setting, from_profile
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads.zipf import ZipfLaw

PLAIN = Setting(50 * 2**20, Zipf(2_000_000, 1.0), policy=Policy(lookup="oldest"))
OURS = replace(
    PLAIN, costs=from_profile(Profile()), entries=EntryBytes(waiting=56, chunked=48, cached_extra=32, per_segment=16)
)


# Reference: docs/algorithms/semistream.md, 1.6.
def test_an_index_and_a_skewed_stream_make_a_cachejoin() -> None:
    for order in ("key", "none"):
        assert choose(replace(PLAIN, order=order)).best.algorithm == "cachejoin"  # type: ignore[arg-type]  # a literal
        assert choose(replace(OURS, order=order)).best.algorithm == "cachejoin"  # type: ignore[arg-type]  # a literal


def test_an_index_and_a_uniform_stream_make_a_hybridjoin() -> None:
    assert choose(replace(PLAIN, distribution=uniform(2_000_000))).best.algorithm == "hybridjoin"


def test_reads_in_turn_at_twice_the_speed_bring_meshjoin_level_with_hybridjoin() -> None:
    found = choose(replace(OURS, distribution=uniform(2_000_000)), algorithms=("meshjoin", "hybridjoin"))
    assert found.prices[0].rate == pytest.approx(found.prices[1].rate, rel=0.05)
    slow = replace(OURS.costs, read=replace(OURS.costs.read, sequential=OURS.costs.read.random))
    assert choose(replace(OURS, costs=slow, distribution=uniform(2_000_000))).best.algorithm == "hybridjoin"


def test_order_of_frequency_and_skew_make_an_optimised_x_hybridjoin() -> None:
    found = choose(replace(PLAIN, order="frequency"))
    assert found.best.algorithm == "optimised_x_hybridjoin"
    rates = {p.algorithm: p.rate for p in found.prices}
    assert rates["optimised_x_hybridjoin"] > rates["x_hybridjoin"] > rates["hybridjoin"] > rates["meshjoin"]


def test_no_index_makes_a_meshjoin() -> None:
    found = choose(replace(PLAIN, indexed=False))
    assert found.best.algorithm in ("meshjoin", "r_meshjoin")
    assert {p.algorithm for p in found.prices if p.feasible} == {"meshjoin", "r_meshjoin"}
    assert all("index" in p.reason for p in found.prices if not p.feasible)


def test_guarded_lookups_change_rates_but_not_the_advice() -> None:
    guarded = replace(PLAIN, policy=Policy(), order="frequency")
    found = choose(guarded)
    assert found.best.algorithm == "optimised_x_hybridjoin"
    assert found.best.rate > choose(replace(PLAIN, order="frequency")).best.rate


# Reference: docs/algorithms/semistream.md, 6.16.
def test_master_data_that_fits_is_said_to_fit() -> None:
    found = choose(replace(OURS, distribution=Zipf(100_000, 1.0)))
    assert "100,000 master rows fit in memory" in found.note
    assert found.note in found.explain()
    assert choose(OURS, algorithms=("hybridjoin",)).note == ""


def test_micro_batches_are_priced_by_their_own_cost() -> None:
    carried = price("hybridjoin", OURS)
    small, large = (price("hybridjoin", replace(OURS, batch_rows=n)) for n in (10_000, 50_000_000))
    assert small.rate < large.rate <= carried.rate * 1.01
    assert small.batch is not None
    assert small.rate == pytest.approx(10_000 / small.batch.seconds)


def test_small_batches_want_a_larger_cache_than_an_endless_stream() -> None:
    endless, batch = (price("cachejoin", s).prediction for s in (OURS, replace(OURS, batch_rows=10_000)))
    assert endless is not None
    assert batch is not None
    assert batch.kept_rows > endless.kept_rows


def test_small_batches_of_a_skewed_stream_go_through_a_cache_whatever_the_size_of_the_master_data() -> None:
    """With what loads in rounds and visits of resident segments cost, and pages that the system has in its cache."""
    warm = ReadCosts(((8192, 8e-6), (32_768, 20e-6), (131_072, 60e-6)), ((8192, 20e-6), (131_072, 80e-6)))
    costs = from_profile(Profile(), read=warm)
    here = replace(OURS, costs=costs, batch_rows=10_000)
    for rows in (500_000, 2_000_000, 8_000_000):
        found = choose(replace(here, distribution=Zipf(rows, 1.0)))
        assert found.best.algorithm == "cachejoin"
        assert found.best.prediction is not None
        assert found.best.prediction.segment_rows <= 2 * here.page_rows


def test_lists_without_an_age_limit_are_not_chosen() -> None:
    assert "max_age" in price("partitioned", PLAIN).reason
    assert price("partitioned", replace(PLAIN, policy=Policy(max_age=1e6))).feasible
    assert price("partitioned", replace(PLAIN, batch_rows=10_000)).feasible


def test_every_algorithm_has_a_price_or_a_reason() -> None:
    found = choose(PLAIN)
    assert {p.algorithm for p in found.prices} == set(ALGORITHMS)
    for p in found.prices:
        assert p.feasible == (p.rate > 0)
        assert p.feasible or p.reason


def test_explain_shows_winner_memory_and_losers() -> None:
    lines = choose(PLAIN, algorithms=("inlj", "hybridjoin", "cachejoin", "x_hybridjoin")).explain().splitlines()
    assert lines[0].startswith("cachejoin: ")
    assert "times the rate of hybridjoin" in lines[0]
    assert lines[1].startswith("memory: disk buffer ")
    assert lines[2].split()[:2] == ["algorithm", "rows/s"]
    assert [line.split()[0] for line in lines[3:]] == ["cachejoin", "hybridjoin", "inlj", "x_hybridjoin"]
    assert lines[-1].endswith("needs master data in order of frequency")


def test_alike_rates_go_to_the_simpler_one() -> None:
    found = choose(PLAIN, algorithms=("sscj", "cachejoin"))
    assert found.best.algorithm == "cachejoin"
    assert found.reason == "cachejoin: no slower than sscj, and simpler"
    assert choose(PLAIN, algorithms=("sscj",)).reason == "sscj: the only one that can run"


def test_when_nothing_can_run_every_reason_is_given() -> None:
    with pytest.raises(PlanError, match=r"inlj: needs an index.*meshjoin: does not fit"):
        choose(replace(PLAIN, indexed=False, memory=300), algorithms=("inlj", "meshjoin"))
    with pytest.raises(PlanError, match="no algorithm was given"):
        choose(PLAIN, algorithms=())
    with pytest.raises(PlanError, match="choose among"):
        choose(PLAIN, algorithms=("nested_loop",))


def test_one_pass_finds_caches_empty() -> None:
    """Rows that all find slots are answered by storage alone, however large a cache is; many warm it up on the way."""
    here = replace(OURS, batch_rows=20_000)
    sizes = Sizes(per_segment=15, cached=20_000)
    warm = predict("cachejoin", here, sizes)
    once = drained(warm, replace(here, one_pass=True), 20_000)
    without = drained(predict("hybridjoin", here, Sizes(per_segment=15)), here, 20_000)
    assert once.steps == pytest.approx(without.steps)
    assert once.steps > drained(warm, here, 20_000).steps
    many = [drained(warm, replace(here, one_pass=some), 10**9).mu for some in (True, False)]
    assert many[0] == pytest.approx(many[1], rel=0.01)


def test_a_cache_answers_only_what_was_asked_for_before() -> None:
    """The share of hits in a stream's first micro-batches, counted with a cache that keeps every key."""
    here = replace(OURS, distribution=Zipf(20_000, 1.0), batch_rows=1000)
    found = predict("cachejoin", here, Sizes(per_segment=1, cached=20_000))
    keys = ZipfLaw(20_000, 1.0).ranks(np.random.default_rng(1), 20_000)
    for seen in (0, 1000, 5000, 19_000):
        hits = np.isin(keys[seen : seen + 1000], keys[:seen]).mean()
        assert seen_share(here.distribution, seen) == pytest.approx(hits, abs=0.05)
    first, later, last = (drained(found, replace(here, seen_rows=n), 1000) for n in (0, 5000, 10**9))
    assert first.steps > later.steps > last.steps
    assert last.seconds == pytest.approx(drained(found, here, 1000).seconds)


def test_a_micro_batch_costs_something_whatever_its_rows() -> None:
    here = replace(OURS, batch_rows=10, costs=replace(OURS.costs, micro_batch=0.002))
    found = predict("hybridjoin", here, Sizes(per_segment=1))
    assert 0.002 < drained(found, here, 10).seconds < 0.01


def test_pinned_rows_are_read_at_the_start_of_the_only_pass() -> None:
    here = replace(OURS, order="frequency", batch_rows=20_000)
    found = predict("optimised_x_hybridjoin", here, Sizes(per_segment=15, pinned=300))
    again, once = (drained(found, replace(here, one_pass=some), 20_000) for some in (False, True))
    assert once.steps == again.steps
    assert once.seconds - again.seconds == pytest.approx(
        here.costs.load_s(here.read_bytes(300 * here.page_rows), sequential=True), rel=1e-6
    )
