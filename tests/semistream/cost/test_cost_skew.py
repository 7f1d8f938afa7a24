"""The skew estimator against streams of known skew."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Zipf, cached_share, estimate_skew, expected_spectrum
from dovetail.workloads.zipf import zipf_keys

ROWS = 2_000_000


@pytest.mark.parametrize("law", ["integral", "discrete"])
@pytest.mark.parametrize("exponent", [0.5, 0.75, 0.8614, 1.0, 1.2])
def test_exponent_and_curve_of_generated_streams(law: str, exponent: float) -> None:
    keys = zipf_keys(20_000, ROWS, exponent, seed=11, scattered=True, law=law)  # type: ignore[arg-type]  # a literal
    found = estimate_skew(keys, ROWS)
    truth = Zipf(ROWS, exponent, law)  # type: ignore[arg-type]  # a literal
    assert found.fits
    assert found.exponent == pytest.approx(exponent, abs=0.03)
    assert found.low - 0.02 <= exponent <= found.high + 0.02
    for cached in (500, 16_000, 200_000):
        assert found.p_n(cached) == pytest.approx(cached_share(truth, cached), abs=0.02)


def test_a_stream_without_skew_looks_like_one() -> None:
    found = estimate_skew(zipf_keys(20_000, ROWS, 0.0, seed=3), ROWS)
    assert found.low == 0
    assert found.exponent < 0.4
    assert found.p_n(16_000) < 0.05


def test_larger_samples_are_surer() -> None:
    spans = []
    for n in (1000, 10_000, 100_000):
        found = estimate_skew(zipf_keys(n, ROWS, 0.9, seed=5, law="integral"), ROWS)
        assert found.exponent == pytest.approx(0.9, abs=3 / n**0.5)
        spans.append(found.high - found.low)
    assert spans == sorted(spans, reverse=True)


def test_the_law_of_the_generator_is_told_from_zipfs_own() -> None:
    for law in ("integral", "discrete"):
        assert estimate_skew(zipf_keys(50_000, ROWS, 1.0, seed=5, law=law), ROWS).law == law  # type: ignore[arg-type]  # a literal


def test_a_few_hot_keys_over_uniform_ones_are_no_power_law() -> None:
    rng = np.random.default_rng(1)
    keys = np.concatenate([rng.integers(0, 100, 5000), rng.integers(100, 1_000_000, 15_000)])
    found = estimate_skew(rng.permutation(keys), 1_000_000)
    assert not found.fits
    assert found.p_n(100) == pytest.approx(0.25, abs=0.02)
    assert "no power law" in found.explain()


def test_it_says_what_it_found() -> None:
    keys = zipf_keys(20_000, ROWS, 1.0, seed=11, law="integral")
    assert estimate_skew(keys, ROWS).explain().startswith("skew: exponent 1.0")


def test_the_expected_spectrum_counts_every_key_at_most_once() -> None:
    spectrum = expected_spectrum(Zipf(1000, 1.0), 5000, 30)
    drawn = np.mean([np.unique(zipf_keys(5000, 1000, 1.0, seed=s, law="integral")).size for s in range(5)])
    assert float(spectrum.sum()) == pytest.approx(float(drawn), rel=0.02)


def test_samples_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match="at least 2"):
        estimate_skew(np.array([1], np.int64), 10)
    with pytest.raises(PlanError, match="more different keys"):
        estimate_skew(np.arange(20), 10)
