"""Arrival processes: Poisson with pauses, and bursts, against plain simulations and their own theory."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from scipy import stats
from tests.workloads.goodness import ENOUGH, I64, ks_p

from dovetail.errors import PlanError
from dovetail.workloads import BLOCK_ROWS, Bursty, Constant, Poisson, bursty_counts, parse_arrivals
from dovetail.workloads.arrivals import Arrivals, switch_times
from dovetail.workloads.blocks import generator


def times(process: Arrivals, rows: int, seed: int = 1, purpose: str = "arrival") -> I64:
    blocks = range(-(-rows // BLOCK_ROWS))
    parts = [process.times_us(seed, purpose, b, min(BLOCK_ROWS, rows - b * BLOCK_ROWS), rows) for b in blocks]
    return np.concatenate(parts)


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert times(Constant(2.5), 5).tolist() == [0, 2, 5, 7, 10]


def test_poisson_gaps_are_exponential_across_block_borders_too() -> None:
    at = times(Poisson(1_000_000.0), 3 * BLOCK_ROWS)
    gaps = np.diff(at, prepend=0) / 1e6
    assert ks_p(gaps, stats.expon.cdf) > ENOUGH
    borders = [np.diff(times(Poisson(1e6), BLOCK_ROWS + 1, seed)[-2:])[0] / 1e6 for seed in range(400)]
    assert ks_p(np.array(borders), stats.expon.cdf) > ENOUGH


def test_poisson_gaps_do_not_depend_on_each_other() -> None:
    gaps = np.diff(times(Poisson(1e6), 3 * BLOCK_ROWS)).astype(np.float64)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(gaps.size)


def test_the_time_of_a_row_far_out_varies_as_a_sum_of_gaps_does() -> None:
    n = 4 * BLOCK_ROWS
    ends = np.array([Poisson(1000.0).times_us(seed, "arrival", 3, BLOCK_ROWS, n)[-1] for seed in range(300)])
    assert ks_p(ends / 1000.0, stats.gamma(n).cdf) > ENOUGH


@pytest.mark.parametrize("delay", [0.1, 0.5])
def test_a_source_pauses_after_each_fragment_for_a_share_of_its_time(delay: float) -> None:
    rows, fragments = 100_000, 10
    steady = times(Poisson(1000.0), rows)
    at = times(Poisson(1000.0, fragments, delay), rows)
    size = rows // fragments
    for number in range(1, fragments):
        first = number * size
        took = steady[first - 1] - (steady[first - size - 1] if number > 1 else 0)
        pause = (at[first] - at[first - 1]) - (steady[first] - steady[first - 1])
        assert abs(pause - delay * took) <= 2
    inside = np.delete(np.arange(1, rows), np.arange(1, fragments) * size - 1)
    assert np.abs(np.diff(at)[inside - 1] - np.diff(steady)[inside - 1]).max() <= 1


def test_poisson_without_delays_is_a_prefix_of_itself() -> None:
    assert np.array_equal(times(Poisson(), 10_000), times(Poisson(), 70_000)[:10_000])


def plain_bursty(steps: int, seed: int, sources: int) -> list[int]:
    """The corrected procedure word by word: a priority queue of sources, each with its own state."""
    waits = {i: iter(1.0 - generator(seed, f"arrival source {i}").random(3 * steps)) for i in range(1, sources + 1)}
    queue = [(next(waits[i]) * 2**i, i, False) for i in range(1, sources + 1)]
    heapq.heapify(queue)
    total, counts = 0, []
    for step in range(steps):
        while queue[0][0] <= step:
            at, i, on = heapq.heappop(queue)
            total += -(2**i) if on else 2**i
            heapq.heappush(queue, (at + next(waits[i]) * 2**i, i, not on))
        counts.append(total)
    return counts


@pytest.mark.parametrize(("seed", "sources"), [(1, 1), (2, 4), (3, 10)])
def test_bursts_equal_the_plain_simulation(seed: int, sources: int) -> None:
    assert bursty_counts(3000, seed, sources).tolist() == plain_bursty(3000, seed, sources)


def test_bursts_have_the_bounds_and_the_mean_of_the_sources() -> None:
    counts = bursty_counts(200_000, seed=4)
    assert (counts.min(), counts.max()) == (0, 2046)
    assert np.all(counts % 2 == 0)
    assert abs(counts.mean() / 1023 - 1) < 0.05
    assert np.array_equal(bursty_counts(500, seed=4), counts[:500])


def test_a_source_stays_in_a_state_for_a_uniform_part_of_its_period() -> None:
    for source in (1, 5, 10):
        waits = np.diff(switch_times(4, "arrival", source, 3000 << source), prepend=0) / 2**source
        assert ks_p(waits, stats.uniform.cdf) > ENOUGH


def hurst(counts: I64, size: int) -> float:
    """Local slope of the variance of block means, between blocks of this size and of twice the size."""
    spread = [counts[: counts.size // n * n].reshape(-1, n).mean(axis=1).var() for n in (size, 2 * size)]
    return float(1 + np.log2(spread[1] / spread[0]) / 2)


def test_bursts_last_on_scales_up_to_the_slowest_source_and_not_beyond() -> None:
    counts = bursty_counts(400_000, seed=6)
    assert hurst(counts, 8) > 0.95
    assert hurst(counts, 64) > 0.85
    assert hurst(counts, 2048) < 0.75
    poisson = np.random.default_rng(1).poisson(1023, 400_000)
    assert hurst(poisson, 8) < 0.6


def test_the_rows_of_a_step_are_spread_evenly_over_it() -> None:
    at = times(Bursty(step_us=1_000, sources=6), 100_000)
    assert np.all(np.diff(at) >= 0)
    counts = bursty_counts(int(at[-1] // 1000), seed=1, sources=6)
    per_step = np.bincount(at // 1000, minlength=counts.size)[: counts.size]
    assert np.array_equal(per_step, counts)
    busiest = int(counts.argmax())
    within = at[at // 1000 == busiest] - busiest * 1000
    assert within.tolist() == [k * 1000 // within.size for k in range(within.size)]


def test_arrivals_from_text() -> None:
    assert parse_arrivals("bursty") == Bursty()
    assert parse_arrivals(" poisson( 500, 10 , 0.2 ) ") == Poisson(500, 10, 0.2)
    assert parse_arrivals("bursty(1_000, 4)") == Bursty(1000, 4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("poison(1)", "did you mean 'poisson'"),
        ("poisson(a)", "'a' in 'poisson.a.' is not a number"),
        ("poisson(1, 2, 3, 4)", "wrong number of parameters"),
        ("poisson(1", "cannot read"),
        ("poisson(0)", "gap_us must be positive"),
        ("poisson(1, 2.5)", "fragments must be an integer"),
        ("bursty(1, 31)", "sources must be from 1 to 30"),
        ("constant(-1)", "must not be negative"),
    ],
)
def test_what_is_no_process_is_refused(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        parse_arrivals(text)
