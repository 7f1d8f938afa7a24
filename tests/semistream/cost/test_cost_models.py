"""The models against the reference counts of docs/algorithms/semistream.md, 8.2 to 8.5, and against their own logic."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from bench.experiments.semistream.times import inlj_delay, round_times
from scipy.stats import poisson

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Empirical, Zipf
from dovetail.joins.semistream.cost.hybridjoin import at_least
from dovetail.joins.semistream.cost.models import MODELS, drained, predict
from dovetail.joins.semistream.cost.scans import seek_equivalent_bytes
from dovetail.joins.semistream.cost.setting import EntryBytes, NoRoomError, Policy, Setting, UnitCosts
from dovetail.joins.semistream.sizes import Sizes

M = 50 * 2**20


def keeping(rows: int, segment: int = 500) -> Sizes:
    """`rows` rows pinned, cached or resident beside segments of `segment` rows, where a page is a row."""
    return Sizes(per_segment=segment, pinned=rows, cached=rows, resident=rows // segment)


PLAIN, CACHED = Sizes(per_segment=500), keeping(16_000)
MESH_ROWS = int(0.93 * 2**20 / 120)
MESH, PAGE = Sizes(per_segment=MESH_ROWS), Sizes(per_segment=8192 // 120)


def source(rows: int = 2_000_000, exponent: float = 1.0, order: str = "frequency", **policy: object) -> Setting:
    """The source's setting at 50 MB, with its own costs; sizes are in rows, as a page is one."""
    chosen = Policy(**{"lookup": "oldest", "cache": "random", "threshold": 5, **policy})  # type: ignore[arg-type]  # by name
    return Setting(M, Zipf(rows, exponent), page_bytes=120, order=order, policy=chosen)  # type: ignore[arg-type]  # a literal


# INLJ to CACHEJOIN with the alternate look-up. Reference: docs/algorithms/semistream.md, 8.3.
@pytest.mark.parametrize(
    ("rows", "rates"),
    [
        (500_000, (207, 26_426, 27_799, 44_989, 39_534, 65_008, 60_714, 61_548, 61_339)),
        (2_000_000, (207, 9_323, 10_252, 23_533, 15_613, 26_852, 25_328, 24_888, 28_388)),
        (8_000_000, (207, 2_602, 3_448, 8_568, 4_879, 7_332, 7_149, 7_654, 9_600)),
    ],
)
def test_service_rates_against_master_rows(rows: int, rates: tuple[float, ...]) -> None:
    oldest, other = source(rows), source(rows, lookup="alternate")
    found = [
        predict("inlj", oldest, PAGE),
        predict("meshjoin", oldest, MESH),
        predict("hybridjoin", oldest, PLAIN),
        predict("hybridjoin", other, PLAIN),
        predict("x_hybridjoin", oldest, keeping(500)),
        predict("optimised_x_hybridjoin", oldest, CACHED),
        predict("cachejoin", source(rows, order="none"), CACHED),
        predict("cachejoin", oldest, CACHED),
        predict("cachejoin", other, CACHED),
    ]
    assert [p.mu for p in found] == [pytest.approx(rate, rel=0.06) for rate in rates]


# HYBRIDJOIN's w, then rates of Optimised X, CACHEJOIN unsorted from 5 and from 2, sorted, alternate.
# Reference: docs/algorithms/semistream.md, 8.2.
@pytest.mark.parametrize(
    ("exponent", "w", "rates"),
    [
        (0.0, 152, (10_404, 10_223, 10_294, 10_224, 9_132)),
        (0.25, 152, (10_580, 10_255, 10_322, 10_262, 9_233)),
        (0.5, 152, (11_306, 11_042, 10_600, 11_021, 10_123)),
        (0.75, 151.5, (13_891, 13_531, 12_079, 13_600, 13_528)),
        (0.8614, 151, (17_197, 16_684, 14_439, 16_814, 17_548)),
        (1.0, 143, (26_046, 25_427, 21_189, 26_355, 28_763)),
    ],
)
def test_service_rates_against_skew(exponent: float, w: float, rates: tuple[float, ...]) -> None:
    assert predict("hybridjoin", source(exponent=exponent), PLAIN).w == pytest.approx(w, rel=0.07)
    found = [
        predict("optimised_x_hybridjoin", source(exponent=exponent), CACHED),
        predict("cachejoin", source(exponent=exponent, order="none"), CACHED),
        predict("cachejoin", source(exponent=exponent, order="none", threshold=2), CACHED),
        predict("cachejoin", source(exponent=exponent), CACHED),
        predict("cachejoin", source(exponent=exponent, lookup="alternate"), CACHED),
    ]
    assert [p.mu for p in found] == [pytest.approx(rate, rel=0.08) for rate in rates]


