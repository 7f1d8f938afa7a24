"""Two-relation sets of the online joins: the law of the keys, and the order in which they come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.workloads.goodness import ENOUGH, I64, chi_square_p, ks_p, rounded_normal

from dovetail.errors import PlanError
from dovetail.workloads import RELATION_SETS, Poisson, Relation, relation, relations
from dovetail.workloads.blocks import generator
from dovetail.workloads.relation_sets import Temperatures, _persistent


def keys(side: Relation) -> I64:
    return side.table()["key"].to_numpy()


@pytest.mark.parametrize("skew", [1, 2, 5])
def test_zipf_sets_are_zipf_on_999_values_and_the_sides_differ(skew: int) -> None:
    left, right = map(keys, relations("zipf", x=skew))
    law = np.arange(1, 1000, dtype=np.float64) ** -skew
    assert chi_square_p(left, law, first=1) > ENOUGH
    assert chi_square_p(right, law, first=1) > ENOUGH
    assert not np.array_equal(left, right)


@pytest.mark.parametrize(
    ("name", "x", "left", "right"),
    [
        ("normal_means", 20.0, (500.0, 50.0), (520.0, 50.0)),
        ("normal_variances", 150.0, (500.0, 50.0), (500.0, 200.0)),
    ],
)
def test_normal_sets_have_the_means_and_variances_asked_for(
    name: str, x: float, left: tuple[float, float], right: tuple[float, float]
) -> None:
    for side, (mean, variance) in zip(relations(name, x=x), (left, right), strict=True):
        assert chi_square_p(keys(side), rounded_normal(300, 700, mean, variance), first=300) > ENOUGH
        assert chi_square_p(keys(side), rounded_normal(300, 700, mean + 0.5, variance), first=300) < 1e-6


@pytest.mark.parametrize("runs", [1, 5, 100])
def test_partly_sorted_sets_are_runs_of_one_sorted_zipf_relation(runs: int) -> None:
    left, right = map(keys, relations("partly_sorted", x=runs, rows=100_000))
    pieces = np.array_split(left, runs)
    assert all(np.all(np.diff(piece) >= 0) for piece in pieces)
    joined = np.concatenate(sorted(pieces, key=lambda piece: (piece[0], piece[-1])))
    assert np.array_equal(joined, np.sort(left))
    assert chi_square_p(left, 1.0 / np.arange(1, 1000), first=1) > ENOUGH
    assert runs == 1 or not np.array_equal(left, np.sort(left))
    assert not np.array_equal(left, right)


def test_runs_come_in_a_random_order() -> None:
    firsts = [piece[0] for piece in np.array_split(keys(relation("partly_sorted", x=200, seed=3)), 200)]
    assert abs(stats.spearmanr(np.arange(200), firsts).statistic) < 0.25


def test_the_moving_mean_moves_by_the_shift_in_each_of_ten_periods() -> None:
    for side in relations("moving_mean", x=8.0, rows=100_000):
        for number, period in enumerate(np.array_split(keys(side), 10), start=1):
            assert chi_square_p(period, rounded_normal(0, 300, 75 + 8 * number, 15), first=0) > ENOUGH


def test_arrivals_are_poisson_a_millisecond_apart_and_differ_by_side() -> None:
    left, right = (side.table()["at"].cast(pa.int64()).to_numpy() for side in relations("zipf"))
    assert ks_p(np.diff(left) / 1000.0, stats.expon.cdf) > ENOUGH
    assert not np.array_equal(left, right)


def test_delays_pause_both_sides_after_each_fragment() -> None:
    for side in relations("delays", x=30.0, rows=100_000):
        assert side.arrivals == Poisson(1000.0, 10, 0.3)
        gaps = np.diff(side.table()["at"].cast(pa.int64()).to_numpy())
        assert np.array_equal(np.flatnonzero(gaps > 1_000_000), np.arange(1, 10) * 10_000 - 1)


def test_stock_prices_follow_one_walk_on_both_sides() -> None:
    left, right = map(keys, relations("csco", rows=10_355))
    walk = 2000 + 0.35 * np.cumsum(generator(0, "walk").standard_normal(10_355))
    for side in (left, right):
        noise = side - walk
        assert ks_p(noise, stats.norm(0, np.hypot(3.0, 1 / np.sqrt(12))).cdf) > ENOUGH
    assert not np.array_equal(left, right)


def test_weather_lasts_as_the_plain_recursion_says() -> None:
    noise = generator(5, "left weather").standard_normal(10_000) * 2.0
    plain, value = [], 0.0
    for step in noise:
        value = 0.995 * value + step
        plain.append(value)
    assert np.allclose(_persistent(10_000, 5, "left"), plain)


def test_temperatures_have_seasons_days_and_a_shift() -> None:
    left, right = map(keys, relations("weather", rows=45_000))
    year = np.arange(45_000) / 15_000
    waves = np.stack([np.sin(2 * np.pi * year), np.cos(2 * np.pi * year), np.sin(2 * np.pi * 365 * year)])
    left_fit, right_fit = (np.linalg.lstsq(waves.T, side - 150.0, rcond=None)[0] for side in (left, right))
    assert np.abs(left_fit - [100, 0, 60]).max() < 8
    moved = [100 * np.cos(2 * np.pi * 0.02), 100 * np.sin(2 * np.pi * 0.02), 60]
    assert np.abs(right_fit - moved).max() < 8
    assert Temperatures(10).keys(1, "left", 0, 10).dtype == np.int64


def test_the_sides_may_have_different_sizes_and_a_width() -> None:
    left, right = relations("zipf", rows=1000, right_rows=10, tuple_bytes=200)
    assert (left.rows, right.rows) == (1000, 10)
    assert {len(text) for text in left.table()["payload"].to_pylist()} == {200 - 24}


@pytest.mark.parametrize("name", RELATION_SETS)
def test_every_set_has_a_default(name: str) -> None:
    left, right = relations(name, rows=500)
    assert left.table().num_rows == right.table().num_rows == 500


def test_unknown_sets_and_sides_are_refused() -> None:
    with pytest.raises(PlanError, match="did you mean 'normal_means'"):
        relation("normal_mean")
    with pytest.raises(PlanError, match="'left' or 'right'"):
        relation("zipf", "middle")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(PlanError, match="variance must be positive"):
        relation("normal_variances", "right", x=-50)
