"""Distributions: shares of ranks and of segments, in order and shuffled, exact and from a sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import (
    Demand,
    Empirical,
    Zipf,
    cached_share,
    grouped,
    power_sum,
    uniform,
)
from dovetail.workloads.zipf import ZipfLaw, zipf_keys


@pytest.mark.parametrize(("exponent", "share"), [(0.0, 0.200), (0.5, 0.447), (0.8614, 0.769), (1.0, 0.889)])
def test_the_first_fifth_of_the_keys(exponent: float, share: float) -> None:
    assert cached_share(Zipf(2_000_000, exponent), 400_000) == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.8614, 1.0, 1.0 + 1e-12, 1.3])
@pytest.mark.parametrize("law", ["integral", "discrete"])
def test_shares_are_those_of_the_generator(law: str, exponent: float) -> None:
    for rows in (100, 50_000):
        ours, generator = Zipf(rows, exponent, law), ZipfLaw(rows, exponent, law)  # type: ignore[arg-type]  # a literal
        for first in (0, 1, 2, 50, rows - 1, rows, rows + 5):
            assert cached_share(ours, first) == pytest.approx(generator.share(first), abs=1e-9)


def test_the_head_is_lighter_than_in_discrete_zipf() -> None:
    assert cached_share(Zipf(2_000_000, 1.0), 1) == pytest.approx(0.048, abs=0.001)
    assert cached_share(Zipf(2_000_000, 1.0, "discrete"), 1) == pytest.approx(0.066, abs=0.001)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
def test_sums_of_powers(exponent: float) -> None:
    exact = np.cumsum(np.arange(1.0, 20_001) ** -exponent)
    at = np.array([1, 10, 4096, 4097, 20_000])
    assert power_sum(at.astype(float), exponent) == pytest.approx(exact[at - 1], rel=1e-9)


@given(
    rows=st.integers(1, 5000),
    exponent=st.floats(0, 1.5),
    segment=st.integers(1, 700),
    cached=st.integers(0, 5000),
    ordered=st.booleans(),
)
@settings(deadline=None, derandomize=True, max_examples=80)
def test_segments_share_the_stream_among_them(
    rows: int, exponent: float, segment: int, cached: int, ordered: bool
) -> None:
    found = Zipf(rows, exponent).segments(segment, ordered=ordered, cached=cached)
    in_segments = rows - min(cached, rows) if ordered else rows
    assert found.n_segments == -(-in_segments // segment)
    if cached >= rows:
        assert float(np.sum(found.count * found.share)) == 0
    else:
        assert float(np.sum(found.count * found.share)) == pytest.approx(1)
        asked = float(np.sum(found.count))
        assert asked == found.n_segments or (asked < found.n_segments and cached and not ordered)


def test_segments_in_order_are_exact_at_the_wanted_end() -> None:
    law = Zipf(100_000, 1.0)
    found = law.segments(100, ordered=True)
    first = np.diff(law.share(np.arange(0.0, 1001, 100)))
    assert found.share[:10] == pytest.approx(first)
    assert found.share.max() == pytest.approx(first[0])


def test_without_the_pinned_rows_the_others_have_all() -> None:
    law = Zipf(100_000, 1.0)
    found = law.segments(100, ordered=True, cached=1000)
    p_n = cached_share(law, 1000)
    first = float(np.diff(law.share(np.array([1000.0, 1100.0])))[0])
    assert found.share[0] == pytest.approx(first / (1 - p_n))


def test_shuffled_segments_are_nearly_alike_and_the_same_every_time() -> None:
    one, two = (Zipf(2_000_000, 0.5).segments(500, ordered=False) for _ in range(2))
    assert one.share == pytest.approx(two.share)
    assert one.share.max() == pytest.approx(1 / 4000 + cached_share(Zipf(2_000_000, 0.5), 1), rel=0.1)
    assert float(one.share.min()) == pytest.approx(1 / 4000, rel=0.15)
    skewed = Zipf(2_000_000, 1.0).segments(500, ordered=False)
    assert skewed.share.max() == pytest.approx(0.048, abs=0.005)  # the segment with rank 1


def test_uniform_rows_make_equal_segments() -> None:
    for ordered in (True, False):
        found = uniform(100_000).segments(100, ordered=ordered)
        assert found.share == pytest.approx(np.full(found.share.size, 1e-3), rel=0.02)


def test_the_most_wanted_segments_can_be_taken_out() -> None:
    found = grouped(np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.1]))
    taken, rest = found.without_top(3)
    assert taken == pytest.approx(0.7)
    assert (rest.n_segments, float(rest.count.sum())) == (3, 3)
    assert rest.share == pytest.approx([1 / 3])
    everything, none = found.without_top(9)
    assert (everything, none.n_segments, none.count.size) == (pytest.approx(1.0), 0, 0)
    assert isinstance(none, Demand)
    assert none.share.max(initial=0) == 0


def test_segments_that_are_never_loaded_are_only_counted() -> None:
    found = grouped(np.array([0.5, 0.0, 0.5, 0.0]))
    assert (found.n_segments, float(found.count.sum())) == (4, 2)
    assert grouped(np.zeros(3)).count.size == 0


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.2])
def test_a_sample_gives_the_curve_that_matters(exponent: float) -> None:
    keys = zipf_keys(50_000, 100_000, exponent, seed=3, law="integral", scattered=True)
    found, truth = Empirical.of_sample(keys, 100_000), Zipf(100_000, exponent)
    for cached in (100, 1000, 10_000):
        assert cached_share(found, cached) == pytest.approx(cached_share(truth, cached), abs=0.07)
    assert cached_share(found, 100_000) == pytest.approx(1)
    in_order = found.segments(100, ordered=True)
    assert in_order.share.max() == pytest.approx(truth.segments(100, ordered=True).share.max(), rel=0.05)


def test_keys_seen_often_keep_their_share_among_many_seen_once() -> None:
    rng = np.random.default_rng(1)
    keys = np.concatenate([rng.integers(0, 100, 5000), rng.integers(100, 1_000_000, 15_000)])
    assert cached_share(Empirical.of_sample(keys, 1_000_000), 100) == pytest.approx(0.25, abs=0.01)


def test_a_sample_of_nothing_is_uniform() -> None:
    found = Empirical.of_sample(np.zeros(0, np.int64), 1000)
    assert found.unseen == 1
    assert cached_share(found, 100) == pytest.approx(0.1)


def test_a_sample_that_saw_every_row_leaves_nothing_unseen() -> None:
    found = Empirical.of_sample(np.array([1, 2, 3, 1], np.int64), 3)
    assert found.unseen == 0
    assert cached_share(found, 1) == pytest.approx(0.5)


def test_wrong_distributions_say_what_is_allowed() -> None:
    with pytest.raises(PlanError, match="there must be a row"):
        Zipf(0)
    with pytest.raises(PlanError, match="not negative"):
        Zipf(10, -1.0)
    with pytest.raises(PlanError, match="integral"):
        Zipf(10, 1.0, "power")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="at least 1 row"):
        Zipf(10).segments(0, ordered=True)
    with pytest.raises(PlanError, match="give all its rows"):
        Empirical(2, np.array([0.5, 0.3, 0.2]))
    with pytest.raises(PlanError, match="more than 1"):
        Empirical(2, np.array([0.9, 0.3]))
