"""Service rates counted on the source's costs and sizes, against docs/algorithms/semistream.md, 8.2 and 8.3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.simulation import (
    SOURCE_DISK,
    Experiment,
    Rate,
    SimulatedPages,
    SourceSizes,
    hybridjoin_from_key,
    rate_from_key,
    service_rate,
)

from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.request import Lookup
from dovetail.workloads.zipf import ZipfLaw

ALTERNATE = Lookup("alternate")
# Rows a second at exponent 1 and half a million master rows; warm-up and measurement in queue lengths. Larger master
# data takes minutes: `python -m bench run enrich-rates --scale full`.
TABLE: list[tuple[str, str, dict[str, Any], tuple[float, float], dict[float, float]]] = [
    ("inlj", "inlj", {}, (1, 1), {0.5: 207}),
    ("meshjoin", "meshjoin", {}, (1.1, 0.5), {0.5: 26_426}),
    ("hybridjoin", "hybridjoin", {}, (2.5, 2.5), {0.5: 27_799}),
    ("alternate", "hybridjoin", {"lookup": ALTERNATE}, (6, 2.5), {0.5: 44_989}),
    ("x", "x_hybridjoin", {}, (6, 6), {0.5: 39_534}),
    ("optimised x", "optimised_x_hybridjoin", {}, (4, 4), {0.5: 65_008}),
    ("cachejoin", "cachejoin", {"order": "none"}, (4, 4), {0.5: 60_714}),
]
CELLS = [(*row[:4], millions, rate) for row in TABLE for millions, rate in row[4].items()]


def rate_of(algorithm: str, millions: float, options: dict[str, Any], rounds: tuple[float, float]) -> Rate:
    n = int(millions * 1e6)
    join = Experiment(n=n, **options).join(algorithm)
    law, rng = ZipfLaw(n, 1.0, "integral"), np.random.default_rng(11)
    rows = join.sizes.waiting or 2_000
    return service_rate(join, lambda k: law.ranks(rng, k) - 1, int(rounds[0] * rows), int(rounds[1] * rows))


@pytest.mark.sampled(3)
def test_service_rates_and_their_order_are_those_of_the_reference_counts() -> None:
    """One test: each rate takes seconds, and the order needs them all."""
    found = {(name, size): rate_of(kind, size, o, rounds).per_second for name, kind, o, rounds, size, _ in CELLS}
    assert found == {(cell[0], cell[4]): pytest.approx(cell[5], rel=0.1) for cell in CELLS}
    order = ("inlj", "meshjoin", "hybridjoin", "x", "cachejoin", "optimised x")
    rates = [found[name, 0.5] for name in order]
    assert rates == sorted(rates)
    assert found["hybridjoin", 0.5] < found["alternate", 0.5]


def test_simulated_pages_count_reads_at_nominal_size() -> None:
    pages = SimulatedPages(1_000, 100, 120, order="none", seed=3)
    keys = pa.array([5, 999, 1_000, None, -1])
    homes = pages.home([keys])
    assert homes.tolist()[2:] == [-1, -1, -1]
    for key, page in zip([5, 999], homes.tolist()[:2], strict=True):
        assert key in pages.read(page, 1).column(0).to_pylist()
    assert pages.device.bytes_read == 2 * 12_000
    assert pages.device.busy_ns == 2 * round(SOURCE_DISK.read_s(12_000) * 1e9)


def small_rate(name: str, exponent: float, **options: Any) -> Rate:
    """A fiftieth of the source's size: 200 segments with 76 waiting rows for each."""
    law, rng = ZipfLaw(20_000, exponent, "integral"), np.random.default_rng(2)
    memory = SourceSizes(memory=(15_200 * 172) + 12_000)
    join = Experiment(n=20_000, segment_rows=100, memory=memory, **options).join(name)
    rows = 500 if name == "inlj" else 10 * (join.sizes.waiting or 0)
    return service_rate(join, lambda k: law.ranks(rng, k) - 1, rows, rows)


@pytest.mark.slow
def test_every_algorithm_has_a_rate_on_the_sources_disk() -> None:
    found = {name: small_rate(name, 0.9, cached=1_000).per_second for name in ALGORITHMS}
    assert found["inlj"] == min(found.values())
    assert found["r_meshjoin"] == pytest.approx(found["meshjoin"], rel=0.1)
    assert found["sscj"] == pytest.approx(found["cachejoin"], rel=0.1)
    assert found["cachejoin"] > found["hybridjoin"]


def test_loads_of_the_older_joins_are_shared_as_in_the_reference_counts() -> None:
    """2.4 and 2.5: SSIJ half of HYBRIDJOIN's rows a load, the partition-based join about as many; residents help."""
    hybrid, ssij, partitioned = (small_rate(name, 0.0).rows_per_load for name in ("hybridjoin", "ssij", "partitioned"))
    assert ssij / hybrid == pytest.approx(0.5, abs=0.03)
    assert partitioned / hybrid == pytest.approx(148 / 152, abs=0.05)
    assert small_rate("ssij", 1.0, resident=4).rows_per_load > 1.5 * small_rate("ssij", 1.0).rows_per_load


@pytest.mark.parametrize(("exponent", "per_load", "rate"), [(1.0, 138, 10_412)])
def test_loads_that_begin_at_the_key_are_shared_by_fewer_rows(exponent: float, per_load: float, rate: float) -> None:
    """9.4 at half a million master rows, and that aligned segments need fewer loads."""
    law, rng = ZipfLaw(500_000, exponent, "integral"), np.random.default_rng(4)
    found = rate_from_key(Experiment(n=500_000), lambda k: law.ranks(rng, k) - 1, 4, 4)
    assert found.rows_per_load == pytest.approx(per_load, rel=0.1)
    assert found.per_second == pytest.approx(rate, rel=0.1)


def test_a_load_from_the_key_leaves_keys_below_it() -> None:
    """Two rows wait at a time and loads have two keys: 5 and 4 need a load each, 4 and 5 would share one."""
    assert hybridjoin_from_key(np.array([5, 4, 0, 0, 9, 9]), 10, 2, 2, 0) == (4, 6)
    assert hybridjoin_from_key(np.array([4, 5, 0, 0, 9, 9]), 10, 2, 2, 0) == (3, 6)
