"""Zipf keys: the law to the last rank, where popular keys lie, and how fast they come."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workloads.goodness import ENOUGH, F64, chi_square_p

from dovetail.errors import PlanError
from dovetail.workloads import BLOCK_ROWS, ZipfKeys, ZipfLaw, zipf, zipf_keys
from dovetail.workloads.blocks import generator

EXPONENTS = [0.0, 0.2, 0.5, 0.8614, 0.999_999, 1.0, 1.000_001, 1.5, 2.0, 5.0, 40.0]
DOMAINS = [1, 2, 3, 10, 999, 50_000]


def discrete(domain: int, exponent: float) -> F64:
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def integral(domain: int, exponent: float) -> F64:
    x = np.arange(1, domain + 2, dtype=np.float64)
    area = np.log(x) if exponent == 1 else x ** (1 - exponent) / (1 - exponent)
    return np.diff(area) / (area[-1] - area[0])


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_keys_follow_the_discrete_law(domain: int, exponent: float) -> None:
    keys = zipf_keys(400_000, domain, exponent, seed=11)
    assert keys.dtype == np.int64
    assert chi_square_p(keys, discrete(domain, exponent), first=1) > ENOUGH


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8614, 1.0, 1.5, 3.0])
def test_the_sources_variant_follows_the_integral(exponent: float) -> None:
    keys = zipf_keys(400_000, 999, exponent, seed=12, law="integral")
    assert chi_square_p(keys, integral(999, exponent), first=1) > ENOUGH


def test_the_two_laws_are_told_apart() -> None:
    keys = zipf_keys(400_000, 999, 1.0, seed=13, law="integral")
    assert chi_square_p(keys, discrete(999, 1.0), first=1) < 1e-100
    assert chi_square_p(zipf_keys(400_000, 999, 1.03, seed=13), discrete(999, 1.0), first=1) < 1e-6


@pytest.mark.parametrize(("exponent", "share"), [(0.0, 0.200), (0.5, 0.447), (0.8614, 0.769), (1.0, 0.889)])
def test_share_of_the_first_fifth_as_in_the_sources(exponent: float, share: float) -> None:
    n, domain = 1_000_000, 2_000_000
    keys = zipf_keys(n, domain, exponent, seed=14, law="integral")
    assert abs((keys <= domain // 5).mean() - share) < 0.002
    assert abs(ZipfLaw(domain, exponent, "integral").share(domain // 5) - share) < 0.0006


def test_the_head_of_the_integral_law_is_lighter() -> None:
    assert abs(ZipfLaw(2_000_000, 1.0, "integral").share(1) - 0.048) < 0.0005
    assert abs(ZipfLaw(2_000_000, 1.0).share(1) - 0.066) < 0.0005


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("domain", [1, 7, 4096, 4097, 300_000])
def test_shares_are_sums_of_probabilities(domain: int, exponent: float) -> None:
    law = ZipfLaw(domain, exponent)
    sums = np.cumsum(discrete(domain, exponent))
    for first in {1, domain // 3 + 1, domain - 1, domain} - {0}:
        assert law.share(first) == pytest.approx(sums[first - 1], rel=1e-11)
    assert law.share(0) == 0.0
    assert law.share(domain + 5) == pytest.approx(1.0)


@pytest.mark.parametrize("law", ["discrete", "integral"])
def test_every_rank_is_reachable_and_no_other(law: str) -> None:
    for exponent in (0.0, 0.7, 1.0, 1.3):
        assert np.array_equal(np.unique(zipf_keys(200_000, 50, exponent, 15, law=law)), np.arange(1, 51))  # type: ignore[arg-type]  # parametrised


@pytest.mark.parametrize("exponent", [0.3, 1.0, 1.2])
def test_a_huge_domain_keeps_the_law(exponent: float) -> None:
    domain = 10**12
    law = ZipfLaw(domain, exponent)
    keys = zipf_keys(400_000, domain, exponent, seed=16)
    edges = [0, *(10**k for k in range(13))]
    shares = np.diff([law.share(edge) for edge in edges])
    assert chi_square_p(np.searchsorted(edges, keys) - 1, shares) > ENOUGH


def test_fewer_keys_are_a_prefix_and_other_seeds_give_other_keys() -> None:
    keys = zipf_keys(2 * BLOCK_ROWS + 17, 1000, 1.0, seed=5)
    assert np.array_equal(zipf_keys(BLOCK_ROWS + 3, 1000, 1.0, seed=5), keys[: BLOCK_ROWS + 3])
    assert np.array_equal(zipf_keys(20_000, 1000, 1.0, seed=5), keys[:20_000])  # some of these are second proposals
    assert np.array_equal(zipf_keys(3, 1000, 1.0, seed=5), keys[:3])
    assert not np.array_equal(zipf_keys(100, 1000, 1.0, seed=6), keys[:100])
    assert not np.array_equal(keys[:1000], keys[BLOCK_ROWS : BLOCK_ROWS + 1000])
    assert zipf_keys(0, 1000, 1.0, seed=5).size == 0


@settings(deadline=None, derandomize=True, max_examples=60)
@given(domain=st.integers(1, 3000), seed=st.integers(0, 2**40), small=st.booleans())
def test_scattering_is_a_bijection_by_table_and_by_walk(domain: int, seed: int, small: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipf, "TABLE_LIMIT", 0 if small else 1 << 20)
        image = zipf.permuted(np.arange(domain), domain, seed)
    assert np.array_equal(np.sort(image), np.arange(domain))


def test_a_large_domain_is_scattered_evenly_and_each_seed_has_its_own_order() -> None:
    domain = zipf.TABLE_LIMIT + 12_345
    image = zipf.permuted(np.arange(domain), domain, seed=1)
    assert np.array_equal(np.bincount(image, minlength=domain), np.ones(domain))
    tenth = image[:40_000] * 100 // domain
    assert chi_square_p(tenth, np.full(100, 0.01)) > ENOUGH
    assert not np.array_equal(image[:100], zipf.permuted(np.arange(100), domain, seed=2))
    for lag in (1, 2, 3, 64):  # neighbours in rank are no neighbours, nor at a fixed distance, in the domain
        pairs = image[:-lag] * 20 // domain * 20 + image[lag:] * 20 // domain
        assert chi_square_p(pairs, np.full(400, 1 / 400)) > ENOUGH, lag


def test_scattered_keys_keep_their_frequencies_and_lose_their_order() -> None:
    plain, scattered = (zipf_keys(200_000, 500, 1.0, 7, scattered=flag) for flag in (False, True))
    counts, moved = (np.bincount(keys, minlength=501)[1:] for keys in (plain, scattered))
    assert np.array_equal(np.sort(counts), np.sort(moved))
    assert np.array_equal(moved[zipf.permuted(np.arange(500), 500, 7)], counts)
    assert not np.array_equal(np.argsort(-moved)[:10], np.arange(10))


def test_drift_changes_what_is_popular_after_exactly_so_many_rows() -> None:
    spec = ZipfKeys(1000, 1.0, drift_rows=10_000)
    keys = spec.keys(3, "key", 0, BLOCK_ROWS)
    steady = ZipfKeys(1000, 1.0).keys(3, "key", 0, BLOCK_ROWS)
    assert np.array_equal(keys[:10_000], steady[:10_000])
    tops = [np.bincount(keys[first : first + 10_000]).argmax() for first in (0, 10_000, 20_000)]
    assert len(set(tops)) == 3
    for first in (10_000, 20_000):  # a bijection: equal stays equal, different stays different
        pairs = np.unique(np.stack([steady[first : first + 10_000], keys[first : first + 10_000]]), axis=1)
        assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]


def test_drift_starts_from_the_scattered_order() -> None:
    drifting = ZipfKeys(1000, 1.0, scattered=True, drift_rows=100).keys(3, "key", 0, 200)
    steady = ZipfKeys(1000, 1.0, scattered=True).keys(3, "key", 0, 200)
    assert np.array_equal(drifting[:100], steady[:100])
    assert not np.array_equal(drifting[100:], steady[100:])


def test_absent_keys_are_negative_and_have_their_share() -> None:
    keys = ZipfKeys(100, 1.0, absent=0.25).keys(4, "key", 0, BLOCK_ROWS)
    assert chi_square_p((keys < 0).astype(np.int64), np.array([0.75, 0.25])) > ENOUGH
    assert keys[keys > 0].max() <= 100


@pytest.mark.parametrize(
    ("exponent", "scattered", "domain"),
    [(0.0, False, 10**6), (0.5, True, 10**6), (1.0, False, 10**6), (1.5, True, 10**9)],
)
def test_ten_million_keys_take_less_than_three_seconds(exponent: float, scattered: bool, domain: int) -> None:
    began = time.process_time()
    keys = zipf_keys(10_000_000, domain, exponent, seed=1, scattered=scattered)
    assert time.process_time() - began < 3.0
    assert keys.size == 10_000_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((10, 0, 1.0, 1), "domain must be an integer >= 1, not 0"),
        ((10, 2**60, 1.0, 1), "too large"),
        ((10, 10, -0.5, 1), "exponent must be finite and >= 0"),
        ((10, 10, float("nan"), 1), "exponent must be finite"),
        ((-1, 10, 1.0, 1), "n must be an integer >= 0"),
        ((10, 10, 1.0, -1), "seed must be an integer >= 0"),
        ((10, 10, 1.0, True), "seed must be an integer >= 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments: tuple[int, int, float, int], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        zipf_keys(*arguments)


def test_an_unknown_law_or_share_is_refused() -> None:
    with pytest.raises(PlanError, match="'discrete' or 'integral'"):
        zipf_keys(1, 10, 1.0, 1, law="cubic")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(PlanError, match="absent is a share"):
        ZipfKeys(10, absent=1.5)


def test_purposes_and_blocks_have_independent_random_numbers() -> None:
    draws = [generator(1, purpose, block).random(2000) for purpose in ("a", "b") for block in (0, 1)]
    correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 0.08