def test_alternating_hurts_a_cache_over_unsorted_rows() -> None:
    other = predict("cachejoin", source(order="none", lookup="alternate"), CACHED)
    assert other.mu == pytest.approx(23_073, rel=0.05)
    assert other.mu < predict("cachejoin", source(order="none"), CACHED).mu


# Reference: docs/algorithms/semistream.md, 3.6.
@pytest.mark.parametrize(("pinned", "counted"), [(500, 254), (2000, 343), (8000, 370)])
def test_x_hybridjoin_per_iteration(pinned: int, counted: float) -> None:
    assert predict("x_hybridjoin", source(), keeping(pinned)).w == pytest.approx(counted, rel=0.10)


def test_x_hybridjoin_with_both_parts_large() -> None:
    assert predict("x_hybridjoin", source(), keeping(8000, 8000)).mu == pytest.approx(24_804, rel=0.08)


# Reference: docs/algorithms/semistream.md, 3.7.
@pytest.mark.parametrize(("rows", "w_s", "w_n"), [(250, 74, 149), (500, 147, 295), (1000, 291, 585)])
def test_optimised_x_hybridjoin_per_iteration(rows: int, w_s: float, w_n: float) -> None:
    found = predict("optimised_x_hybridjoin", source(), replace(keeping(16_000, rows), waiting=279_900))
    assert found.w_s == pytest.approx(w_s, rel=0.04)
    assert found.w_n == pytest.approx(w_n, rel=0.04)
    assert found.w_n / found.w_s == pytest.approx(found.p_n / (1 - found.p_n))
    assert found.p_n == pytest.approx(0.667, abs=0.001)


# Reference: docs/algorithms/semistream.md, 2.4 and 2.5.
def test_ssij_and_partitioned_per_load() -> None:
    assert predict("ssij", source(), PLAIN).w == pytest.approx(75, rel=0.03)
    assert predict("ssij", source(), CACHED).w == pytest.approx(216, rel=0.05)
    when_full = source(exponent=0.0, list_threshold=float("inf"))
    assert predict("partitioned", when_full, PLAIN).w == pytest.approx(148, rel=0.04)
    assert predict("partitioned", source(exponent=0.0), PLAIN).w == pytest.approx(148, rel=0.04)


# Reference: docs/algorithms/semistream.md, 8.3, last lines.
@pytest.mark.parametrize(
    ("megabytes", "w", "alternate", "in_rate"), [(50, 147, 2.68, 2.11), (100, 279, 2.82, 1.90), (250, 681, 2.91, 1.54)]
)
def test_hybridjoin_against_memory(megabytes: int, w: float, alternate: float, in_rate: float) -> None:
    setting = replace(source(), memory=megabytes * 2**20)
    other = predict("hybridjoin", replace(setting, policy=Policy("alternate")), PLAIN)
    found = predict("hybridjoin", setting, PLAIN)
    assert found.w == pytest.approx(w, rel=0.09)
    assert other.w / found.w == pytest.approx(alternate, rel=0.08)
    assert other.mu / found.mu == pytest.approx(in_rate, rel=0.08)


@pytest.mark.parametrize(("arrival", "delay_s"), [(60, 0.0058), (125, 0.0085), (200, 0.069)])
def test_delay_of_inlj(arrival: float, delay_s: float) -> None:
    assert inlj_delay(predict("inlj", source(), PAGE), arrival) == pytest.approx(delay_s, rel=0.03)


