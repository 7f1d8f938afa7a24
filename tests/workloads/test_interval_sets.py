"""Interval sets: exact result sizes of the deterministic ones, the law of each distribution of lengths, hot keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.workloads.goodness import ENOUGH, F64, I64, chi_square_p, ks_p

from dovetail.errors import PlanError
from dovetail.workloads import (
    Exponential,
    Fixed,
    LambdaIntervals,
    LogUniform,
    Mixture,
    Pareto,
    intervals,
    lambda_intervals,
    parse_lengths,
)
from dovetail.workloads.interval_sets import Lengths

# range, lambda, d_R, d_S: overlapping, covers, overlaps, overlapped-by, covered-by
RESULT_SIZES = [
    (1_000, 10, 10, 10, 1_891_000, 100_000, 895_500, 895_500, 100_000),
    (1_000, 100, 10, 10, 189_100_000, 10_000_000, 89_550_000, 89_550_000, 10_000_000),
    (1_000, 10, 100, 100, 18_910_000, 100_000, 9_405_000, 9_405_000, 100_000),
    (10_000, 10, 10, 10, 18_991_000, 1_000_000, 8_995_500, 8_995_500, 1_000_000),
    (10_000, 10, 100, 100, 198_010_000, 1_000_000, 98_505_000, 98_505_000, 1_000_000),
    (1_000, 10, 20, 10, 2_876_500, 1_094_500, 886_500, 895_500, 0),
    (1_000, 100, 20, 10, 287_650_000, 109_450_000, 88_650_000, 89_550_000, 0),
    (1_000, 10, 200, 100, 27_415_000, 9_595_000, 8_415_000, 9_405_000, 0),
    (10_000, 10, 20, 10, 28_976_500, 10_994_500, 8_986_500, 8_995_500, 0),
    (10_000, 10, 200, 100, 296_515_000, 100_495_000, 97_515_000, 98_505_000, 0),
]


def pair_counts(left: LambdaIntervals, right: LambdaIntervals) -> list[int]:
    """Pairs in each relation, counted over distinct intervals and weighted by how often each occurs."""
    (r, r_times), (s, s_times) = (
        np.unique(np.stack([t["start"].to_numpy(), t["end"].to_numpy()]), axis=1, return_counts=True)
        for t in (left.table(), right.table())
    )
    totals = np.zeros(5, dtype=np.int64)
    for first in range(0, r.shape[1], 500):
        rs, re = (bound[first : first + 500, None] for bound in r)
        near = (s[0] < re.max()) & (s[1] > rs.min())  # the others cannot meet any of these
        ss, se = s[0][near], s[1][near]
        pairs = r_times[first : first + 500, None] * s_times[near]
        holds = [
            (rs < se) & (ss < re),
            (rs <= ss) & (re >= se),
            (rs < ss) & (re < se) & (re > ss),
            (ss < rs) & (se < re) & (se > rs),
            (ss <= rs) & (se >= re),
        ]
        totals += np.array([pairs[h].sum() for h in holds])
    return totals.tolist()


@pytest.mark.parametrize("case", RESULT_SIZES, ids=lambda case: "-".join(map(str, case[:4])))
def test_deterministic_sets_have_the_published_result_sizes(case: tuple[int, ...]) -> None:
    time_range, rate, left, right, *sizes = case
    r, s = (LambdaIntervals(time_range, ((rate, duration),)) for duration in (left, right))
    assert pair_counts(r, s) == sizes


def test_base_local_row_by_row() -> None:
    table = LambdaIntervals(1_000, ((10, 10),)).table()
    i = np.arange(10_000)
    assert np.array_equal(table["id"], i)
    assert np.array_equal(table["start"], i // 10)
    assert np.array_equal(table["end"], i // 10 + 10)


def test_a_mixture_of_classes_is_the_union_of_the_classes() -> None:
    mixed = lambda_intervals(time_range=500, classes="5x5, 10x100").table().select(["start", "end"])
    apart = [LambdaIntervals(500, (one,)).table().select(["start", "end"]) for one in ((5, 5), (10, 100))]
    order = [("start", "ascending"), ("end", "ascending")]
    assert mixed.combine_chunks().sort_by(order).equals(pa.concat_tables(apart).combine_chunks().sort_by(order))


def test_padding_is_exact() -> None:
    table = lambda_intervals(time_range=3, padding=222).table()
    assert {len(text) for text in table["filler"].to_pylist()} == {222}
    assert len(set(table["filler"].to_pylist())) == table.num_rows


def log_uniform_law(low: int, high: int) -> F64:
    k = np.arange(low, high + 1, dtype=np.float64)
    return np.log((k + 1) / k)


def pareto_law(alpha: float, low: int, high: int) -> F64:
    k = np.arange(low, high + 2, dtype=np.float64)
    return -np.diff(k**-alpha)


LAWS: list[tuple[Lengths, int, F64]] = [
    (Exponential(7.5), 1, stats.geom(1 / 7.5).pmf(np.arange(1, 400))),
    (Exponential(1), 1, np.array([1.0])),
    (LogUniform(1, 1000), 1, log_uniform_law(1, 1000)),
    (LogUniform(1, 12), 1, log_uniform_law(1, 12)),
    (LogUniform(20, 5000), 20, log_uniform_law(20, 5000)),
    (Pareto(1.2, 1, 10_000), 1, pareto_law(1.2, 1, 10_000)),
    (Pareto(0.5, 3, 12), 3, pareto_law(0.5, 3, 12)),
    (Pareto(0.7, 5, 3000), 5, pareto_law(0.7, 5, 3000)),
]


def lengths_of(lengths: str, rows: int = 200_000) -> I64:
    table = intervals(rows=rows, lengths=lengths, seed=21).table()
    return table["end"].to_numpy() - table["start"].to_numpy()


@pytest.mark.parametrize(("lengths", "first", "law"), LAWS, ids=lambda value: str(value)[:30])
def test_lengths_follow_their_law(lengths: Lengths, first: int, law: F64) -> None:
    drawn = lengths.draw(np.random.default_rng(3).random(300_000))
    assert chi_square_p(drawn, law, first) > ENOUGH


def test_a_law_that_is_slightly_off_is_noticed() -> None:
    drawn = Pareto(1.24, 1, 10_000).draw(np.random.default_rng(3).random(300_000))
    assert chi_square_p(drawn, pareto_law(1.2, 1, 10_000), 1) < 1e-6


def test_decades_are_equally_likely() -> None:
    decade = np.floor(np.log10(lengths_of("loguniform(1, 99999)"))).astype(np.int64)
    assert chi_square_p(decade, np.full(5, 0.2)) > ENOUGH


def test_a_mixture_keeps_shares_and_laws() -> None:
    drawn = lengths_of("0.75 fixed(5) + 0.25 loguniform(100, 999)")
    assert chi_square_p((drawn > 5).astype(np.int64), np.array([0.75, 0.25])) > ENOUGH
    assert chi_square_p(drawn[drawn > 5], log_uniform_law(100, 999), 100) > ENOUGH
    assert set(drawn[drawn <= 5].tolist()) == {5}


@pytest.mark.parametrize("lengths", [Fixed(3), *(law for law, _, _ in LAWS)])
def test_lengths_stay_in_bounds_at_the_ends_of_the_uniform(lengths: Lengths) -> None:
    drawn = lengths.draw(np.array([0.0, np.nextafter(1.0, 0.0)]))
    assert drawn.dtype == np.int64
    assert 1 <= drawn[0] <= drawn[1]
    assert drawn[1] <= getattr(lengths, "longest", 1000)


def test_starts_are_uniform_and_keys_too() -> None:
    table = intervals(rows=100_000, time_range=10**12, keys=50, seed=22).table()
    assert ks_p(table["start"].to_numpy() / 1e12, stats.uniform.cdf) > ENOUGH
    assert chi_square_p(table["key"].to_numpy(), np.full(50, 0.02), first=1) > ENOUGH
    assert np.array_equal(table["id"], np.arange(100_000))


def test_a_hot_key_has_its_share_and_the_others_the_rest() -> None:
    keys = intervals(rows=100_000, keys=21, hot_share=0.6, seed=23).table()["key"].to_numpy()
    assert chi_square_p(keys, np.array([0.6] + [0.02] * 20), first=1) > ENOUGH
    assert set(intervals(rows=100, keys=1, hot_share=1.0).table()["key"].to_pylist()) == {1}


def test_start_key_and_length_do_not_depend_on_each_other() -> None:
    table = intervals(rows=100_000, lengths="exponential(50)", keys=100, seed=24).table()
    length = table["end"].to_numpy() - table["start"].to_numpy()
    columns = np.stack([table["start"].to_numpy(), table["key"].to_numpy(), length]).astype(np.float64)
    assert np.abs(np.corrcoef(columns)[np.triu_indices(3, 1)]).max() < 0.015


def test_lengths_from_text() -> None:
    assert parse_lengths("pareto(1.5, 2, 100)") == Pareto(1.5, 2, 100)
    assert parse_lengths("0.9 fixed(5)+0.1 exponential(100)") == Mixture(((0.9, Fixed(5)), (0.1, Exponential(100))))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fixd(3)", "did you mean 'fixed'"),
        ("fixed(0)", "length must be an integer >= 1"),
        ("fixed(2.5)", "length must be an integer"),
        ("exponential(0.5)", "mean >= 1"),
        ("loguniform(10, 5)", "longest must be an integer >= 10"),
        ("pareto(0)", "alpha must be positive"),
        ("fixed(1) + fixed(2)", "needs its share first"),
        ("0 fixed(1) + 1 fixed(2)", "positive share"),
    ],
)
def test_what_is_no_length_is_refused(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        intervals(rows=1, lengths=text)


def test_what_is_no_set_is_refused() -> None:
    with pytest.raises(PlanError, match="rate x duration"):
        lambda_intervals(classes="5by5")
    with pytest.raises(PlanError, match="at least two keys"):
        intervals(hot_share=0.5)
    with pytest.raises(PlanError, match="duration must be an integer >= 1"):
        lambda_intervals(duration=0)