def test_inlj_is_unstable_beyond_its_rate() -> None:
    assert inlj_delay(predict("inlj", source(), PAGE), 500) == float("inf")


@pytest.mark.parametrize(
    ("arrival", "step", "match", "residence"),
    [(60, 20, 2_616, 5_232), (125, 9.7, 1_256, 2_511), (500, 2.4, 314, 628), (5000, 0.24, 31, 63)],
)
def test_times_of_meshjoin(arrival: float, step: float, match: float, residence: float) -> None:
    found = round_times(predict("meshjoin", source(), MESH), arrival)
    assert found.step_s == pytest.approx(step, rel=0.08)
    assert found.to_match_s == pytest.approx(match, rel=0.02)
    assert found.residence_s == pytest.approx(residence, rel=0.02)


def test_residence_bounds() -> None:
    found = predict("hybridjoin", source(exponent=0.0), PLAIN)
    assert found.bound_steps == 4000
    assert found.bound_steps * found.c_loop > found.window / found.mu
    doubled = predict("hybridjoin", source(exponent=0.0, lookup="guarded"), PLAIN)
    assert doubled.bound_steps == 8000
    assert predict("partitioned", source(), PLAIN).bound_steps == float("inf")
    for lookup, steps in (("position", float("inf")), ("greedy", float("inf")), ("greedy_oldest", 8000)):
        assert predict("hybridjoin", source(exponent=0.0, lookup=lookup), PLAIN).bound_steps == steps
    aged = predict("partitioned", source(max_age=1e6), PLAIN)
    assert aged.bound_steps * aged.c_loop == pytest.approx(1e6 / aged.mu, rel=0.01)


def test_ordering_at_exponent_1() -> None:
    for rows in (500_000, 2_000_000, 8_000_000):
        rates = [
            predict("inlj", source(rows), PAGE).mu,
            predict("meshjoin", source(rows), MESH).mu,
            predict("hybridjoin", source(rows), PLAIN).mu,
            predict("x_hybridjoin", source(rows), keeping(500)).mu,
            predict("cachejoin", source(rows, order="none"), CACHED).mu,
            predict("optimised_x_hybridjoin", source(rows), CACHED).mu,
        ]
        assert rates == sorted(rates)


def test_meshjoin_has_whole_tuples_and_reads_everything() -> None:
    found = predict("meshjoin", source(), MESH)
    n_p = -(-2_000_000 // MESH_ROWS)
    assert found.w == int((M - MESH_ROWS * 120) / (20 + n_p * 164))
    assert found.bound_steps == n_p
    halved = predict("meshjoin", source(4_000_000), MESH)
    assert halved.w == pytest.approx(found.w / 2, abs=2)


def test_r_meshjoin_in_one_part_is_meshjoin_and_parts_share_a_read() -> None:
    one, eight = (predict("r_meshjoin", source(), replace(MESH, parts=n)) for n in (1, 8))
    assert one.mu == pytest.approx(predict("meshjoin", source(), MESH).mu, rel=0.005)
    assert eight.mu == pytest.approx(one.mu, rel=0.01)
    assert (eight.bound_steps, eight.steps_per_load) == (8 * one.bound_steps, 8)
    assert eight.loads_per_tuple == pytest.approx(one.loads_per_tuple, rel=0.01)


def test_rows_that_are_never_looked_up_cost_an_index_driven_join_nothing() -> None:
    wanted = source(200_000, 0.5)
    shares = np.diff(wanted.distribution.share(np.arange(200_001.0)))
    padded = replace(wanted, distribution=Empirical(400_000, shares))
    found = predict("hybridjoin", wanted, PLAIN).w
    assert predict("hybridjoin", padded, PLAIN).w == pytest.approx(found, rel=0.001)
    mesh = predict("meshjoin", wanted, PLAIN).w
    assert predict("meshjoin", padded, PLAIN).w == pytest.approx(mesh / 2, abs=1)


@pytest.mark.parametrize("algorithm", list(MODELS))
def test_parts_fit_in_the_memory(algorithm: str) -> None:
    for entries in (source().entries, EntryBytes(waiting=60, chunked=52, cached_extra=32, per_segment=16)):
        found = predict(algorithm, replace(source(), entries=entries), keeping(10_000, 1000))
        taken = sum(nbytes for _, nbytes in found.memory)
        assert 0 < taken <= M
        assert taken > 0.99 * M or algorithm in ("inlj", "meshjoin", "r_meshjoin")
        assert found.mu > 0
        assert found.sizes.waiting is not None


@pytest.mark.parametrize("algorithm", [name for name in MODELS if name != "inlj"])
def test_more_memory_is_never_slower_and_more_rows_never_faster(algorithm: str) -> None:
    sizes = keeping(2000)
    by_memory = [predict(algorithm, replace(source(), memory=m * 2**20), sizes).mu for m in (2, 8, 32, 128)]
    assert all(a <= b * 1.001 for a, b in itertools.pairwise(by_memory)), by_memory
    by_rows = [predict(algorithm, source(n), sizes).mu for n in (250_000, 1_000_000, 4_000_000)]
    assert all(a >= b * 0.999 for a, b in itertools.pairwise(by_rows)), by_rows


@pytest.mark.parametrize("algorithm", ["x_hybridjoin", "optimised_x_hybridjoin", "cachejoin", "sscj"])
def test_more_skew_is_never_slower_with_a_cache(algorithm: str) -> None:
    rates = [predict(algorithm, source(exponent=e, threshold=None), CACHED).mu for e in (0.0, 0.3, 0.6, 0.9, 1.2)]
    assert rates == sorted(rates)


def test_p_n_does_not_depend_on_the_segment_but_w_n_does() -> None:
    small, large = (predict("optimised_x_hybridjoin", source(), keeping(16_000, d)) for d in (250, 1000))
    assert small.p_n == pytest.approx(large.p_n)
    assert large.w_n == pytest.approx(4 * small.w_n, rel=0.06)


def test_a_small_cache_brings_a_large_gain() -> None:
    none, small = (predict("optimised_x_hybridjoin", source(), keeping(n)).mu for n in (0, 500))
    assert small / none > 1.5


def test_a_learned_cache_is_below_a_perfect_one_and_depends_on_its_start() -> None:
    perfect, five, two = (
        predict("cachejoin", source(order="none", **policy), CACHED).p_n
        for policy in ({"cache": "perfect"}, {"threshold": 5}, {"threshold": 2})
    )
    assert perfect == pytest.approx(0.667, abs=0.001)
    assert five == pytest.approx(0.654, rel=0.03)
    assert two == pytest.approx(0.561, rel=0.05)


def test_chances_of_a_poisson_number() -> None:
    means = np.array([0.0, 0.5, 5.0, 50.0, 900.0])
    for threshold in (1, 2, 7, 60, 61, 850, 20_000):
        exact = poisson.sf(threshold - 1, means)
        assert at_least(means, threshold) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("cached", [1, 16, 300])
def test_a_tiny_cache_learns_the_few_rows_that_matter(cached: int) -> None:
    here = source(cache="adaptive", threshold=2, order="none")
    found = predict("cachejoin", here, keeping(cached))
    assert found.p_n == pytest.approx(here.p_n(cached), rel=0.08)


@pytest.mark.parametrize("algorithm", list(MODELS))
def test_no_room_says_so(algorithm: str) -> None:
    with pytest.raises(NoRoomError, match="memory"):
        predict(algorithm, replace(source(), memory=100), PLAIN)


def test_asking_for_more_waiting_tuples_than_fit_says_so() -> None:
    with pytest.raises(NoRoomError, match="304,469 tuples can wait, 400,000 must"):
        predict("hybridjoin", source(), replace(PLAIN, waiting=400_000))
    with pytest.raises(NoRoomError, match="tuples can wait"):
        predict("meshjoin", source(), replace(MESH, waiting=10))


def test_wrong_requests_say_what_is_allowed() -> None:
    with pytest.raises(PlanError, match="choose among inlj, meshjoin"):
        predict("hash", source(), PLAIN)
    with pytest.raises(PlanError, match="oldest"):
        Policy(lookup="newest")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="adaptive"):
        Policy(cache="lru")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="position 0"):
        Policy(position=0)
    with pytest.raises(PlanError, match="positive"):
        Policy(max_age=0)
    with pytest.raises(PlanError, match="sizes are positive"):
        Setting(0, Zipf(10))
    with pytest.raises(PlanError, match="frequency"):
        Setting(10, Zipf(10), order="random")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="batch_rows=0"):
        Setting(10, Zipf(10), batch_rows=0)
    with pytest.raises(PlanError, match="per_segment=0 must be a whole number from 1"):
        Sizes(per_segment=0)
    with pytest.raises(PlanError, match="fewer than none"):
        EntryBytes(10, 10, -1)


# A batch that fits in the slots is SSIJ's join phase.
def test_a_small_batch_loads_each_segment_it_asks_for_once() -> None:
    found = predict("hybridjoin", source(exponent=0.0), PLAIN)
    batch = drained(found, source(exponent=0.0), 10_000)
    assert batch.steps == pytest.approx(4000 * (1 - (1 - 1 / 4000) ** 10_000), rel=0.001)
    assert batch.mu < found.mu
    assert batch.mu == pytest.approx(10_000 / batch.seconds)


def test_large_batches_approach_the_steady_state() -> None:
    found = predict("cachejoin", source(lookup="guarded"), CACHED)
    rates = [drained(found, source(), n).mu for n in (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(found.mu, rel=0.02)


def test_batches_of_the_other_algorithms() -> None:
    assert drained(predict("inlj", source(), PAGE), source(), 1000).steps == 1000
    mesh = predict("meshjoin", source(), MESH)
    assert drained(mesh, source(), 1).steps == pytest.approx(mesh.bound_steps, rel=0.01)
    ssij = predict("ssij", source(), PLAIN)
    assert drained(ssij, source(), 10**8).mu == pytest.approx(ssij.mu, rel=0.01)


def test_a_join_phase_reads_in_turn_where_neighbours_are_asked_for_too() -> None:
    here = source(exponent=0.0)
    found = predict("ssij", here, PLAIN)
    assert found.step_s == pytest.approx(5.94e-3 + 500 * 2617e-9, rel=0.001)  # every segment is asked for: no seeks
    few = drained(found, here, 40)
    assert few.seconds / few.steps == pytest.approx(9.94e-3 + 500 * 2617e-9, rel=0.02)


def test_lists_are_as_long_as_the_threshold_lets_them_grow() -> None:
    fitted = predict("partitioned", source(), PLAIN)
    assert fitted.w == pytest.approx(2 * 304_470 / 4000, rel=0.02)
    short = predict("partitioned", source(list_threshold=10), PLAIN)
    assert short.w == pytest.approx(10, rel=0.01)
    assert short.waiting < 304_469
    full = predict("partitioned", source(list_threshold=float("inf")), PLAIN)
    assert full.w > 2 * fitted.w


def test_probing_the_smaller_side_is_cheaper() -> None:
    costs = replace(source().costs, probes="smaller")
    assert isinstance(costs, UnitCosts)
    smaller = predict("hybridjoin", replace(source(), costs=costs), Sizes(per_segment=5000))
    assert smaller.step_s < predict("hybridjoin", source(), Sizes(per_segment=5000)).step_s


def test_unmatched_tuples_save_the_output() -> None:
    half = predict("hybridjoin", replace(source(), matched=0.5), PLAIN)
    assert predict("hybridjoin", source(), PLAIN).miss_s - half.miss_s == pytest.approx(1e-6)


def test_the_seek_of_the_sources_disk_in_bytes() -> None:
    a = seek_equivalent_bytes(source())
    assert a == pytest.approx(4e-3 / (0.099e-6 + 2617e-9 / 120), rel=0.001)
    assert seek_equivalent_bytes(source(), sequential=True) == 0
